/* Copies short runs of bytes of unpredictable length: a mispredicted branch costs more than copying too much. */
#ifndef KFUZZ_COPY_H
#define KFUZZ_COPY_H

#include <stdint.h>
#include <string.h>

/* Up to this many bytes after the copy may be overwritten. As many are read after the source if they are readable. */
#define KFUZZ_COPY_SLACK 64

/* Copy `n` bytes; `readable` bytes may be read from `from` on. If n is 0 or less, only slack may be overwritten. */
static inline void kfuzz_copy(uint8_t *to, const uint8_t *from, int64_t n, int64_t readable)
{
    if (readable >= (n & ~(n >> 63)) + KFUZZ_COPY_SLACK) {
        do {
            memcpy(to, from, KFUZZ_COPY_SLACK);
            to += KFUZZ_COPY_SLACK;
            from += KFUZZ_COPY_SLACK;
            n -= KFUZZ_COPY_SLACK;
        } while (n > 0);
    } else if (n > 0) {
        memcpy(to, from, (size_t) n);
    }
}

#endif
