# Unchecked inline writes. The caller sizes first, reserves once, and then writes: each returns the next free byte.
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.cursor cimport kfuzz_be16, kfuzz_be32, kfuzz_be64

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

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)

cdef extern from *:
    """
    /* A bit more than log2, times 9/64 instead of 1/7: right for all 64 widths. */
    #define kfuzz_varlong_size(raw) ((int) (((63 - __builtin_clzll((raw) | 1)) * 9 + 73) >> 6))
    """
    int kfuzz_varlong_size(uint64_t raw) nogil

# A varint and a varlong of one value have the same bytes; so one writer serves both.
cdef inline int size_of_varlong(int64_t value) noexcept nogil:
    return kfuzz_varlong_size(zigzag(value))

cdef inline uint8_t *put_varlong(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    while raw >= 0x80:
        p[0] = <uint8_t> (raw | 0x80)
        raw >>= 7
        p += 1
    p[0] = <uint8_t> raw
    return p + 1

# The same without a branch on whether it takes one byte or two. It may write one byte beyond those it takes.
cdef inline uint8_t *put_mixed_varlong(uint8_t *p, int64_t value) noexcept nogil:
    cdef uint64_t raw = zigzag(value)
    cdef uint64_t two = raw >= 0x80
    if raw >= 0x4000:
        return put_varlong(p, value)
    p[0] = <uint8_t> (raw | two << 7)
    p[1] = <uint8_t> (raw >> 7)
    return p + 1 + two

# Bytes or null, as a writer is given them; n is -1 for null.
cdef struct span_t:
    const uint8_t *p
    int64_t n

# They and their length.
cdef inline int64_t size_of_bytes(int64_t n) noexcept nogil:
    return size_of_varlong(n) + (n & ~(n >> 63))

# As put_mixed_varlong, it may write one byte beyond its own.
cdef inline uint8_t *put_span(uint8_t *p, const span_t *span) noexcept nogil:
    p = put_mixed_varlong(p, span.n)
    if span.n > 0:
        memcpy(p, span.p, <size_t> span.n)
        p += span.n
    return p
