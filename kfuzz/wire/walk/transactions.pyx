"""Transactions in a log: where they end, and what a consumer sees. transactions.pyi describes the interface."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.arrays cimport resize
from kfuzz.wire.io.cursor cimport load16, load32
from kfuzz.wire.io.format cimport CONTROL, LAST_MAGIC, TRANSACTIONAL
from kfuzz.wire.io.int64_map cimport entry_t, find, free_map, map_t, put, remove
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.records.record_batch cimport header_t, row_t
from kfuzz.wire.walk.policy cimport ENDED, PASSED, PICKED, REFUSED, Choice, batch_t

# How a control record ends its producer's transaction, or why it does not.
cdef enum:
    IS_ABORT = 0
    IS_COMMIT = 1
    HAS_NO_KEY = -1
    HAS_KEY_INVALID = -2
    HAS_TYPE_OTHER = -3
    HAS_NO_VALUE = -4
    HAS_VALUE_VERSION_NEGATIVE = -5
    HAS_VALUE_SHORT = -6

ABORT, COMMIT = IS_ABORT, IS_COMMIT
NO_KEY, KEY_INVALID, TYPE_OTHER = HAS_NO_KEY, HAS_KEY_INVALID, HAS_TYPE_OTHER
NO_VALUE, VALUE_VERSION_NEGATIVE, VALUE_SHORT = HAS_NO_VALUE, HAS_VALUE_VERSION_NEGATIVE, HAS_VALUE_SHORT


# --- control records ------------------------------------------------------------------------------------------------

cdef int read_type(const uint8_t *key, int32_t length, int16_t *kind) noexcept nogil:
    """Store the type of a control record in ``kind``. Returns 0, or the reason why the key has no type."""
    if length < 0:
        return HAS_NO_KEY
    if length < 4 or key[0] & 0x80:
        return HAS_KEY_INVALID
    kind[0] = <int16_t> load16(key + 2)
    return 0


cdef int read_marker(const uint8_t *key, int32_t key_length, const uint8_t *value, int32_t value_length,
                     int32_t *coordinator_epoch) noexcept nogil:
    cdef int16_t kind
    cdef int why = read_type(key, key_length, &kind)
    coordinator_epoch[0] = -1
    if why:
        return why
    if kind != IS_ABORT and kind != IS_COMMIT:
        return HAS_TYPE_OTHER
    if value_length < 0:
        return HAS_NO_VALUE
    if value_length >= 2 and value[0] & 0x80:
        return HAS_VALUE_VERSION_NEGATIVE
    if value_length < 6:
        return HAS_VALUE_SHORT
    coordinator_epoch[0] = <int32_t> load32(value + 2)
    return kind


cdef const uint8_t *bytes_of(bytes data, int32_t *length) noexcept:
    """The address and the length of ``data``; length -1 for None."""
    length[0] = -1
    if data is None:
        return NULL
    length[0] = <int32_t> min(PyBytes_GET_SIZE(data), <Py_ssize_t> INT32_MAX)
    return <const uint8_t *> PyBytes_AS_STRING(data)


def end_marker(bytes key, bytes value):
    cdef int32_t key_length, value_length, coordinator_epoch
    cdef const uint8_t *p = bytes_of(key, &key_length)
    cdef const uint8_t *q = bytes_of(value, &value_length)
    cdef int said = read_marker(p, key_length, q, value_length, &coordinator_epoch)
    return said, coordinator_epoch


def control_type(bytes key):
    cdef int32_t length
    cdef int16_t kind = 0
    cdef const uint8_t *p = bytes_of(key, &length)
    return None if read_type(p, length, &kind) else kind


# --- transactions in a log ------------------------------------------------------------------------------------------

cdef int follow(map_t *began, const batch_t *b, int64_t *first_offset) noexcept nogil:
    """Apply a producer's batch to its transaction. ``began`` maps producers to the first offset of open transactions.

    ``first_offset`` gets the first offset of the transaction that was open before this batch, or -1. The first record
    of a control batch is the end marker. If a consumer refuses the batch, Kafka still reads this one record from an
    uncompressed batch. From a compressed batch it reads all records.
    """
    cdef const header_t *h = b.header
    cdef const row_t *row = b.rows.rows
    cdef entry_t *open = find(began, h.producer_id)
    cdef int32_t coordinator_epoch
    cdef int said
    first_offset[0] = -1 if open == NULL else open.value
    if h.attributes & CONTROL:
        if h.record_count == 0:
            # Compaction has removed the marker's record, so there is nothing to apply.
            return GOES_ON
        if b.rows.count == 0 or b.unreadable and (b.codec or h.record_count == 1):
            return HAS_NO_RECORD
        said = read_marker(b.base + row.key_at, row.key_length, b.base + row.value_at, row.value_length,
                           &coordinator_epoch)
        if said < 0:
            return HAS_NO_MARKER
        if open == NULL:
            return GOES_ON
        remove(began, open)
        return ABORTS if said == IS_ABORT else COMMITS
    if not h.attributes & TRANSACTIONAL:
        return GOES_ON if open == NULL else STAYS_OPEN
    if open != NULL:
        return GOES_ON
    return BEGINS if put(began, h.producer_id, h.base_offset) else NO_MEMORY


cdef struct transaction_t:
    int64_t producer_id
    int64_t first_offset


@cython.final
cdef class Decisions(Choice):
    cdef map_t began
    # The aborted transactions, in the order of their markers.
    cdef transaction_t *aborted
    cdef int64_t count
    cdef int64_t capacity
    cdef bint begun
    cdef int64_t last_offset

    def __dealloc__(self):
        free_map(&self.began)
        PyMem_RawFree(self.aborted)

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        self.said = PASSED
        if b.magic == LAST_MAGIC and b.header.producer_id >= 0 and not self.producer(b):
            self.said = REFUSED
            return False
        self.begun = True
        self.last_offset = b.last_offset
        return True

    cdef bint producer(self, const batch_t *b) noexcept nogil:
        """Update the producer's state. False if the batch is invalid in a log, or memory ran out."""
        cdef int64_t first_offset
        cdef int became = follow(&self.began, b, &first_offset)
        if became == ABORTS:
            self.no_memory = not self.keep(transaction_t(b.header.producer_id, first_offset))
        elif became == NO_MEMORY:
            self.no_memory = True
        elif became != GOES_ON and became != BEGINS and became != COMMITS:
            return False
        return not self.no_memory

    cdef bint keep(self, transaction_t transaction) noexcept nogil:
        if self.count == self.capacity:
            if not resize(<void **> &self.aborted, 2 * self.capacity + 16, sizeof(transaction_t)):
                return False
            self.capacity = 2 * self.capacity + 16
        self.aborted[self.count] = transaction
        self.count += 1
        return True

    @property
    def refused(self):
        return self.said == REFUSED

    @property
    def aborted_transactions(self):
        cdef int64_t i
        return [(self.aborted[i].producer_id, self.aborted[i].first_offset) for i in range(self.count)]

    @property
    def last_stable_offset(self):
        cdef int64_t least = INT64_MAX
        cdef int64_t i
        if self.began.count == 0:
            # Add as Python ints: one more than the largest offset does not fit into 64 bits.
            return <object> self.last_offset + 1 if self.begun else 0
        for i in range(self.began.capacity):
            if self.began.entries[i].used:
                least = min(least, self.began.entries[i].value)
        return least


# --- transactions for a consumer ------------------------------------------------------------------------------------

@cython.final
cdef class Aborted:
    # Ordered by first offset. Those before index `next` have begun.
    cdef transaction_t *transactions
    cdef int64_t count
    cdef int64_t next
    # The producers with a transaction that has begun and not ended.
    cdef map_t open

    def __init__(self, list transactions not None):
        cdef int64_t room = len(transactions)
        if self.transactions != NULL:
            raise TypeError("it has its transactions already")
        if room and not resize(<void **> &self.transactions, room, sizeof(transaction_t)):
            raise MemoryError
        for transaction in transactions:
            producer_id, first_offset = transaction[0], transaction[1]
            # Producer ids and offsets in batches have 64 bits, so a larger value never matches.
            if self.count < room and INT64_MIN <= producer_id <= INT64_MAX and first_offset <= INT64_MAX:
                self.transactions[self.count] = transaction_t(producer_id, max(first_offset, INT64_MIN))
                self.count += 1

    def __dealloc__(self):
        PyMem_RawFree(self.transactions)
        free_map(&self.open)

    cdef bint begin(self, int64_t last_offset) noexcept nogil:
        """Begin all transactions with a first offset up to ``last_offset``. False if memory ran out."""
        while self.next < self.count and self.transactions[self.next].first_offset <= last_offset:
            if not put(&self.open, self.transactions[self.next].producer_id, 0):
                return False
            self.next += 1
        return True

    cdef void finish(self, int64_t producer_id) noexcept nogil:
        cdef entry_t *open = find(&self.open, producer_id)
        if open != NULL:
            remove(&self.open, open)

    def reach(self, int64_t last_offset):
        if not self.begin(last_offset):
            raise MemoryError  # unreachable: only if memory runs out

    def end(self, int64_t producer_id):
        self.finish(producer_id)

    def __contains__(self, int64_t producer_id):
        return find(&self.open, producer_id) != NULL


@cython.final
cdef class CommittedOnly(Choice):
    cdef Aborted aborted
    cdef int64_t position
    # The offset at which reading ends. A flag says if there is one, because even the largest offset is a valid bound.
    cdef bint is_bounded
    cdef int64_t bound
    cdef int64_t asked

    def __init__(self, Aborted aborted not None, int64_t position, last_stable_offset=None):
        self.reads_rows = True
        self.aborted = aborted
        self.position = position
        self.is_bounded = last_stable_offset is not None and last_stable_offset <= INT64_MAX
        if self.is_bounded:
            self.bound = last_stable_offset

    @property
    def index(self):
        return self.asked - 1

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        self.asked += 1
        self.said = self.judged(b)
        return self.said == PASSED

    cdef int judged(self, const batch_t *b) noexcept nogil:
        cdef const header_t *h = b.header
        cdef const row_t *row = b.rows.rows
        cdef bint is_control = b.magic == LAST_MAGIC and h.attributes & CONTROL
        cdef bint any_handed_out = False
        cdef int16_t kind = IS_COMMIT
        cdef int64_t i
        if self.is_bounded and first_offset_of(b) >= self.bound:
            return ENDED
        if b.magic == LAST_MAGIC and h.producer_id >= 0:
            if not self.aborted.begin(b.last_offset):
                self.no_memory = True
                return REFUSED
            if is_control and b.rows.count and read_type(b.base + row.key_at, row.key_length, &kind):
                return REFUSED
            if kind == IS_ABORT:
                self.aborted.finish(h.producer_id)
            elif h.attributes & TRANSACTIONAL and find(&self.aborted.open, h.producer_id) != NULL:
                self.position = <int64_t> (<uint64_t> b.last_offset + 1)
                return PASSED
        for i in range(b.rows.count):
            any_handed_out |= hands_out(offset_of(b, i), &self.position)
        return PICKED if any_handed_out and not is_control else PASSED


cdef inline int64_t offset_of(const batch_t *b, int64_t i) noexcept nogil:
    """The offset of a record. The sum wraps around, as in Java."""
    return <int64_t> (<uint64_t> b.header.base_offset + <uint64_t> b.rows.rows[i].offset_delta)


cdef int64_t first_offset_of(const batch_t *b) noexcept nogil:
    """The batch's first offset. For a wrapper, this is the offset of its first message."""
    if b.magic == LAST_MAGIC or b.rows.count == 0:
        return b.base_offset
    return offset_of(b, 0)
