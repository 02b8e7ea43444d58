# What control records say, which transactions are open, and which batches a consumer leaves out.
from libc.stdint cimport int64_t, uint64_t

from kfuzz.wire.int64_map cimport map_t
from kfuzz.wire.policy cimport batch_t

# What becomes of a producer's transaction with its next batch.
cdef enum:
    GOES_ON                    # nothing: it stays open, or there is none
    BEGINS
    COMMITS
    ABORTS
    STAYS_OPEN                 # the batch is not transactional, though a transaction is open
    HAS_NO_RECORD              # a control batch whose first record cannot be read
    HAS_NO_MARKER              # a control record that ends no transaction
    NO_MEMORY

cdef int follow(map_t *began, const batch_t *b, int64_t *first_offset) noexcept nogil

# A consumer never goes back: a record below its position is lost.
cdef inline bint hands_out(int64_t offset, int64_t *position) noexcept nogil:
    if offset < position[0]:
        return False
    position[0] = <int64_t> (<uint64_t> offset + 1)
    return True
