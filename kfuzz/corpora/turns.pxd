# Which writer writes the next batch of a segment; see turns.pyi.
from libc.stdint cimport int64_t, uint64_t

from kfuzz.corpora.draws cimport range_t

cdef enum:
    # The kinds of streams, as in kfuzz.corpora.plan.
    PLAIN = 0
    IDEMPOTENT = 1
    TRANSACTIONS = 2
    MAGIC_0 = 3
    MAGIC_1 = 4
    HOSTILE = 5

cdef struct stream_t:
    int kind
    int64_t producer_id
    int64_t producer_epoch
    int64_t sequence
    int64_t epoch_left           # records until an idempotent producer's next epoch
    int64_t records              # still to write
    int64_t markers              # still to write
    int64_t in_transaction       # records still to write in the open transaction
    int64_t first_offset         # of the open transaction; -1 if none is open
    # The facts of Kafka's producer snapshot about this stream: its last batch of data, and its last batch of any kind.
    int64_t data_offset          # the last offset; -1 before the first batch
    int64_t data_delta           # the last offset less the first
    int64_t data_sequence        # the last sequence
    int64_t timestamp
    int64_t coordinator_epoch    # of its last marker; -1 before the first
    int64_t transaction          # the open transaction, as kfuzz.corpora.writers.transaction_of numbers it
    bint aborts                  # how the open transaction ends
    bint remains                 # whether compaction leaves a batch of it
    int64_t number               # of the next transaction, within the partition; of a hostile batch: its vector
    int64_t piece                # of the next transaction, within the segment
    int64_t pieces
    int64_t all_records
    uint64_t cuts
    uint64_t outcomes

cdef inline bint ends_transaction(const stream_t *s) noexcept nogil:
    return s.first_offset >= 0 and s.in_transaction == 0 and s.markers > 0

cdef class Writers:
    cdef uint64_t seed, batch_seed
    cdef int64_t first_offset, offset, left, batch_index
    cdef stream_t *streams
    cdef int stream_count
    cdef range_t batch_records
    cdef uint64_t aborts
    cdef int64_t leader_epoch_offsets
    cdef int64_t epoch_records, epoch_transactions, coordinator_epoch_transactions
    cdef int64_t partition, partitions, span
    # How many offsets each hostile batch takes; those that take one come first.
    cdef int64_t *hostile_offsets
    cdef int64_t hostile_count, hostile_singles

    cdef int set_streams(self, streams, dict first_offsets) except -1
    cdef int64_t stable(self, const stream_t *ending) noexcept nogil
    cdef stream_t *next_writer(self) noexcept nogil
    cdef stream_t *choose(self, uint64_t u) noexcept nogil
    cdef int64_t claim(self, stream_t *s) noexcept nogil
    cdef int64_t claim_hostile(self, stream_t *s) noexcept nogil
    cdef int set_hostile(self, adversarial) except -1
    cdef void begin(self, stream_t *s) noexcept nogil
    cdef void end(self, stream_t *s) noexcept nogil
