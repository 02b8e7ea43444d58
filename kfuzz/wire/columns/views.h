/* Writes Arrow views. A view is a length and up to 12 bytes of data. For longer data it is the length, the first 4
 * bytes, the number of a buffer, and an offset in that buffer. */
#ifndef KFUZZ_VIEWS_H
#define KFUZZ_VIEWS_H

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)

#include <emmintrin.h>

/* Masks for the data after the length: row n keeps n bytes, for n up to 12. The last row keeps 4, for longer data. */
#define KFUZZ_ROW(a, b, c) {0, a, b, c}
static const int32_t kfuzz_view_masks[14][4] __attribute__((aligned(16))) = {
    KFUZZ_ROW(0, 0, 0),         KFUZZ_ROW(0xff, 0, 0),    KFUZZ_ROW(0xffff, 0, 0),    KFUZZ_ROW(0xffffff, 0, 0),
    KFUZZ_ROW(-1, 0, 0),        KFUZZ_ROW(-1, 0xff, 0),   KFUZZ_ROW(-1, 0xffff, 0),   KFUZZ_ROW(-1, 0xffffff, 0),
    KFUZZ_ROW(-1, -1, 0),       KFUZZ_ROW(-1, -1, 0xff),  KFUZZ_ROW(-1, -1, 0xffff),  KFUZZ_ROW(-1, -1, 0xffffff),
    KFUZZ_ROW(-1, -1, -1),      KFUZZ_ROW(-1, 0, 0),
};
#undef KFUZZ_ROW

#endif

/* Write the view of the n bytes at p. Nothing beyond `end` is read. */
static inline void kfuzz_put_view(uint64_t *view, const uint8_t *p, const uint8_t *end, int32_t n, uint32_t buffer,
                                  uint32_t at)
{
#if defined(__SSE2__)
    if (end - p >= 16) {
        /* Lengths are unpredictable, so there is no branch on them. */
        const __m128i mask = _mm_load_si128((const __m128i *) kfuzz_view_masks[n < 13 ? n : 13]);
        const __m128i inside = _mm_slli_si128(_mm_loadu_si128((const __m128i *) (const void *) p), 4);
        const uint64_t place = (buffer | (uint64_t) at << 32) & (uint64_t) - (int64_t) (n > 12);
        const __m128i ends = _mm_unpacklo_epi64(_mm_cvtsi32_si128(n), _mm_cvtsi64_si128((int64_t) place));
        _mm_storeu_si128((__m128i *) (void *) view, _mm_or_si128(_mm_and_si128(inside, mask), ends));
        return;
    }
#endif
    uint8_t *bytes = (uint8_t *) view;
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

/* Spans. Each is an offset and a length (-1 for null) of 32 bits each. The next span begins `stride` bytes later. */
typedef struct {
    const uint8_t *first;
    size_t stride;
    int64_t count;
} kfuzz_spans;

/* The spans' offsets count from `base`, and nothing beyond `end` is read. A view has the number `buffer`, and the
 * offset plus `shift`. */
typedef struct {
    const uint8_t *base;
    const uint8_t *end;
    uint32_t buffer;
    uint32_t shift;
} kfuzz_source;

/* Write the views of spans and their validity bits. The first span becomes entry `at` of the column. Returns the
 * number of nulls. */
static int64_t kfuzz_put_views(uint64_t *views, uint64_t *bits, int64_t at, const kfuzz_spans *spans,
                               const kfuzz_source *source)
{
    const uint8_t *span = spans->first;
    const int64_t last = at + spans->count;
    uint64_t word = at & 63 ? bits[at >> 6] : 0;
    int64_t nulls = 0, i;
    for (i = at; i < last; i++, span += spans->stride) {
        int32_t place, n;
        uint64_t there;
        memcpy(&place, span, 4);
        memcpy(&n, span + 4, 4);
        there = n >= 0;
        kfuzz_put_view(views + 2 * i, source->base + place, source->end, n & ~(n >> 31), source->buffer,
                       source->shift + (uint32_t) place);
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
