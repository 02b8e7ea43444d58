"""The rules of a broker for a log segment; segment.pyi describes the interface."""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.cursor cimport load32
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BATCH_LENGTH,
    HEADER_SIZE,
    HEADER_UP_TO_MAGIC,
    LAST_MAGIC,
    LOG_OVERHEAD,
    SMALLEST_MESSAGE,
)
from kfuzz.wire.io.int64_map cimport entry_t, find, free_map, map_t, put, remove
from kfuzz.wire.io.report cimport (
    END_MARKER_INVALID,
    F_ATTRIBUTES,
    F_BASE_OFFSET,
    F_FIRST_RECORD,
    F_FIRST_RECORD_KEY,
    F_LAST_OFFSET_DELTA,
    F_NONE,
    F_VALUE,
    INDEXED_OFFSET_NOT_INCREASING,
    LEADER_EPOCH_OFFSET_NEGATIVE,
    LOG_END_OVERFLOW,
    OFFSET_NOT_INCREASING,
    OFFSET_OUTSIDE_SEGMENT,
    TRANSACTION_NOT_ENDED,
    WRAPPER_START_UNKNOWN,
    note,
    report_t,
)
from kfuzz.wire.records.record_batch cimport header_t
from kfuzz.wire.walk.policy cimport Policy, batch_t
from kfuzz.wire.walk.transactions cimport (
    ABORTS,
    BEGINS,
    COMMITS,
    GOES_ON,
    HAS_NO_MARKER,
    HAS_NO_RECORD,
    NO_MEMORY,
    STAYS_OPEN,
    follow,
)


# A search for the batch that holds an offset. It needs the first offset of each batch until it ends. For a wrapper,
# Kafka must open the payload to get it. If that fails, the search fails too.
# Mirrors org.apache.kafka.common.record.internal.FileRecords.searchForOffsetFromPosition.
cdef struct lookup_t:
    int64_t target
    int64_t lost_at            # the place of the wrapper that could not be opened, in bytes; -1 for none
    bint done


cdef lookup_t lookup_of(int64_t target) noexcept nogil:
    return lookup_t(target, -1, False)


@cython.final
cdef class SegmentRules(Policy):
    cdef int64_t index_interval_bytes
    # Is asked about each batch that these rules accept.
    cdef Policy also
    cdef bint begun
    cdef int64_t base_offset
    cdef int64_t last_offset
    cdef int64_t read_bytes
    cdef int64_t indexed_bytes
    # Two searches: for the segment's base offset, and for the last entry of its offset index, if it has one.
    cdef lookup_t of_begin
    cdef lookup_t of_index
    cdef bint is_indexed
    cdef int64_t wrapper_at
    cdef readonly bint wants_start
    cdef int64_t max_timestamp
    cdef int64_t offset_of_max_timestamp
    # The time index's last entry.
    cdef bint is_timed
    cdef int64_t timed
    cdef int64_t timed_offset
    cdef int32_t leader_epoch
    # `began`: the first offset of each producer's open transaction. `open`: the set of these offsets.
    cdef map_t began
    cdef map_t open
    cdef bint has_aborted
    cdef int64_t aborted_up_to

    def __cinit__(self):
        self.leader_epoch = -1
        self.timed = self.max_timestamp = self.offset_of_max_timestamp = -1

    def __init__(self, int64_t index_interval_bytes, Policy also=None):
        self.index_interval_bytes = index_interval_bytes
        self.also = also

    def __dealloc__(self):
        free_map(&self.began)
        free_map(&self.open)

    cdef bint is_end(self, const uint8_t *p, int64_t left) noexcept nogil:
        """Mirrors ``org.apache.kafka.common.record.FileLogInputStream``, which reads the header up to the magic first.
        """
        cdef int32_t length
        if left <= HEADER_UP_TO_MAGIC:
            return True
        length = <int32_t> load32(p + AT_BATCH_LENGTH)
        return SMALLEST_MESSAGE <= length and length > left - LOG_OVERHEAD

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil:
        return self.also is None or self.also.data(p, n, report)

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        cdef bint goes_on = self.judge(b, report)
        if goes_on and self.also is not None:
            goes_on = self.also.batch(b, report)
            self.no_memory |= self.also.no_memory
        return goes_on

    cdef bint judge(self, const batch_t *b, report_t *report) noexcept nogil:
        if not self.begun:
            self.begun = True
            # The base offset is the file's name, which cannot be negative.
            self.base_offset = max(b.base_offset, 0)
            self.of_begin = lookup_of(self.base_offset)
            self.last_offset = b.last_offset
        elif b.last_offset <= self.last_offset:
            note(report, OFFSET_NOT_INCREASING, F_BASE_OFFSET, 0, -1, -1, b.last_offset, self.last_offset)
        elif b.magic == LAST_MAGIC and b.base_offset <= self.last_offset:
            note(report, OFFSET_NOT_INCREASING, F_BASE_OFFSET, 0, -1, -1, b.base_offset, self.last_offset)
        self.last_offset = b.last_offset
        if not self.is_within(b.last_offset):
            note(report, OFFSET_OUTSIDE_SEGMENT, F_LAST_OFFSET_DELTA, 0, -1, -1, b.last_offset, self.base_offset)
            return False
        if b.max_timestamp > self.max_timestamp:
            self.max_timestamp = b.max_timestamp
            self.offset_of_max_timestamp = b.last_offset
        if self.read_bytes - self.indexed_bytes > self.index_interval_bytes and not self.index(b.last_offset, report):
            return False
        self.read_bytes += b.size
        self.wants_start = not b.knows_first and (not self.of_begin.done or self.is_indexed and not self.of_index.done)
        self.wrapper_at = b.at
        if b.knows_first:
            self.begins(b.first_offset)
        return b.magic < LAST_MAGIC or self.leader(b.header, report) and self.producer(b, report)

    cdef bint is_within(self, int64_t offset) noexcept nogil:
        """Whether an index can hold the offset. The difference wraps around, as in Kafka."""
        cdef int64_t distance = <int64_t> (<uint64_t> offset - <uint64_t> self.base_offset)
        return 0 <= distance <= INT32_MAX

    cdef bint index(self, int64_t last_offset, report_t *report) noexcept nogil:
        """Add an entry to the offset index, and one to the time index."""
        if self.is_indexed and last_offset <= self.of_index.target:
            note(report, INDEXED_OFFSET_NOT_INCREASING, F_BASE_OFFSET, 0, -1, -1, last_offset, self.of_index.target)
            return False
        self.is_indexed = True
        self.indexed_bytes = self.read_bytes
        self.of_index = lookup_of(last_offset)
        return self.index_time(report)

    cdef bint index_time(self, report_t *report) noexcept nogil:
        if self.is_timed and self.offset_of_max_timestamp < self.timed_offset:
            note(report, INDEXED_OFFSET_NOT_INCREASING, F_BASE_OFFSET, 0, -1, -1, self.offset_of_max_timestamp,
                 self.timed_offset)
            return False
        if self.max_timestamp > self.timed:
            self.is_timed = True
            self.timed = self.max_timestamp
            self.timed_offset = self.offset_of_max_timestamp
        return True

    cdef void begins(self, int64_t offset) noexcept nogil:
        """The batch of this stop begins at ``offset``. End each search that has reached its target."""
        if offset >= self.of_begin.target:
            self.of_begin.done = True
        if self.is_indexed and offset >= self.of_index.target:
            self.of_index.done = True

    def starts_at(self, offset):
        self.wants_start = False
        if offset is not None:
            self.begins(offset)
            return
        if not self.of_begin.done:
            self.of_begin.done = True
            self.of_begin.lost_at = self.wrapper_at
        if self.is_indexed and not self.of_index.done:
            self.of_index.done = True
            self.of_index.lost_at = self.wrapper_at

    cdef bint leader(self, const header_t *h, report_t *report) noexcept nogil:
        """Check the first batch of a new leader epoch: its base offset must not be negative."""
        if h.partition_leader_epoch <= self.leader_epoch:
            return True
        self.leader_epoch = h.partition_leader_epoch
        if h.base_offset >= 0:
            return True
        note(report, LEADER_EPOCH_OFFSET_NEGATIVE, F_BASE_OFFSET, 0, -1, -1, h.base_offset, self.leader_epoch)
        return False

    cdef bint producer(self, const batch_t *b, report_t *report) noexcept nogil:
        """Update the producer's state. False if the batch is invalid in a log."""
        cdef const header_t *h = b.header
        cdef int64_t first_offset
        cdef int became
        if h.producer_id < 0:
            return True
        became = follow(&self.began, b, &first_offset)
        if became == BEGINS:
            self.no_memory = not put(&self.open, h.base_offset, 0)
            return not self.no_memory
        if became == COMMITS or became == ABORTS:
            if self.ends(h, first_offset, became == ABORTS):
                return True
            note(report, END_MARKER_INVALID, F_BASE_OFFSET, 0, -1, -1, h.base_offset, 0)
        elif became == STAYS_OPEN:
            note(report, TRANSACTION_NOT_ENDED, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, 0, first_offset)
        elif became == HAS_NO_RECORD:
            note(report, END_MARKER_INVALID, F_FIRST_RECORD, HEADER_SIZE, -1, -1, h.producer_id, 0)
        elif became == HAS_NO_MARKER:
            note(report, END_MARKER_INVALID, F_FIRST_RECORD_KEY, HEADER_SIZE, -1, -1, 0, 0)
        self.no_memory = became == NO_MEMORY
        return became == GOES_ON

    cdef bint ends(self, const header_t *h, int64_t first_offset, bint aborted) noexcept nogil:
        """End a transaction. False if it may not end here."""
        cdef entry_t *open = find(&self.open, first_offset)
        cdef bint in_order = not aborted or not self.has_aborted or self.aborted_up_to < h.base_offset
        if aborted:
            self.has_aborted = True
            self.aborted_up_to = h.base_offset
        if not in_order or open == NULL:
            return False
        remove(&self.open, open)
        return True

    cdef bint end(self, int64_t at, report_t *report) noexcept nogil:
        """After the last batch: add the last entry of the time index, then find the log's end and its start."""
        cdef int64_t after = <int64_t> (<uint64_t> self.last_offset + 1)
        cdef const lookup_t *behind_index = &self.of_index if self.is_indexed else &self.of_begin
        if not self.index_time(report):
            return False
        if not self.begun:
            return True
        if not self.is_opened(behind_index, at, report):
            return False
        if (behind_index.done or self.last_offset >= behind_index.target) and after < self.base_offset:
            note(report, LOG_END_OVERFLOW, F_NONE, 0, -1, -1, after, self.base_offset)
            return False
        return self.is_opened(&self.of_begin, at, report)

    cdef bint is_opened(self, const lookup_t *lookup, int64_t at, report_t *report) noexcept nogil:
        if lookup.lost_at >= 0:
            note(report, WRAPPER_START_UNKNOWN, F_VALUE, lookup.lost_at - at, -1, -1, 0, 0)
        return lookup.lost_at < 0
