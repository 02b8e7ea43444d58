/* SplitMix64: random numbers that depend only on a key and a counter. */
#ifndef KFUZZ_SPLITMIX_H
#define KFUZZ_SPLITMIX_H

#include <stdint.h>

/* The finaliser: every input bit affects every bit of the result. */
static inline uint64_t kfuzz_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

/* The n-th number of the sequence that begins with `key`; the first one has n = 1. */
static inline uint64_t kfuzz_nth(uint64_t key, uint64_t n)
{
    return kfuzz_mix(key + n * 0x9e3779b97f4a7c15ull);
}

#endif
