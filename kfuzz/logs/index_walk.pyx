"""Rebuilds the indexes and producers of a log while the reader's walk goes over it. index_walk.pyi is the interface."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.format cimport CONTROL, LAST_MAGIC, LOG_APPEND_TIME, TRANSACTIONAL
from kfuzz.wire.io.int64_map cimport entry_t, find, free_map, put
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.io.scratch cimport enlarge, out_t
from kfuzz.wire.io.sink cimport put_int16, put_int32, put_int64
from kfuzz.wire.records.record_batch cimport header_t, row_t
from kfuzz.wire.walk.policy cimport Policy, batch_t
from kfuzz.wire.walk.transactions cimport ABORTS, NO_MEMORY, follow, read_marker

import struct

EPOCHS = struct.Struct(">qq")

cdef enum:
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12
    ABORTED_ENTRY = 34
    EPOCH_ENTRY = 16

# The fields of Kafka's ProducerStateEntry. The last offset is -1 if its last epoch has no data.
cdef struct state_t:
    int64_t id
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta
    int32_t coordinator_epoch
    int16_t epoch


cdef inline bint has_room(out_t *out, int64_t size) noexcept nogil:
    """Makes room for ``size`` more bytes. False if there is no memory."""
    return size <= out.end - out.p or enlarge(out, size)


cdef bytes contents(const out_t *out):
    return PyBytes_FromStringAndSize(<const char *> out.start, out.p - out.start) if out.p != out.start else b""


cdef class IndexWalk(Policy):
    def __init__(self, int64_t base_offset, int64_t index_interval_bytes, open_transactions=()):
        self.begin(base_offset, index_interval_bytes)
        for producer_id, first_offset in open_transactions:
            if not put(&self.began, producer_id, first_offset):
                raise MemoryError

    cdef void begin(self, int64_t base_offset, int64_t index_interval_bytes) noexcept:
        self.base_offset = self.next_offset = base_offset
        self.index_interval = index_interval_bytes
        self.max_timestamp = self.top_timestamp = self.top_offset = self.timed = self.epoch = -1

    def __dealloc__(self):
        PyMem_RawFree(self.epochs.start)
        free_map(&self.began)
        free_map(&self.places)
        PyMem_RawFree(self.states.start)
        PyMem_RawFree(self.offsets.start)
        PyMem_RawFree(self.times.start)
        PyMem_RawFree(self.aborted.start)

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil:
        # The stretch begins there in the log.
        self.log = p - self.from_at
        return True

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        cdef batch_t moved
        if self.from_at:
            moved = b[0]
            moved.at += self.from_at
            b = &moved
        if b.magic == LAST_MAGIC:
            self.record_batch(self.log + b.at, b)
        else:
            self.one_message(self.log + b.at, b)
        return not self.no_memory

    cdef void record_batch(self, const uint8_t *p, const batch_t *b) noexcept nogil:
        self.append(b, b.header.record_count)
        if b.header.partition_leader_epoch > self.epoch:
            self.put_epoch(b)
        if b.header.attributes & CONTROL:
            self.marker(b)
        elif b.header.producer_id >= 0:
            self.produced(b)

    cdef void put_epoch(self, const batch_t *b) noexcept nogil:
        """As ``LeaderEpochFileCache.assign``."""
        if not has_room(&self.epochs, EPOCH_ENTRY):
            self.no_memory = True
            return
        self.epoch = b.header.partition_leader_epoch
        self.epochs.p = put_int64(put_int64(self.epochs.p, self.epoch), b.base_offset)

    cdef void one_message(self, const uint8_t *p, const batch_t *b) noexcept nogil:
        self.append(b, b.record_count)

    cdef void append(self, const batch_t *b, int64_t records) noexcept nogil:
        """As ``LogSegment.append``, which recovery uses."""
        cdef int64_t last = b.last_offset
        self.next_offset = <int64_t> (<uint64_t> last + 1)
        if b.max_timestamp > self.top_timestamp:
            self.top_timestamp = b.max_timestamp
            self.top_offset = last
        if b.at - self.indexed_at > self.index_interval:
            self.index(last, b.at)
            self.indexed_at = b.at
        self.batches += 1
        self.records += records
        self.max_timestamp = max(self.max_timestamp, b.max_timestamp)

    cdef void index(self, int64_t last, int64_t at) noexcept nogil:
        if not has_room(&self.offsets, OFFSET_ENTRY) or not has_room(&self.times, TIME_ENTRY):
            self.no_memory = True
            return
        self.offsets.p = put_int32(put_int32(self.offsets.p, self.relative(last)), <int32_t> at)
        if self.top_timestamp > self.timed:
            self.times.p = self.put_time(self.times.p)
            self.timed = self.top_timestamp

    cdef int32_t relative(self, int64_t offset) noexcept nogil:
        return <int32_t> (<uint64_t> offset - <uint64_t> self.base_offset)

    cdef uint8_t *put_time(self, uint8_t *p) noexcept nogil:
        return put_int32(put_int64(p, self.top_timestamp), self.relative(self.top_offset))

    cdef void produced(self, const batch_t *b) noexcept nogil:
        """A batch of data with a producer id."""
        cdef int64_t earliest
        self.keep(b, False)
        if b.header.attributes & TRANSACTIONAL and follow(&self.began, b, &earliest) == NO_MEMORY:
            self.no_memory = True

    cdef void marker(self, const batch_t *b) noexcept nogil:
        cdef int64_t began
        cdef int became = follow(&self.began, b, &began)
        self.control_batches += 1
        self.keep(b, True)
        if became == ABORTS and began >= 0:
            self.put_aborted(b, began, self.stable(b.base_offset))

    cdef void put_aborted(self, const batch_t *b, int64_t began, int64_t stable) noexcept nogil:
        """An entry of the transaction index: ``AbortedTxn``."""
        cdef uint8_t *p
        if not has_room(&self.aborted, ABORTED_ENTRY):
            self.no_memory = True
            return
        p = put_int64(put_int64(put_int16(self.aborted.p, 0), b.header.producer_id), began)
        self.aborted.p = put_int64(put_int64(p, b.base_offset), stable)

    cdef void keep(self, const batch_t *b, bint is_marker) noexcept nogil:
        """As ``ProducerAppendInfo.append``: update the producer of this batch."""
        cdef const header_t *h = b.header
        cdef const row_t *row
        cdef entry_t *known = find(&self.places, h.producer_id)
        cdef int64_t place = (self.states.p - self.states.start) // <int64_t> sizeof(state_t)
        cdef state_t *state
        cdef int64_t sequence = <int64_t> h.base_sequence + h.last_offset_delta
        if h.producer_id < 0 or is_marker and h.record_count == 0:
            # KRaft's control batches have no producer, and compaction has removed what a marker said.
            return
        if known == NULL:
            if not has_room(&self.states, sizeof(state_t)) or not put(&self.places, h.producer_id, place):
                self.no_memory = True
                return
            self.states.p += sizeof(state_t)
        else:
            place = known.value
        state = <state_t *> self.states.start + place
        if known == NULL:
            state[0] = state_t(h.producer_id, -1, -1, -1, 0, -1, h.producer_epoch)
        if state.epoch != h.producer_epoch:
            state.epoch = h.producer_epoch
            state.last_offset = state.last_sequence = -1
            state.offset_delta = 0
        state.timestamp = b.max_timestamp
        if not is_marker:
            state.last_offset = b.last_offset
            state.offset_delta = h.last_offset_delta
            # Kafka's sequences wrap from INT32_MAX to 0; -1 is none.
            state.last_sequence = <int32_t> (-1 if h.base_sequence == -1 else sequence & 0x7fffffff)
        elif b.rows.count > 0:
            row = b.rows.rows
            if not h.attributes & LOG_APPEND_TIME:
                state.timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
            read_marker(b.base + row.key_at, row.key_length, b.base + row.value_at, row.value_length,
                        &state.coordinator_epoch)

    cdef int64_t stable(self, int64_t marker) noexcept nogil:
        """The last stable offset after this marker."""
        cdef int64_t least = INT64_MAX
        cdef int64_t i
        if self.began.count == 0:
            return marker + 1
        for i in range(self.began.capacity):
            if self.began.entries[i].used:
                least = min(least, self.began.entries[i].value)
        return least

    # -- for Python, when the walk is over

    @property
    def open_transactions(self):
        cdef int64_t i
        cdef list found = []
        for i in range(self.began.capacity):
            if self.began.entries[i].used:
                found.append((self.began.entries[i].key, self.began.entries[i].value))
        return sorted(found)

    @property
    def producers(self):
        cdef const state_t *p = <const state_t *> self.states.start
        cdef const state_t *end = <const state_t *> self.states.p
        cdef entry_t *began
        cdef list found = []
        while p < end:
            began = find(&self.began, p.id)
            found.append((p.id, p.epoch, p.last_sequence, p.last_offset, p.offset_delta, p.timestamp,
                          p.coordinator_epoch, -1 if began == NULL else began.value))
            p += 1
        return found

    @property
    def leader_epochs(self):
        return list(EPOCHS.iter_unpack(contents(&self.epochs)))

    @property
    def offset_index(self):
        return contents(&self.offsets)

    @property
    def time_index(self):
        cdef uint8_t entry[TIME_ENTRY]
        if self.top_timestamp <= self.timed:
            return contents(&self.times)
        self.put_time(entry)
        return contents(&self.times) + PyBytes_FromStringAndSize(<const char *> entry, TIME_ENTRY)

    @property
    def transaction_index(self):
        return contents(&self.aborted)
