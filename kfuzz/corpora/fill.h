/* Random bytes in bulk: eight generators side by side, each a xorshift of 64 bits (Marsaglia 2003, shifts 13, 7 and 17).
 * Multiplications as in splitmix.pxd would cost four times as much, because vectors of 64-bit numbers have none. Every
 * processor has vectors of 16 bytes, or the compiler does without; the bytes are the same everywhere. */
#ifndef KFUZZ_FILL_H
#define KFUZZ_FILL_H

#include <stdint.h>
#include <string.h>

#define KFUZZ_LANES 8
#define KFUZZ_PAIRS 4
#define KFUZZ_LANES_BYTES 64

typedef uint64_t kfuzz_pair __attribute__((vector_size(16)));
typedef uint16_t kfuzz_halves __attribute__((vector_size(16)));

/* A xorshift of 0 stays 0. */
static inline uint64_t kfuzz_not_zero(uint64_t seed)
{
    return seed ? seed : 1;
}

static inline kfuzz_pair kfuzz_step(kfuzz_pair pair)
{
    pair ^= pair << 13;
    pair ^= pair >> 7;
    return pair ^ pair << 17;
}

/* Random bytes from 33 to 126. A byte times 94 has 16 bits, and the upper byte of the product is from 0 to 93. */
static inline kfuzz_pair kfuzz_printable(kfuzz_pair pair)
{
    const kfuzz_halves halves = (kfuzz_halves) pair;
    return (kfuzz_pair) ((((halves & 0xff) * 94 >> 8) | ((halves >> 8) * 94 & 0xff00)) + 0x2121);
}

/* Write n bytes, each number's lowest byte first. May overwrite up to 63 bytes after them. */
static inline void kfuzz_fill(uint8_t *p, int64_t n, const uint64_t *seeds, const int printable)
{
    kfuzz_pair lanes[KFUZZ_PAIRS], out[KFUZZ_PAIRS];
    for (int i = 0; i < KFUZZ_PAIRS; i++)
        lanes[i] = (kfuzz_pair) {kfuzz_not_zero(seeds[2 * i]), kfuzz_not_zero(seeds[2 * i + 1])};
    for (; n > 0; p += KFUZZ_LANES_BYTES, n -= KFUZZ_LANES_BYTES) {
        for (int i = 0; i < KFUZZ_PAIRS; i++) {
            out[i] = printable ? kfuzz_printable(lanes[i]) : lanes[i];
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            out[i][0] = __builtin_bswap64(out[i][0]);
            out[i][1] = __builtin_bswap64(out[i][1]);
#endif
            lanes[i] = kfuzz_step(lanes[i]);
        }
        memcpy(p, out, KFUZZ_LANES_BYTES);
    }
}

#endif
