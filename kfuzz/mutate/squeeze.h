/* Small compressors for snappy, lz4 and deflate. They find repeats with one hash table and need no library, so equal
 * input gives equal bytes everywhere. They serve mutation: they are fast, and what they write makes decoders copy. */
#ifndef KFUZZ_SQUEEZE_H
#define KFUZZ_SQUEEZE_H

#include <stdint.h>
#include <string.h>

#include "decompressor.h"
#include "varint.h"
#include "text.h"

enum {
    KFUZZ_MATCH_MIN = 4,
    KFUZZ_HASHES = 1 << 12,
    /* The longest block; a block of every format can hold it, and every format can name each place in it. */
    KFUZZ_BLOCK_BYTES = 1 << 15,
    /* An lz4 block ends in literals, and its last match begins before these bytes. */
    KFUZZ_LZ4_TAIL = 12,
    KFUZZ_DEFLATE_MATCH_MAX = 258,
};

/* The block that is written: its bytes, and for deflate the bits that do not fill a byte yet. */
typedef struct {
    uint8_t *at;
    uint64_t bits;
    int held;
} kfuzz_block;

/* ------------------------------------------------------------------------------------------------ deflate */

static void kfuzz_put_bits(kfuzz_block *block, uint32_t value, int count)
{
    block->bits |= (uint64_t) value << block->held;
    for (block->held += count; block->held >= 8; block->held -= 8) {
        *block->at++ = (uint8_t) block->bits;
        block->bits >>= 8;
    }
}

/* A Huffman code, which begins with its highest bit. */
static void kfuzz_put_code(kfuzz_block *block, uint32_t code, int count)
{
    uint32_t turned = 0;
    int i;
    for (i = 0; i < count; i++)
        turned |= (code >> i & 1) << (count - 1 - i);
    kfuzz_put_bits(block, turned, count);
}

/* A symbol of the fixed code (RFC 1951, 3.2.6). */
static void kfuzz_put_symbol(kfuzz_block *block, uint32_t symbol)
{
    if (symbol < 144)
        kfuzz_put_code(block, 0x30 + symbol, 8);
    else if (symbol < 256)
        kfuzz_put_code(block, 0x190 + symbol - 144, 9);
    else if (symbol < 280)
        kfuzz_put_code(block, symbol - 256, 7);
    else
        kfuzz_put_code(block, 0xc0 + symbol - 280, 8);
}

/* A length counts from 3 and a distance from 1. The larger they are, the more of their low bits follow the code. */
static void kfuzz_put_deflate_match(kfuzz_block *block, int64_t length, int64_t distance)
{
    uint32_t code, extra;
    while (length >= 3) {
        /* Never leave one or two bytes, which no match can copy. */
        const int64_t most = length < KFUZZ_DEFLATE_MATCH_MAX + 3 ? length - 3 : KFUZZ_DEFLATE_MATCH_MAX;
        const int64_t part = length <= KFUZZ_DEFLATE_MATCH_MAX ? length : most;
        const uint32_t n = (uint32_t) part - 3, d = (uint32_t) distance - 1;
        if (part == KFUZZ_DEFLATE_MATCH_MAX) {
            kfuzz_put_symbol(block, 285);
        } else {
            for (extra = 0; n >= 8u << extra; extra++)
                ;
            code = extra ? 4 * extra + (n >> extra) : n;
            kfuzz_put_symbol(block, 257 + code);
            kfuzz_put_bits(block, n & ((1u << extra) - 1), (int) extra);
        }
        for (extra = 0; d >= 4u << extra; extra++)
            ;
        code = extra ? 2 * extra + (d >> extra) : d;
        kfuzz_put_code(block, code, 5);
        kfuzz_put_bits(block, d & ((1u << extra) - 1), (int) extra);
        length -= part;
    }
}

/* ------------------------------------------------------------------------------------------------ snappy */

static void kfuzz_put_snappy_literals(kfuzz_block *block, const uint8_t *p, int64_t n)
{
    if (n == 0)
        return;
    if (n <= 60) {
        *block->at++ = (uint8_t) ((n - 1) << 2);
    } else {
        *block->at++ = 61 << 2;
        *block->at++ = (uint8_t) (n - 1);
        *block->at++ = (uint8_t) ((n - 1) >> 8);
    }
    memcpy(block->at, p, (size_t) n);
    block->at += n;
}

static void kfuzz_put_snappy_match(kfuzz_block *block, int64_t length, int64_t distance)
{
    for (; length > 0; length -= 64) {
        const int64_t part = length < 64 ? length : 64;
        *block->at++ = (uint8_t) ((part - 1) << 2 | 2);
        *block->at++ = (uint8_t) distance;
        *block->at++ = (uint8_t) (distance >> 8);
    }
}

/* ------------------------------------------------------------------------------------------------ lz4 */

static void kfuzz_put_lz4_length(kfuzz_block *block, int64_t rest)
{
    for (; rest >= 255; rest -= 255)
        *block->at++ = 255;
    *block->at++ = (uint8_t) rest;
}

/* Literals, then a match; the last literals of a block have none (length 0). */
static void kfuzz_put_lz4(kfuzz_block *block, const uint8_t *p, int64_t n, int64_t length, int64_t distance)
{
    const int64_t over = length ? length - KFUZZ_MATCH_MIN : 0;
    *block->at++ = (uint8_t) ((n < 15 ? n : 15) << 4 | (over < 15 ? over : 15));
    if (n >= 15)
        kfuzz_put_lz4_length(block, n - 15);
    memcpy(block->at, p, (size_t) n);
    block->at += n;
    if (length == 0)
        return;
    *block->at++ = (uint8_t) distance;
    *block->at++ = (uint8_t) (distance >> 8);
    if (over >= 15)
        kfuzz_put_lz4_length(block, over - 15);
}

/* ------------------------------------------------------------------------------------------------ all */

static void kfuzz_put_literals(kfuzz_block *block, int codec, const uint8_t *p, int64_t n)
{
    if (codec == KFUZZ_SNAPPY)
        kfuzz_put_snappy_literals(block, p, n);
    else if (codec == KFUZZ_GZIP)
        while (n--)
            kfuzz_put_symbol(block, *p++);
}

/* The most bytes that `kfuzz_squeeze` writes for n bytes. */
static inline int64_t kfuzz_squeezed_most(int64_t n)
{
    return n + n / 8 + 32;
}

/* Compress n bytes, KFUZZ_BLOCK_BYTES at most, into one block: a raw snappy block, an lz4 block, or a deflate block with
 * the fixed code, which is the stream's last block if `is_last`. Returns how many bytes it took. */
static int64_t kfuzz_squeeze(int codec, const uint8_t *p, int64_t n, uint8_t *out, kfuzz_block *block, int is_last)
{
    uint16_t seen[KFUZZ_HASHES];
    const int64_t end = codec == KFUZZ_LZ4 ? n - KFUZZ_LZ4_TAIL : n - KFUZZ_MATCH_MIN;
    const int64_t most = codec == KFUZZ_LZ4 ? n - 5 : n;
    int64_t at = 0, written = 0;
    memset(seen, 0, sizeof(seen));
    block->at = out;
    if (codec == KFUZZ_SNAPPY)
        block->at = kfuzz_put_uvarint(block->at, (uint64_t) n);
    else if (codec == KFUZZ_GZIP)
        kfuzz_put_bits(block, is_last ? 3 : 2, 3);
    while (at <= end) {
        uint32_t word, there;
        int64_t before, length = KFUZZ_MATCH_MIN;
        memcpy(&word, p + at, 4);
        uint16_t *slot = &seen[(word * 2654435761u) >> 20];
        before = *slot;
        *slot = (uint16_t) at;
        memcpy(&there, p + before, 4);
        if (before >= at || there != word) {
            at++;
            continue;
        }
        while (at + length < most && p[before + length] == p[at + length])
            length++;
        if (codec == KFUZZ_LZ4) {
            kfuzz_put_lz4(block, p + written, at - written, length, at - before);
        } else {
            kfuzz_put_literals(block, codec, p + written, at - written);
            if (codec == KFUZZ_SNAPPY)
                kfuzz_put_snappy_match(block, length, at - before);
            else
                kfuzz_put_deflate_match(block, length, at - before);
        }
        at += length;
        written = at;
    }
    if (codec == KFUZZ_LZ4)
        kfuzz_put_lz4(block, p + written, n - written, 0, 0);
    else
        kfuzz_put_literals(block, codec, p + written, n - written);
    if (codec == KFUZZ_GZIP) {
        kfuzz_put_symbol(block, 256);
        if (is_last && block->held)
            kfuzz_put_bits(block, 0, 8 - block->held);
    }
    return block->at - out;
}

#endif
