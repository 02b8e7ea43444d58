/* Bytes that a mutation changes in place, and changes that know nothing of their structure. */
#ifndef KFUZZ_TEXT_H
#define KFUZZ_TEXT_H

#include <stdint.h>
#include <string.h>

#include "dice.h"
#include "memory.h"

/* n bytes at p, which can grow to `room` bytes. The memory may be larger, but what fits must not depend on that: equal
 * calls give equal bytes. */
typedef struct {
    uint8_t *p;
    int64_t n;
    int64_t room;
    int64_t allocated;
} kfuzz_text;

static inline uint64_t kfuzz_big(const uint8_t *p, int width)
{
    uint64_t value = 0;
    while (width--)
        value = value << 8 | *p++;
    return value;
}

static inline void kfuzz_put_big(uint8_t *p, int width, uint64_t value)
{
    for (; width--; value >>= 8)
        p[width] = (uint8_t) value;
}

/* Make the room `room` bytes. 0 if there is no memory; the text is then unchanged. */
static int kfuzz_reserve(kfuzz_text *text, int64_t room)
{
    if (room > text->allocated) {
        uint8_t *moved = kfuzz_moved(text->p, (size_t) room);
        if (moved == NULL)
            return 0;
        text->p = moved;
        text->allocated = room;
    }
    text->room = room;
    return 1;
}

/* Put n bytes in place of `old` bytes at `at`. They must not be part of the text. 0 if there is no room for them. */
static int kfuzz_put(kfuzz_text *text, int64_t at, int64_t old, const uint8_t *bytes, int64_t n)
{
    uint8_t *p = text->p + at;
    if (n - old > text->room - text->n)
        return 0;
    if (n != old)
        memmove(p + n, p + old, (size_t) (text->n - at - old));
    if (n)
        memcpy(p, bytes, (size_t) n);
    text->n += n - old;
    return 1;
}

/* Numbers of the input may be of any size: sums with them wrap. */
static inline int64_t kfuzz_sum(int64_t a, int64_t b)
{
    return (int64_t) ((uint64_t) a + (uint64_t) b);
}

static void kfuzz_cut(kfuzz_text *text, int64_t at, int64_t n)
{
    memmove(text->p + at, text->p + at + n, (size_t) (text->n - at - n));
    text->n -= n;
}

/* Insert `times` copies of the n bytes at `at` after them. 0 if there is no room. */
static int kfuzz_repeat(kfuzz_text *text, int64_t at, int64_t n, int64_t times)
{
    uint8_t *p = text->p + at;
    if (n == 0 || times > (text->room - text->n) / n)
        return 0;
    memmove(p + n + n * times, p + n, (size_t) (text->n - at - n));
    for (text->n += n * times; times--; p += n)
        memcpy(p + n, p, (size_t) n);
    return 1;
}

static void kfuzz_reverse(uint8_t *p, int64_t n)
{
    uint8_t *end = p + n;
    while (end - p > 1) {
        const uint8_t first = *p;
        *p++ = *--end;
        *end = first;
    }
}

/* Exchange [a, b) and [c, d), where b <= c. */
static void kfuzz_exchange(kfuzz_text *text, int64_t a, int64_t b, int64_t c, int64_t d)
{
    kfuzz_reverse(text->p + a, d - a);
    kfuzz_reverse(text->p + a, d - c);
    kfuzz_reverse(text->p + a + (d - c), c - b);
    kfuzz_reverse(text->p + d - (b - a), b - a);
}

/* Values that have caused errors in readers, those for narrow fields first: a field of 1 byte uses the first 21, … */
static const int64_t kfuzz_telling[] = {
    0, 1, 2, 3, 4, 5, 6, 7, 8, 14, 16, 32, 49, 64, 100, 126, 127, -1, -2, -127, -128,
    128, 129, 255, 256, 1000, 0x7ffe, 0x7fff, -129, -0x7fff, -0x8000,
    0x8000, 0xffff, 0x10000, 1000000, 1000001, 0x7ffffffe, 0x7fffffff, -0x8001, -0x7fffffff, -0x7fffffffLL - 1,
    0x80000000LL, 0xffffffffLL, 0x100000000LL, INT64_MAX - 1, INT64_MAX, -0x80000001LL, -INT64_MAX, INT64_MIN,
};

static inline int64_t kfuzz_tell(kfuzz_dice *dice, int width)
{
    return kfuzz_telling[kfuzz_below(dice, width == 1 ? 21 : width == 2 ? 31 : width == 4 ? 41 : 49)];
}

/* Another value for a number of `width` bytes; the caller keeps as many of its bits as the number has. */
static int64_t kfuzz_number(kfuzz_dice *dice, int64_t value, int width)
{
    const uint64_t bits = (uint64_t) value;
    switch (kfuzz_below(dice, 16)) {
    case 0:
    case 1:
        return (int64_t) (bits + 1);
    case 2:
    case 3:
        return (int64_t) (bits - 1);
    case 4:
        return (int64_t) (bits + (uint64_t) kfuzz_below(dice, 71) - 35);
    case 5:
    case 6:
        return (int64_t) (bits ^ (uint64_t) 1 << kfuzz_below(dice, 8 * width));
    case 7:
        return (int64_t) (kfuzz_below(dice, 2) ? 0 - bits : bits << 1);
    case 8:
        return (int64_t) (__builtin_bswap64(bits) >> (64 - 8 * width));
    default:
        return kfuzz_tell(dice, width);
    }
}

static const uint8_t kfuzz_telling_bytes[] = {0, 1, 2, 3, 4, 0x0f, 0x7f, 0x80, 0x81, 0xf0, 0xfe, 0xff};

static inline uint8_t kfuzz_telling_byte(kfuzz_dice *dice)
{
    return kfuzz_telling_bytes[kfuzz_below(dice, sizeof(kfuzz_telling_bytes))];
}

/* Change [from, end) in one place. The end moves with the size of the text; what has no room changes nothing. */
static void kfuzz_scramble_once(kfuzz_text *text, int64_t from, int64_t end, kfuzz_dice *dice)
{
    uint8_t bytes[32];
    int64_t at, size, source, i;
    if (from == end) {
        bytes[0] = kfuzz_telling_byte(dice);
        kfuzz_put(text, from, 0, bytes, 1);
        return;
    }
    at = from + kfuzz_below(dice, end - from < INT32_MAX ? end - from : INT32_MAX);
    switch (kfuzz_below(dice, 8)) {
    case 0:
        text->p[at] = kfuzz_telling_byte(dice);
        break;
    case 1:
        text->p[at] ^= (uint8_t) (1 << kfuzz_below(dice, 8));
        break;
    case 2:
        size = 1 + kfuzz_below(dice, 8);
        kfuzz_cut(text, at, size < end - at ? size : end - at);
        break;
    case 3:
        size = 1 + kfuzz_below(dice, 9);
        for (i = 0; i < size; i++)
            bytes[i] = kfuzz_telling_byte(dice);
        kfuzz_put(text, at, 0, bytes, size);
        break;
    case 4:
        text->p[at] = (uint8_t) kfuzz_below(dice, 256);
        break;
    case 5:
        size = 1 + kfuzz_below(dice, 30);
        for (i = 0; i < size; i++)
            bytes[i] = (uint8_t) kfuzz_below(dice, 256);
        kfuzz_put(text, end, 0, bytes, size);
        break;
    case 6:
        /* A number of up to eight bytes. */
        size = 1 << kfuzz_below(dice, 4);
        if (size > end - at)
            size = 1;
        kfuzz_put_big(text->p + at, (int) size,
                      (uint64_t) kfuzz_number(dice, (int64_t) kfuzz_big(text->p + at, (int) size), (int) size));
        break;
    default:
        source = from + kfuzz_below(dice, end - from < INT32_MAX ? end - from : INT32_MAX);
        size = 1 + kfuzz_below(dice, 16);
        i = end - (at > source ? at : source);
        memmove(text->p + at, text->p + source, (size_t) (size < i ? size : i));
    }
}

/* One to three such changes. */
static void kfuzz_scramble(kfuzz_text *text, int64_t from, int64_t end, kfuzz_dice *dice)
{
    int64_t rounds = kfuzz_below(dice, 4);
    do {
        const int64_t before = text->n;
        kfuzz_scramble_once(text, from, end, dice);
        end += text->n - before;
    } while (rounds-- > 1);
}

#endif
