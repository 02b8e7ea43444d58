/* CRC-32C by the processor's own instruction, for callers without the interpreter. Small batches are why it stands
 * beside the crc32c package, whose call costs more than their bytes do; where the processor lacks the instruction,
 * KFUZZ_CRC_THERE is 0 and the package does the work.
 *
 * Three lanes hide the instruction's latency of three cycles. A lane's checksum is then moved over the bytes of the
 * lanes behind it: appending zeros is linear in a CRC's bits, so a table per lane length does it.
 */
#ifndef KFUZZ_CRC32C_H
#define KFUZZ_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)

#define KFUZZ_CRC_THERE __builtin_cpu_supports("sse4.2")
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

/* Once, before the first checksum. */
static void kfuzz_crc_init(void)
{
    kfuzz_crc_tabulate(kfuzz_crc_over_long, KFUZZ_CRC_LONG);
    kfuzz_crc_tabulate(kfuzz_crc_over_short, KFUZZ_CRC_SHORT);
}

#else

#define KFUZZ_CRC_THERE 0

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
