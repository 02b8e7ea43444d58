"""Columns to record batches. It reads Arrow's buffers without the GIL and checks every offset before it uses it.

Mirrors what ``org.apache.kafka.common.record.MemoryRecordsBuilder`` writes for the same records.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.long cimport PyLong_AsVoidPtr
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.errors import EncodeError

from kfuzz.wire.io.cursor cimport unlikely
from kfuzz.wire.io.format cimport HEADER_SIZE
from kfuzz.wire.io.output cimport cut_bytes
from kfuzz.wire.io.sink cimport put_int8, put_mixed_varlong, put_varlong, size_of_bytes, size_of_varlong
from kfuzz.wire.records.batch_writer cimport put_payload, seal, to_header
from kfuzz.wire.records.record_batch cimport FIXED_BYTES, header_t

cdef extern from "rows.h":
    int KFUZZ_COPY_SLACK
    int KFUZZ_BLOCK
    int KFUZZ_BLOCK_SLACK
    int KFUZZ_HEADER_FIXED_BYTES
    int KFUZZ_ENDS
    int KFUZZ_LARGE_ENDS
    bint KFUZZ_WIDE_THERE
    int64_t kfuzz_find_change(const uint8_t *numbers, int64_t width, int64_t i, int64_t n) nogil
    uint8_t *kfuzz_put_piece(uint8_t *p, const piece_t *piece) nogil
    uint8_t *kfuzz_put_headers(uint8_t *p, uint8_t *end, const column_t *keys, const column_t *values, int64_t first,
                               int64_t last) nogil
    uint8_t *kfuzz_put_length(uint8_t *start, uint8_t *p) nogil
    uint8_t *kfuzz_put_block(const table_t *table, uint8_t *p, uint8_t *end, int64_t batch_first, int64_t first,
                             int m, int64_t base_offset, int64_t base_timestamp, int64_t fixed_bytes, int64_t *largest,
                             bint wide) nogil

cdef extern from "portable.h":
    bint kfuzz_portable()

KINDS = {"binary": KFUZZ_ENDS, "large_binary": KFUZZ_LARGE_ENDS, "binary_view": KFUZZ_VIEWS,
         "string": KFUZZ_ENDS, "large_string": KFUZZ_LARGE_ENDS, "string_view": KFUZZ_VIEWS}
WIDE = KFUZZ_WIDE_THERE and not kfuzz_portable()

cdef const uint8_t *NOTHING = b""
cdef int64_t NO_BYTES = 0


cdef const uint8_t *start_of(object buffer, int64_t at, int64_t size) except NULL:
    """The address of byte ``at`` of a ``pyarrow.Buffer``. ``ValueError`` unless ``size`` bytes follow from there."""
    cdef int64_t there
    if size == 0:
        return NOTHING
    there = buffer.size if buffer is not None else 0
    if at < 0 or size < 0 or at > there or size > there - at:
        raise ValueError(f"a buffer has {there} bytes; it must have {at + size}")  # unreachable: pyarrow checks it
    if not buffer.is_cpu:
        raise ValueError("a buffer is not in this machine's memory")  # unreachable: needs memory of a graphics card
    return <const uint8_t *> PyLong_AsVoidPtr(buffer.address) + at


@cython.final
cdef class Bytes:
    """A column of nullable bytes in Arrow's layout; the interface is described in column_writer.pyi."""

    def __cinit__(self, array not None):
        cdef list buffers = array.buffers()
        cdef int64_t first = array.offset
        cdef int64_t length = len(array)
        cdef int kind = KINDS[str(array.type)]
        cdef int64_t width = 16 if kind == KFUZZ_VIEWS else 4 if kind == KFUZZ_ENDS else 8
        cdef int64_t last = length if kind == KFUZZ_VIEWS or length == 0 else length + 1
        cdef int64_t count = len(buffers) - 2
        cdef int64_t i
        self.held = buffers
        self.data = <const uint8_t **> PyMem_Malloc(<size_t> (count or 1) * sizeof(void *))
        self.sizes = <int64_t *> PyMem_Malloc(<size_t> (count or 1) * sizeof(int64_t))
        if self.data == NULL or self.sizes == NULL:
            raise MemoryError
        self.data[0] = NOTHING
        self.sizes[0] = 0
        for i in range(count):
            buffer = buffers[2 + i]
            self.sizes[i] = buffer.size if buffer is not None else 0
            self.data[i] = start_of(buffer, 0, self.sizes[i])
        self.column = column_t(kind, NULL, first, NULL, length, self.data, self.sizes, count or 1)
        if array.null_count and length:
            self.column.valid = start_of(buffers[0], 0, (first + length + 7) / 8)
        self.column.places = start_of(buffers[1], width * first, width * last)

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.sizes)


cdef int64_t total(const column_t *column, int64_t first, int64_t last) noexcept nogil:
    """The total size of these rows' bytes. Lengths that exceed the column's data are not counted."""
    cdef int64_t head
    cdef int64_t tail
    cdef int64_t n
    cdef int64_t i
    cdef int64_t sum = 0
    cdef int64_t largest = KFUZZ_INLINE_BYTES
    if first >= last or column.kind == KFUZZ_ABSENT:
        return 0
    for i in range(column.data_count):
        largest = max(largest, column.sizes[i])
    if column.kind == KFUZZ_VIEWS:
        for i in range(first, last):
            n = kfuzz_int32_at(column.places, 4 * i)
            sum += n if 0 < n <= largest else 0
        return sum
    if column.kind == KFUZZ_ENDS:
        head, tail = kfuzz_int32_at(column.places, first), kfuzz_int32_at(column.places, last)
    else:
        head, tail = kfuzz_int64_at(column.places, first), kfuzz_int64_at(column.places, last)
    return tail - head if 0 <= head <= tail <= largest else 0


cdef inline column_t column_of(Bytes bytes) noexcept:
    """The column's buffers; for None a column in which every row is null."""
    return column_t(KFUZZ_ABSENT, NULL, 0, NULL, 0, &NOTHING, &NO_BYTES, 1) if bytes is None else bytes.column


@cython.final
cdef class ColumnWriter:
    """Rows of columns as record batches; the interface is described in column_writer.pyi."""

    def __init__(self, int64_t length, *, Bytes keys, Bytes values, timestamps, offsets, header_ends, Bytes header_keys,
                 Bytes header_values, bint wide=WIDE):
        self.length = length
        self.held = [keys, values, header_keys, header_values]
        self.wide = wide and WIDE
        self.table.keys = column_of(keys)
        self.table.values = column_of(values)
        self.table.header_keys = column_of(header_keys)
        self.table.header_values = column_of(header_values)
        self.check("key", keys is None or keys.column.rows == length)
        self.check("value", values is None or values.column.rows == length)
        self.table.timestamps = self.numbers("timestamp", timestamps, 8, 0)
        self.table.offsets = self.numbers("offset", offsets, 8, 0)
        self.table.header_ends = self.numbers("headers", header_ends, 4, 1)
        self.table.timestamps_valid = self.bits(timestamps, &self.table.timestamps_bit)
        self.table.headers_valid = self.bits(header_ends, &self.table.headers_bit)
        if header_ends is not None and (header_keys is None or header_values is None
                                        or header_keys.column.rows != header_values.column.rows):
            raise ValueError("header keys and header values must be equal in number")

    cdef int check(self, str name, bint good) except -1:
        if not good:
            raise ValueError(f"column {name} does not have {self.length} rows")
        return 0

    cdef const uint8_t *numbers(self, str name, array, int64_t width, int64_t more) except? NULL:
        """The address of the column's first number; NULL if there is no column or no row."""
        cdef list buffers
        if array is None or self.length == 0:
            return NULL
        self.check(name, len(array) == self.length)
        buffers = array.buffers()
        self.held.append(buffers)
        return start_of(buffers[1], width * <int64_t> array.offset, width * (self.length + more))

    cdef const uint8_t *bits(self, array, int64_t *first) except? NULL:
        """The validity bits of a column that ``numbers`` has checked; NULL if no row is null."""
        first[0] = 0
        if array is None or not array.null_count:
            return NULL
        first[0] = array.offset
        return start_of(array.buffers()[0], 0, (first[0] + self.length + 7) / 8)

    cdef int64_t timestamp(self, int64_t i) noexcept nogil:
        cdef const table_t *table = &self.table
        if table.timestamps == NULL:
            return -1
        if table.timestamps_valid != NULL and not kfuzz_bit_at(table.timestamps_valid, table.timestamps_bit + i):
            return -1
        return kfuzz_int64_at(table.timestamps, i)

    cdef int64_t header_count(self, int64_t i) noexcept nogil:
        """The row's header count by its ends, which invalid data can make negative; 0 for a null row."""
        cdef const table_t *table = &self.table
        if table.header_ends == NULL:
            return 0
        if table.headers_valid != NULL and not kfuzz_bit_at(table.headers_valid, table.headers_bit + i):
            return 0
        return kfuzz_int32_at(table.header_ends, i + 1) - kfuzz_int32_at(table.header_ends, i)

    cdef int64_t room(self, int64_t first, int64_t last) noexcept nogil:
        """An upper bound, in bytes, for these rows if they are valid Arrow data."""
        cdef int64_t most = (last - first) * FIXED_BYTES + KFUZZ_BLOCK_SLACK
        cdef int64_t head
        cdef int64_t tail
        most += total(&self.table.keys, first, last) + total(&self.table.values, first, last)
        if self.table.header_ends != NULL and first < last:
            head = kfuzz_int32_at(self.table.header_ends, first)
            tail = kfuzz_int32_at(self.table.header_ends, last)
            if 0 <= head <= tail <= self.table.header_keys.rows:
                most += (tail - head) * KFUZZ_HEADER_FIXED_BYTES
                most += total(&self.table.header_keys, head, tail) + total(&self.table.header_values, head, tail)
        # Invalid data can give any number here; writing row by row detects it. No batch needs more than this bound.
        return min(most, 2 * <int64_t> INT32_MAX)

    cdef uint8_t *put_batch(self, uint8_t *p, uint8_t *end, int64_t first, int64_t last, int64_t base_offset,
                            int64_t base_timestamp, int64_t *largest, fault_t *fault) noexcept nogil:
        """Write rows ``first`` to ``last`` at ``p``. Returns the end, or NULL: ``fault`` then has the row at fault."""
        cdef const uint8_t *begin = p
        cdef uint8_t *after
        cdef int64_t i = first
        cdef int64_t m
        largest[0] = INT64_MIN
        while i < last:
            m = min(last - i, <int64_t> KFUZZ_BLOCK)
            after = kfuzz_put_block(&self.table, p, end, first, i, <int> m, base_offset, base_timestamp, FIXED_BYTES,
                                    largest, self.wide)
            if after == NULL:
                after = self.put_rows(begin, p, end, first, i, i + m, base_offset, base_timestamp, largest, fault)
            if after == NULL:
                return NULL
            p = after
            i += m
        return p

    cdef uint8_t *put_rows(self, const uint8_t *begin, uint8_t *p, uint8_t *end, int64_t batch_first, int64_t first,
                           int64_t last, int64_t base_offset, int64_t base_timestamp, int64_t *largest,
                           fault_t *fault) noexcept nogil:
        """Write rows of any kind, ``first`` to ``last``, at ``p`` in a payload that begins at ``begin``."""
        cdef const table_t *table = &self.table
        cdef piece_t key
        cdef piece_t value
        cdef uint8_t *start
        cdef int64_t i
        cdef int64_t headers
        cdef int64_t offset_delta
        cdef int64_t timestamp
        cdef int64_t timestamp_delta
        cdef int64_t body
        for i in range(first, last):
            fault.row = i
            fault.invalid = True
            # Differences wrap as in Java.
            offset_delta = i - batch_first
            if table.offsets != NULL:
                offset_delta = <int64_t> (<uint64_t> kfuzz_int64_at(table.offsets, i) - <uint64_t> base_offset)
            timestamp = self.timestamp(i)
            largest[0] = max(largest[0], timestamp)
            timestamp_delta = <int64_t> (<uint64_t> timestamp - <uint64_t> base_timestamp)
            if unlikely(not kfuzz_get_piece(&table.keys, i, &key) or not kfuzz_get_piece(&table.values, i, &value)):
                return NULL
            headers = self.header_count(i)
            # The row exceeds the room: either the columns' ends are not increasing, or the batch is too long anyway.
            if unlikely(key.n + value.n + FIXED_BYTES + KFUZZ_COPY_SLACK > end - p):
                fault.invalid = p - begin <= INT32_MAX
                return NULL
            body = 1 + size_of_varlong(timestamp_delta) + size_of_varlong(offset_delta)
            body += size_of_bytes(key.n) + size_of_bytes(value.n) + 1
            start = p
            # With headers the length is known only at the end; until then keep two bytes free for it.
            p = put_mixed_varlong(p, body) if headers == 0 else p + 2
            p = put_int8(p, 0)
            p = put_mixed_varlong(p, timestamp_delta)
            p = put_varlong(p, offset_delta)
            p = kfuzz_put_piece(p, &key)
            p = kfuzz_put_piece(p, &value)
            p = put_varlong(p, headers)
            if headers != 0:
                p = kfuzz_put_headers(p, end, &table.header_keys, &table.header_values,
                                      kfuzz_int32_at(table.header_ends, i), kfuzz_int32_at(table.header_ends, i + 1))
                if unlikely(p == NULL):
                    return NULL
                body = p - start - 2
                p = kfuzz_put_length(start, p)
            if unlikely(body > INT32_MAX or offset_delta < INT32_MIN or offset_delta > INT32_MAX):
                fault.invalid = False
                return NULL
        return p

    def batches(self, list ends not None, tuple fields not None, pack=None):
        """The bytes of the batches, one after the other; each batch has the rows up to one of ``ends``.

        ``fields`` is the first batch's header. A base offset comes from the offset column; without one it continues
        from the previous batch. The base sequence continues too. ``pack`` returns the parts of a compressed payload.
        """
        cdef list row = list(fields)
        cdef bint base_given = row[7] is not None
        cdef bint max_given = row[8] is not None
        cdef list packed = []
        cdef header_t h
        cdef int64_t most = 0
        cdef int64_t room
        cdef int64_t first = 0
        cdef int64_t last
        cdef int64_t largest
        cdef fault_t fault
        cdef uint8_t *start
        cdef uint8_t *p
        cdef uint8_t *end
        row[7] = row[7] if base_given else -1
        row[8] = row[8] if max_given else -1
        h = to_header(tuple(row))
        for last in ends:
            if last <= first or last > self.length or last - first > INT32_MAX:
                raise ValueError(f"a batch would have the rows from {first} to {last} of {self.length}")
            # A batch that is packed leaves its room to the next one.
            room = HEADER_SIZE + self.room(first, last)
            most = most + room if pack is None else max(most, room)
            first = last
        made = PyBytes_FromStringAndSize(NULL, most)
        start = p = <uint8_t *> PyBytes_AS_STRING(made)
        first = 0
        for last in ends:
            if self.table.offsets != NULL:
                h.base_offset = kfuzz_int64_at(self.table.offsets, first)
                h.last_offset_delta = <int32_t> (<uint64_t> kfuzz_int64_at(self.table.offsets, last - 1)
                                                 - <uint64_t> h.base_offset)
            else:
                h.last_offset_delta = <int32_t> (last - first - 1)
            if not base_given:
                h.base_timestamp = self.timestamp(first)
            with nogil:
                end = self.put_batch(p + HEADER_SIZE, start + most, first, last, h.base_offset, h.base_timestamp,
                                     &largest, &fault)
            if end != NULL and pack is None and end - p > INT32_MAX:
                fault.invalid = False  # unreachable: needs 2 GiB of contents
                end = NULL  # unreachable: needs 2 GiB of contents
            if end == NULL:
                raise self.refusal(&fault)
            if not max_given:
                h.max_timestamp = largest
            h.record_count = <int32_t> (last - first)
            if pack is None:
                with nogil:
                    seal(p, end - p, &h)
                p = end
            else:
                payload = PyBytes_FromStringAndSize(<const char *> p + HEADER_SIZE, end - p - HEADER_SIZE)
                packed.append(put_payload(&h, pack(payload)))
            h.base_offset = <int64_t> (<uint64_t> h.base_offset + <uint64_t> (last - first))
            if h.base_sequence >= 0:
                h.base_sequence = <int32_t> ((h.base_sequence + last - first) & INT32_MAX)
            first = last
        if pack is not None:
            return b"".join(packed)
        return cut_bytes(made, p - start)

    cdef object refusal(self, const fault_t *fault):
        if fault.invalid:
            return EncodeError(f"row {fault.row} of the columns is not valid Arrow data: its bytes are not where it "
                               "says, or a header's key is null")
        return EncodeError(f"row {fault.row} of the columns does not fit a batch: the batch's and the record's length "
                           "and the distance from the base offset are int32")


def ends_of_runs(array not None):
    """Return the ends (exclusive row indices) of the runs of equal numbers in a column of integers."""
    cdef int64_t width = array.type.bit_width // 8
    cdef int64_t length = len(array)
    cdef list buffers = array.buffers()
    cdef const uint8_t *numbers = start_of(buffers[1], width * <int64_t> array.offset, width * length)
    cdef int64_t i = 0
    cdef list ends = []
    while i < length:
        i = kfuzz_find_change(numbers, width, i + 1, length)
        ends.append(i)
    return ends
