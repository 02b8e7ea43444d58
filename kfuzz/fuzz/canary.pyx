"""A planted bug that tests the fuzzer itself. Only a fuzzer with native coverage gets through the gates before it.

Only the target ``canary`` may call this.
"""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kfuzz.wire.io.cursor cimport cursor_t, get_zigzag
from kfuzz.wire.io.format cimport VARINT, VARLONG
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport F_NONE, clear, report_t

cdef enum:
    KEY_LENGTH_LEAST = 5


cdef const uint8_t *get_length(cursor_t *c, const uint8_t *p, int64_t *length) noexcept nogil:
    """Read a length. Returns NULL if it is below 0 or larger than the bytes left."""
    p = get_zigzag(c, p, c.end, F_NONE, VARINT, length)
    if p == NULL or length[0] < 0 or length[0] > c.end - p:
        return NULL
    return p


cdef int climb(cursor_t *c, const uint8_t *p) noexcept nogil:
    """How many of the 7 gates the record passes. Each gate is its own branch, so that coverage sees it."""
    cdef const uint8_t *key
    cdef int64_t length
    cdef int64_t key_length
    cdef int64_t value_length
    cdef int64_t header_count
    cdef int64_t delta
    p = get_length(c, p, &length)
    if p == NULL or length < 1:
        return 0
    p = get_zigzag(c, p + 1, c.end, F_NONE, VARLONG, &delta)
    if p == NULL:
        return 0
    p = get_zigzag(c, p, c.end, F_NONE, VARINT, &delta)
    if p == NULL:
        return 0
    p = get_length(c, p, &key_length)
    if p == NULL:
        return 0
    key = p
    p = get_length(c, p + key_length, &value_length)
    if p == NULL:
        return 0
    p = get_zigzag(c, p + value_length, c.end, F_NONE, VARINT, &header_count)
    if p == NULL:
        return 0
    if key_length < KEY_LENGTH_LEAST:
        return 1
    if value_length != 2 * key_length:
        return 2
    if header_count & 3 != key_length & 3:
        return 3
    if key[0] >> 6 != key_length & 3:
        return 4
    if key[1] >> 6 != (key_length >> 2) & 3:
        return 5
    if key[2] >> 6 != (value_length >> 2) & 3:
        return 6
    return 7


def spring(data not None, int64_t at):
    """Read the record at ``at``. After the last gate, read one byte beyond ``data`` and overflow an int32.

    AddressSanitizer reports the read, UndefinedBehaviorSanitizer the overflow. Without them, the target raises an
    exception. Returns 0 if the record fails a gate, and a negative number otherwise.
    """
    cdef HeldBuffer held = hold(data)
    cdef report_t report
    cdef cursor_t c
    cdef int32_t sum
    cdef int32_t summand = 256
    if at < 0 or at >= held.n:
        return 0
    clear(&report)
    c = cursor_t(base=held.p, end=held.p + held.n, report=&report, record=-1, header=-1)
    if climb(&c, c.base + at) < 7:
        return 0
    # The planted bugs: a read of the byte after the end, and a sum that overflows.
    sum = INT32_MAX - c.end[0]
    sum = sum + summand
    return sum
