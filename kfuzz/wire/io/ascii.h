/* Tests, 16 bytes at a time, whether a header key is plain: ASCII without null characters, as nearly all keys are. */
#ifndef KFUZZ_ASCII_H
#define KFUZZ_ASCII_H

#include <stdint.h>

/* 1 if the first n of 16 readable bytes are plain, n from 0 to 16. Always 0 on machines without SSE2: callers then use
 * their general test. */
#if defined(__SSE2__)

#include <emmintrin.h>

static inline int kfuzz_is_ascii(const uint8_t *p, int32_t n)
{
    /* As signed bytes, plain characters are above 0; null characters and non-ASCII bytes are not. */
    __m128i bytes = _mm_loadu_si128((const __m128i *) (const void *) p);
    uint32_t plain = (uint32_t) _mm_movemask_epi8(_mm_cmpgt_epi8(bytes, _mm_setzero_si128()));
    return (~plain & ((1u << n) - 1)) == 0;
}

#else

static inline int kfuzz_is_ascii(const uint8_t *p, int32_t n)
{
    (void) p;
    (void) n;
    return 0;
}

#endif
#endif
