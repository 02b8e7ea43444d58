# The rules of a broker for a Produce request; produced.pyi describes them.
from libc.stdint cimport int64_t

from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.records.record_batch cimport header_t
from kfuzz.wire.walk.policy cimport Policy

cdef struct topic_t:
    int64_t now
    int64_t before_max_ms
    int64_t after_max_ms
    int64_t max_message_bytes
    int64_t max_request_bytes
    int64_t max_record_bytes
    bint compacted
    bint create_time
    int kept_codec

cdef class ProduceRules(Policy):
    cdef topic_t topic

    cdef bint keeps(self, int codec) noexcept nogil
    cdef void documented(self, const header_t *h, report_t *report) noexcept nogil
    cdef void timestamp(self, int64_t timestamp, int64_t at, int64_t i, report_t *report) noexcept nogil

cdef ProduceRules rules_like(ProduceRules rules)
