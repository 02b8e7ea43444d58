from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.record_batch cimport header_t

cdef header_t to_header(tuple fields) except *
cdef bytes put_payload(header_t *h, list parts)
cdef void seal(uint8_t *batch, int64_t size, header_t *h) noexcept nogil
