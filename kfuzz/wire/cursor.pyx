"""The rare paths of the cursor: varints of three bytes and more, overlong ones, and those that are refused."""

from kfuzz.wire.report cimport (
    RECORD_TRUNCATED,
    VARINT_EXCESS_BITS,
    VARINT_OVERLONG,
    VARINT_TOO_LONG,
    note,
)


cdef bint slow_varint(cursor_t *c, int field, int32_t *out) noexcept nogil:
    cdef const uint8_t *start = c.p
    cdef uint32_t raw = 0
    cdef uint32_t b
    cdef int shift = 0
    while True:
        if c.p >= c.end:
            note(c.report, RECORD_TRUNCATED, field, position(c), c.record, c.header, 0, 1)
            return False
        b = c.p[0]
        c.p += 1
        # Kafka shifts the fifth byte as it is: bits above the 32nd fall off.
        raw |= (b & 0x7f) << shift
        if b < 0x80:
            break
        shift += 7
        if shift > 28:
            note(c.report, VARINT_TOO_LONG, field, start - c.base, c.record, c.header, 5, 5)
            return False
    if shift == 28 and b > 0x0f:
        note(c.report, VARINT_EXCESS_BITS, field, start - c.base, c.record, c.header, b, 0x0f)
    if b == 0 and shift > 0:
        note(c.report, VARINT_OVERLONG, field, start - c.base, c.record, c.header, c.p - start, c.p - start - 1)
    out[0] = <int32_t> ((raw >> 1) ^ (~(raw & 1) + 1))
    return True


cdef bint slow_varlong(cursor_t *c, int field, int64_t *out) noexcept nogil:
    cdef const uint8_t *start = c.p
    cdef uint64_t raw = 0
    cdef uint64_t b
    cdef int shift = 0
    while True:
        if c.p >= c.end:
            note(c.report, RECORD_TRUNCATED, field, position(c), c.record, c.header, 0, 1)
            return False
        b = c.p[0]
        c.p += 1
        raw |= (b & 0x7f) << shift
        if b < 0x80:
            break
        shift += 7
        if shift > 63:
            note(c.report, VARINT_TOO_LONG, field, start - c.base, c.record, c.header, 10, 10)
            return False
    if shift == 63 and b > 0x01:
        note(c.report, VARINT_EXCESS_BITS, field, start - c.base, c.record, c.header, <int64_t> b, 0x01)
    if b == 0 and shift > 0:
        note(c.report, VARINT_OVERLONG, field, start - c.base, c.record, c.header, c.p - start, c.p - start - 1)
    out[0] = <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))
    return True
