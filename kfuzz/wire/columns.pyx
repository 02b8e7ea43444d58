"""Rows to columns: Arrow's layout, filled without the interpreter, keys and values left where they stand.

A key, a value or a header is an Arrow view: 12 bytes or fewer stand in it, more are referred to by buffer and place.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from kfuzz.wire.record cimport Record
from kfuzz.wire.record_batch cimport LOG_APPEND_TIME, header_row_t, header_t, row_t, rows_t

cdef extern from "views.h":
    int64_t kfuzz_put_views(uint64_t *views, uint64_t *bits, int64_t first, const void *spans, size_t stride,
                            int64_t count, const uint8_t *base, const uint8_t *end, uint32_t buffer,
                            uint32_t shift) nogil

cdef extern from *:
    bint unlikely(bint) nogil


cdef class Memory:
    """Bytes that belong to whoever holds this."""

    cdef void *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    def __dealloc__(self):
        free(self.data)


cdef object memory(void **data, int64_t size):
    """Hand over what stands at ``data``, cut to ``size`` bytes."""
    cdef Memory owner
    if data[0] == NULL:
        return b""
    owner = Memory.__new__(Memory)
    owner.data = data[0]
    owner.size = size
    data[0] = NULL
    return owner


cdef bint grow(void **data, int64_t capacity, size_t size) noexcept nogil:
    cdef void *moved = realloc(data[0], <size_t> capacity * size)
    if moved == NULL:
        return False
    data[0] = moved
    return True


cdef bint grow_views(views_t *column, int64_t capacity) noexcept nogil:
    if not grow(<void **> &column.views, capacity, 16):
        return False
    if not grow(<void **> &column.bits, capacity / 64 + 1, 8):
        return False
    column.capacity = capacity
    return True


cdef void put(views_t *column, const void *spans, size_t stride, int64_t count, const uint8_t *base,
              const uint8_t *end, uint32_t buffer, int64_t shift) noexcept nogil:
    """Append views of ``count`` spans; there is room."""
    column.nulls += kfuzz_put_views(column.views, column.bits, column.count, spans, stride, count, base, end, buffer,
                                    <uint32_t> shift)
    column.count += count


cdef int32_t put_object(views_t *column, const uint8_t *base, const uint8_t *end, int32_t at, object value,
                        uint32_t buffer):
    cdef int32_t[2] span
    span[0] = at
    span[1] = -1 if value is None else <int32_t> len(value)
    put(column, span, 0, 1, base, end, buffer, 0)
    return at + max(span[1], 0)


cdef object close_views(views_t *column):
    """``(validity or None, nulls, views)``; the column is empty afterwards."""
    if column.views == NULL:
        return None, 0, b""
    bits = memory(<void **> &column.bits, (column.count + 63) / 64 * 8)
    return bits if column.nulls else None, column.nulls, memory(<void **> &column.views, column.count * 16)


cdef class Columns:
    """Columns of the records that a ``Scan`` goes over; the interface is described in columns.pyi."""

    def __init__(self, int64_t expected_bytes):
        self.expected_bytes = expected_bytes
        self.buffers = []
        self.untimed = []

    def __dealloc__(self):
        cdef int i
        free(self.offsets)
        free(self.timestamps)
        free(self.batches)
        free(self.header_ends)
        for i in range(4):
            free(self.views[i].views)
            free(self.views[i].bits)

    def __len__(self):
        return self.count

    def add_buffer(self, data):
        """Say where the bytes of the batches to come stand."""
        self.buffers.append(data)
        self.buffer = <int32_t> (len(self.buffers) - 1)

    cdef bint reserve(self, int64_t more, int64_t more_headers, int64_t size) noexcept nogil:
        """Room for so many; the bytes that are still to come are taken to hold as many as those before."""
        cdef int64_t capacity
        self.seen_bytes += size
        if unlikely(self.count + more > self.capacity):
            capacity = self.room_for(self.count + more)
            if not (grow(<void **> &self.offsets, capacity, 8) and grow(<void **> &self.timestamps, capacity, 8)
                    and grow(<void **> &self.batches, capacity, 4)
                    and grow(<void **> &self.header_ends, capacity + 1, 4)
                    and grow_views(&self.views[KEYS], capacity) and grow_views(&self.views[VALUES], capacity)):
                return False
            self.header_ends[0] = 0
            self.capacity = capacity
        if unlikely(self.views[HEADER_KEYS].count + more_headers > self.views[HEADER_KEYS].capacity):
            capacity = self.room_for(self.views[HEADER_KEYS].count + more_headers)
            if not (grow_views(&self.views[HEADER_KEYS], capacity)
                    and grow_views(&self.views[HEADER_VALUES], capacity)):
                return False
        return True

    cdef int64_t room_for(self, int64_t needed) noexcept nogil:
        cdef int64_t guess = <int64_t> (1.1 * needed * self.expected_bytes / (self.seen_bytes + 1))
        # Never more than a few times what is known to be there: the rest may be of another kind.
        return min(max(guess, needed + needed / 2), 64 * needed) + 64

    cdef bint take(self, const header_t *h, const rows_t *rows, int64_t batch, const uint8_t *base,
                   const uint8_t *end, int64_t shift, int64_t size) noexcept nogil:
        """Append a batch's rows. ``base`` is where their places count from, ``shift`` where that is in the buffer."""
        cdef const row_t *row
        cdef int64_t i
        cdef int64_t k
        cdef uint32_t buffer = <uint32_t> self.buffer
        cdef int64_t fixed = h.max_timestamp
        cdef int64_t base_timestamp = h.base_timestamp
        cdef int64_t base_offset = h.base_offset
        cdef bint log_append = h.attributes & LOG_APPEND_TIME
        cdef int64_t *offsets
        cdef int64_t *timestamps
        cdef int32_t *batches
        cdef int32_t *ends
        # Where no batch has had a record, there is no array to point into.
        if rows.count == 0:
            return True
        if self.views[HEADER_KEYS].count + rows.header_count > INT32_MAX:
            return False
        if not self.reserve(rows.count, rows.header_count, size):
            return False
        offsets = self.offsets + self.count
        timestamps = self.timestamps + self.count
        batches = self.batches + self.count
        ends = self.header_ends + self.count + 1
        k = self.views[HEADER_KEYS].count
        for i in range(rows.count):
            row = &rows.rows[i]
            # Sums wrap as Java's do.
            offsets[i] = <int64_t> (<uint64_t> base_offset + <uint64_t> <int64_t> row.offset_delta)
            timestamps[i] = fixed
            if not log_append:
                timestamps[i] = <int64_t> (<uint64_t> base_timestamp + <uint64_t> row.timestamp_delta)
            batches[i] = <int32_t> batch
            k += row.header_count
            ends[i] = <int32_t> k
        put(&self.views[KEYS], &rows.rows[0].key_at, sizeof(row_t), rows.count, base, end, buffer, shift)
        put(&self.views[VALUES], &rows.rows[0].value_at, sizeof(row_t), rows.count, base, end, buffer, shift)
        if rows.header_count:
            put(&self.views[HEADER_KEYS], &rows.headers[0].key_at, sizeof(header_row_t), rows.header_count, base, end,
                buffer, shift)
            put(&self.views[HEADER_VALUES], &rows.headers[0].value_at, sizeof(header_row_t), rows.header_count, base,
                end, buffer, shift)
        self.count += rows.count
        return True

    def add_records(self, list records not None, int64_t batch):
        """Append records that are objects, without headers, as those of magic 0 and 1 are."""
        cdef Record record
        cdef int64_t i = self.count
        cdef int64_t size
        cdef const uint8_t *base
        cdef const uint8_t *end
        cdef int32_t at = 0
        cdef bytes data = b"".join([part for record in records for part in (record.get_key(), record.get_value())
                                    if part is not None])
        size = len(data)
        if size > INT32_MAX:
            raise ValueError(f"{size} bytes of keys and values; the limit is {INT32_MAX}")
        if not self.reserve(len(records), 0, size):
            raise MemoryError
        self.add_buffer(data)
        base = <const uint8_t *> PyBytes_AS_STRING(data)
        end = base + size
        for record in records:
            self.offsets[i] = record.c_offset
            self.timestamps[i] = record.c_timestamp
            if not record.has_timestamp:
                self.untimed.append(i)
            self.batches[i] = <int32_t> batch
            self.header_ends[i + 1] = <int32_t> self.views[HEADER_KEYS].count
            at = put_object(&self.views[KEYS], base, end, at, record.get_key(), <uint32_t> self.buffer)
            at = put_object(&self.views[VALUES], base, end, at, record.get_value(), <uint32_t> self.buffer)
            i += 1
        self.count = i

    def close(self):
        cdef int64_t n = self.count
        made = {
            "offset": memory(<void **> &self.offsets, n * 8),
            "timestamp": memory(<void **> &self.timestamps, n * 8),
            "batch": memory(<void **> &self.batches, n * 4),
            "header_ends": memory(<void **> &self.header_ends, (n + 1) * 4 if n else 0),
            "key": close_views(&self.views[KEYS]),
            "value": close_views(&self.views[VALUES]),
            "header_count": self.views[HEADER_KEYS].count,
            "header_key": close_views(&self.views[HEADER_KEYS]),
            "header_value": close_views(&self.views[HEADER_VALUES]),
        }
        self.count = self.capacity = 0
        return made
