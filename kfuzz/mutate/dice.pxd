# Random numbers that are a function of (seed, stream, counter) and of nothing else: splitmix64.
from libc.stdint cimport uint64_t

cdef struct dice_t:
    uint64_t key
    uint64_t counter

cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL
    return x ^ (x >> 31)

cdef inline uint64_t roll(dice_t *dice) noexcept nogil:
    dice.counter += 1
    return mix(dice.key + dice.counter * 0x9e3779b97f4a7c15ULL)

# In [0, n), for n from 1 to 2^32; the bias of a multiplication does not matter here.
cdef inline uint64_t roll_below(dice_t *dice, uint64_t n) noexcept nogil:
    return ((roll(dice) >> 32) * n) >> 32

cdef class Dice:
    cdef dice_t state
