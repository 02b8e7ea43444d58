# Growing columns, filled from a parse's rows without an object per record.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.wire.records.record_batch cimport header_t, row_t, rows_t

cdef extern from "views.h":
    ctypedef struct spans_t "kfuzz_spans":
        const void *first
        size_t stride
        int64_t count
    # `base`: offsets count from here. `end`: one past the last readable byte. `buffer` and `shift`: the number of the
    # buffer in a view, and the offset of `base` in that buffer.
    ctypedef struct source_t "kfuzz_source":
        const uint8_t *base
        const uint8_t *end
        uint32_t buffer
        uint32_t shift

# A column of binary views in Arrow's layout, and its validity bits.
cdef struct views_t:
    uint64_t *views            # two words each
    uint64_t *bits
    int64_t count
    int64_t capacity
    int64_t nulls

cdef enum:
    KEYS
    VALUES
    HEADER_KEYS
    HEADER_VALUES

# The ArrowArray struct of the Arrow C data interface.
cdef struct array_t:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void **buffers
    array_t **children
    array_t *dictionary
    void (*release)(array_t *) noexcept nogil
    void *private_data

# The arrays that `export` gives to Arrow, each parent before its children.
cdef enum:
    TABLE
    OFFSET
    TIMESTAMP
    BATCH
    KEY
    VALUE
    HEADERS
    HEADER
    HEADER_KEY
    HEADER_VALUE
    ARRAYS

# An array of views has this many buffers in addition to those that its views refer to.
cdef enum:
    VIEW_BUFFERS = 3

cdef int32_t record_end(const uint8_t *base, const row_t *row) noexcept nogil

cdef class Columns:
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *batches
    cdef int32_t *header_ends   # the end of each record's headers among all headers, after a leading 0
    cdef views_t views[4]       # indexed by KEYS to HEADER_VALUES
    # The buffers that views refer to. New views refer to number `buffer`, the last one.
    cdef list buffers
    # Indices of the records that have no timestamp.
    cdef int64_t *untimed
    cdef int64_t untimed_count
    cdef int64_t untimed_capacity
    cdef int32_t buffer
    cdef int64_t expected_bytes
    cdef int64_t seen_bytes
    # The column of headers has their bytes, one view for each record.
    cdef bint raw_headers
    # The structs that `export` gives to Arrow, and the memory that they point to.
    cdef array_t arrays[ARRAYS]
    cdef array_t *children[ARRAYS - 1]
    cdef const void **pointers
    cdef const uint8_t **starts
    cdef int64_t *sizes
    cdef uint8_t *timed         # validity bits of the timestamps

    cdef void clear(self) noexcept
    cdef void put(self, int which, const void *spans, size_t stride, int64_t count,
                  const source_t *source) noexcept nogil
    cdef bint note_untimed(self, int64_t index) noexcept nogil
    cdef int64_t room_for(self, int64_t needed) noexcept nogil
    cdef bint reserve(self, int64_t more, int64_t more_headers, int64_t size) noexcept nogil
    cdef bint take(self, const header_t *h, const rows_t *rows, int64_t batch, const uint8_t *base,
                   const uint8_t *end, int64_t shift, int64_t size) noexcept nogil
    cdef array_t *describe(self, int which, int64_t length, int64_t nulls, const void *validity,
                           const void *data) noexcept
    cdef void describe_views(self, int which, const views_t *column) noexcept
    cdef void describe_parents(self, int which, int first, int count) noexcept
