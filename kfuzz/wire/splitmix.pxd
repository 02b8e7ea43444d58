# SplitMix64: random numbers that depend only on a key and a counter.
from libc.stdint cimport uint64_t

# The finaliser: every input bit affects every bit of the result.
cdef inline uint64_t mix(uint64_t z) noexcept nogil:
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL
    return z ^ (z >> 31)

# The n-th number of the sequence that begins with `key`; the first one has n = 1.
cdef inline uint64_t nth(uint64_t key, uint64_t n) noexcept nogil:
    return mix(key + n * 0x9e3779b97f4a7c15ULL)
