"""A planted bug, to test the fuzzer itself: compiled, behind gates that only a fuzzer with native coverage climbs.

Nothing but the target ``canary`` may call this.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.cursor cimport cursor_t, get_varint, get_varlong, left
from kfuzz.wire.report cimport F_NONE, clear, report_t

cdef enum:
    KEY_LENGTH_LEAST = 5


cdef int climb(cursor_t *c) noexcept nogil:
    """How many gates the first record passes, of 7. Each gate is a branch of its own, for coverage to see."""
    cdef const uint8_t *key
    cdef int32_t length
    cdef int32_t offset_delta
    cdef int32_t key_length
    cdef int32_t value_length
    cdef int32_t header_count
    cdef int64_t timestamp_delta
    if not get_varint(c, F_NONE, &length) or length < 1 or length > left(c):
        return 0
    c.p += 1
    if not get_varlong(c, F_NONE, &timestamp_delta) or not get_varint(c, F_NONE, &offset_delta):
        return 0
    if not get_varint(c, F_NONE, &key_length) or key_length < 0 or key_length > left(c):
        return 0
    key = c.p
    c.p += key_length
    if not get_varint(c, F_NONE, &value_length) or value_length < 0 or value_length > left(c):
        return 0
    c.p += value_length
    if not get_varint(c, F_NONE, &header_count):
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


def spring(const uint8_t[::1] data not None, int64_t at):
    """Read the record at ``at`` and, behind the last gate, one byte beyond ``data``; then add beyond what an int32 holds.

    AddressSanitizer reports the read, UndefinedBehaviorSanitizer the sum; without them the target makes the bug
    visible. The result is 0 where a gate stays shut.
    """
    cdef int64_t n = data.shape[0]
    cdef report_t report
    cdef cursor_t c
    cdef int32_t sum
    cdef int32_t summand = 256
    if at < 0 or at >= n:
        return 0
    clear(&report)
    c.base = c.p = &data[0]
    c.p += at
    c.end = c.base + n
    c.report = &report
    c.record = c.header = -1
    if climb(&c) < 7:
        return 0
    # The planted bugs: the byte behind the end, and a sum that does not fit.
    sum = INT32_MAX - c.end[0]
    sum = sum + summand
    return sum
