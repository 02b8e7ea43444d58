"""Facts about a log, and loops over the entries of its indexes; log_facts.pyi is the interface."""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kfuzz.logs.index_walk cimport IndexWalk
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.cursor cimport load32, load64
from kfuzz.wire.io.format cimport LAST_MAGIC
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.records.record_batch cimport header_t
from kfuzz.wire.walk.policy cimport batch_t

cdef enum:
    OFFSET_ENTRY = 8
    # The batch at which the walk stopped, and two before it.
    RECENT = 3

cdef struct recent_t:
    int64_t base_offset, last_offset, end


@cython.final
cdef class LogFacts(IndexWalk):
    cdef readonly int64_t first_offset, first_last_offset, epoch_fell_at, fallen_epoch, epoch_before
    cdef readonly bint is_cleaned
    cdef public bint stops_at_each
    # Whether damage was passed over just now.
    cdef bint is_after_damage
    cdef int64_t step_bytes, pause_at
    cdef const uint8_t *start
    # The segment's offset index, the entry that comes next, and its position; and the first entry that is wrong.
    cdef HeldBuffer index
    cdef int64_t entry, next_position, wrong
    cdef recent_t[RECENT] last

    def __init__(self, int64_t step_bytes):
        # No index is built: those that are there are judged.
        self.begin(0, INT64_MAX)
        self.step_bytes = step_bytes
        self.epoch_fell_at = -1

    def begin_segment(self, int64_t base_offset, entries=b""):
        self.base_offset = self.next_offset = base_offset
        self.batches = self.records = self.from_at = 0
        self.stops_at_each = False
        self.first_offset = -1
        self.start = NULL
        self.pause_at = self.step_bytes
        self.aborted.p = self.aborted.start
        self.index = hold(entries)
        self.entry = self.next_position = 0
        self.wrong = -1

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil:
        # The walk begins again after damage.
        self.is_after_damage = self.start != NULL
        if self.start == NULL:
            self.start = p
        self.from_at = p - self.start
        return IndexWalk.data(self, p, n, report)

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        cdef const header_t *h = b.header
        cdef int64_t first = b.first_offset if b.knows_first else b.base_offset
        if self.batches == 0:
            self.first_offset = first
            self.first_last_offset = b.last_offset
        elif b.knows_first and first > self.next_offset and not self.is_after_damage:
            self.is_cleaned = True
        self.is_after_damage = False
        if b.magic == LAST_MAGIC:
            if h.record_count <= h.last_offset_delta:
                self.is_cleaned = True
            if 0 <= h.partition_leader_epoch < self.epoch and self.epoch_fell_at < 0:
                self.epoch_fell_at = b.base_offset
                self.fallen_epoch, self.epoch_before = h.partition_leader_epoch, self.epoch
        if self.from_at + b.at >= self.next_position:
            self.compare_entries(self.from_at + b.at, b.last_offset)
        self.last[self.batches % RECENT] = recent_t(b.base_offset, b.last_offset, self.from_at + b.at + b.size)
        if not IndexWalk.batch(self, b, report):
            return False
        if self.from_at + b.at < self.pause_at:
            return not self.stops_at_each
        self.pause_at += self.step_bytes
        return False

    cdef void compare_entries(self, int64_t at, int64_t last_offset) noexcept nogil:
        """Compare the entries of positions up to ``at`` with the batch that begins there."""
        cdef const uint8_t *p
        while self.entry < self.index.n // OFFSET_ENTRY:
            p = self.index.p + self.entry * OFFSET_ENTRY
            self.next_position = <int32_t> load32(p + 4)
            if self.next_position > at:
                return
            if self.wrong < 0 and (self.next_position < at or last_offset - self.base_offset != <int32_t> load32(p)):
                self.wrong = self.entry
            self.entry += 1
        self.next_position = INT64_MAX

    @property
    def recent(self):
        cdef int64_t i
        cdef const recent_t *one
        cdef list found = []
        for i in range(max(0, self.batches - RECENT), self.batches):
            one = &self.last[i % RECENT]
            found.append((one.base_offset, one.last_offset, one.end))
        return found

    @property
    def misplaced(self):
        return self.entry if self.wrong < 0 and self.entry < self.index.n // OFFSET_ENTRY else self.wrong


def first_fall(entries not None, int64_t size, int64_t at, int width, bint may_repeat):
    cdef HeldBuffer held = hold(entries)
    cdef int64_t i, here
    cdef int64_t before = 0
    if width not in (4, 8) or not 0 <= at <= size - width:
        raise IndexError(f"no field of {width} bytes at byte {at} of entries of {size} bytes")
    for i in range(held.n // size):
        here = field(held.p + i * size + at, width)
        if i and (here < before or here == before and not may_repeat):
            return i
        before = here
    return -1


cdef inline int64_t field(const uint8_t *p, int width) noexcept nogil:
    return <int64_t> load64(p) if width == 8 else <int32_t> load32(p)
