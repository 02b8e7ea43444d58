/* Where a batch may begin, by the bytes of a header: a look at many places at a time. */
#ifndef KFUZZ_SEARCH_H
#define KFUZZ_SEARCH_H

#include <stdint.h>
#include <string.h>

#include "format.h"

enum {
    KFUZZ_PLACES = 64,
    KFUZZ_SMALLEST_SIZE = KFUZZ_LOG_OVERHEAD + KFUZZ_SMALLEST_MESSAGE,
};

/* Whether a header as Kafka writes it may begin at p: the length is not too small, the magic is known, and unused bits
 * and the sign of the last offset delta are 0. `high` is the highest first byte of a length that ends within the data.
 * Without branches, so that the compiler makes vectors of a loop over places. */
static inline uint8_t kfuzz_may_begin(const uint8_t *p, uint8_t high)
{
    const uint8_t *length = p + KFUZZ_AT_BATCH_LENGTH;
    const uint8_t *attributes = p + KFUZZ_AT_ATTRIBUTES;
    const uint8_t is_long = (uint8_t) (((length[0] | length[1] | length[2]) != 0) |
                                       (length[3] >= KFUZZ_SMALLEST_MESSAGE));
    const uint8_t is_new = (uint8_t) ((p[KFUZZ_AT_MAGIC] == KFUZZ_LAST_MAGIC) & (attributes[0] == 0) &
                                      ((attributes[1] | p[KFUZZ_AT_LAST_OFFSET_DELTA]) < 0x80));
    const uint8_t is_old = (uint8_t) ((p[KFUZZ_AT_MAGIC] < KFUZZ_LAST_MAGIC) & (p[KFUZZ_MESSAGE_AT_ATTRIBUTES] < 0x10));
    return (uint8_t) ((length[0] <= high) & is_long & (is_new | is_old));
}

/* A bit for each of the `count` places from p on, at most KFUZZ_PLACES: 1 if a header may begin there. At each of them
 * there must be KFUZZ_SMALLEST_SIZE bytes. */
static uint64_t kfuzz_places(const uint8_t *p, int count, uint8_t high)
{
    uint8_t flags[KFUZZ_PLACES];
    uint64_t word, bits = 0;
    int i, k;
    if (count < KFUZZ_PLACES) {
        for (i = 0; i < count; i++)
            bits |= (uint64_t) kfuzz_may_begin(p + i, high) << i;
        return bits;
    }
    for (i = 0; i < KFUZZ_PLACES; i++)
        flags[i] = kfuzz_may_begin(p + i, high);
    for (i = 0; i < KFUZZ_PLACES; i += 8) {
        memcpy(&word, flags + i, 8);
        if (word)
            for (k = i; k < i + 8; k++)
                bits |= (uint64_t) flags[k] << k;
    }
    return bits;
}

/* The number of the lowest bit that is 1. */
static inline int kfuzz_lowest(uint64_t bits)
{
#if defined(__GNUC__)
    return __builtin_ctzll(bits);
#else
    int i = 0;
    while (!(bits >> i & 1))
        i++;
    return i;
#endif
}

#endif
