"""Collects facts for verification while the reader's walk goes over a log; the interface is described in log_walk.pyi.

The reader has checked the CRC of each batch that comes here. So the sums over whole files and payloads are computed
from those CRCs, and most bytes are summed once. Nothing here is shared with the generator but the formats of Kafka and
the plan. One thing is taken from the generator: where the transactions began that are open at the segment's start. It
is compared with the log when the segment before is verified.
"""

from cpython.buffer cimport PyBUF_READ
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kfuzz.logs.index_walk cimport IndexWalk
from kfuzz.wire.io.checksum cimport crc32c_moved, crc32c_of, crc32c_on, crc32c_over
from kfuzz.wire.io.cursor cimport load16, load32
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BATCH_LENGTH,
    AT_CRC,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    KEY_AT_V0,
    KEY_AT_V1,
    LOG_APPEND_TIME,
    MESSAGE_AT_CRC,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.int64_map cimport entry_t, find, free_map, map_t, put
from kfuzz.wire.io.sink cimport put_int32
from kfuzz.wire.io.splitmix cimport nth
from kfuzz.wire.records.record_batch cimport header_t
from kfuzz.wire.walk.policy cimport batch_t
from kfuzz.wire.walk.transactions cimport ABORTS, COMMITS, follow

from hashlib import blake2b

from kfuzz.corpora.synth import DIGEST_BYTES
from kfuzz.corpora.turns import Writers, opened
from kfuzz.corpora.writers import TRANSACTIONAL as TRANSACTIONAL_STREAM
from kfuzz.corpora.writers import threshold

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

cdef struct fault_t:
    int kind
    int64_t at
    int64_t found
    int64_t expected
    int64_t producer_id

# The plan of a producer, and how much of it has been read.
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


cdef int64_t cut(const producer_t *producer, int64_t at) noexcept nogil:
    """As ``kfuzz.corpora.writers.cut``."""
    cdef int64_t width, moved
    if at == 0 or at >= producer.pieces:
        return 0 if at == 0 else producer.records
    width = producer.records // producer.pieces
    moved = <int64_t> (<uint64_t> <uint32_t> nth(producer.cuts, <uint64_t> at + 1) * <uint64_t> width >> 32)
    return at * producer.records // producer.pieces - width // 2 + moved


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
    # Whether control records without a producer are right, such as LeaderChange.
    cdef bint of_controllers
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
        self.of_controllers = topic.kind == "cluster-metadata"
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
            if h.producer_id < 0 and self.of_controllers:
                self.control_batches += 1
            else:
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
        """Check the effects that compaction may and must have on the batch, as far as the batch shows them."""
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
        cdef HeldBuffer held = hold(data)
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
