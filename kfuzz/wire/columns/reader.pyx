"""Rows to columns in Arrow's layout. It is filled without the GIL; longer keys and values are not copied.

A key, a value or a header is an Arrow view. It holds up to 12 bytes itself; longer ones are a buffer number and offset.
"""

from cpython.mem cimport PyMem_RawFree as free, PyMem_RawMalloc as malloc
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memset

from kfuzz.wire.io.arrays cimport resize
from kfuzz.wire.io.format cimport LOG_APPEND_TIME
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.records.record_batch cimport header_row_t, header_t, row_t, rows_t

cdef extern from "views.h":
    int64_t kfuzz_put_views(uint64_t *views, uint64_t *bits, int64_t at, const spans_t *spans,
                            const source_t *source) nogil

cdef extern from "Python.h":
    bint Py_IsInitialized() nogil

cdef extern from *:
    bint unlikely(bint) nogil

# Pointers that must not be NULL point here while there is no data.
cdef uint64_t[2] NOTHING = [0, 0]


cdef void release(array_t *array) noexcept nogil:
    """Arrow calls this when it no longer needs ``array``. Other arrays of the same columns may still be in use."""
    cdef int64_t i
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
    array.release = NULL
    if Py_IsInitialized():
        with gil:
            Py_DECREF(<object> array.private_data)


cdef int32_t record_end(const uint8_t *base, const row_t *row) noexcept nogil:
    """Where the record ends: its length follows its first byte."""
    cdef int32_t at = row.at
    while base[at] & 0x80:
        at += 1
    return at + 1 + row.length


cdef bint grow_views(views_t *column, int64_t capacity) noexcept nogil:
    if not resize(<void **> &column.views, capacity, 16):
        return False
    if not resize(<void **> &column.bits, capacity / 64 + 1, 8):
        return False
    column.capacity = capacity
    return True


cdef class Columns:
    """Columns of the records that a ``Scan`` reads; the interface is described in columns.pyi."""

    def __init__(self, int64_t expected_bytes, bint raw_headers=False):
        self.expected_bytes = expected_bytes
        self.raw_headers = raw_headers
        self.buffers = []

    def __dealloc__(self):
        cdef int i
        free(self.offsets)
        free(self.timestamps)
        free(self.batches)
        free(self.header_ends)
        free(self.pointers)
        free(self.starts)
        free(self.sizes)
        free(self.timed)
        free(self.untimed)
        for i in range(4):
            free(self.views[i].views)
            free(self.views[i].bits)

    def add_buffer(self, data):
        """From now on, new views refer to ``data``."""
        self.buffers.append(data)
        self.buffer = <int32_t> (len(self.buffers) - 1)

    cdef void clear(self) noexcept:
        """Forget all records and keep the memory. Only before an export."""
        cdef int i
        self.count = self.untimed_count = self.seen_bytes = 0
        for i in range(4):
            self.views[i].count = self.views[i].nulls = 0
        self.buffers.clear()

    cdef bint reserve(self, int64_t more, int64_t more_headers, int64_t size) noexcept nogil:
        """Make room for this many records and headers, found in ``size`` bytes. False if there is no memory.

        The estimate assumes that the remaining bytes hold as many records per byte as those before.
        """
        cdef int64_t capacity
        self.seen_bytes += size
        if unlikely(self.count + more > self.capacity):
            capacity = self.room_for(self.count + more)
            if not (resize(<void **> &self.offsets, capacity, 8) and resize(<void **> &self.timestamps, capacity, 8)
                    and resize(<void **> &self.batches, capacity, 4)
                    and resize(<void **> &self.header_ends, capacity + 1, 4)
                    and grow_views(&self.views[KEYS], capacity) and grow_views(&self.views[VALUES], capacity)):
                return False
            self.header_ends[0] = 0
            self.capacity = capacity
        if unlikely(self.views[HEADER_KEYS].count + more_headers > self.views[HEADER_KEYS].capacity):
            capacity = self.room_for(self.views[HEADER_KEYS].count + more_headers)
            if not grow_views(&self.views[HEADER_KEYS], capacity):
                return False
            if not self.raw_headers and not grow_views(&self.views[HEADER_VALUES], capacity):
                return False
        return True

    cdef void put(self, int which, const void *spans, size_t stride, int64_t count,
                  const source_t *source) noexcept nogil:
        """Append views of ``count`` spans to a column, which has room for them."""
        cdef views_t *column = &self.views[which]
        cdef spans_t all
        all.first, all.stride, all.count = spans, stride, count
        column.nulls += kfuzz_put_views(column.views, column.bits, column.count, &all, source)
        column.count += count

    cdef bint note_untimed(self, int64_t index) noexcept nogil:
        """Remember that this record has no timestamp. False if there is no memory."""
        cdef int64_t capacity = 2 * self.untimed_capacity + 64
        if self.untimed_count == self.untimed_capacity:
            if not resize(<void **> &self.untimed, capacity, 8):
                return False
            self.untimed_capacity = capacity
        self.untimed[self.untimed_count] = index
        self.untimed_count += 1
        return True

    cdef int64_t room_for(self, int64_t needed) noexcept nogil:
        cdef int64_t guess = <int64_t> (1.1 * needed * self.expected_bytes / (self.seen_bytes + 1))
        # Limit the guess to a multiple of the number known: the remaining data may have another shape.
        return min(max(guess, needed + needed / 2), 64 * needed) + 64

    cdef bint take(self, const header_t *h, const rows_t *rows, int64_t batch, const uint8_t *base,
                   const uint8_t *end, int64_t shift, int64_t size) noexcept nogil:
        """Append a batch's rows. Their offsets count from ``base``, which is at offset ``shift`` in the buffer.

        False if there is no memory, or if there are more headers than an int32 can count.
        """
        cdef row_t *row
        cdef source_t source
        cdef int64_t header_count = rows.count if self.raw_headers else rows.header_count
        cdef int64_t i
        cdef int64_t k
        cdef int64_t fixed = h.max_timestamp
        cdef int64_t base_timestamp = h.base_timestamp
        cdef int64_t base_offset = h.base_offset
        cdef bint log_append = h.attributes & LOG_APPEND_TIME
        cdef int64_t *offsets
        cdef int64_t *timestamps
        cdef int32_t *batches
        cdef int32_t *ends
        # Before the first record there are no arrays to point into.
        if rows.count == 0:
            return True
        if self.views[HEADER_KEYS].count + header_count > INT32_MAX:
            return False  # unreachable: needs 2 GiB of contents
        if not self.reserve(rows.count, header_count, size):
            return False
        offsets = self.offsets + self.count
        timestamps = self.timestamps + self.count
        batches = self.batches + self.count
        ends = self.header_ends + self.count + 1
        k = self.views[HEADER_KEYS].count
        for i in range(rows.count):
            row = &rows.rows[i]
            # Sums wrap as in Java.
            offsets[i] = <int64_t> (<uint64_t> base_offset + <uint64_t> row.offset_delta)
            timestamps[i] = fixed
            if not log_append:
                timestamps[i] = <int64_t> (<uint64_t> base_timestamp + <uint64_t> row.timestamp_delta)
            batches[i] = <int32_t> batch
            if self.raw_headers:
                # From here on it is the headers' size in bytes.
                if row.header_count:
                    row.header_count = record_end(base, row) - row.headers_at
            else:
                k += row.header_count
                ends[i] = <int32_t> k
            if unlikely(row.untimed) and not self.note_untimed(self.count + i):
                return False
        source.base, source.end, source.buffer, source.shift = base, end, <uint32_t> self.buffer, <uint32_t> shift
        self.put(KEYS, &rows.rows[0].key_at, sizeof(row_t), rows.count, &source)
        self.put(VALUES, &rows.rows[0].value_at, sizeof(row_t), rows.count, &source)
        if self.raw_headers:
            self.put(HEADER_KEYS, &rows.rows[0].headers_at, sizeof(row_t), rows.count, &source)
        elif rows.header_count:
            self.put(HEADER_KEYS, &rows.headers[0].key_at, sizeof(header_row_t), rows.header_count, &source)
            self.put(HEADER_VALUES, &rows.headers[0].value_at, sizeof(header_row_t), rows.header_count, &source)
        self.count += rows.count
        return True

    cdef array_t *describe(self, int which, int64_t length, int64_t nulls, const void *validity,
                           const void *data) noexcept:
        """Fill array ``which``. It has one buffer (validity) if ``data`` is NULL, otherwise two."""
        cdef array_t *array = &self.arrays[which]
        array.length = length
        array.null_count = nulls
        array.offset = 0
        array.n_children = 0
        array.n_buffers = 1 if data == NULL else 2
        array.buffers = self.pointers + which * (VIEW_BUFFERS + len(self.buffers))
        array.buffers[0] = validity if nulls else NULL
        array.buffers[1] = data
        array.children = NULL
        array.dictionary = NULL
        array.release = release
        array.private_data = <void *> self
        Py_INCREF(self)
        return array

    cdef void describe_views(self, int which, const views_t *column) noexcept:
        cdef array_t *array = self.describe(which, column.count, column.nulls, column.bits,
                                            column.views if column.count else NOTHING)
        cdef int64_t i
        for i in range(len(self.buffers)):
            array.buffers[2 + i] = self.starts[i]
        array.buffers[2 + len(self.buffers)] = self.sizes
        array.n_buffers = VIEW_BUFFERS + len(self.buffers)

    cdef void describe_parents(self, int which, int first, int count) noexcept:
        self.arrays[which].children = &self.children[first - 1]
        self.arrays[which].n_children = count

    def export(self):
        cdef int64_t i
        cdef int64_t n = self.count
        cdef int64_t count = len(self.buffers)
        cdef HeldBuffer part
        # Made first, because it may fail: once the arrays hold a reference to the columns, only Arrow releases it.
        cdef object address = <uintptr_t> &self.arrays[TABLE]
        if self.pointers != NULL:
            raise ValueError("the columns were exported before; they can be exported only once")
        self.pointers = <const void **> malloc(<size_t> (ARRAYS * (VIEW_BUFFERS + count)) * sizeof(void *))
        self.starts = <const uint8_t **> malloc(<size_t> (count + 1) * sizeof(void *))
        self.sizes = <int64_t *> malloc(<size_t> (count + 1) * sizeof(int64_t))
        self.timed = <uint8_t *> malloc(<size_t> (n / 8 + 1))
        if self.pointers == NULL or self.starts == NULL or self.sizes == NULL or self.timed == NULL:
            raise MemoryError
        for i in range(count):
            # Each buffer is bytes or a memoryview: its address is valid as long as the object lives.
            part = hold(self.buffers[i])
            self.starts[i] = part.p
            self.sizes[i] = part.n
        memset(self.timed, 0xff, <size_t> (n / 8 + 1))
        for i in range(self.untimed_count):
            self.timed[self.untimed[i] >> 3] &= <uint8_t> ~(1 << (self.untimed[i] & 7))
        for i in range(ARRAYS - 1):
            self.children[i] = &self.arrays[i + 1]
        self.describe(TABLE, n, 0, NULL, NULL)
        self.describe_parents(TABLE, OFFSET, 6)
        self.describe(OFFSET, n, 0, NULL, self.offsets if n else <void *> NOTHING)
        self.describe(TIMESTAMP, n, self.untimed_count, self.timed, self.timestamps if n else <void *> NOTHING)
        self.describe(BATCH, n, 0, NULL, self.batches if n else <void *> NOTHING)
        self.describe_views(KEY, &self.views[KEYS])
        self.describe_views(VALUE, &self.views[VALUES])
        if self.raw_headers:
            self.describe_views(HEADERS, &self.views[HEADER_KEYS])
            return address
        self.describe(HEADERS, n, 0, NULL, self.header_ends if n else <void *> NOTHING)
        self.describe_parents(HEADERS, HEADER, 1)
        self.describe(HEADER, self.views[HEADER_KEYS].count, 0, NULL, NULL)
        self.describe_parents(HEADER, HEADER_KEY, 2)
        self.describe_views(HEADER_KEY, &self.views[HEADER_KEYS])
        self.describe_views(HEADER_VALUE, &self.views[HEADER_VALUES])
        return address
