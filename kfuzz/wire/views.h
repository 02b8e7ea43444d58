/* An Arrow view: length, then up to 12 bytes, or the first 4 of them, a buffer's number and a place in it. */
#ifndef KFUZZ_VIEWS_H
#define KFUZZ_VIEWS_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define KFUZZ_LOW(bytes) (~0ull >> (64 - 8 * (bytes)))
/* What stands in a view of 0 to 12 bytes, and last of more: of its first four bytes, of the next eight, and elsewhere. */
static const uint64_t kfuzz_view_masks[14][3] = {
    {0, 0, 0},
    {KFUZZ_LOW(1), 0, 0},
    {KFUZZ_LOW(2), 0, 0},
    {KFUZZ_LOW(3), 0, 0},
    {KFUZZ_LOW(4), 0, 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(1), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(2), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(3), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(4), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(5), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(6), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(7), 0},
    {KFUZZ_LOW(4), KFUZZ_LOW(8), 0},
    {KFUZZ_LOW(4), 0, ~0ull},
};
#endif

/* Of the bytes at p nothing beyond `end` is read. */
static inline void kfuzz_put_view(uint64_t *view, const uint8_t *p, const uint8_t *end, int32_t n, uint32_t buffer,
                                  uint32_t at)
{
    uint8_t *bytes = (uint8_t *) view;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (end - p >= 12) {
        /* Lengths come as they like, so there is no branch on them. */
        const uint64_t *masks = kfuzz_view_masks[n < 13 ? n : 13];
        uint32_t first;
        uint64_t rest;
        memcpy(&first, p, 4);
        memcpy(&rest, p + 4, 8);
        view[0] = (uint32_t) n | (first & masks[0]) << 32;
        view[1] = (rest & masks[1]) | ((buffer | (uint64_t) at << 32) & masks[2]);
        return;
    }
#endif
    memset(bytes, 0, 16);
    memcpy(bytes, &n, 4);
    if (n <= 12) {
        memcpy(bytes + 4, p, (size_t) n);
    } else {
        memcpy(bytes + 4, p, 4);
        memcpy(bytes + 8, &buffer, 4);
        memcpy(bytes + 12, &at, 4);
    }
}

/* Views of `count` spans, each a place and a length (-1: null) of 32 bits, `stride` bytes from one to the next. The view
 * of the first is number `first` of the column, whose validity bits go on in `bits`; returns the number of nulls. */
static int64_t kfuzz_put_views(uint64_t *views, uint64_t *bits, int64_t first, const void *spans, size_t stride,
                               int64_t count, const uint8_t *base, const uint8_t *end, uint32_t buffer, uint32_t shift)
{
    const uint8_t *span = spans;
    const int64_t last = first + count;
    uint64_t word = first & 63 ? bits[first >> 6] : 0;
    int64_t nulls = 0, i;
    for (i = first; i < last; i++, span += stride) {
        int32_t at, n;
        uint64_t there;
        memcpy(&at, span, 4);
        memcpy(&n, span + 4, 4);
        there = n >= 0;
        kfuzz_put_view(views + 2 * i, base + at, end, n & ~(n >> 31), buffer, shift + (uint32_t) at);
        word |= there << (i & 63);
        nulls += 1 - (int64_t) there;
        if ((i & 63) == 63) {
            bits[i >> 6] = word;
            word = 0;
        }
    }
    if (last & 63)
        bits[last >> 6] = word;
    return nulls;
}

#endif
