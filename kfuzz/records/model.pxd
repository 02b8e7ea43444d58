# The classes that readers return and writers take.
from libc.stdint cimport int64_t

from kfuzz.wire.walk.scan cimport Scan

cdef class RecordBatch:
    cdef public object base_offset
    cdef public object last_offset
    cdef public object records
    cdef public object magic
    cdef public object compression
    cdef public object timestamp_type
    cdef public object transactional
    cdef public object control
    cdef public object producer_id
    cdef public object producer_epoch
    cdef public object base_sequence
    cdef public object partition_leader_epoch
    cdef public object delete_horizon
    cdef public object base_timestamp
    cdef public object max_timestamp
    cdef public object unreadable

cdef class Verdict:
    cdef public int64_t batch_count
    cdef public int64_t record_count
    cdef public int64_t consumed
    cdef public bint partial_tail
    cdef public list findings
    cdef public int64_t largest_timestamp
    cdef public int64_t next_batch
    cdef public int64_t more_findings

    cdef int leave_out(self, int64_t most) except -1
    cdef void take_sums(self, Scan scan) noexcept

cdef class Reading(Verdict):
    cdef public list batches

cdef Verdict new_verdict(Verdict verdict)
cdef RecordBatch batch_of(Scan scan, bint unreadable)
