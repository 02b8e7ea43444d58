/* Copying short runs of bytes whose length comes as it likes: a branch on it costs more than copying too much. */
#ifndef KFUZZ_COPY_H
#define KFUZZ_COPY_H

#include <stdint.h>
#include <string.h>

/* That many bytes behind the copy may be overwritten, and are read if they are there. */
#define KFUZZ_COPY_SLACK 64

/* `n` bytes, of `readable` that may be read; n of 0 or less copies nothing that counts. */
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
