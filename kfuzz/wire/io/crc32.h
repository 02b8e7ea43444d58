/* CRC-32 with zlib's polynomial, as in messages of magic 0 and 1, for callers without the GIL. Carry-less products fold
 * 16 bytes at a time, as in crc32c.h; tables handle the remaining bytes. If the processor lacks carry-less products,
 * KFUZZ_CRC32_THERE is 0: short messages then use the tables, and long ones zlib.
 */
#ifndef KFUZZ_CRC32_H
#define KFUZZ_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc_power.h"

/* In the bit order of the CRC register: the lowest bit is the highest power, x^31. The bit of x^32 is implied. */
#define KFUZZ_CRC32_POLYNOMIAL 0xedb88320u

/* For any polynomial: table i has the register after a byte and i zero bytes. */
typedef uint32_t kfuzz_crc_tables[8][256];
static kfuzz_crc_tables kfuzz_crc32_tables;

static void kfuzz_crc_fill_tables(kfuzz_crc_tables tables, uint32_t polynomial)
{
    int byte, i;
    for (byte = 0; byte < 256; byte++) {
        uint32_t crc = (uint32_t) byte;
        for (i = 0; i < 8; i++)
            crc = crc >> 1 ^ (crc & 1 ? polynomial : 0);
        tables[0][byte] = crc;
    }
    for (i = 1; i < 8; i++)
        for (byte = 0; byte < 256; byte++)
            tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 0xff];
}

/* By tables: eight bytes at a time, then single bytes. `crc` is the raw register, without the usual inversion. */
static inline uint32_t kfuzz_crc_by_tables(kfuzz_crc_tables tables, uint32_t crc, const uint8_t *p, size_t n)
{
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
        word = __builtin_bswap64(word);
#endif
        word ^= crc;
        crc = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff]
            ^ tables[5][word >> 16 & 0xff] ^ tables[4][word >> 24 & 0xff]
            ^ tables[3][word >> 32 & 0xff] ^ tables[2][word >> 40 & 0xff]
            ^ tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
    }
    while (n--)
        crc = crc >> 8 ^ tables[0][(crc ^ *p++) & 0xff];
    return crc;
}

/* The same, with the usual inversion of `crc` and of the result. */
static uint32_t kfuzz_crc32_plain(uint32_t crc, const uint8_t *p, size_t n)
{
    return ~kfuzz_crc_by_tables(kfuzz_crc32_tables, ~crc, p, n);
}

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define KFUZZ_CRC32_THERE (__builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"))
#define KFUZZ_CRC32_TARGET __attribute__((target("sse4.1,pclmul")))
/* Shuffles that move bytes within a vector: 16 that give 0, the 16 bytes in their order, 16 that give 0. */
static const uint8_t kfuzz_crc32_moves[48] = {
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
    0,   1,   2,   3,   4,   5,   6,   7,   8,   9,   10,  11,  12,  13,  14,  15,
    128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
};
/* The factors for the two halves of 128 bits: `far` over four vectors, `near` over one. `last` folds 96 bits to 64. */
static uint64_t kfuzz_crc32_far[2];
static uint64_t kfuzz_crc32_near[2];
static uint64_t kfuzz_crc32_last;
/* The polynomial with all its 33 bits, and the quotient of x^64 by it, for Barrett's division. */
static uint64_t kfuzz_crc32_whole;
static uint64_t kfuzz_crc32_quotient;

static void kfuzz_crc32_init(void)
{
    uint32_t left = 0x80000000;
    int i;
    kfuzz_crc_fill_tables(kfuzz_crc32_tables, KFUZZ_CRC32_POLYNOMIAL);
    kfuzz_crc_factors(KFUZZ_CRC32_POLYNOMIAL, kfuzz_crc32_far, 8 * 64);
    kfuzz_crc_factors(KFUZZ_CRC32_POLYNOMIAL, kfuzz_crc32_near, 8 * 16);
    kfuzz_crc32_last = kfuzz_crc_power(KFUZZ_CRC32_POLYNOMIAL, 64);
    kfuzz_crc32_whole = (uint64_t) KFUZZ_CRC32_POLYNOMIAL << 1 | 1;
    /* Long division gives one bit of the quotient for each power, from 32 down to 0. The highest power is bit 0. */
    kfuzz_crc32_quotient = 1;
    left = KFUZZ_CRC32_POLYNOMIAL;
    for (i = 1; i < 33; i++) {
        kfuzz_crc32_quotient |= (uint64_t) (left & 1) << i;
        left = left >> 1 ^ (left & 1 ? KFUZZ_CRC32_POLYNOMIAL : 0);
    }
}

KFUZZ_CRC32_TARGET
static inline __m128i kfuzz_crc32_load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *) (const void *) p);
}

KFUZZ_CRC32_TARGET
static inline __m128i kfuzz_crc32_fold(__m128i value, __m128i factors, __m128i onto)
{
    const __m128i low = _mm_clmulepi64_si128(value, factors, 0x00);
    const __m128i high = _mm_clmulepi64_si128(value, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* The register after these 16 bytes: fold 128 bits to 96, then to 64; Barrett's division reduces those to 32. */
KFUZZ_CRC32_TARGET
static inline uint32_t kfuzz_crc32_reduce(__m128i value, __m128i near)
{
    const __m128i low_word = _mm_setr_epi32(-1, 0, 0, 0);
    const __m128i divisor = _mm_set_epi64x((long long) kfuzz_crc32_quotient, (long long) kfuzz_crc32_whole);
    __m128i part;
    value = _mm_xor_si128(_mm_srli_si128(value, 8), _mm_clmulepi64_si128(value, near, 0x10));
    part = _mm_clmulepi64_si128(_mm_and_si128(value, low_word), _mm_cvtsi64_si128((long long) kfuzz_crc32_last), 0x00);
    value = _mm_xor_si128(_mm_srli_si128(value, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(value, low_word), divisor, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low_word), divisor, 0x00);
    return (uint32_t) _mm_extract_epi32(_mm_xor_si128(value, part), 1);
}

KFUZZ_CRC32_TARGET
static uint32_t kfuzz_crc32(uint32_t crc, const uint8_t *p, size_t n)
{
    __m128i near, value;
    if (n < 16)
        return kfuzz_crc32_plain(crc, p, n);
    near = _mm_set_epi64x((long long) kfuzz_crc32_near[1], (long long) kfuzz_crc32_near[0]);
    /* The CRC of the preceding bytes is added to the first 32 bits. */
    value = _mm_xor_si128(kfuzz_crc32_load(p), _mm_cvtsi32_si128((int) ~crc));
    p += 16;
    n -= 16;
    if (n >= 48) {
        const __m128i far = _mm_set_epi64x((long long) kfuzz_crc32_far[1], (long long) kfuzz_crc32_far[0]);
        __m128i b = kfuzz_crc32_load(p), c = kfuzz_crc32_load(p + 16), d = kfuzz_crc32_load(p + 32);
        for (p += 48, n -= 48; n >= 64; p += 64, n -= 64) {
            value = kfuzz_crc32_fold(value, far, kfuzz_crc32_load(p));
            b = kfuzz_crc32_fold(b, far, kfuzz_crc32_load(p + 16));
            c = kfuzz_crc32_fold(c, far, kfuzz_crc32_load(p + 32));
            d = kfuzz_crc32_fold(d, far, kfuzz_crc32_load(p + 48));
        }
        value = kfuzz_crc32_fold(kfuzz_crc32_fold(kfuzz_crc32_fold(value, near, b), near, c), near, d);
    }
    for (; n >= 16; p += 16, n -= 16)
        value = kfuzz_crc32_fold(value, near, kfuzz_crc32_load(p));
    if (n) {
        /* Move n bytes of the vector in front of it, fold them, and put the last n bytes after the others. Byte by byte
         * these would take as long as a hundred bytes before them. The load begins before p, but within the data. */
        const __m128i front = kfuzz_crc32_load(kfuzz_crc32_moves + n), back = kfuzz_crc32_load(kfuzz_crc32_moves + 16 + n);
        const __m128i last = kfuzz_crc32_load(p + n - 16);
        const __m128i onto = _mm_blendv_epi8(_mm_shuffle_epi8(value, back), last, back);
        value = kfuzz_crc32_fold(_mm_shuffle_epi8(value, front), near, onto);
    }
    return ~kfuzz_crc32_reduce(value, near);
}

#else

#define KFUZZ_CRC32_THERE 0

static uint32_t kfuzz_crc32(uint32_t crc, const uint8_t *p, size_t n)
{
    (void) p;
    (void) n;
    return crc;
}

static void kfuzz_crc32_init(void)
{
    kfuzz_crc_fill_tables(kfuzz_crc32_tables, KFUZZ_CRC32_POLYNOMIAL);
}

#endif
#endif
