# Checked reads from raw bytes. The position is a local variable of the loop, so that the compiler keeps it in a
# register. A read takes the position and returns the next one, or NULL if it refuses the bytes. Every read compares
# what it needs with what is left (`n < 0 or n > left`), never `pos + n > end`, which overflows. The fast paths are
# inline; the rare ones (long, overlong and broken varints) are in cursor.pyx.
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.io.report cimport report_t

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
    # Cython defines this branch hint in every module: rare code is moved away from the common path.
    bint unlikely(bint) nogil

cdef struct cursor_t:
    const uint8_t *base    # offsets in findings count from here
    const uint8_t *end     # one past the last byte of the payload
    report_t *report
    int64_t record         # index of the current record, for findings
    int64_t header         # index of the current header, or -1

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

cdef inline int64_t unzigzag(uint64_t raw) noexcept nogil:
    return <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))

# Read a zigzag number of at most `most` bytes before `wall`, in any form, and note findings. NULL if it is refused.
cdef const uint8_t *slow_zigzag(cursor_t *c, const uint8_t *p, const uint8_t *wall, int field, int most,
                                int64_t *out) noexcept nogil

# The same for a field whose size seldom changes from record to record. One and two bytes are the common cases. Branches
# are faster than bit tricks here, because the branch predictor learns them.
cdef inline const uint8_t *get_zigzag(cursor_t *c, const uint8_t *p, const uint8_t *wall, int field, int most,
                                      int64_t *out) noexcept nogil:
    cdef int64_t slow
    if p < wall:
        if p[0] < 0x80:
            out[0] = unzigzag(p[0])
            return p + 1
        # A second byte of 0 is an overlong form: the slow path notes it.
        if wall - p >= 2 and 0 < p[1] < 0x80:
            out[0] = unzigzag((p[0] & 0x7f) | <uint64_t> p[1] << 7)
            return p + 2
    # Not `out` itself: passing that on would force the caller's variable into memory.
    p = slow_zigzag(c, p, wall, field, most, &slow)
    out[0] = slow
    return p

# The same for a field where one byte and two bytes are equally likely, as in a value's length. It does not branch on
# the size.
cdef inline const uint8_t *get_mixed_zigzag(cursor_t *c, const uint8_t *p, const uint8_t *wall, int field, int most,
                                            int64_t *out) noexcept nogil:
    cdef int64_t slow
    cdef uint64_t two
    if not unlikely(wall - p < 3):
        two = p[0] >> 7
        if not unlikely(two & (<uint8_t> (p[1] - 1) >= 0x7f)):
            out[0] = unzigzag((p[0] & 0x7f) | (<uint64_t> p[1] & (~two + 1)) << 7)
            return p + 1 + two
        if p[1] >= 0x80 and 0 < p[2] < 0x80:
            out[0] = unzigzag((p[0] & 0x7f) | <uint64_t> (p[1] & 0x7f) << 7 | <uint64_t> p[2] << 14)
            return p + 3
    p = slow_zigzag(c, p, wall, field, most, &slow)
    out[0] = slow
    return p

# The size of an unsigned varint of at most `longest` bytes in the `n` bytes at p; -1 if it is cut off, -2 if it is
# longer than that.
cdef int find_uvarint(const uint8_t *p, int64_t n, int longest, uint64_t *out) noexcept nogil

cdef bint valid_utf8(const uint8_t *p, int64_t n) noexcept nogil
