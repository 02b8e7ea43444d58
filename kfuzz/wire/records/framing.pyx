"""Finds where the next batch ends, for every magic. Mirrors org.apache.kafka.common.record.ByteBufferLogInputStream."""

from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t

from kfuzz.wire.io.cursor cimport load32
from kfuzz.wire.io.format cimport (
    AT_BATCH_LENGTH, AT_MAGIC, HEADER_UP_TO_MAGIC, LAST_MAGIC, LOG_OVERHEAD, SMALLEST_BATCH, SMALLEST_MESSAGE,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport (
    BATCH_LENGTH_BELOW_MINIMUM,
    BATCH_LENGTH_TOO_LARGE,
    F_BATCH_LENGTH,
    F_MAGIC,
    MAGIC_UNKNOWN,
    clear,
    note,
    report_t,
    to_notes,
)


cdef int64_t get_frame(const uint8_t *base, int64_t at, int64_t n, int *magic, report_t *report) noexcept nogil:
    """The size of the batch at ``at``; 0 for a partial tail, -1 for a frame that is refused, with its finding noted.

    ``magic`` is -1 if the frame ends before it, or if its length is too small to have one.
    """
    cdef int64_t remaining = n - at
    cdef int64_t smallest = SMALLEST_MESSAGE
    cdef int32_t length
    cdef const uint8_t *p = base + at
    magic[0] = -1
    if remaining < LOG_OVERHEAD:
        return 0
    length = <int32_t> load32(p + AT_BATCH_LENGTH)
    if length >= SMALLEST_MESSAGE:
        if remaining < HEADER_UP_TO_MAGIC:
            return 0
        magic[0] = p[AT_MAGIC]
        if magic[0] > LAST_MAGIC:
            note(report, MAGIC_UNKNOWN, F_MAGIC, at + AT_MAGIC, -1, -1, <int8_t> p[AT_MAGIC], LAST_MAGIC)
            return -1
        if length > INT32_MAX - LOG_OVERHEAD:
            # Kafka holds the batch's size in an int, and this size does not fit.
            note(report, BATCH_LENGTH_TOO_LARGE, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, -1, -1, length,
                 INT32_MAX - LOG_OVERHEAD)
            return -1
        if length > remaining - LOG_OVERHEAD:
            return 0
        if magic[0] == LAST_MAGIC:
            smallest = SMALLEST_BATCH
    if length < smallest:
        note(report, BATCH_LENGTH_BELOW_MINIMUM, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, -1, -1, length, smallest)
        return -1
    return LOG_OVERHEAD + length


def next_frame(data not None, int64_t at):
    cdef HeldBuffer held = hold(data)
    cdef int64_t size
    cdef int magic
    cdef report_t report
    if at < 0 or at > held.n:
        raise IndexError(f"no frame can begin at {at} in {held.n} bytes")
    clear(&report)
    size = get_frame(held.p, at, held.n, &magic, &report)
    return size, magic if size >= 0 and magic >= 0 else None, to_notes(&report, 0)


def frames(data not None, int64_t at=0, *, bint any_magic=False):
    cdef HeldBuffer held = hold(data)
    cdef int64_t n = held.n
    cdef int64_t size
    cdef int magic
    cdef report_t report
    if at < 0 or at > n:
        raise IndexError(f"no frame can begin at {at} in {n} bytes")
    while at < n:
        if any_magic:
            size = message_size(held.p + at, n - at)
            magic = held.p[at + AT_MAGIC] if size > 0 else -1
        else:
            clear(&report)
            size = get_frame(held.p, at, n, &magic, &report)
        if size <= 0:
            return
        yield at, size, magic
        at += size
