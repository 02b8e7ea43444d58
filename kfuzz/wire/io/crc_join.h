/* The CRC of two parts from the CRC of each, without their bytes: the first part's checksum is multiplied by x^8 for each
 * byte of the second part, as zlib's crc32_combine does it.
 *
 * Factors are in tables, one for each byte of a length. With carry-less products, kfuzz_crc_times gives the product
 * times x^32, since the CRC instruction reduces it so; the factors in the tables then lack x^32. Only CRC-32C has such an
 * instruction.
 */
#ifndef KFUZZ_CRC_JOIN_H
#define KFUZZ_CRC_JOIN_H

#include <stdint.h>

#include "crc32.h"
#include "crc_power.h"

static uint32_t kfuzz_crc_lengths[4][256];
static uint32_t kfuzz_crc32_lengths[4][256];
static int kfuzz_crc_by_product;

/* Without branches: the bits of a checksum cannot be foreseen. */
static inline uint32_t kfuzz_product(uint32_t polynomial, uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1) {
        product ^= b & (0 - (a >> 31));
        b = b >> 1 ^ (polynomial & (0 - (b & 1)));
    }
    return product;
}

static uint32_t kfuzz_crc_times_plain(uint32_t a, uint32_t b)
{
    return kfuzz_product(KFUZZ_CRC_POLYNOMIAL, a, b);
}

/* The same for CRC-32. */
static uint32_t kfuzz_crc32_times(uint32_t crc, uint32_t factor)
{
    return kfuzz_product(KFUZZ_CRC32_POLYNOMIAL, crc, factor);
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define KFUZZ_CRC_JOIN_THERE (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))

__attribute__((target("sse4.2,pclmul")))
static inline uint32_t kfuzz_crc_times_fast(uint32_t a, uint32_t b)
{
    const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int) a), _mm_cvtsi32_si128((int) b), 0x00);
    return (uint32_t) _mm_crc32_u64(0, (uint64_t) _mm_cvtsi128_si64(product) << 1);
}

#else

#define KFUZZ_CRC_JOIN_THERE 0
#define kfuzz_crc_times_fast kfuzz_crc_times_plain

#endif

/* The checksum `crc` times a factor that kfuzz_crc_over has made. */
static inline uint32_t kfuzz_crc_times(uint32_t crc, uint32_t factor)
{
    return kfuzz_crc_by_product ? kfuzz_crc_times_fast(crc, factor) : kfuzz_crc_times_plain(crc, factor);
}

typedef uint32_t (*kfuzz_times)(uint32_t, uint32_t);

static inline uint32_t kfuzz_factor(uint32_t lengths[4][256], kfuzz_times times, uint32_t n)
{
    uint32_t factor = lengths[0][n & 0xff];
    int byte;
    for (byte = 1; byte < 4 && n >> (8 * byte); byte++)
        factor = times(factor, lengths[byte][n >> (8 * byte) & 0xff]);
    return factor;
}

/* The factor of n bytes. */
static inline uint32_t kfuzz_crc_over(uint32_t n)
{
    return kfuzz_factor(kfuzz_crc_lengths, kfuzz_crc_times, n);
}

/* The same for CRC-32. */
static inline uint32_t kfuzz_crc32_over(uint32_t n)
{
    return kfuzz_factor(kfuzz_crc32_lengths, kfuzz_crc32_times, n);
}

/* Fill a table. `one` is the factor of no bytes, `of_byte` that of one. */
static void kfuzz_fill_lengths(uint32_t lengths[4][256], kfuzz_times times, uint32_t one, uint32_t of_byte)
{
    int byte, i;
    for (byte = 0; byte < 4; byte++) {
        lengths[byte][0] = one;
        for (i = 1; i < 256; i++)
            lengths[byte][i] = times(lengths[byte][i - 1], of_byte);
        of_byte = times(lengths[byte][255], of_byte);
    }
}

/* Call this once, before the first factor is needed. */
static void kfuzz_crc_join_init(int by_product)
{
    const uint32_t of_byte = 0x80000000u >> 8;
    uint32_t one = 0x80000000u;
    int i;
    kfuzz_fill_lengths(kfuzz_crc32_lengths, kfuzz_crc32_times, one, of_byte);
    kfuzz_crc_by_product = by_product;
    if (by_product)
        /* Divide by x, 32 times. The polynomial's constant term says which of two values was there before. */
        for (i = 0; i < 32; i++)
            one = one & 0x80000000u ? (one ^ KFUZZ_CRC_POLYNOMIAL) << 1 | 1 : one << 1;
    kfuzz_fill_lengths(kfuzz_crc_lengths, kfuzz_crc_times, one, kfuzz_crc_times_plain(one, of_byte));
}

#endif
