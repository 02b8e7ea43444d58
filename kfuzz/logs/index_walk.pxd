from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kfuzz.wire.io.int64_map cimport map_t
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.io.scratch cimport out_t
from kfuzz.wire.walk.policy cimport Policy, batch_t

cdef class IndexWalk(Policy):
    cdef const uint8_t *log
    cdef readonly int64_t batches, control_batches, records, max_timestamp, next_offset
    cdef int64_t base_offset, index_interval, indexed_at
    # The highest timestamp so far, the offset of its batch, and the time index's last timestamp.
    cdef int64_t top_timestamp, top_offset, timed
    # Where the stretch begins that is walked over.
    cdef public int64_t from_at
    cdef out_t offsets, times, aborted
    # A state_t for each producer in the order of their first batches, and the place of each among them.
    cdef out_t states
    cdef map_t places
    # By producer, the offset at which the open transaction began.
    cdef map_t began
    # Pairs of a leader epoch and its first offset, and the last of these epochs.
    cdef out_t epochs
    cdef int64_t epoch

    cdef void begin(self, int64_t base_offset, int64_t index_interval_bytes) noexcept
    cdef void record_batch(self, const uint8_t *p, const batch_t *b) noexcept nogil
    cdef void put_epoch(self, const batch_t *b) noexcept nogil
    cdef void one_message(self, const uint8_t *p, const batch_t *b) noexcept nogil
    cdef void append(self, const batch_t *b, int64_t records) noexcept nogil
    cdef void index(self, int64_t last, int64_t at) noexcept nogil
    cdef int32_t relative(self, int64_t offset) noexcept nogil
    cdef uint8_t *put_time(self, uint8_t *p) noexcept nogil
    cdef void produced(self, const batch_t *b) noexcept nogil
    cdef void marker(self, const batch_t *b) noexcept nogil
    cdef void put_aborted(self, const batch_t *b, int64_t began, int64_t stable) noexcept nogil
    cdef void keep(self, const batch_t *b, bint is_marker) noexcept nogil
    cdef int64_t stable(self, int64_t marker) noexcept nogil
