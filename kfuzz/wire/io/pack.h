/* Calls the compression libraries without Python. A codec whose functions are not found is left to Python. */
#ifndef KFUZZ_PACK_H
#define KFUZZ_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "library.h"

/* LZ4F_preferences_t of lz4frame.h; its layout is the same in all versions since 1.8.2. */
typedef struct {
    int block_size;
    int block_mode;
    int content_checksum;
    int frame_type;
    unsigned long long content_bytes;
    unsigned dictionary;
    int block_checksum;
    int level;
    unsigned auto_flush;
    unsigned favor_speed;
    unsigned reserved[3];
} kfuzz_lz4_preferences;

/* Blocks of at most 64 KiB that do not depend on each other: Kafka's readers refuse others. */
#define KFUZZ_LZ4_64KIB 4
#define KFUZZ_LZ4_INDEPENDENT 1

static size_t (*kfuzz_lz4_bound)(size_t, const kfuzz_lz4_preferences *);
static size_t (*kfuzz_lz4_compress)(void *, size_t, const void *, size_t, const kfuzz_lz4_preferences *);
static unsigned (*kfuzz_lz4_is_error)(size_t);

static void *(*kfuzz_zstd_new)(void);
static size_t (*kfuzz_zstd_free)(void *);
static size_t (*kfuzz_zstd_bound)(size_t);
static size_t (*kfuzz_zstd_compress)(void *, void *, size_t, const void *, size_t);
static unsigned (*kfuzz_zstd_is_error)(size_t);

static int kfuzz_pack_by_lz4(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    kfuzz_find(library, "LZ4F_compressFrameBound", &kfuzz_lz4_bound);
    kfuzz_find(library, "LZ4F_compressFrame", &kfuzz_lz4_compress);
    kfuzz_find(library, "LZ4F_isError", &kfuzz_lz4_is_error);
    return kfuzz_lz4_bound && kfuzz_lz4_compress && kfuzz_lz4_is_error;
}

static int kfuzz_pack_by_zstd(const char *path)
{
    void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    kfuzz_find(library, "ZSTD_createCCtx", &kfuzz_zstd_new);
    kfuzz_find(library, "ZSTD_freeCCtx", &kfuzz_zstd_free);
    kfuzz_find(library, "ZSTD_compressBound", &kfuzz_zstd_bound);
    kfuzz_find(library, "ZSTD_compress2", &kfuzz_zstd_compress);
    kfuzz_find(library, "ZSTD_isError", &kfuzz_zstd_is_error);
    return kfuzz_zstd_new && kfuzz_zstd_free && kfuzz_zstd_bound && kfuzz_zstd_compress && kfuzz_zstd_is_error;
}

#endif
