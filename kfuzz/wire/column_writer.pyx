"""Columns to record batches: Arrow's buffers read without the interpreter, every place in them checked first.

Mirrors what ``org.apache.kafka.common.record.MemoryRecordsBuilder`` writes of the same records.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memmove

from kfuzz.errors import EncodeError

from kfuzz.wire.cursor cimport unlikely
from kfuzz.wire.record_batch cimport FIXED_BYTES, HEADER_SIZE, header_t, put_payload, seal, to_header
from kfuzz.wire.sink cimport put_int8, put_mixed_varlong, put_varlong, size_of_bytes, size_of_varlong

cdef extern from "copy.h":
    int KFUZZ_COPY_SLACK
    void kfuzz_copy(uint8_t *to, const uint8_t *p, int64_t n, int64_t readable) nogil

# How a column says where its bytes are: 32-bit ends, 64-bit ends, views.
cdef enum:
    ENDS
    LARGE_ENDS
    VIEWS
    ABSENT

KINDS = {"binary": ENDS, "large_binary": LARGE_ENDS, "binary_view": VIEWS}

# A header's two lengths at their widest, and how many bytes stand in a view itself.
cdef enum:
    HEADER_FIXED_BYTES = 10
    INLINE_BYTES = 12

cdef const uint8_t *NOTHING = b""
cdef int64_t NO_BYTES = 0


# The bytes of a row, -1 for null, and how many may be read from there on.
cdef struct piece_t:
    const uint8_t *p
    int64_t n
    int64_t readable


# A column's buffers. Loops copy it, so that what they write cannot seem to change it.
cdef struct column_t:
    int kind
    const uint8_t *valid       # NULL where no row is null
    int64_t first_bit
    const uint8_t *places      # the first row's
    int64_t rows
    const uint8_t **data
    const int64_t *sizes
    int64_t data_count         # never 0


cdef inline bint get_piece(const column_t *column, int64_t i, piece_t *out) noexcept nogil:
    """The bytes of row ``i``; False where they are not within the column's data.

    Without a branch on null or length, for those come as they like.
    """
    cdef int32_t ends[2]
    cdef int64_t large_ends[2]
    cdef int32_t view[4]
    cdef int64_t buffer = 0
    cdef int64_t at
    cdef int64_t n
    cdef int64_t bit
    cdef int64_t some
    if column.kind == VIEWS:
        memcpy(view, column.places + 16 * i, 16)
        n = view[0]
        n -= n < 0
        buffer = view[2]
        at = view[3]
    elif column.kind == ENDS:
        memcpy(ends, column.places + 4 * i, 8)
        at = ends[0]
        n = <int64_t> ends[1] - at
        # Only the validity bits say that a row is null.
        n -= n < 0
    elif column.kind == LARGE_ENDS:
        memcpy(large_ends, column.places + 8 * i, 16)
        at = large_ends[0]
        n = large_ends[1] - at if large_ends[1] >= at >= 0 else -2
    else:
        n = -1
        at = 0
    if column.valid != NULL:
        bit = column.first_bit + i
        n |= (<int64_t> (column.valid[bit >> 3] >> (bit & 7) & 1)) - 1
    out.n = n
    # Nothing is anywhere.
    some = -<int64_t> (n > (INLINE_BYTES if column.kind == VIEWS else 0))
    buffer &= some
    at &= some
    if unlikely(n < -1 or buffer < 0 or buffer >= column.data_count or at < 0 or at > column.sizes[buffer]):
        return False
    out.p = column.data[buffer] + at
    out.readable = column.sizes[buffer] - at
    if column.kind == VIEWS:
        out.p = out.p if some else column.places + 16 * i + 4
        out.readable = out.readable if some else 16 * (column.rows - i) - 4
    return n <= out.readable


@cython.final
cdef class Bytes:
    """A column of nullable bytes in Arrow's layout; the interface is described in column_writer.pyi."""

    cdef column_t column
    cdef readonly int64_t length
    cdef const uint8_t **data
    cdef int64_t *sizes
    cdef list held

    def __init__(self, str kind not None, int64_t first, int64_t length, const uint8_t[::1] valid,
                 const uint8_t[::1] places, list data not None):
        cdef int64_t width = 16 if KINDS[kind] == VIEWS else 4 if KINDS[kind] == ENDS else 8
        cdef int64_t last = first + length + (0 if KINDS[kind] == VIEWS else 1)
        cdef const uint8_t[::1] part
        cdef int64_t i
        if first < 0 or length < 0 or (length and (places is None or places.shape[0] // width < last)):
            raise ValueError("the column's places are not as many as its length says")
        if valid is not None and valid.shape[0] * 8 < first + length:
            raise ValueError("the column's validity bits are not as many as its length says")
        if self.held is not None:
            raise ValueError("a column is made once")
        self.held = [valid, places]
        self.length = length
        self.data = <const uint8_t **> PyMem_Malloc(<size_t> (len(data) or 1) * sizeof(void *))
        self.sizes = <int64_t *> PyMem_Malloc(<size_t> (len(data) or 1) * sizeof(int64_t))
        if self.data == NULL or self.sizes == NULL:
            raise MemoryError
        self.data[0] = <const uint8_t *> b""
        self.sizes[0] = 0
        for i in range(len(data)):
            part = data[i]
            self.data[i] = &part[0] if part.shape[0] else <const uint8_t *> b""
            self.sizes[i] = part.shape[0]
            self.held.append(part)
        self.column = column_t(KINDS[kind], NULL, first, NULL, length, self.data, self.sizes, len(data) or 1)
        if valid is not None and valid.shape[0]:
            self.column.valid = &valid[0]
        if length:
            self.column.places = &places[width * first]

    def __dealloc__(self):
        PyMem_Free(self.data)
        PyMem_Free(self.sizes)

    cdef int64_t total(self, int64_t first, int64_t last) noexcept nogil:
        """The bytes of these rows; what the columns' data cannot have is left out."""
        cdef int32_t ends[2]
        cdef int64_t large_ends[2]
        cdef int32_t n
        cdef int64_t i
        cdef int64_t sum = 0
        cdef int64_t largest = INLINE_BYTES
        if first >= last:
            return 0
        for i in range(self.column.data_count):
            largest = max(largest, self.sizes[i])
        if self.column.kind == VIEWS:
            for i in range(first, last):
                memcpy(&n, self.column.places + 16 * i, 4)
                sum += n if 0 < n <= largest else 0
            return sum
        if self.column.kind == ENDS:
            memcpy(ends, self.column.places + 4 * first, 4)
            memcpy(ends + 1, self.column.places + 4 * last, 4)
            large_ends[0], large_ends[1] = ends[0], ends[1]
        else:
            memcpy(large_ends, self.column.places + 8 * first, 8)
            memcpy(large_ends + 1, self.column.places + 8 * last, 8)
        return large_ends[1] - large_ends[0] if 0 <= large_ends[0] <= large_ends[1] <= largest else 0


cdef inline column_t column_of(Bytes bytes) noexcept nogil:
    """The buffers of a column, or of one of which every row is null."""
    return column_t(ABSENT, NULL, 0, NULL, 0, &NOTHING, &NO_BYTES, 1) if bytes is None else bytes.column


cdef inline uint8_t *put_piece(uint8_t *p, const piece_t *piece) noexcept nogil:
    p = put_mixed_varlong(p, piece.n)
    kfuzz_copy(p, piece.p, piece.n, piece.readable)
    return p + (piece.n & ~(piece.n >> 63))


# Which row cannot be written, and whether it is the columns' fault or the format's.
cdef struct fault_t:
    int64_t row
    bint invalid


@cython.final
cdef class ColumnWriter:
    """Rows of columns as record batches; the interface is described in column_writer.pyi."""

    cdef Bytes keys
    cdef Bytes values
    cdef Bytes header_keys
    cdef Bytes header_values
    cdef const int64_t[::1] timestamps
    cdef const int64_t[::1] offsets
    cdef const int32_t[::1] header_ends
    cdef readonly int64_t length

    def __init__(self, int64_t length, *, Bytes keys, Bytes values, const int64_t[::1] timestamps,
                 const int64_t[::1] offsets, const int32_t[::1] header_ends, Bytes header_keys, Bytes header_values):
        self.length = length
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.offsets = offsets
        self.header_ends = header_ends
        self.header_keys = header_keys
        self.header_values = header_values
        self.check("key", keys is None or keys.length == length)
        self.check("value", values is None or values.length == length)
        self.check("timestamp", timestamps is None or timestamps.shape[0] == length)
        self.check("offset", offsets is None or offsets.shape[0] == length)
        if header_ends is not None and (header_keys is None or header_values is None
                                        or header_keys.length != header_values.length):
            raise ValueError("there are not as many header keys as header values")
        self.check("headers", header_ends is None or header_ends.shape[0] == length + 1)

    cdef int check(self, str name, bint good) except -1:
        if not good:
            raise ValueError(f"column {name} has not {self.length} rows")
        return 0

    cdef inline int64_t timestamp(self, int64_t i) noexcept nogil:
        return self.timestamps[i] if self.timestamps is not None else -1

    cdef int64_t room(self, int64_t first, int64_t last) noexcept nogil:
        """What these rows take at most, if they are valid Arrow data."""
        cdef int64_t total = (last - first) * FIXED_BYTES + KFUZZ_COPY_SLACK
        cdef int64_t head
        cdef int64_t tail
        if self.keys is not None:
            total += self.keys.total(first, last)
        if self.values is not None:
            total += self.values.total(first, last)
        if self.header_ends is not None and first < last:
            head, tail = self.header_ends[first], self.header_ends[last]
            if 0 <= head <= tail <= self.header_keys.length:
                total += (tail - head) * HEADER_FIXED_BYTES
                total += self.header_keys.total(head, tail) + self.header_values.total(head, tail)
        # Data that is not valid may say anything here, and is found out row by row. No batch takes more.
        return min(total, 2 * <int64_t> INT32_MAX)

    cdef uint8_t *put_rows(self, uint8_t *p, uint8_t *end, int64_t first, int64_t last, int64_t base_offset,
                           int64_t base_timestamp, int64_t *largest, fault_t *fault) noexcept nogil:
        """Rows ``first`` to ``last`` at ``p``; NULL where ``fault`` says which cannot be written."""
        cdef column_t keys = column_of(self.keys)
        cdef column_t values = column_of(self.values)
        cdef const int64_t *timestamps = NULL
        cdef const int64_t *offsets = NULL
        cdef const int32_t *header_ends = NULL
        cdef piece_t key
        cdef piece_t value
        cdef const uint8_t *begin = p
        cdef uint8_t *start
        cdef int64_t i
        cdef int64_t headers = 0
        cdef int64_t offset_delta
        cdef int64_t timestamp = -1
        cdef int64_t timestamp_delta
        cdef int64_t top = INT64_MIN
        cdef int64_t body
        if self.timestamps is not None:
            timestamps = &self.timestamps[0]
        if self.offsets is not None:
            offsets = &self.offsets[0]
        if self.header_ends is not None:
            header_ends = &self.header_ends[0]
        for i in range(first, last):
            fault.row = i
            fault.invalid = True
            # Differences wrap as Java's do.
            offset_delta = i - first
            if offsets != NULL:
                offset_delta = <int64_t> (<uint64_t> offsets[i] - <uint64_t> base_offset)
            if timestamps != NULL:
                timestamp = timestamps[i]
            top = max(top, timestamp)
            timestamp_delta = <int64_t> (<uint64_t> timestamp - <uint64_t> base_timestamp)
            if unlikely(not get_piece(&keys, i, &key) or not get_piece(&values, i, &value)):
                return NULL
            if header_ends != NULL:
                headers = <int64_t> header_ends[i + 1] - header_ends[i]
            # More than there is room for: the columns' ends go back and forth, or the batch is too long anyway.
            if unlikely(key.n + value.n + FIXED_BYTES + KFUZZ_COPY_SLACK > end - p):
                fault.invalid = p - begin <= INT32_MAX
                return NULL
            body = 1 + size_of_varlong(timestamp_delta) + size_of_varlong(offset_delta)
            body += size_of_bytes(key.n) + size_of_bytes(value.n) + 1
            start = p
            # With headers the length is known at the end only; it takes two bytes nearly always.
            p = put_mixed_varlong(p, body) if headers == 0 else p + 2
            p = put_int8(p, 0)
            p = put_mixed_varlong(p, timestamp_delta)
            p = put_varlong(p, offset_delta)
            p = put_piece(p, &key)
            p = put_piece(p, &value)
            p = put_varlong(p, headers)
            if headers != 0:
                p = self.put_headers(p, end, header_ends[i], header_ends[i + 1])
                if unlikely(p == NULL):
                    return NULL
                body = p - start - 2
                p = start + size_of_varlong(body)
                if p != start + 2:
                    memmove(p, start + 2, <size_t> body)
                put_varlong(start, body)
                p += body
            if unlikely(body > INT32_MAX or offset_delta < INT32_MIN or offset_delta > INT32_MAX):
                fault.invalid = False
                return NULL
        largest[0] = top
        return p

    cdef uint8_t *put_headers(self, uint8_t *p, uint8_t *end, int64_t first, int64_t last) noexcept nogil:
        """These headers at ``p``; NULL where they are not valid."""
        cdef column_t keys = column_of(self.header_keys)
        cdef column_t values = column_of(self.header_values)
        cdef piece_t key
        cdef piece_t value
        cdef int64_t i
        if unlikely(not 0 <= first <= last <= self.header_keys.length):
            return NULL
        for i in range(first, last):
            if unlikely(not get_piece(&keys, i, &key) or key.n < 0 or not get_piece(&values, i, &value)):
                return NULL
            if unlikely(key.n + value.n + HEADER_FIXED_BYTES + KFUZZ_COPY_SLACK > end - p):
                return NULL
            p = put_piece(p, &key)
            p = put_piece(p, &value)
        return p

    def batches(self, const int64_t[::1] ends not None, tuple fields not None, pack=None):
        """Batches of the rows up to each of ``ends``, one after the other; ``pack`` makes a payload's compressed parts.

        ``fields`` are the first header's. A base offset is what the offsets say, or goes on from the batch before; so
        does a sequence.
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
            # What is packed leaves its room to the next.
            room = HEADER_SIZE + self.room(first, last)
            most = most + room if pack is None else max(most, room)
            first = last
        start = p = <uint8_t *> PyMem_RawMalloc(<size_t> most)
        if start == NULL:
            raise MemoryError
        try:
            first = 0
            for last in ends:
                if self.offsets is not None:
                    h.base_offset = self.offsets[first]
                    h.last_offset_delta = <int32_t> (<uint64_t> self.offsets[last - 1] - <uint64_t> h.base_offset)
                else:
                    h.last_offset_delta = <int32_t> (last - first - 1)
                if not base_given:
                    h.base_timestamp = self.timestamp(first)
                with nogil:
                    end = self.put_rows(p + HEADER_SIZE, start + most, first, last, h.base_offset, h.base_timestamp,
                                        &largest, &fault)
                if end != NULL and pack is None and end - p > INT32_MAX:
                    fault.invalid = False
                    end = NULL
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
            # Copied, for there was more room than it takes: shrinking a large block sends the rest of its pages back,
            # and the next one pays for clearing them, which costs more than the copy.
            return PyBytes_FromStringAndSize(<const char *> start, p - start) if pack is None else b"".join(packed)
        finally:
            PyMem_RawFree(start)

    cdef object refusal(self, const fault_t *fault):
        if fault.invalid:
            return EncodeError(f"row {fault.row} of the columns is not valid Arrow data: its bytes are not where it "
                               "says, or a header's key is null")
        return EncodeError(f"row {fault.row} of the columns does not fit a batch: the batch's and the record's length "
                           "and the distance from the base offset are int32")
