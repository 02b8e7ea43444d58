/* The state that decompression keeps from one payload to the next; unpack.h has the functions. */
#ifndef KFUZZ_DECOMPRESSOR_H
#define KFUZZ_DECOMPRESSOR_H

#include <stdint.h>

#include "format.h"

/* z_stream of zlib.h; its layout is the same in all versions 1.x. zng_stream of zlib-ng.h begins in the same way. */
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

/* A scan's decompressors and output buffer; each is created when it is first needed. */
typedef struct {
    uint8_t *out;
    int64_t size; /* bytes of output */
    int64_t capacity;
    kfuzz_zlib_stream *inflater;
    void *zstd;
} kfuzz_decompressor;

#endif
