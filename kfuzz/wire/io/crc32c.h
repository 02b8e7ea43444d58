/* CRC-32C with the processor's own instructions, for callers without the GIL. The crc32c package does the same, but for
 * a small batch, calling it takes longer than the checksum itself. If the processor lacks the instructions,
 * KFUZZ_CRC_THERE is 0 and the package does the work.
 *
 * The kernel of 64 bits uses the CRC instruction. Three lanes hide its latency of three cycles. Each lane's checksum is
 * then moved over the bytes of the next lane. Appending zeros is linear in a CRC's bits, so a table per lane length can
 * do it.
 *
 * The kernel of 256 bits uses carry-less products and folds four vectors at a time. To fold means: bytes that are D bits
 * before others are multiplied by x^D mod P and added to those others. The remainder modulo P is unchanged. For long
 * data it also runs the CRC instruction beside the products. A kernel of 512 bits would gain only 5 % of a verdict.
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
#define KFUZZ_CRC_LONG 2048
#define KFUZZ_CRC_LANE 512
#define KFUZZ_CRC_SHORT 128

static uint32_t kfuzz_crc_over_long[4][256];
static uint32_t kfuzz_crc_over_lane[4][256];
static uint32_t kfuzz_crc_over_short[4][256];

/* The checksum after `zeros` zero bytes (a multiple of 8), by each byte of the checksum before them. */
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
    if (n >= 4) {
        uint32_t half;
        memcpy(&half, p, 4);
        crc = __builtin_ia32_crc32si(crc, half);
        p += 4;
        n -= 4;
    }
    while (n--)
        crc = __builtin_ia32_crc32qi(crc, *p++);
    return ~crc;
}

#define KFUZZ_CRC_256_THERE (KFUZZ_CRC_THERE && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2"))
#define KFUZZ_CRC_256 __attribute__((target("sse4.2,avx2,vpclmulqdq")))

/* The factors for the two halves of 128 bits: `far` over four vectors, `near` over one. */
typedef struct {
    uint64_t far[2];
    uint64_t near[2];
} kfuzz_crc_distances;
static kfuzz_crc_distances kfuzz_crc_over_256;

KFUZZ_CRC_256
static inline __m256i kfuzz_crc_load_256(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *) (const void *) p);
}

KFUZZ_CRC_256
static inline __m256i kfuzz_crc_fold_256(__m256i value, __m256i factors, __m256i onto)
{
    const __m256i low = _mm256_clmulepi64_epi128(value, factors, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(value, factors, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(low, high), onto);
}

/* The checksum of one vector, inverted. */
__attribute__((target("sse4.2")))
static uint32_t kfuzz_crc_of_vector(const uint64_t folded[4])
{
    uint64_t crc = 0;
    int i;
    for (i = 0; i < 4; i++)
        crc = __builtin_ia32_crc32di(crc, folded[i]);
    return (uint32_t) crc;
}

/* Clear the upper halves of the registers: while they are in use, later SSE code in any library takes up to three
 * times as long on some processors. The empty instruction takes `crc`, so that the compiler finishes it first: otherwise
 * it loads the vector that `crc` comes from after vzeroupper. */
KFUZZ_CRC_256
static inline uint32_t kfuzz_crc_leave_wide(uint32_t crc)
{
    __asm__ volatile("" : "+r"(crc));
    _mm256_zeroupper();
    return crc;
}

/* One word of each of the three lanes of a block. */
KFUZZ_CRC_256
static inline void kfuzz_crc_step(uint64_t lanes[3], const uint8_t *p)
{
    uint64_t words[3];
    memcpy(&words[0], p, 8);
    memcpy(&words[1], p + KFUZZ_CRC_LANE, 8);
    memcpy(&words[2], p + 2 * KFUZZ_CRC_LANE, 8);
    lanes[0] = __builtin_ia32_crc32di(lanes[0], words[0]);
    lanes[1] = __builtin_ia32_crc32di(lanes[1], words[1]);
    lanes[2] = __builtin_ia32_crc32di(lanes[2], words[2]);
}

/* Blocks of three lanes for the CRC instruction, and as many bytes as in KFUZZ_CRC_LONG for carry-less products. The
 * processor executes both at the same time, so this is about 1.3 times as fast as the products alone. `crc` is inverted
 * here. */
KFUZZ_CRC_256
static uint32_t kfuzz_crc_blocks(uint32_t crc, const uint8_t **at, size_t *left, __m256i far, __m256i near)
{
    const size_t block = 3 * KFUZZ_CRC_LANE + KFUZZ_CRC_LONG;
    const uint8_t *p = *at;
    size_t n = *left;
    for (; n >= block; p += block, n -= block) {
        const uint8_t *vector = p + 3 * KFUZZ_CRC_LANE;
        uint64_t lanes[3] = {crc, 0, 0}, folded[4];
        __m256i a = kfuzz_crc_load_256(vector), b = kfuzz_crc_load_256(vector + 32);
        __m256i c = kfuzz_crc_load_256(vector + 64), d = kfuzz_crc_load_256(vector + 96);
        int i;
        for (i = 32; i < KFUZZ_CRC_LANE; i += 32) {
            const uint8_t *words = p + i - 32;
            vector += 128;
            a = kfuzz_crc_fold_256(a, far, kfuzz_crc_load_256(vector));
            kfuzz_crc_step(lanes, words);
            b = kfuzz_crc_fold_256(b, far, kfuzz_crc_load_256(vector + 32));
            kfuzz_crc_step(lanes, words + 8);
            c = kfuzz_crc_fold_256(c, far, kfuzz_crc_load_256(vector + 64));
            kfuzz_crc_step(lanes, words + 16);
            d = kfuzz_crc_fold_256(d, far, kfuzz_crc_load_256(vector + 96));
            kfuzz_crc_step(lanes, words + 24);
        }
        for (i = KFUZZ_CRC_LANE - 32; i < KFUZZ_CRC_LANE; i += 8)
            kfuzz_crc_step(lanes, p + i);
        d = kfuzz_crc_fold_256(kfuzz_crc_fold_256(kfuzz_crc_fold_256(a, near, b), near, c), near, d);
        _mm256_storeu_si256((__m256i *) (void *) folded, d);
        crc = kfuzz_crc_move(kfuzz_crc_over_lane, (uint32_t) lanes[0]) ^ (uint32_t) lanes[1];
        crc = kfuzz_crc_move(kfuzz_crc_over_lane, crc) ^ (uint32_t) lanes[2];
        crc = kfuzz_crc_move(kfuzz_crc_over_long, crc) ^ kfuzz_crc_of_vector(folded);
    }
    *at = p;
    *left = n;
    return crc;
}

KFUZZ_CRC_256
static uint32_t kfuzz_crc32c_256(uint32_t crc, const uint8_t *p, size_t n)
{
    const kfuzz_crc_distances *over = &kfuzz_crc_over_256;
    __m256i far, near, a, b, c, d;
    uint64_t folded[4];
    if (n < 128)
        return kfuzz_crc32c(crc, p, n);
    far = _mm256_set_epi64x((long long) over->far[1], (long long) over->far[0],
                            (long long) over->far[1], (long long) over->far[0]);
    near = _mm256_set_epi64x((long long) over->near[1], (long long) over->near[0],
                             (long long) over->near[1], (long long) over->near[0]);
    crc = ~kfuzz_crc_blocks(~crc, &p, &n, far, near);
    if (n < 128)
        return kfuzz_crc32c(kfuzz_crc_leave_wide(crc), p, n);
    /* The CRC of the preceding bytes is added to the first 32 bits. */
    a = _mm256_xor_si256(kfuzz_crc_load_256(p), _mm256_set_epi64x(0, 0, 0, (long long) (uint64_t) ~crc));
    b = kfuzz_crc_load_256(p + 32);
    c = kfuzz_crc_load_256(p + 64);
    d = kfuzz_crc_load_256(p + 96);
    for (p += 128, n -= 128; n >= 128; p += 128, n -= 128) {
        a = kfuzz_crc_fold_256(a, far, kfuzz_crc_load_256(p));
        b = kfuzz_crc_fold_256(b, far, kfuzz_crc_load_256(p + 32));
        c = kfuzz_crc_fold_256(c, far, kfuzz_crc_load_256(p + 64));
        d = kfuzz_crc_fold_256(d, far, kfuzz_crc_load_256(p + 96));
    }
    d = kfuzz_crc_fold_256(kfuzz_crc_fold_256(kfuzz_crc_fold_256(a, near, b), near, c), near, d);
    for (; n >= 32; p += 32, n -= 32)
        d = kfuzz_crc_fold_256(d, near, kfuzz_crc_load_256(p));
    _mm256_storeu_si256((__m256i *) (void *) folded, d);
    return kfuzz_crc32c(kfuzz_crc_leave_wide(~kfuzz_crc_of_vector(folded)), p, n);
}

/* Call this once, before the first checksum. */
static void kfuzz_crc_init(void)
{
    kfuzz_crc_tabulate(kfuzz_crc_over_long, KFUZZ_CRC_LONG);
    kfuzz_crc_tabulate(kfuzz_crc_over_lane, KFUZZ_CRC_LANE);
    kfuzz_crc_tabulate(kfuzz_crc_over_short, KFUZZ_CRC_SHORT);
    kfuzz_crc_factors(KFUZZ_CRC_POLYNOMIAL, kfuzz_crc_over_256.far, 8 * 4 * 32);
    kfuzz_crc_factors(KFUZZ_CRC_POLYNOMIAL, kfuzz_crc_over_256.near, 8 * 32);
}

#else

#define KFUZZ_CRC_THERE 0
#define KFUZZ_CRC_256_THERE 0

static uint32_t kfuzz_crc32c(uint32_t crc, const uint8_t *p, size_t n)
{
    (void) p;
    (void) n;
    return crc;
}

#define kfuzz_crc32c_256 kfuzz_crc32c

static void kfuzz_crc_init(void)
{
}

#endif
#endif
