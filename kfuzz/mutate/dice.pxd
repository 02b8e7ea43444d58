# Random numbers that depend only on (seed, stream, counter): splitmix64.
from libc.stdint cimport int64_t, uint64_t

cdef extern from "dice.h" nogil:
    ctypedef struct dice_t "kfuzz_dice":
        uint64_t key
        uint64_t counter

    dice_t dice_of "kfuzz_dice_of"(uint64_t seed, uint64_t stream)
    uint64_t roll "kfuzz_roll"(dice_t *dice)
    int64_t roll_below "kfuzz_below"(dice_t *dice, int64_t n)
    bint roll_chance "kfuzz_chance"(dice_t *dice, double probability)

cdef class Dice:
    cdef dice_t state
