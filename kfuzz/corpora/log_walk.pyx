"""What verification learns of a log while the reader's walk goes over it; the interface is described in log_walk.pyi.

The reader has checked the CRC of each batch that comes here. So the sums over whole files and payloads are computed
from those CRCs, and most bytes are summed once. Nothing here is shared with the generator but the formats of Kafka and
the plan. One thing is taken from the generator: where the transactions began that are open at the segment's start. It
is compared with the log when the segment before is verified.
"""

cimport cython
from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kfuzz.wire.checksum cimport crc32c_moved, crc32c_of, crc32c_on, crc32c_over
from kfuzz.wire.cursor cimport load16, load32
from kfuzz.wire.format cimport (
    AT_ATTRIBUTES,
    AT_BATCH_LENGTH,
    AT_CRC,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    KEY_AT_V0,
    KEY_AT_V1,
    LAST_MAGIC,
    LOG_APPEND_TIME,
    MESSAGE_AT_CRC,
    TRANSACTIONAL,
)
from kfuzz.wire.held cimport Held, hold
from kfuzz.wire.int64_map cimport entry_t, find, free_map, map_t, put
from kfuzz.wire.policy cimport Policy, batch_t
from kfuzz.wire.record_batch cimport header_t, row_t
from kfuzz.wire.report cimport report_t
from kfuzz.wire.scratch cimport enlarge, out_t
from kfuzz.wire.sink cimport put_int16, put_int32, put_int64
from kfuzz.wire.splitmix cimport nth
from kfuzz.wire.transactions cimport ABORTS, COMMITS, NO_MEMORY, follow, read_marker

import struct
from hashlib import blake2b

from kfuzz.corpora.synth import DIGEST_BYTES
from kfuzz.corpora.turns import Writers, opened
from kfuzz.corpora.writers import TRANSACTIONAL as TRANSACTIONAL_STREAM
from kfuzz.corpora.writers import threshold

EPOCHS = struct.Struct(">qq")

# The kinds of faults, as numbers of FAULTS.
cdef enum:
    OF_OFFSET = 0
    OF_SEQUENCE
    OF_PRODUCER
    OF_TRANSACTION
    OF_EPOCH
    OF_OUTCOME
    OF_COORDINATOR
    OF_LEADER
    OF_SIZE
    OF_RECORDS
    OF_GAP
    OF_HORIZON
    OF_REMAINS
    OF_ABORTED

FAULTS = [
    ("offset-off-plan", "has base offset {found}; {planned} must follow"),
    ("sequence-off-plan", "has base sequence {found} of producer {producer_id}; the plan gives {planned}"),
    ("sequence-off-plan", "has base sequence {found} of producer {producer_id}; the plan has no such producer"),
    ("transaction-unknown", "ends a transaction of producer {producer_id} that did not begin"),
    ("epoch-off-plan", "has epoch {found} of producer {producer_id}; the plan gives {planned}"),
    ("outcome-off-plan", "has marker type {found} (0 aborts, 1 commits) of producer {producer_id}; the plan gives "
                         "{planned}"),
    ("epoch-off-plan", "has coordinator epoch {found} of producer {producer_id}; the plan gives {planned}"),
    ("epoch-off-plan", "has leader epoch {found}; the plan gives {planned}"),
    ("transaction-off-plan", "ends a transaction of producer {producer_id} with {found} records in this segment; the "
                             "plan gives {planned}"),
    ("transaction-off-plan", "has {found} records and markers of producer {producer_id}; the plan gives {planned}"),
    ("offset-off-plan", "has {found} records for {planned} offsets, though the segment is not cleaned"),
    ("compaction-off-plan", "has delete horizon {found} (-1: none); it must be {planned}"),
    ("compaction-off-plan", "has {found} records that the log cleaner drops, or is an empty batch that it drops"),
    ("transaction-off-plan", "aborts a transaction of producer {producer_id} that began at offset {found}; in the plan "
                             "it began at {planned}"),
]

cdef enum:
    # Further faults usually repeat the first ones.
    FAULTS_MAX = 20
    # A call of the hash costs little beside so many bytes.
    HASHED_BYTES = 16384
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12
    ABORTED_ENTRY = 34
    EPOCH_ENTRY = 16

cdef struct fault_t:
    int kind
    int64_t at
    int64_t found
    int64_t expected
    int64_t producer_id

# What the plan says of a producer, and how much of it has been read.
cdef struct producer_t:
    bint transactional
    int64_t producer_id
    int64_t sequence               # that must follow
    int64_t epoch
    int64_t written                # records in this partition
    int64_t ended                  # transactions that have ended in this segment
    int64_t in_transaction         # records in the open transaction
    int64_t records_here
    int64_t first_transaction
    int64_t pieces
    int64_t records
    int64_t markers
    uint64_t cuts
    uint64_t outcomes


# What Kafka's ProducerStateEntry keeps of a producer. The last offset is -1 if its last epoch has no data.
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


cdef int64_t cut(const producer_t *producer, int64_t at) noexcept nogil:
    """As ``kfuzz.corpora.writers.cut``."""
    cdef int64_t width, moved
    if at == 0 or at >= producer.pieces:
        return 0 if at == 0 else producer.records
    width = producer.records // producer.pieces
    moved = <int64_t> (<uint64_t> <uint32_t> nth(producer.cuts, <uint64_t> at + 1) * <uint64_t> width >> 32)
    return at * producer.records // producer.pieces - width // 2 + moved


cdef class IndexWalk(Policy):
    cdef const uint8_t *log
    cdef readonly int64_t batches, control_batches, records, max_timestamp, next_offset
    cdef int64_t base_offset, index_interval, indexed_at
    # The highest timestamp so far, the offset of its batch, and the time index's last timestamp.
    cdef int64_t top_timestamp, top_offset, timed
    # Where the stretch begins that is walked over.
    cdef int64_t from_at
    cdef out_t offsets, times, aborted
    # A state_t for each producer in the order of their first batches, and the place of each among them.
    cdef out_t states
    cdef map_t places
    # By producer, the offset at which the open transaction began.
    cdef map_t began
    # Pairs of a leader epoch and its first offset, and the last of these epochs.
    cdef out_t epochs
    cdef int64_t epoch

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
        """As ``LogSegment.append``, on which recovery stands."""
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
            # Kafka's sequences wrap from INT32_MAX to 0.
            state.last_sequence = <int32_t> ((<int64_t> h.base_sequence + h.last_offset_delta) & 0x7fffffff)
        elif b.rows.count > 0:
            row = b.rows.rows
            read_marker(b.base + row.key_at, row.key_length, b.base + row.value_at, row.value_length,
                        &state.coordinator_epoch)

    cdef int64_t stable(self, int64_t marker) noexcept nogil:
        """The last stable offset behind this marker."""
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


@cython.final
cdef class LogWalk(IndexWalk):
    cdef readonly int64_t aborted_records
    cdef readonly uint32_t crc32c
    cdef int64_t min_timestamp_or_max
    # By producer, its number among the producers.
    cdef map_t numbers
    cdef producer_t *producers_planned
    cdef int64_t producer_count
    # In a cleaned segment, by the offset of an abort marker: the values of the entry that the cleaner leaves.
    cdef map_t first_offsets
    cdef map_t stable_offsets
    cdef bint cleaned
    cdef int64_t horizon
    cdef int64_t partition, partitions, span
    cdef int64_t leader_epoch_offsets, epoch_records, epoch_transactions, coordinator_epoch_transactions
    cdef uint64_t aborts
    cdef fault_t found[FAULTS_MAX]
    cdef int fault_count
    cdef object digest
    cdef int64_t unhashed
    cdef uint8_t hashed[HASHED_BYTES]

    def __init__(self, segment, int64_t index_interval_bytes):
        self.begin(segment.first_offset, index_interval_bytes)
        self.min_timestamp_or_max = INT64_MAX
        self.digest = blake2b(digest_size=DIGEST_BYTES)
        topic = segment.topic
        transactions = topic.transactions
        self.partition, self.partitions, self.span = segment.partition, topic.partitions, transactions.partitions
        self.leader_epoch_offsets = topic.leader_epoch_offsets
        self.epoch_records = topic.producers.epoch_records
        self.epoch_transactions = transactions.epoch_transactions
        self.coordinator_epoch_transactions = transactions.coordinator_epoch_transactions
        self.aborts = threshold(transactions.abort_share)
        self.cleaned, self.horizon = segment.is_cleaned, segment.delete_horizon_ms
        if self.cleaned:
            # The rows show keys and tombstones.
            self.reads_rows = True
            for _, first_offset, marker, stable in Writers(segment).aborted():
                if not put(&self.first_offsets, marker, first_offset) or not put(&self.stable_offsets, marker, stable):
                    raise MemoryError
        self.set_producers(segment.streams, opened(segment))

    cdef int set_producers(self, streams, dict first_offsets) except -1:
        cdef producer_t *producer
        known = [stream for stream in streams if stream.producer_id >= 0]
        self.producers_planned = <producer_t *> PyMem_RawCalloc(<size_t> len(known) + 1, sizeof(producer_t))
        if self.producers_planned == NULL:
            raise MemoryError
        for stream in known:
            producer = &self.producers_planned[self.producer_count]
            producer.transactional = stream.kind == TRANSACTIONAL_STREAM
            producer.producer_id, producer.sequence = stream.producer_id, stream.first_sequence
            producer.epoch, producer.written = stream.producer_epoch, stream.written
            producer.first_transaction, producer.pieces = stream.first_transaction, stream.pieces
            producer.records, producer.markers = stream.records, stream.markers
            producer.cuts, producer.outcomes = stream.cuts, stream.outcomes
            if not put(&self.numbers, stream.producer_id, self.producer_count):
                raise MemoryError
            if stream.continues and not put(&self.began, stream.producer_id, first_offsets[stream.producer_id]):
                raise MemoryError
            self.producer_count += 1
        return 0

    def __dealloc__(self):
        free_map(&self.numbers)
        free_map(&self.first_offsets)
        free_map(&self.stable_offsets)
        PyMem_RawFree(self.producers_planned)

    cdef void record_batch(self, const uint8_t *p, const batch_t *b) noexcept nogil:
        cdef const header_t *h = b.header
        cdef int64_t n = b.size - HEADER_SIZE
        cdef int64_t leader_epoch = 0
        cdef int64_t earliest
        cdef uint32_t factor, content
        if b.codec:
            content = crc32c_of(b.base, b.base_bytes)
            factor = crc32c_over(b.size - AT_ATTRIBUTES)
            self.crc32c = crc32c_moved(crc32c_on(self.crc32c, p, AT_ATTRIBUTES), factor) ^ h.crc
        else:
            # The batch's CRC covers the end of the header and the payload; take the header out of it.
            factor = crc32c_over(n)
            content = crc32c_moved(crc32c_of(p + AT_ATTRIBUTES, HEADER_SIZE - AT_ATTRIBUTES), factor) ^ h.crc
            self.crc32c = crc32c_moved(crc32c_on(self.crc32c, p, HEADER_SIZE), factor) ^ content
        self.hash(p, HEADER_SIZE, AT_CRC, content)
        if self.leader_epoch_offsets:
            leader_epoch = b.base_offset // self.leader_epoch_offsets
            if b.last_offset // self.leader_epoch_offsets != leader_epoch:
                # The batch reaches into the next epoch.
                leader_epoch += 1
        if h.partition_leader_epoch != leader_epoch:
            self.fault(OF_LEADER, b.at, h.partition_leader_epoch, leader_epoch, -1)
        earliest = h.base_timestamp
        if h.attributes & (LOG_APPEND_TIME | DELETE_HORIZON) or h.record_count == 0:
            earliest = h.max_timestamp
        self.place(b, b.base_offset, earliest)
        self.append(b, h.record_count)
        self.contents(b)
        if h.attributes & CONTROL:
            self.marker(b)
        elif h.producer_id >= 0:
            self.produced(b)

    cdef void one_message(self, const uint8_t *p, const batch_t *b) noexcept nogil:
        """A message of magic 0 or 1. Its own CRC is of another polynomial."""
        cdef int64_t fields = KEY_AT_V1 if b.magic == 1 else KEY_AT_V0
        cdef int64_t n = b.size - fields
        cdef uint32_t content = crc32c_of(p + fields, n)
        self.crc32c = crc32c_moved(crc32c_on(self.crc32c, p, fields), crc32c_over(n)) ^ content
        if b.codec:
            content = crc32c_of(b.base, b.base_bytes)
        self.hash(p, fields, MESSAGE_AT_CRC, content)
        self.place(b, b.last_offset - b.record_count + 1, b.max_timestamp)
        self.append(b, b.record_count)

    cdef void hash(self, const uint8_t *header, int64_t size, int64_t at_crc, uint32_t content) noexcept nogil:
        """Add a batch to the content fingerprint: the CRC-32Cs of its header, without length and CRC, and contents."""
        cdef uint8_t[HEADER_SIZE] blank
        if self.unhashed == HASHED_BYTES:
            with gil:
                self.hash_rest()
        memcpy(blank, header, <size_t> size)
        memset(blank + AT_BATCH_LENGTH, 0, 4)
        memset(blank + at_crc, 0, 4)
        put_int32(put_int32(self.hashed + self.unhashed, <int32_t> crc32c_of(blank, size)), <int32_t> content)
        self.unhashed += 8

    cdef void hash_rest(self) noexcept:
        try:
            self.digest.update(PyMemoryView_FromMemory(<char *> self.hashed, self.unhashed, PyBUF_READ))
            self.unhashed = 0
        except MemoryError:
            self.unhashed = 0
            self.no_memory = True

    cdef void contents(self, const batch_t *b) noexcept nogil:
        """What compaction may and must have done to the batch, as far as the batch shows it."""
        cdef const header_t *h = b.header
        cdef int64_t offsets = <int64_t> h.last_offset_delta + 1
        cdef int64_t keyless = 0
        cdef bint has_tombstone = False
        cdef int64_t i
        if not self.cleaned:
            if h.record_count != offsets:
                self.fault(OF_GAP, b.at, h.record_count, offsets, -1)
            if h.attributes & DELETE_HORIZON:
                self.fault(OF_HORIZON, b.at, h.base_timestamp, -1, -1)
            return
        if h.attributes & CONTROL:
            return
        for i in range(b.rows.count):
            keyless += b.rows.rows[i].key_length < 0
            has_tombstone |= b.rows.rows[i].value_length < 0
        if keyless or h.record_count == 0 and h.producer_id < 0:
            self.fault(OF_REMAINS, b.at, keyless, 0, -1)
        self.check_horizon(b, has_tombstone)

    cdef void check_horizon(self, const batch_t *b, bint needed) noexcept nogil:
        cdef int64_t found = b.header.base_timestamp if b.header.attributes & DELETE_HORIZON else -1
        cdef int64_t planned = self.horizon if needed else -1
        if found != planned:
            self.fault(OF_HORIZON, b.at, found, planned, -1)

    cdef void place(self, const batch_t *b, int64_t first, int64_t earliest) noexcept nogil:
        """Whether the batch begins where the last one ended, and the earliest timestamp."""
        if first != self.next_offset and (not self.cleaned or first < self.next_offset):
            self.fault(OF_OFFSET, b.at, first, self.next_offset, -1)
        if earliest >= 0:
            self.min_timestamp_or_max = min(self.min_timestamp_or_max, earliest)

    cdef producer_t *producer_of(self, const batch_t *b) noexcept nogil:
        """The plan's producer of a batch, or NULL. The epochs are compared here."""
        cdef const header_t *h = b.header
        cdef entry_t *number = find(&self.numbers, h.producer_id)
        cdef producer_t *producer
        cdef int64_t epoch = 0
        cdef int64_t removed
        if number == NULL:
            return NULL
        producer = &self.producers_planned[number.value]
        if producer.transactional and self.epoch_transactions:
            epoch = self.transaction(producer) // self.epoch_transactions
        elif not producer.transactional and self.epoch_records:
            removed = h.producer_epoch * self.epoch_records - producer.written
            if self.cleaned and removed > 0:
                # The last records of the epochs before were removed.
                self.pass_over(producer, removed)
            epoch = producer.written // self.epoch_records
        if epoch != h.producer_epoch:
            self.fault(OF_EPOCH, b.at, h.producer_epoch, epoch, h.producer_id)
        if epoch != producer.epoch:
            producer.epoch, producer.sequence = epoch, 0
        return producer

    cdef int64_t transaction(self, const producer_t *producer) noexcept nogil:
        """The number of the producer's current transaction, in the topic."""
        cdef int64_t number = producer.first_transaction + producer.ended
        return (self.partition + self.partitions * number) // self.span

    cdef bint aborts_now(self, const producer_t *producer) noexcept nogil:
        return <uint32_t> nth(producer.outcomes, <uint64_t> self.transaction(producer) + 1) < self.aborts

    cdef void pass_over(self, producer_t *producer, int64_t count) noexcept nogil:
        """Count records as written. Kafka's sequences wrap from INT32_MAX to 0."""
        producer.sequence = (producer.sequence + count) & 0x7fffffff
        producer.written += count
        producer.records_here += count
        producer.in_transaction += count

    cdef void produced(self, const batch_t *b) noexcept nogil:
        """A batch of data with a producer id."""
        cdef const header_t *h = b.header
        cdef producer_t *producer = self.producer_of(b)
        cdef int64_t offsets = <int64_t> h.last_offset_delta + 1
        cdef int64_t removed
        if producer == NULL:
            self.fault(OF_PRODUCER, b.at, h.base_sequence, -1, h.producer_id)
        else:
            if self.cleaned:
                # The sequences show how many records were removed before this batch.
                removed = (<int64_t> h.base_sequence - producer.sequence) & 0x7fffffff
                if removed <= producer.records - producer.records_here - offsets:
                    self.pass_over(producer, removed)
            if producer.sequence != h.base_sequence:
                self.fault(OF_SEQUENCE, b.at, h.base_sequence, producer.sequence, h.producer_id)
            producer.sequence = h.base_sequence
            self.pass_over(producer, offsets)
            if producer.transactional and self.aborts_now(producer):
                self.aborted_records += h.record_count
                if self.cleaned and h.record_count:
                    self.fault(OF_REMAINS, b.at, h.record_count, 0, h.producer_id)
            if self.cleaned and h.record_count == 0 and producer.records_here != producer.records:
                # Only the last batch of a producer stays without records.
                self.fault(OF_REMAINS, b.at, 0, 0, h.producer_id)
            if not producer.transactional and self.epoch_records \
                    and (producer.written - 1) // self.epoch_records != producer.epoch:
                # The batch reaches into the next epoch.
                self.fault(OF_EPOCH, b.at, h.producer_epoch, producer.epoch + 1, h.producer_id)
        IndexWalk.produced(self, b)

    cdef void marker(self, const batch_t *b) noexcept nogil:
        cdef int64_t began
        cdef int became = follow(&self.began, b, &began)
        cdef producer_t *producer
        cdef entry_t *first
        cdef entry_t *last
        cdef int64_t stable
        self.control_batches += 1
        self.keep(b, True)
        if self.cleaned:
            self.check_horizon(b, began < 0)
        if began < 0 and not self.cleaned:
            self.fault(OF_TRANSACTION, b.at, b.header.producer_id, -1, b.header.producer_id)
            return
        producer = self.producer_of(b)
        if self.cleaned and began < 0:
            # Nothing else remains of the transaction.
            if producer == NULL or b.rows.count != 1:
                self.fault(OF_TRANSACTION, b.at, b.header.producer_id, -1, b.header.producer_id)
                return
            became = ABORTS if load16(b.base + b.rows.rows[0].key_at + 2) == 0 else COMMITS
            self.ended(b, producer, became)
            return
        if producer != NULL and (became == ABORTS or became == COMMITS):
            self.ended(b, producer, became)
        if became == ABORTS:
            stable = self.stable(b.base_offset)
            if self.cleaned:
                # The cleaner may remove a transaction's first batches. It does not change the entry.
                first, last = find(&self.first_offsets, b.base_offset), find(&self.stable_offsets, b.base_offset)
                if first == NULL or first.value > began:
                    self.fault(OF_ABORTED, b.at, began, -1 if first == NULL else first.value, b.header.producer_id)
                    return
                began, stable = first.value, last.value
            self.put_aborted(b, began, stable)

    cdef void ended(self, const batch_t *b, producer_t *producer, int became) noexcept nogil:
        """Compare the end of a transaction with the plan."""
        cdef int64_t found = 0 if became == ABORTS else 1
        cdef int64_t planned = 0 if self.aborts_now(producer) else 1
        # The value of a marker: a version of two bytes, then the coordinator's epoch.
        cdef int64_t coordinator_epoch = <int32_t> load32(b.base + b.rows.rows[0].value_at + 2)
        cdef int64_t size = cut(producer, producer.ended + 1) - cut(producer, producer.ended)
        if found != planned:
            self.fault(OF_OUTCOME, b.at, found, planned, producer.producer_id)
        planned = 0
        if self.coordinator_epoch_transactions:
            planned = self.transaction(producer) // self.coordinator_epoch_transactions
        if coordinator_epoch != planned:
            self.fault(OF_COORDINATOR, b.at, coordinator_epoch, planned, producer.producer_id)
        if self.cleaned and producer.in_transaction < size:
            # The last records of the transaction were removed.
            self.pass_over(producer, size - producer.in_transaction)
        if producer.in_transaction != size:
            self.fault(OF_SIZE, b.at, producer.in_transaction, size, producer.producer_id)
        producer.in_transaction = 0
        producer.ended += 1

    cdef void end_of_producers(self, int64_t at) noexcept nogil:
        cdef producer_t *producer
        cdef int64_t i
        for i in range(self.producer_count):
            producer = &self.producers_planned[i]
            if producer.records_here != producer.records or producer.ended != producer.markers:
                self.fault(OF_RECORDS, at, producer.records_here + producer.ended,
                           producer.records + producer.markers, producer.producer_id)

    cdef void fault(self, int kind, int64_t at, int64_t found, int64_t expected, int64_t producer_id) noexcept nogil:
        if self.fault_count < FAULTS_MAX:
            self.found[self.fault_count] = fault_t(kind, at, found, expected, producer_id)
            self.fault_count += 1

    # -- for Python, when the walk is over

    def hostile(self, data not None, int64_t at, int64_t offsets):
        cdef Held held = hold(data)
        cdef int64_t last = self.next_offset + offsets - 1
        self.crc32c = crc32c_on(self.crc32c, held.p, held.n)
        self.hash_rest()
        self.digest.update(data)
        if at - self.indexed_at > self.index_interval:
            self.index(last, at)
            self.indexed_at = at
        self.next_offset = last + 1
        self.batches += 1
        self.from_at = at + held.n
        if self.no_memory:
            raise MemoryError

    def finish(self, int64_t at):
        self.end_of_producers(at)

    @property
    def faults(self):
        cdef int i
        return [
            (*FAULTS[self.found[i].kind], self.found[i].at, self.found[i].found, self.found[i].expected,
             self.found[i].producer_id)
            for i in range(self.fault_count)
        ]

    @property
    def min_timestamp(self):
        return None if self.min_timestamp_or_max == INT64_MAX else self.min_timestamp_or_max

    def fingerprint(self):
        self.hash_rest()
        if self.no_memory:
            raise MemoryError
        return self.digest.hexdigest()
