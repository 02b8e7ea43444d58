/* Whether a short header key is ASCII without a null character, sixteen bytes at a time: what nearly all of them are. */
#ifndef KFUZZ_PLAIN_H
#define KFUZZ_PLAIN_H

#include <stdint.h>

/* The first n of 16 readable bytes, n from 0 to 16. 0 also where this machine has to go the long way. */
#if defined(__SSE2__)

#include <emmintrin.h>

static inline int kfuzz_is_plain(const uint8_t *p, int32_t n)
{
    /* As signed numbers, plain characters are above 0, and null and all that is not ASCII are not. */
    __m128i bytes = _mm_loadu_si128((const __m128i *) (const void *) p);
    uint32_t plain = (uint32_t) _mm_movemask_epi8(_mm_cmpgt_epi8(bytes, _mm_setzero_si128()));
    return (~plain & ((1u << n) - 1)) == 0;
}

#else

static inline int kfuzz_is_plain(const uint8_t *p, int32_t n)
{
    (void) p;
    (void) n;
    return 0;
}

#endif
#endif
