/* Decompresses ordinary streams without Python; unpack.pyx says which ones. Compiling this needs no library's headers:
 * the functions are looked up at run time, and a codec whose functions are not found is left to the caller. */
#ifndef KFUZZ_UNPACK_H
#define KFUZZ_UNPACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "library.h"
#include "memory.h"
#include "decompressor.h"

#define KFUZZ_ZLIB_FINISH 4
#define KFUZZ_ZLIB_STREAM_END 1

static int (*kfuzz_inflate_init)(kfuzz_zlib_stream *, int, const char *, int);
static int (*kfuzz_inflate_init_ng)(kfuzz_zlib_stream *, int);
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
    kfuzz_inflate_init_ng = NULL;
    kfuzz_find(library, "inflateInit2_", &kfuzz_inflate_init);
    kfuzz_find(library, "inflateReset", &kfuzz_inflate_reset);
    kfuzz_find(library, "inflate", &kfuzz_inflate);
    kfuzz_find(library, "inflateEnd", &kfuzz_inflate_end);
    return kfuzz_inflate_init && kfuzz_inflate_reset && kfuzz_inflate && kfuzz_inflate_end;
}

/* zlib-ng is zlib's own code with faster loops: it refuses exactly what zlib refuses. Its stream differs only after
 * `data_type`, and is no longer. */
static int kfuzz_use_zlib_ng(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    kfuzz_find(library, "zng_inflateInit2", &kfuzz_inflate_init_ng);
    kfuzz_find(library, "zng_inflateReset", &kfuzz_inflate_reset);
    kfuzz_find(library, "zng_inflate", &kfuzz_inflate);
    kfuzz_find(library, "zng_inflateEnd", &kfuzz_inflate_end);
    return kfuzz_inflate_init_ng && kfuzz_inflate_reset && kfuzz_inflate && kfuzz_inflate_end;
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

enum {
    KFUZZ_GZIP_HEADER_BYTES = 10,
    KFUZZ_GZIP_TRAILER_BYTES = 8,
    /* The most bytes of output that deflate makes from one byte. */
    KFUZZ_GZIP_MOST = 1032,
    /* The fast loops of inflate end when less room than this is left. */
    KFUZZ_GZIP_SLACK = 512,
    KFUZZ_LZ4_HEADER_BYTES = 7,
    KFUZZ_LZ4_MOST = 255,
    KFUZZ_ZSTD_BLOCK_BYTES = 128 * 1024,
    /* The largest window that a streaming decoder accepts by default, and so zstd-jni. */
    KFUZZ_ZSTD_WINDOW_MAX = (1 << 27) + 1,
    /* Kafka asks for so many bytes at once. */
    KFUZZ_ZSTD_ONE_PASS = 16 * 1024,
};

static inline uint32_t kfuzz_little32(const uint8_t *p)
{
    return p[0] | (uint32_t) p[1] << 8 | (uint32_t) p[2] << 16 | (uint32_t) p[3] << 24;
}

/* Under AddressSanitizer, bytes of the buffer after the output cannot be read: without this, the buffer's spare memory
 * would hide a read after a payload. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KFUZZ_ADDRESSES_CHECKED
void __asan_poison_memory_region(const volatile void *p, size_t n);
void __asan_unpoison_memory_region(const volatile void *p, size_t n);
#endif
#endif

static void kfuzz_show_spare(const kfuzz_decompressor *decompressor)
{
#ifdef KFUZZ_ADDRESSES_CHECKED
    __asan_unpoison_memory_region(decompressor->out, (size_t) decompressor->capacity);
#else
    (void) decompressor;
#endif
}

static void kfuzz_hide_spare(const kfuzz_decompressor *decompressor)
{
#ifdef KFUZZ_ADDRESSES_CHECKED
    __asan_poison_memory_region(decompressor->out + decompressor->size,
                                (size_t) (decompressor->capacity - decompressor->size));
#else
    (void) decompressor;
#endif
}

/* Make room for `size` bytes in total. The caller has checked that the input can hold that many. */
static int kfuzz_room_for(kfuzz_decompressor *decompressor, int64_t size)
{
    const int64_t capacity = size > 2 * decompressor->capacity ? size : 2 * decompressor->capacity;
    void *moved;
    if (size <= decompressor->capacity)
        return 1;
    moved = kfuzz_moved(decompressor->out, (size_t) capacity);
    if (moved == NULL)
        return 0; /* unreachable: only if memory runs out */
    decompressor->out = moved;
    decompressor->capacity = capacity;
    return 1;
}

static int kfuzz_ready_inflater(kfuzz_decompressor *decompressor)
{
    kfuzz_zlib_stream *z = decompressor->inflater;
    if (z != NULL)
        return kfuzz_inflate_reset(z) == 0;
    z = kfuzz_moved(NULL, sizeof(*z));
    if (z == NULL)
        return 0; /* unreachable: only if memory runs out */
    memset(z, 0, sizeof(*z));
    /* Raw deflate: the gzip header and trailer are read here. */
    if ((kfuzz_inflate_init_ng ? kfuzz_inflate_init_ng(z, -15) : kfuzz_inflate_init(z, -15, "1", sizeof(*z))) != 0) {
        KFUZZ_FREE(z); /* unreachable: only if memory runs out */
        return 0; /* unreachable: only if memory runs out */
    }
    decompressor->inflater = z;
    return 1;
}

/* One gzip member without optional fields. Its trailer has the output's size modulo 2^32, and the CRC-32 of the output,
 * which the caller must compare with `*crc`. */
static int kfuzz_gunzip(kfuzz_decompressor *decompressor, const uint8_t *p, int64_t n, int64_t limit, uint32_t *crc)
{
    const uint8_t *trailer = p + n - KFUZZ_GZIP_TRAILER_BYTES;
    kfuzz_zlib_stream *z;
    int64_t size;
    if (n < KFUZZ_GZIP_HEADER_BYTES + KFUZZ_GZIP_TRAILER_BYTES || p[0] != 0x1f || p[1] != 0x8b || p[2] != 8 || p[3])
        return 0;
    size = kfuzz_little32(trailer + 4);
    if (size > limit || size > n * KFUZZ_GZIP_MOST)
        return 0;
    if (!kfuzz_room_for(decompressor, size + KFUZZ_GZIP_SLACK) || !kfuzz_ready_inflater(decompressor))
        return 0; /* unreachable: only if memory runs out */
    z = decompressor->inflater;
    z->next_in = p + KFUZZ_GZIP_HEADER_BYTES;
    /* With the trailer, and with more room than the stream may fill: the fast loops go to the end then. */
    z->avail_in = (unsigned) (n - KFUZZ_GZIP_HEADER_BYTES);
    z->next_out = decompressor->out;
    z->avail_out = (unsigned) (size + KFUZZ_GZIP_SLACK);
    if (kfuzz_inflate(z, KFUZZ_ZLIB_FINISH) != KFUZZ_ZLIB_STREAM_END || z->avail_in != KFUZZ_GZIP_TRAILER_BYTES ||
        z->avail_out != KFUZZ_GZIP_SLACK)
        return 0;
    decompressor->size = size;
    *crc = kfuzz_little32(trailer);
    return 1;
}

/* The checksum in the header of an lz4 frame. In messages of magic 0 it also covers the frame's magic (KAFKA-3160). */
static inline uint8_t kfuzz_lz4_checksum(const uint8_t *p, int covers_magic)
{
    return (uint8_t) ((covers_magic ? kfuzz_xxh32_short(p, 6) : kfuzz_xxh32_short(p + 4, 2)) >> 8);
}

/* One lz4 frame of independent blocks, with no content size and no checksum except the header's. */
static int kfuzz_unlz4(kfuzz_decompressor *decompressor, const uint8_t *p, int64_t n, int64_t limit, int covers_magic)
{
    int64_t at = KFUZZ_LZ4_HEADER_BYTES, largest;
    if (n < KFUZZ_LZ4_HEADER_BYTES + 4 || kfuzz_little32(p) != 0x184d2204 || p[4] != 0x60 || p[5] & 0x8f || p[5] < 0x40)
        return 0;
    if (p[6] != kfuzz_lz4_checksum(p, covers_magic))
        return 0;
    largest = (int64_t) 1 << (8 + 2 * (p[5] >> 4));
    while (n - at >= 4) {
        const int64_t size = kfuzz_little32(p + at) & 0x7fffffff;
        const int is_stored = p[at + 3] >> 7;
        int64_t most;
        at += 4;
        if (size == 0)
            return !is_stored && at == n;
        if (size > largest || size > n - at)
            return 0;
        most = size * KFUZZ_LZ4_MOST + 16;
        most = is_stored ? size : most < largest ? most : largest;
        most = most < limit - decompressor->size ? most : limit - decompressor->size;
        if (!kfuzz_room_for(decompressor, decompressor->size + most))
            return 0; /* unreachable: only if memory runs out */
        if (!is_stored)
            most = kfuzz_lz4_block((const char *) p + at, (char *) decompressor->out + decompressor->size, (int) size,
                                   (int) most);
        else if (most == size)
            memcpy(decompressor->out + decompressor->size, p + at, (size_t) size);
        else
            return 0;
        /* Kafka takes a block without bytes as the end. */
        if (most <= 0)
            return 0;
        decompressor->size += most;
        at += size;
    }
    return 0;
}

/* The most bytes of output from the single frame in [p, p + n); -1 if the bytes are not exactly one frame. */
static int64_t kfuzz_zstd_most(const uint8_t *p, int64_t n)
{
    int64_t at = 5, most = 0, window = 0, content = -1, largest = KFUZZ_ZSTD_BLOCK_BYTES;
    int width;
    if (n < 9 || kfuzz_little32(p) != 0xfd2fb528u)
        return -1;
    /* The frame needs a dictionary, and there are none here. */
    if (p[4] & 3)
        return -1;
    width = 1 << (p[4] >> 6);
    if (!(p[4] & 0x20)) {
        window = (int64_t) (8 + (p[5] & 7)) << (7 + (p[5] >> 3));
        at++;
        width = width == 1 ? 0 : width;
    }
    if (n - at < width || width == 8)
        return -1;
    if (width == 4)
        content = (int64_t) kfuzz_little32(p + at);
    else if (width)
        content = width == 1 ? p[at] : (p[at] | p[at + 1] << 8) + 256;
    /* A single-segment frame has no window descriptor: its window is its content size. */
    if (p[4] & 0x20)
        window = content;
    at += width;
    if (window > KFUZZ_ZSTD_WINDOW_MAX)
        return -1;
    /* A streaming reader like Kafka's refuses a block that is larger than the window or than 128 KiB, unless it sees that
     * all contents fit into its buffer. The library's other function does not. */
    if (content < 0 && window < KFUZZ_ZSTD_BLOCK_BYTES)
        return -1;
    if (content >= 0 && content <= KFUZZ_ZSTD_ONE_PASS)
        largest = INT64_MAX;
    else if (window < largest)
        largest = window;
    while (n - at >= 3) {
        const uint32_t word = p[at] | (uint32_t) p[at + 1] << 8 | (uint32_t) p[at + 2] << 16, kind = word >> 1 & 3;
        const int64_t size = word >> 3;
        at += 3;
        if (kind == 3 || size > largest)
            return -1;
        most += kind == 2 ? KFUZZ_ZSTD_BLOCK_BYTES : size;
        at += kind == 1 ? 1 : size;
        if (at > n)
            return -1;
        if (word & 1)
            return at + (p[4] & 4 ? 4 : 0) == n ? most : -1;
    }
    return -1;
}

/* One zstd frame without a dictionary. */
static int kfuzz_unzstd(kfuzz_decompressor *decompressor, const uint8_t *p, int64_t n, int64_t limit)
{
    int64_t most = kfuzz_zstd_most(p, n);
    size_t came;
    most = most < limit ? most : limit;
    if (most < 0 || !kfuzz_room_for(decompressor, most > 1 ? most : 1))
        return 0;
    if (decompressor->zstd == NULL && (decompressor->zstd = kfuzz_zstd_new()) == NULL)
        return 0; /* unreachable: only if memory runs out */
    came = kfuzz_zstd_decompress(decompressor->zstd, decompressor->out, (size_t) most, p, (size_t) n);
    if (kfuzz_zstd_is_error(came))
        return 0;
    decompressor->size = (int64_t) came;
    return 1;
}

static void kfuzz_free_decompressor(kfuzz_decompressor *decompressor)
{
    KFUZZ_FREE(decompressor->out);
    if (decompressor->inflater != NULL) {
        kfuzz_inflate_end(decompressor->inflater);
        KFUZZ_FREE(decompressor->inflater);
    }
    if (decompressor->zstd != NULL)
        kfuzz_zstd_free(decompressor->zstd);
}

#endif
