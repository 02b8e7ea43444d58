from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.io.cursor cimport load32
from kfuzz.wire.io.format cimport AT_BATCH_LENGTH, LOG_OVERHEAD, SMALLEST_MESSAGE
from kfuzz.wire.io.report cimport report_t

cdef int64_t get_frame(const uint8_t *base, int64_t at, int64_t n, int *magic, report_t *report) noexcept nogil

# The size in bytes of the message of any magic at p, with `n` bytes left; 0 if it is cut off or shorter than a message.
cdef inline int64_t message_size(const uint8_t *p, int64_t n) noexcept nogil:
    cdef int32_t length
    if n < LOG_OVERHEAD:
        return 0
    length = <int32_t> load32(p + AT_BATCH_LENGTH)
    if length < SMALLEST_MESSAGE or length > n - LOG_OVERHEAD:
        return 0
    return LOG_OVERHEAD + length
