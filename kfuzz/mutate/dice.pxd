# Random numbers that depend only on (seed, stream, counter): splitmix64.
from libc.stdint cimport uint64_t

from kfuzz.wire.splitmix cimport nth

cdef struct dice_t:
    uint64_t key
    uint64_t counter

cdef inline uint64_t roll(dice_t *dice) noexcept nogil:
    dice.counter += 1
    return nth(dice.key, dice.counter)

# In [0, n), for n from 1 to 2^32. The small bias of scaling by multiplication does not matter here.
cdef inline uint64_t roll_below(dice_t *dice, uint64_t n) noexcept nogil:
    return ((roll(dice) >> 32) * n) >> 32

cdef class Dice:
    cdef dice_t state
