/* Whether a short header key is ASCII without a null character, sixteen bytes at a time: what nearly all of them are. */
#ifndef KFUZZ_PLAIN_H
#define KFUZZ_PLAIN_H

#include <stdint.h>
#include <string.h>

/* The first n of 16 readable bytes, n from 0 to 16. 0 also where this machine's byte order needs the long way. */
static inline int kfuzz_is_plain(const uint8_t *p, int32_t n)
{
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101ULL, highs = 0x8080808080808080ULL;
    const uint64_t low_mask = n >= 8 ? ~0ULL : (1ULL << (8 * n)) - 1;
    const uint64_t high_mask = n >= 16 ? ~0ULL : n <= 8 ? 0 : (1ULL << (8 * (n - 8))) - 1;
    uint64_t low, high;
    memcpy(&low, p, 8);
    memcpy(&high, p + 8, 8);
    /* Bytes behind the key become 1, which is plain. */
    low = (low & low_mask) | (ones & ~low_mask);
    high = (high & high_mask) | (ones & ~high_mask);
    /* A null character borrows, and so sets its high bit. */
    return !(((low - ones) | low | (high - ones) | high) & highs);
#else
    (void) p;
    (void) n;
    return 0;
#endif
}

#endif
