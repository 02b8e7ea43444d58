/* CRC-32C of two parts from the CRC-32C of each, without their bytes: the first part's checksum is multiplied by x^8 for
 * each byte of the second part, as zlib's crc32_combine does it.
 *
 * Factors stand in tables, one for each byte of a length. With carry-less products, kfuzz_crc_times gives the product
 * times x^32, since the CRC instruction reduces it so; the factors in the tables then lack x^32.
 */
#ifndef KFUZZ_CRC_JOIN_H
#define KFUZZ_CRC_JOIN_H

#include <stdint.h>

#include "crc_power.h"

static uint32_t kfuzz_crc_lengths[4][256];
static int kfuzz_crc_by_product;

static uint32_t kfuzz_crc_times_plain(uint32_t a, uint32_t b)
{
    uint32_t bit, product = 0;
    for (bit = 0x80000000u; bit; bit >>= 1) {
        if (a & bit)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? KFUZZ_CRC_POLYNOMIAL : 0);
    }
    return product;
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

/* The factor of n bytes. */
static inline uint32_t kfuzz_crc_over(uint32_t n)
{
    uint32_t factor = kfuzz_crc_lengths[0][n & 0xff];
    int byte;
    for (byte = 1; byte < 4 && n >> (8 * byte); byte++)
        factor = kfuzz_crc_times(factor, kfuzz_crc_lengths[byte][n >> (8 * byte) & 0xff]);
    return factor;
}

/* Once, before the first factor. */
static void kfuzz_crc_join_init(int by_product)
{
    uint32_t one = 0x80000000u, of_byte = 0x80000000u >> 8;
    int byte, i;
    kfuzz_crc_by_product = by_product;
    if (by_product)
        /* Divide by x, 32 times. The polynomial's constant term says which of two values was there before. */
        for (i = 0; i < 32; i++)
            one = one & 0x80000000u ? (one ^ KFUZZ_CRC_POLYNOMIAL) << 1 | 1 : one << 1;
    of_byte = kfuzz_crc_times_plain(one, of_byte);
    for (byte = 0; byte < 4; byte++) {
        kfuzz_crc_lengths[byte][0] = one;
        for (i = 1; i < 256; i++)
            kfuzz_crc_lengths[byte][i] = kfuzz_crc_times(kfuzz_crc_lengths[byte][i - 1], of_byte);
        of_byte = kfuzz_crc_times(kfuzz_crc_lengths[byte][255], of_byte);
    }
}

#endif
