"""Finds batches behind damage; search.pyi describes the interface."""

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.checksum cimport crc32_of, crc32c_of
from kfuzz.wire.cursor cimport load32
from kfuzz.wire.format cimport (
    AT_ATTRIBUTES, AT_CRC, AT_LAST_OFFSET_DELTA, AT_MAGIC, AT_RECORD_COUNT, HEADER_UP_TO_MAGIC, KEY_AT_V0, KEY_AT_V1,
    LAST_MAGIC, MESSAGE_AT_ATTRIBUTES, MESSAGE_AT_CRC, UNUSED_BITS,
)
from kfuzz.wire.framing cimport get_frame
from kfuzz.wire.held cimport Held, hold
from kfuzz.wire.report cimport clear, report_t

cdef enum:
    SIGN = 0x80
    # Unused bits in the attributes of a message of any magic.
    UNUSED_BITS_OF_MESSAGES = 0xf0
    # The search looks for signals after so many bytes.
    STEP_BYTES = 1 << 20
    # Bytes that look like headers again and again would cost a CRC of all that follows, each time. So the search takes
    # the CRC of so many bytes for each byte that it searches, and of SPARE_BYTES more.
    CRC_TIMES = 16
    SPARE_BYTES = 1 << 30


cdef bint is_batch(const uint8_t *base, int64_t at, int64_t n, int64_t *budget) noexcept nogil:
    """Whether a whole batch with a right CRC begins at ``at``.

    With a ``budget``, only one with an ordinary header: a CRC of wrong bytes costs as much as that of a batch, so what
    is cheaper comes first. The bytes of the CRC are taken from the budget; a batch that is larger is passed over.
    """
    cdef report_t report
    cdef int magic
    cdef int64_t size
    cdef int32_t key_length
    cdef const uint8_t *p = base + at
    # Nearly all bytes fail here; get_frame would note each of them.
    if n - at < HEADER_UP_TO_MAGIC or p[AT_MAGIC] > LAST_MAGIC:
        return False
    clear(&report)
    size = get_frame(base, at, n, &magic, &report)
    if size <= 0:
        return False
    if budget != NULL:
        if size > budget[0]:
            return False
        if magic < LAST_MAGIC:
            key_length = <int32_t> load32(p + (KEY_AT_V0 if magic == 0 else KEY_AT_V1))
            if p[MESSAGE_AT_ATTRIBUTES] & UNUSED_BITS_OF_MESSAGES or key_length < -1 or key_length >= size:
                return False
        elif (
            (p[AT_ATTRIBUTES] << 8 | p[AT_ATTRIBUTES + 1]) & UNUSED_BITS
            or p[AT_LAST_OFFSET_DELTA] & SIGN
            or p[AT_RECORD_COUNT] & SIGN
        ):
            return False
        budget[0] -= size
    if magic < LAST_MAGIC:
        return crc32_of(p + MESSAGE_AT_CRC + 4, size - MESSAGE_AT_CRC - 4) == load32(p + MESSAGE_AT_CRC)
    return crc32c_of(p + AT_ATTRIBUTES, size - AT_ATTRIBUTES) == load32(p + AT_CRC)


def has_batch(data not None, int64_t at):
    cdef Held held = hold(data)
    if at < 0 or at > held.n:
        raise IndexError(f"no batch can begin at {at} in {held.n} bytes")
    return bool(is_batch(held.p, at, held.n, NULL))


def find_batch(data not None, int64_t start, int64_t end):
    cdef Held held = hold(data)
    cdef int64_t at = start
    cdef int64_t last, stop, budget
    if start < 0 or end > held.n:
        raise IndexError(f"the bytes from {start} to {end} are not inside {held.n} bytes")
    last = min(end, held.n - HEADER_UP_TO_MAGIC + 1)
    budget = CRC_TIMES * max(last - start, 0) + SPARE_BYTES
    while at < last:
        stop = min(at + STEP_BYTES, last)
        with nogil:
            while at < stop and not is_batch(held.p, at, held.n, &budget):
                at += 1
        if at < stop:
            return at
        PyErr_CheckSignals()
    return None
