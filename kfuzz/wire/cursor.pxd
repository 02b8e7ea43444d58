# A checked cursor over raw bytes. Every read compares what it needs with what is left (`n < 0 or n > left`), never
# `pos + n > end`, which overflows. The fast paths are inline; the rare ones (long, overlong and broken varints) are in
# cursor.pyx.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.report cimport report_t

cdef extern from *:
    """
    #if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    #define kfuzz_be16(x) (x)
    #define kfuzz_be32(x) (x)
    #define kfuzz_be64(x) (x)
    #else
    #define kfuzz_be16(x) __builtin_bswap16(x)
    #define kfuzz_be32(x) __builtin_bswap32(x)
    #define kfuzz_be64(x) __builtin_bswap64(x)
    #endif
    """
    uint16_t kfuzz_be16(uint16_t) nogil
    uint32_t kfuzz_be32(uint32_t) nogil
    uint64_t kfuzz_be64(uint64_t) nogil

cdef struct cursor_t:
    const uint8_t *base    # where offsets count from
    const uint8_t *p       # the next byte
    const uint8_t *end     # one past the last byte that may be read now
    report_t *report
    int64_t record         # where we are, for findings
    int64_t header

# Big-endian loads; the caller has checked that the bytes are there.
cdef inline uint16_t load16(const uint8_t *p) noexcept nogil:
    cdef uint16_t raw
    memcpy(&raw, p, 2)
    return kfuzz_be16(raw)

cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    cdef uint32_t raw
    memcpy(&raw, p, 4)
    return kfuzz_be32(raw)

cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    cdef uint64_t raw
    memcpy(&raw, p, 8)
    return kfuzz_be64(raw)

cdef inline int64_t left(const cursor_t *c) noexcept nogil:
    return c.end - c.p

cdef inline int64_t position(const cursor_t *c) noexcept nogil:
    return c.p - c.base

# The most bytes that a varint and a varlong take.
cdef enum:
    VARINT = 5
    VARLONG = 10

cdef bint slow_zigzag(cursor_t *c, int field, int most, int64_t *out) noexcept nogil

# A zigzag number of at most `most` bytes. False means refused, with a finding noted.
# One and two bytes are the common cases; branches beat bit tricks here, for the predictor learns them.
cdef inline bint get_zigzag(cursor_t *c, int field, int most, int64_t *out) noexcept nogil:
    cdef uint64_t b
    cdef uint64_t raw
    if c.p < c.end:
        raw = c.p[0]
        if raw < 0x80:
            c.p += 1
            out[0] = <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))
            return True
        if c.end - c.p >= 2:
            b = c.p[1]
            # A second byte of 0 is an overlong form: the slow path notes it.
            if 0 < b < 0x80:
                raw = (raw & 0x7f) | (b << 7)
                c.p += 2
                out[0] = <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))
                return True
    return slow_zigzag(c, field, most, out)

# As ByteUtils.readVarint and readVarlong read them.
cdef inline bint get_varint(cursor_t *c, int field, int32_t *out) noexcept nogil:
    cdef int64_t value
    if not get_zigzag(c, field, VARINT, &value):
        return False
    out[0] = <int32_t> value
    return True

cdef inline bint get_varlong(cursor_t *c, int field, int64_t *out) noexcept nogil:
    return get_zigzag(c, field, VARLONG, out)
