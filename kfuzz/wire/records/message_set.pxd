# Magic 0 and 1: single messages, and the messages inside a wrapper.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.io.scratch cimport out_t
from kfuzz.wire.records.record_batch cimport row_t, rows_t

cdef struct message_t:
    int64_t offset
    int64_t timestamp
    int64_t key_at
    int64_t value_at
    int32_t key_length         # -1: null
    int32_t value_length       # -1: null
    int32_t magic
    int32_t attributes

cdef bint judge_message(const uint8_t *p, int64_t size, message_t *m, report_t *report) noexcept nogil
cdef bint get_wrapped(const uint8_t *base, int64_t n, const message_t *wrapper, rows_t *sink, report_t *report,
                      int32_t *count, int64_t *first) noexcept nogil
cdef int64_t more_wrapped(const uint8_t *base, int64_t n, int64_t at, const message_t *wrapper, int64_t first,
                          rows_t *sink) noexcept nogil
cdef void to_row(const message_t *m, int64_t start, int64_t end, row_t *row) noexcept nogil
cdef int put_messages(out_t *out, list records, int magic, int64_t base_offset, int attributes, object stamp) except -1
