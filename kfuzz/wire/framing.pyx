"""Where the next batch ends: org.apache.kafka.common.record.ByteBufferLogInputStream, for every magic alike."""

from libc.stdint cimport INT32_MAX, int8_t, int32_t, int64_t, uint8_t

from kfuzz.wire.cursor cimport load32
from kfuzz.wire.report cimport (
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

# The one table of what stands in front of every batch, whatever its magic: (field, offset, width in bytes).
FRAME_LAYOUT = (("base_offset", 0, 8), ("batch_length", 8, 4))

cdef enum:
    LENGTH_AT = 8
    OVERHEAD = 12              # base offset and batch length
    MAGIC_AT = 16
    HEADER_UP_TO_MAGIC = 17
    SMALLEST_MESSAGE = 14      # a message of magic 0 with null key and null value
    SMALLEST_BATCH = 49        # a record batch without records, from the leader epoch on

LOG_OVERHEAD = OVERHEAD


cdef int64_t get_frame(const uint8_t *base, int64_t at, int64_t n, int *magic, report_t *report) noexcept nogil:
    """The size of the batch at ``at``; 0 for a partial tail, -1 for a frame that is refused, with its finding noted.

    ``magic`` is -1 where it is not there to be read.
    """
    cdef int64_t remaining = n - at
    cdef int64_t smallest = SMALLEST_MESSAGE
    cdef int32_t length
    cdef const uint8_t *p = base + at
    magic[0] = -1
    if remaining < OVERHEAD:
        return 0
    length = <int32_t> load32(p + LENGTH_AT)
    if length >= SMALLEST_MESSAGE:
        if remaining < HEADER_UP_TO_MAGIC:
            return 0
        magic[0] = p[MAGIC_AT]
        if magic[0] > 2:
            note(report, MAGIC_UNKNOWN, F_MAGIC, at + MAGIC_AT, -1, -1, <int8_t> p[MAGIC_AT], 2)
            return -1
        if length > INT32_MAX - OVERHEAD:
            # The batch's size is an int to Kafka, and this one does not fit.
            note(report, BATCH_LENGTH_TOO_LARGE, F_BATCH_LENGTH, at + LENGTH_AT, -1, -1, length, INT32_MAX - OVERHEAD)
            return -1
        if length > remaining - OVERHEAD:
            return 0
        if magic[0] == 2:
            smallest = SMALLEST_BATCH
    if length < smallest:
        note(report, BATCH_LENGTH_BELOW_MINIMUM, F_BATCH_LENGTH, at + LENGTH_AT, -1, -1, length, smallest)
        return -1
    return OVERHEAD + length


def next_frame(const uint8_t[::1] data not None, int64_t at):
    """Look at the batch that begins at ``at``: ``(size, magic, notes)``.

    ``size`` counts from ``at``. It is 0 for a partial tail, which is no error, and -1 for a frame that is refused, with
    its notes.
    """
    cdef int64_t n = data.shape[0]
    cdef int64_t size
    cdef int magic
    cdef report_t report
    if at < 0 or at > n:
        raise IndexError(f"no frame can begin at {at} in {n} bytes")
    clear(&report)
    size = get_frame(&data[0] if n else <const uint8_t *> b"", at, n, &magic, &report)
    return size, magic if size >= 0 and magic >= 0 else None, to_notes(&report, 0)
