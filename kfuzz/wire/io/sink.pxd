# Unchecked inline writes. The caller first computes the size, then reserves it once, then writes. Each write returns
# the address of the next free byte.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.io.cursor cimport kfuzz_be16, kfuzz_be32, kfuzz_be64

cdef inline uint8_t *put_int8(uint8_t *p, int value) noexcept nogil:
    p[0] = <uint8_t> value
    return p + 1

cdef inline uint8_t *put_int16(uint8_t *p, int16_t value) noexcept nogil:
    cdef uint16_t raw = kfuzz_be16(<uint16_t> value)
    memcpy(p, &raw, 2)
    return p + 2

cdef inline uint8_t *put_int32(uint8_t *p, int32_t value) noexcept nogil:
    cdef uint32_t raw = kfuzz_be32(<uint32_t> value)
    memcpy(p, &raw, 4)
    return p + 4

cdef inline uint8_t *put_int64(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t raw = kfuzz_be64(<uint64_t> value)
    memcpy(p, &raw, 8)
    return p + 8

cdef inline uint8_t *put_bytes(uint8_t *p, const uint8_t *data, int64_t n) noexcept nogil:
    memcpy(p, data, <size_t> n)
    return p + n

cdef extern from "varint.h":
    uint64_t zigzag "kfuzz_zigzag"(int64_t value) nogil
    int size_of_varlong "kfuzz_varlong_size"(int64_t value) nogil
    uint8_t *put_uvarint "kfuzz_put_uvarint"(uint8_t *p, uint64_t value) nogil
    uint8_t *put_varlong "kfuzz_put_varlong"(uint8_t *p, int64_t value) nogil
    uint8_t *put_mixed_varlong "kfuzz_put_mixed_varlong"(uint8_t *p, int64_t value) nogil

# Bytes or null, to be written; n is -1 for null.
cdef struct span_t:
    const uint8_t *p
    int64_t n

# The size of n bytes and of their length in front; n is -1 for null.
cdef inline int64_t size_of_bytes(int64_t n) noexcept nogil:
    return size_of_varlong(n) + (n & ~(n >> 63))

# Like put_mixed_varlong, this may write one byte beyond its end.
cdef inline uint8_t *put_span(uint8_t *p, const span_t *span) noexcept nogil:
    p = put_mixed_varlong(p, span.n)
    if span.n > 0:
        memcpy(p, span.p, <size_t> span.n)
        p += span.n
    return p
