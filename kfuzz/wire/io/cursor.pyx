"""The rare paths of the cursor: varints of three bytes or more, overlong varints, and varints that are refused."""

from cpython.bytes cimport PyBytes_FromStringAndSize

from kfuzz.wire.io.format cimport VARINT, VARLONG
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport (
    RECORD_TRUNCATED,
    VARINT_EXCESS_BITS,
    VARINT_OVERLONG,
    VARINT_TOO_LONG,
    note,
)

cdef extern from "varint.h":
    uint8_t *put_uvarint "kfuzz_put_uvarint"(uint8_t *p, uint64_t value) nogil


cdef const uint8_t *slow_zigzag(cursor_t *c, const uint8_t *p, const uint8_t *wall, int field, int most,
                                int64_t *out) noexcept nogil:
    cdef const uint8_t *start = p
    cdef uint64_t raw = 0
    cdef uint64_t b
    # The bits of the last byte that fit the number: 4 of a varint's fifth byte, 1 of a varlong's tenth.
    cdef uint64_t fits = 0x0f if most == VARINT else 0x01
    cdef int size = 0
    out[0] = 0
    while True:
        if size == most:
            note(c.report, VARINT_TOO_LONG, field, start - c.base, c.record, c.header, most, most)
            return NULL
        if p >= wall:
            note(c.report, RECORD_TRUNCATED, field, p - c.base, c.record, c.header, 0, 1)
            return NULL
        b = p[0]
        p += 1
        raw |= (b & 0x7f) << (7 * size)
        size += 1
        if b < 0x80:
            break
    if size == most and b > fits:
        note(c.report, VARINT_EXCESS_BITS, field, start - c.base, c.record, c.header, <int64_t> b, <int64_t> fits)
    if b == 0 and size > 1:
        note(c.report, VARINT_OVERLONG, field, start - c.base, c.record, c.header, size, size - 1)
    if most == VARINT:
        # Kafka shifts the fifth byte without a check: bits above the 32nd are lost.
        raw &= 0xffffffffULL
    out[0] = unzigzag(raw)
    return p


cdef int find_uvarint(const uint8_t *p, int64_t n, int longest, uint64_t *out) noexcept nogil:
    """The number of bytes that the varint takes; -1 if it is cut off, -2 if it is longer than ``longest``."""
    cdef int size = 0
    cdef uint8_t b
    out[0] = 0
    while size < longest:
        if size >= n:
            return -1
        b = p[size]
        # Bits shifted beyond the highest bit are lost, as in Java.
        out[0] |= <uint64_t> (b & 0x7f) << (7 * size)
        size += 1
        if b < 0x80:
            return size
    return -2


cdef bint valid_utf8(const uint8_t *p, int64_t n) noexcept nogil:
    """Whether these bytes are UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef const uint8_t *end = p + n
    cdef uint32_t b
    cdef uint32_t low
    cdef uint32_t high
    cdef int more
    while p < end:
        b = p[0]
        p += 1
        if b < 0x80:
            continue
        low = 0x80
        high = 0xbf
        if 0xc2 <= b <= 0xdf:
            more = 1
        elif 0xe0 <= b <= 0xef:
            more = 2
            if b == 0xe0:
                low = 0xa0
            elif b == 0xed:
                high = 0x9f
        elif 0xf0 <= b <= 0xf4:
            more = 3
            if b == 0xf0:
                low = 0x90
            elif b == 0xf4:
                high = 0x8f
        else:
            return False
        if end - p < more:
            return False
        while more:
            if p[0] < low or p[0] > high:
                return False
            low = 0x80
            high = 0xbf
            p += 1
            more -= 1
    return True


def uvarint_in_front(data not None):
    cdef HeldBuffer held = hold(data)
    cdef uint64_t raw
    cdef int size = find_uvarint(held.p, held.n, VARINT, &raw)
    return size if size < 0 else <int64_t> raw


def uvarint_of(data not None, int longest):
    cdef HeldBuffer held
    cdef uint64_t raw
    cdef int size
    if longest < 1 or longest > VARLONG:
        raise ValueError(f"longest is {longest}; a varint has 1 to {VARLONG} bytes")
    held = hold(data)
    size = find_uvarint(held.p, held.n, longest, &raw)
    return raw, size


def uvarint(uint64_t number):
    cdef uint8_t made[VARLONG]
    return PyBytes_FromStringAndSize(<const char *> made, put_uvarint(made, number) - made)
