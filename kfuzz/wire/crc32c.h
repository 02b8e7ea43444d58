/* CRC-32C by the processor's own instructions, for callers without the interpreter. Small batches are why it stands
 * beside the crc32c package, whose call costs more than their bytes do; where the processor lacks the instructions,
 * KFUZZ_CRC_THERE is 0 and the package does the work.
 *
 * With the CRC instruction alone, three lanes hide its latency of three cycles. A lane's checksum is then moved over the
 * bytes of the lanes behind it: appending zeros is linear in a CRC's bits, so a table per lane length does it.
 *
 * With carry-less products of 512 bits (KFUZZ_CRC_WIDE_THERE) 256 bytes are folded at a time: bytes that stand D bits
 * before others may be replaced, as far as the remainder goes, by their product with x^D mod P added to those others.
 */
#ifndef KFUZZ_CRC32C_H
#define KFUZZ_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "crc_power.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define KFUZZ_CRC_THERE __builtin_cpu_supports("sse4.2")
#define KFUZZ_CRC_POLYNOMIAL 0x82f63b78u
#define KFUZZ_CRC_LONG 2048
#define KFUZZ_CRC_SHORT 128

static uint32_t kfuzz_crc_over_long[4][256];
static uint32_t kfuzz_crc_over_short[4][256];

/* How each byte of a checksum comes out after `zeros` bytes of 0, a multiple of 8. */
__attribute__((target("sse4.2")))
static void kfuzz_crc_tabulate(uint32_t table[4][256], int zeros)
{
    int byte, value, i;
    for (byte = 0; byte < 4; byte++)
        for (value = 0; value < 256; value++) {
            uint64_t crc = (uint64_t) value << (8 * byte);
            for (i = 0; i < zeros; i += 8)
                crc = __builtin_ia32_crc32di(crc, 0);
            table[byte][value] = (uint32_t) crc;
        }
}

static inline uint32_t kfuzz_crc_move(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xff] ^ table[1][crc >> 8 & 0xff] ^ table[2][crc >> 16 & 0xff] ^ table[3][crc >> 24];
}

__attribute__((target("sse4.2")))
static uint32_t kfuzz_crc_lanes(uint32_t crc, const uint8_t **at, size_t *left, size_t lane, uint32_t table[4][256])
{
    const uint8_t *p = *at;
    size_t n = *left;
    while (n >= 3 * lane) {
        uint64_t a = crc, b = 0, c = 0, word;
        size_t i;
        for (i = 0; i < lane; i += 8) {
            memcpy(&word, p + i, 8);
            a = __builtin_ia32_crc32di(a, word);
            memcpy(&word, p + lane + i, 8);
            b = __builtin_ia32_crc32di(b, word);
            memcpy(&word, p + 2 * lane + i, 8);
            c = __builtin_ia32_crc32di(c, word);
        }
        crc = kfuzz_crc_move(table, (uint32_t) a) ^ (uint32_t) b;
        crc = kfuzz_crc_move(table, crc) ^ (uint32_t) c;
        p += 3 * lane;
        n -= 3 * lane;
    }
    *at = p;
    *left = n;
    return crc;
}

__attribute__((target("sse4.2")))
static uint32_t kfuzz_crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
    uint64_t wide, word;
    crc = ~crc;
    crc = kfuzz_crc_lanes(crc, &p, &n, KFUZZ_CRC_LONG, kfuzz_crc_over_long);
    crc = kfuzz_crc_lanes(crc, &p, &n, KFUZZ_CRC_SHORT, kfuzz_crc_over_short);
    wide = crc;
    while (n >= 8) {
        memcpy(&word, p, 8);
        wide = __builtin_ia32_crc32di(wide, word);
        p += 8;
        n -= 8;
    }
    crc = (uint32_t) wide;
    while (n--)
        crc = __builtin_ia32_crc32qi(crc, *p++);
    return ~crc;
}

#define KFUZZ_CRC_WIDE_THERE (KFUZZ_CRC_THERE && __builtin_cpu_supports("vpclmulqdq") \
                              && __builtin_cpu_supports("avx512f"))
#define KFUZZ_CRC_WIDE_BYTES 256
#define KFUZZ_CRC_WIDE __attribute__((target("sse4.2,avx512f,vpclmulqdq")))

/* The factors for the two halves of 128 bits, over the distance of four vectors and of one. */
static uint64_t kfuzz_crc_far[2];
static uint64_t kfuzz_crc_near[2];

KFUZZ_CRC_WIDE
static inline __m512i kfuzz_crc_fold(__m512i value, __m512i factors, __m512i onto)
{
    __m512i low = _mm512_clmulepi64_epi128(value, factors, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(value, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, onto, 0x96);
}

KFUZZ_CRC_WIDE
static uint32_t kfuzz_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n)
{
    __m512i far, near, a, b, c, d;
    uint64_t folded[8], wide = 0;
    int i;
    if (n < KFUZZ_CRC_WIDE_BYTES)
        return kfuzz_crc32c(crc, p, n);
    far = _mm512_set4_epi64((long long) kfuzz_crc_far[1], (long long) kfuzz_crc_far[0],
                            (long long) kfuzz_crc_far[1], (long long) kfuzz_crc_far[0]);
    near = _mm512_set4_epi64((long long) kfuzz_crc_near[1], (long long) kfuzz_crc_near[0],
                             (long long) kfuzz_crc_near[1], (long long) kfuzz_crc_near[0]);
    /* What came before is added to the first 32 bits. */
    a = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(_mm_cvtsi32_si128((int) ~crc)));
    b = _mm512_loadu_si512(p + 64);
    c = _mm512_loadu_si512(p + 128);
    d = _mm512_loadu_si512(p + 192);
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
        a = kfuzz_crc_fold(a, far, _mm512_loadu_si512(p));
        b = kfuzz_crc_fold(b, far, _mm512_loadu_si512(p + 64));
        c = kfuzz_crc_fold(c, far, _mm512_loadu_si512(p + 128));
        d = kfuzz_crc_fold(d, far, _mm512_loadu_si512(p + 192));
    }
    d = kfuzz_crc_fold(kfuzz_crc_fold(kfuzz_crc_fold(a, near, b), near, c), near, d);
    for (; n >= 64; p += 64, n -= 64)
        d = kfuzz_crc_fold(d, near, _mm512_loadu_si512(p));
    _mm512_storeu_si512(folded, d);
    for (i = 0; i < 8; i++)
        wide = __builtin_ia32_crc32di(wide, folded[i]);
    /* Else the upper halves of the registers stay in use, and SSE code of any library runs slower on some processors. The
     * compiler does not put it in here by itself. */
    _mm256_zeroupper();
    return kfuzz_crc32c(~(uint32_t) wide, p, n);
}

/* Once, before the first checksum. */
static void kfuzz_crc_init(void)
{
    kfuzz_crc_tabulate(kfuzz_crc_over_long, KFUZZ_CRC_LONG);
    kfuzz_crc_tabulate(kfuzz_crc_over_short, KFUZZ_CRC_SHORT);
    kfuzz_crc_factors(KFUZZ_CRC_POLYNOMIAL, kfuzz_crc_far, 8 * KFUZZ_CRC_WIDE_BYTES);
    kfuzz_crc_factors(KFUZZ_CRC_POLYNOMIAL, kfuzz_crc_near, 8 * 64);
}

#else

#define KFUZZ_CRC_THERE 0
#define KFUZZ_CRC_WIDE_THERE 0

static uint32_t kfuzz_crc32c_wide(uint32_t crc, const uint8_t *p, size_t n)
{
    (void) p;
    (void) n;
    return crc;
}

static uint32_t kfuzz_crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
    (void) p;
    (void) n;
    return crc;
}

static void kfuzz_crc_init(void)
{
}

#endif
#endif
