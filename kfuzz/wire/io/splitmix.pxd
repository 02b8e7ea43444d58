# SplitMix64: random numbers that depend only on a key and a counter.
from libc.stdint cimport uint64_t

cdef extern from "splitmix.h" nogil:
    uint64_t mix "kfuzz_mix"(uint64_t z)
    uint64_t nth "kfuzz_nth"(uint64_t key, uint64_t n)
