"""Which writer writes the next batch of a segment, and how many records; the interface is described in turns.pyi.

``kfuzz.corpora.writers`` plans what each writer adds to a segment. Here the writers take turns. Every random number is
a hash of (segment seed, batch, purpose).
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t

from kfuzz.corpora.draws cimport cell, draw, high, low, scaled, threshold, to_range

from kfuzz.corpora.hostile import hostile_of


cdef inline uint64_t weight(const stream_t *s, int64_t left) noexcept nogil:
    """``left`` is the number of the segment's remaining offsets."""
    if ends_transaction(s):
        return <uint64_t> left
    return <uint64_t> (s.records + s.markers)


cdef inline int64_t cut(const stream_t *s, int64_t at) noexcept nogil:
    """As in kfuzz.corpora.writers."""
    cdef int64_t width
    if at == 0 or at >= s.pieces:
        return 0 if at == 0 else s.all_records
    width = s.all_records // s.pieces
    return at * s.all_records // s.pieces - width // 2 + scaled(low(cell(s.cuts, <uint64_t> at)), width)


cdef class Writers:
    """Which writer writes the next batch, and how many records. Nothing here depends on what the records hold."""

    def __cinit__(self, segment, *others):
        self.seed = segment.seed
        self.first_offset = self.offset = segment.first_offset
        self.left = segment.offsets
        topic = segment.topic
        transactions = topic.transactions
        self.batch_records = to_range(topic.batches.records)
        self.aborts = threshold(transactions.abort_share)
        self.leader_epoch_offsets = topic.leader_epoch_offsets
        self.epoch_records = topic.producers.epoch_records
        self.epoch_transactions = transactions.epoch_transactions
        self.coordinator_epoch_transactions = transactions.coordinator_epoch_transactions
        self.partition, self.partitions, self.span = segment.partition, topic.partitions, transactions.partitions
        if topic.adversarial.share:
            self.set_hostile(topic.adversarial)
        self.set_streams(segment.streams, opened(segment))

    def __dealloc__(self):
        PyMem_Free(self.streams)
        PyMem_Free(self.hostile_offsets)

    cdef int set_hostile(self, adversarial) except -1:
        cdef int64_t at
        found = hostile_of(adversarial)
        self.hostile_count = len(found)
        self.hostile_offsets = <int64_t *> PyMem_Calloc(<size_t> self.hostile_count, sizeof(int64_t))
        if self.hostile_offsets == NULL:
            raise MemoryError
        for at in range(self.hostile_count):
            self.hostile_offsets[at] = found[at].offsets
            self.hostile_singles += found[at].offsets == 1
        return 0

    cdef int set_streams(self, streams, dict first_offsets) except -1:
        cdef stream_t *s
        self.stream_count = <int> len(streams)
        self.streams = <stream_t *> PyMem_Calloc(self.stream_count, sizeof(stream_t))
        if self.streams == NULL:
            raise MemoryError
        for at, stream in enumerate(streams):
            s = &self.streams[<int> at]
            s.kind, s.producer_id, s.sequence = stream.kind, stream.producer_id, stream.first_sequence
            s.producer_epoch = stream.producer_epoch
            s.records = s.all_records = stream.records
            s.markers, s.pieces, s.number = stream.markers, stream.pieces, stream.first_transaction
            s.cuts, s.outcomes = stream.cuts, stream.outcomes
            s.epoch_left = INT64_MAX
            if self.epoch_records != 0:
                s.epoch_left = self.epoch_records - stream.written % self.epoch_records
            s.first_offset = s.data_offset = s.data_sequence = s.timestamp = s.coordinator_epoch = -1
            if stream.continues:
                # In the segment before another one, only the end of these transactions matters.
                s.first_offset = first_offsets.get(stream.producer_id, 0)
                self.begin(s)
                # Its last batch in the segment before is its producer's last one there, which the cleaner keeps.
                s.remains = True
        return 0

    def open_at_end(self):
        self.aborted()
        return {
            self.streams[i].producer_id: self.streams[i].first_offset
            for i in range(self.stream_count) if self.streams[i].first_offset >= 0
        }

    def aborted(self):
        cdef stream_t *s
        cdef int64_t count
        cdef list found = []
        with nogil:
            while self.left > 0:
                s = self.next_writer()
                if ends_transaction(s):
                    count = 1
                    if s.aborts:
                        with gil:
                            found.append((s.producer_id, s.first_offset, self.offset, self.stable(s)))
                    self.end(s)
                else:
                    count = self.claim(s)
                self.offset += count
                self.left -= count
        return found

    cdef int64_t stable(self, const stream_t *ending) noexcept nogil:
        """The last stable offset after the marker of ``ending``, whose offset is the current offset.

        This is the first offset of the oldest transaction that is open after the marker.
        """
        cdef int64_t least = self.offset + 1
        cdef int i
        for i in range(self.stream_count):
            if &self.streams[i] != ending and self.streams[i].first_offset >= 0:
                least = min(least, self.streams[i].first_offset)
        return least

    cdef stream_t *next_writer(self) noexcept nogil:
        self.batch_seed = cell(self.seed, <uint64_t> self.batch_index)
        self.batch_index += 1
        return self.choose(cell(self.batch_seed, 0))

    cdef stream_t *choose(self, uint64_t u) noexcept nogil:
        """Choose a stream by the random number ``u``, in proportion to the offsets that it still has to write.

        A stream that only waits for its marker gets the weight of the whole segment's remaining offsets.
        """
        cdef uint64_t total = 0
        cdef uint64_t at
        cdef int i
        for i in range(self.stream_count):
            total += weight(&self.streams[i], self.left)
        at = u % total
        for i in range(self.stream_count):
            if at < weight(&self.streams[i], self.left):
                return &self.streams[i]
            at -= weight(&self.streams[i], self.left)
        return &self.streams[self.stream_count - 1]

    cdef int64_t claim(self, stream_t *s) noexcept nogil:
        """Return the number of records in the next batch of ``s``, and count them as written.

        Begins a transaction or an epoch if one is due.
        """
        cdef int64_t count
        if s.kind == HOSTILE:
            return self.claim_hostile(s)
        count = draw(&self.batch_records, low(cell(self.batch_seed, 1)))
        if self.leader_epoch_offsets != 0:
            count = min(count, self.leader_epoch_offsets - self.offset % self.leader_epoch_offsets)
        if s.kind == TRANSACTIONS:
            if s.first_offset < 0:
                s.first_offset = self.offset
                self.begin(s)
            count = min(count, s.in_transaction)
            s.in_transaction -= count
        elif s.kind == IDEMPOTENT:
            if s.epoch_left == 0:
                s.producer_epoch += 1
                s.sequence = 0
                s.epoch_left = self.epoch_records
            count = min(count, s.epoch_left, s.records)
            s.epoch_left -= count
        count = min(count, s.records)
        s.records -= count
        return count

    cdef int64_t claim_hostile(self, stream_t *s) noexcept nogil:
        """Choose the next vector; one of a single offset if there is no room for more."""
        cdef uint32_t u = high(cell(self.batch_seed, 1))
        cdef int64_t most = s.records
        if self.leader_epoch_offsets != 0:
            most = min(most, self.leader_epoch_offsets - self.offset % self.leader_epoch_offsets)
        s.number = scaled(u, self.hostile_count)
        if self.hostile_offsets[s.number] > most:
            s.number = scaled(u, self.hostile_singles)
        s.records -= self.hostile_offsets[s.number]
        return self.hostile_offsets[s.number]

    cdef void begin(self, stream_t *s) noexcept nogil:
        """Begin the next transaction of ``s``; see kfuzz.corpora.writers."""
        cdef int64_t epoch
        s.in_transaction = cut(s, s.piece + 1) - cut(s, s.piece)
        s.transaction = (self.partition + self.partitions * s.number) // self.span
        s.aborts = low(cell(s.outcomes, <uint64_t> s.transaction)) < self.aborts
        s.remains = False
        s.piece += 1
        s.number += 1
        if self.epoch_transactions != 0:
            epoch = s.transaction // self.epoch_transactions
            if epoch != s.producer_epoch:
                s.producer_epoch = epoch
                s.sequence = 0

    cdef void end(self, stream_t *s) noexcept nogil:
        """Count the marker that ends the transaction of ``s``."""
        s.first_offset = -1
        s.markers -= 1


def opened(segment):
    """The transactions that are open at the start of ``segment``: a dict of producer ids and first offsets."""
    return {} if segment.before is None else Writers(segment.before).open_at_end()
