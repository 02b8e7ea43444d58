from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.report cimport report_t

cdef int64_t get_frame(const uint8_t *base, int64_t at, int64_t n, int *magic, report_t *report) noexcept nogil
