# Columns that grow: what a parse's rows become without an object per record.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.record_batch cimport header_t, rows_t

# A column of binary views, as Arrow lays them out, and the bits that say which are not null.
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

cdef class Columns:
    cdef int64_t count
    cdef int64_t capacity
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *batches
    cdef int32_t *header_ends   # where each record's headers end among all; one more, for the first
    cdef views_t views[4]       # by the names above
    # Where the views' bytes are: in buffer number `buffer`.
    cdef readonly list buffers
    cdef readonly list untimed  # indices of the records that have no timestamp
    cdef int32_t buffer
    cdef int64_t expected_bytes
    cdef int64_t seen_bytes

    cdef int64_t room_for(self, int64_t needed) noexcept nogil
    cdef bint reserve(self, int64_t more, int64_t more_headers, int64_t size) noexcept nogil
    cdef bint take(self, const header_t *h, const rows_t *rows, int64_t batch, const uint8_t *base,
                   const uint8_t *end, int64_t shift, int64_t size) noexcept nogil
