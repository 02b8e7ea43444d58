# Control records, open transactions, and the batches that a consumer skips.
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.int64_map cimport map_t
from kfuzz.wire.walk.policy cimport batch_t

# The effect of a producer's next batch on its transaction.
cdef enum:
    GOES_ON                    # nothing: it stays open, or no transaction is open
    BEGINS
    COMMITS
    ABORTS
    STAYS_OPEN                 # the batch is not transactional, though a transaction is open
    HAS_NO_RECORD              # a control batch whose first record cannot be read
    HAS_NO_MARKER              # a control record that is not a valid end marker
    NO_MEMORY

# The marker's type, or a negative number if the control record is none.
cdef int read_marker(const uint8_t *key, int32_t key_length, const uint8_t *value, int32_t value_length,
                     int32_t *coordinator_epoch) noexcept nogil
cdef int follow(map_t *began, const batch_t *b, int64_t *first_offset) noexcept nogil

# A consumer never goes back, so it drops a record below its position.
cdef inline bint hands_out(int64_t offset, int64_t *position) noexcept nogil:
    if offset < position[0]:
        return False
    position[0] = <int64_t> (<uint64_t> offset + 1)
    return True
