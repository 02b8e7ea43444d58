"""Finds batches behind damage; search.pyi describes the interface."""

from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.checksum cimport crc32_of, crc32c_of
from kfuzz.wire.cursor cimport load32
from kfuzz.wire.format cimport (
    AT_ATTRIBUTES, AT_CRC, AT_LAST_OFFSET_DELTA, AT_MAGIC, AT_RECORD_COUNT, HEADER_UP_TO_MAGIC, LAST_MAGIC,
    MESSAGE_AT_CRC, UNUSED_BITS,
)
from kfuzz.wire.framing cimport get_frame
from kfuzz.wire.held cimport Held, hold
from kfuzz.wire.report cimport clear, report_t

# A CRC of wrong bytes costs as much as that of a batch, so it comes after what is cheaper: these bytes of a header are
# such in every batch that Kafka wrote. SIGNS are the first bytes of numbers that are not negative.
cdef enum:
    SIGN = 0x80


cdef bint is_batch(const uint8_t *base, int64_t at, int64_t n, bint likely) noexcept nogil:
    """Whether a whole batch with a right CRC begins at ``at``; ``likely``: only one with an ordinary header."""
    cdef report_t report
    cdef int magic
    cdef int64_t size
    cdef const uint8_t *p = base + at
    # Nearly all bytes fail here; get_frame would note each of them.
    if n - at < HEADER_UP_TO_MAGIC or p[AT_MAGIC] > LAST_MAGIC:
        return False
    clear(&report)
    size = get_frame(base, at, n, &magic, &report)
    if size <= 0:
        return False
    if magic < LAST_MAGIC:
        return crc32_of(p + MESSAGE_AT_CRC + 4, size - MESSAGE_AT_CRC - 4) == load32(p + MESSAGE_AT_CRC)
    if likely and (
        (p[AT_ATTRIBUTES] << 8 | p[AT_ATTRIBUTES + 1]) & UNUSED_BITS
        or p[AT_LAST_OFFSET_DELTA] & SIGN
        or p[AT_RECORD_COUNT] & SIGN
    ):
        return False
    return crc32c_of(p + AT_ATTRIBUTES, size - AT_ATTRIBUTES) == load32(p + AT_CRC)


def has_batch(data not None, int64_t at):
    cdef Held held = hold(data)
    if at < 0 or at > held.n:
        raise IndexError(f"no batch can begin at {at} in {held.n} bytes")
    return bool(is_batch(held.p, at, held.n, False))


def find_batch(data not None, int64_t start, int64_t end):
    cdef Held held = hold(data)
    cdef int64_t at = start
    cdef int64_t last
    if start < 0 or end > held.n:
        raise IndexError(f"the bytes from {start} to {end} are not inside {held.n} bytes")
    last = min(end, held.n - HEADER_UP_TO_MAGIC + 1)
    with nogil:
        while at < last and not is_batch(held.p, at, held.n, True):
            at += 1
    return at if at < last else None
