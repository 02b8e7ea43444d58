/* Calls the decompression libraries without Python. Compiling this needs none of their headers: their functions are
 * looked up at run time, and a codec whose functions are not found is left to Python. */
#ifndef KFUZZ_UNPACK_H
#define KFUZZ_UNPACK_H

#include <stddef.h>
#include <stdint.h>

#include "library.h"

/* z_stream of zlib.h; its layout is the same in all versions 1.x. */
typedef struct {
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *msg;
    void *state;
    void *zalloc;
    void *zfree;
    void *opaque;
    int data_type;
    unsigned long adler;
    unsigned long reserved;
} kfuzz_zlib_stream;

#define KFUZZ_ZLIB_FINISH 4
#define KFUZZ_ZLIB_STREAM_END 1

static int (*kfuzz_inflate_init)(kfuzz_zlib_stream *, int, const char *, int);
static int (*kfuzz_inflate_reset)(kfuzz_zlib_stream *);
static int (*kfuzz_inflate)(kfuzz_zlib_stream *, int);
static int (*kfuzz_inflate_end)(kfuzz_zlib_stream *);

static int (*kfuzz_lz4_block)(const char *, char *, int, int);

static void *(*kfuzz_zstd_new)(void);
static size_t (*kfuzz_zstd_free)(void *);
static size_t (*kfuzz_zstd_decompress)(void *, void *, size_t, const void *, size_t);
static unsigned (*kfuzz_zstd_is_error)(size_t);

static int kfuzz_use_zlib(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    kfuzz_find(library, "inflateInit2_", &kfuzz_inflate_init);
    kfuzz_find(library, "inflateReset", &kfuzz_inflate_reset);
    kfuzz_find(library, "inflate", &kfuzz_inflate);
    kfuzz_find(library, "inflateEnd", &kfuzz_inflate_end);
    return kfuzz_inflate_init && kfuzz_inflate_reset && kfuzz_inflate && kfuzz_inflate_end;
}

static int kfuzz_use_lz4(const char *path)
{
    kfuzz_find(dlopen(path, RTLD_LAZY | RTLD_LOCAL), "LZ4_decompress_safe", &kfuzz_lz4_block);
    return kfuzz_lz4_block != NULL;
}

static int kfuzz_use_zstd(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    kfuzz_find(library, "ZSTD_createDCtx", &kfuzz_zstd_new);
    kfuzz_find(library, "ZSTD_freeDCtx", &kfuzz_zstd_free);
    kfuzz_find(library, "ZSTD_decompressDCtx", &kfuzz_zstd_decompress);
    kfuzz_find(library, "ZSTD_isError", &kfuzz_zstd_is_error);
    return kfuzz_zstd_new && kfuzz_zstd_free && kfuzz_zstd_decompress && kfuzz_zstd_is_error;
}

/* XXH32 of fewer than 16 bytes, as used for the descriptor of an lz4 frame. */
static inline uint32_t kfuzz_xxh32_short(const uint8_t *p, size_t n)
{
    uint32_t hash = 374761393u + (uint32_t) n, word;
    for (; n >= 4; p += 4, n -= 4) {
        word = p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
        hash += word * 3266489917u;
        hash = (hash << 17 | hash >> 15) * 668265263u;
    }
    for (; n; p++, n--) {
        hash += *p * 374761393u;
        hash = (hash << 11 | hash >> 21) * 2654435761u;
    }
    hash = (hash ^ hash >> 15) * 2246822519u;
    hash = (hash ^ hash >> 13) * 3266489917u;
    return hash ^ hash >> 16;
}

#endif
