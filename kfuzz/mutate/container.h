/* Opens what ordinary writers compressed, and writes payloads back: compressed, or in stored blocks. */
#ifndef KFUZZ_CONTAINER_H
#define KFUZZ_CONTAINER_H

#include <stdint.h>
#include <string.h>

#include "crc32.h"
#include "unpack.h"
#include "squeeze.h"
#include "text.h"

enum {
    /* The largest payload that is opened. */
    KFUZZ_PAYLOAD_MAX = 1 << 20,
    KFUZZ_XERIAL_BYTES = 16,
    KFUZZ_STORED_MAX = 0xffff,
    /* A repeat of one byte that zstd's blocks can express. */
    KFUZZ_RUN_MIN = 32,
};

static const uint8_t kfuzz_xerial[KFUZZ_XERIAL_BYTES] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
static int kfuzz_has_gzip, kfuzz_has_zstd;

/* Look for zlib and libzstd in these files. A codec without its library is not opened, but still written. */
static void kfuzz_open_libraries(const char *zlib, const char *zstd)
{
    kfuzz_has_gzip = kfuzz_use_zlib(zlib);
    kfuzz_has_zstd = kfuzz_use_zstd(zstd);
}

/* ------------------------------------------------------------------------------------------------ open */

/* Copy `length` bytes that begin `distance` before the end of the output; they may overlap what they make. */
static int kfuzz_copy_back(uint8_t *out, int64_t *size, int64_t room, int64_t length, int64_t distance)
{
    uint8_t *p = out + *size;
    if (distance < 1 || distance > *size || length > room - *size)
        return 0;
    for (*size += length; length--; p++)
        *p = p[-distance];
    return 1;
}

/* Add the bytes that follow a length of 15 in a token, up to one below 255. NULL if they are cut. */
static const uint8_t *kfuzz_longer(const uint8_t *p, const uint8_t *end, int64_t *length)
{
    do {
        if (p == end)
            return NULL;
        *length += *p;
    } while (*p++ == 255);
    return p;
}

/* An lz4 block, with the interface of LZ4_decompress_safe. */
static int kfuzz_unlz4_block(const char *data, char *output, int n, int room)
{
    const uint8_t *p = (const uint8_t *) data, *const end = p + n;
    uint8_t *out = (uint8_t *) output;
    int64_t size = 0;
    while (p < end) {
        const int token = *p++;
        int64_t literals = token >> 4, length = token & 15;
        if (literals == 15 && (p = kfuzz_longer(p, end, &literals)) == NULL)
            return -1;
        if (literals > end - p || literals > room - size)
            return -1;
        memcpy(out + size, p, (size_t) literals);
        p += literals;
        size += literals;
        if (p == end)
            return (int) size;
        if (end - p < 2)
            return -1;
        const int64_t distance = p[0] | p[1] << 8;
        p += 2;
        if (length == 15 && (p = kfuzz_longer(p, end, &length)) == NULL)
            return -1;
        if (!kfuzz_copy_back(out, &size, room, length + KFUZZ_MATCH_MIN, distance))
            return -1;
    }
    return -1;
}

/* A raw snappy block, added to the decompressor's output. */
static int kfuzz_unsnappy_block(kfuzz_decompressor *decompressor, const uint8_t *p, int64_t n)
{
    const uint8_t *const end = p + n;
    int64_t size = 0, came = 0;
    uint8_t *out;
    int shift;
    for (shift = 0; shift < 35; shift += 7) {
        if (p == end)
            return 0;
        size |= (int64_t) (*p & 0x7f) << shift;
        if (*p++ < 0x80)
            break;
    }
    if (shift == 35 || size > KFUZZ_PAYLOAD_MAX - decompressor->size ||
        !kfuzz_room_for(decompressor, decompressor->size + size + 1))
        return 0;
    out = decompressor->out + decompressor->size;
    while (p < end) {
        const int tag = *p++, kind = tag & 3;
        int64_t length = (tag >> 2) + 1, distance = 0;
        /* How many bytes of a number follow the tag: a long literal's length, or a copy's distance. */
        const int width = kind == 0 ? (length > 60 ? (int) length - 60 : 0) : kind == 3 ? 4 : kind;
        if (width > end - p)
            return 0;
        for (shift = 0; shift < width; shift++)
            distance |= (int64_t) p[shift] << (8 * shift);
        p += width;
        if (kind == 0) {
            length = width ? distance + 1 : length;
            if (length > end - p || length > size - came)
                return 0;
            memcpy(out + came, p, (size_t) length);
            p += length;
            came += length;
            continue;
        }
        if (kind == 1) {
            length = 4 + (tag >> 2 & 7);
            distance |= (int64_t) (tag >> 5) << 8;
        }
        if (!kfuzz_copy_back(out, &came, size, length, distance))
            return 0;
    }
    decompressor->size += came;
    return came == size;
}

/* Blocks in xerial's container, or one raw block. */
static int kfuzz_unsnappy(kfuzz_decompressor *decompressor, const uint8_t *p, int64_t n)
{
    int64_t at = KFUZZ_XERIAL_BYTES;
    if (n < KFUZZ_XERIAL_BYTES || memcmp(p, kfuzz_xerial, 8) != 0)
        return kfuzz_unsnappy_block(decompressor, p, n);
    while (n - at >= 4) {
        const int64_t size = (int64_t) kfuzz_big(p + at, 4);
        at += 4;
        if (size > n - at || !kfuzz_unsnappy_block(decompressor, p + at, size))
            return 0;
        at += size;
    }
    return at == n;
}

_Static_assert(KFUZZ_LAST_CODEC == KFUZZ_ZSTD, "kfuzz_open and kfuzz_pack need the new codec");

/* Decompress into `decompressor`. 0 if the bytes are not what an ordinary writer makes. */
static int kfuzz_open(kfuzz_decompressor *decompressor, int codec, int magic, const uint8_t *p, int64_t n)
{
    uint32_t crc;
    decompressor->size = 0;
    switch (codec) {
    case KFUZZ_GZIP:
        return kfuzz_has_gzip && kfuzz_gunzip(decompressor, p, n, KFUZZ_PAYLOAD_MAX, &crc)
            && kfuzz_crc32_plain(0, decompressor->out, (size_t) decompressor->size) == crc;
    case KFUZZ_SNAPPY:
        return kfuzz_unsnappy(decompressor, p, n);
    case KFUZZ_LZ4:
        kfuzz_lz4_block = kfuzz_unlz4_block;
        return kfuzz_unlz4(decompressor, p, n, KFUZZ_PAYLOAD_MAX, magic == 0);
    case KFUZZ_ZSTD:
        return kfuzz_has_zstd && kfuzz_unzstd(decompressor, p, n, KFUZZ_PAYLOAD_MAX);
    default:
        return 0; /* unreachable: the caller knows the codec */
    }
}

/* ------------------------------------------------------------------------------------------------ write */

static inline void kfuzz_put_little(uint8_t *p, int width, uint64_t value)
{
    for (; width--; value >>= 8)
        *p++ = (uint8_t) value;
}

static int64_t kfuzz_write_gzip(const uint8_t *p, int64_t n, uint8_t *out, int is_stored)
{
    static const uint8_t header[KFUZZ_GZIP_HEADER_BYTES] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff};
    kfuzz_block block = {out, 0, 0};
    const int64_t most = is_stored ? KFUZZ_STORED_MAX : KFUZZ_BLOCK_BYTES;
    int64_t at = 0, size;
    uint8_t *to = out + sizeof(header);
    memcpy(out, header, sizeof(header));
    do {
        size = n - at < most ? n - at : most;
        if (is_stored) {
            *to = at + size == n;
            kfuzz_put_little(to + 1, 2, (uint64_t) size);
            kfuzz_put_little(to + 3, 2, ~(uint64_t) size);
            if (size)
                memcpy(to + 5, p + at, (size_t) size);
            to += 5 + size;
        } else {
            to += kfuzz_squeeze(KFUZZ_GZIP, p + at, size, to, &block, at + size == n);
        }
        at += size;
    } while (at < n);
    kfuzz_put_little(to, 4, kfuzz_crc32_plain(0, p, (size_t) n));
    kfuzz_put_little(to + 4, 4, (uint64_t) n);
    return to + KFUZZ_GZIP_TRAILER_BYTES - out;
}

static int64_t kfuzz_write_snappy(const uint8_t *p, int64_t n, uint8_t *out, int is_stored, int is_raw)
{
    uint8_t *to = out;
    int64_t at = 0;
    kfuzz_block block;
    if (!is_raw) {
        memcpy(to, kfuzz_xerial, sizeof(kfuzz_xerial));
        to += sizeof(kfuzz_xerial);
    } else if (n > KFUZZ_BLOCK_BYTES) {
        is_stored = 1;
    }
    do {
        const int64_t size = n - at < KFUZZ_BLOCK_BYTES || is_raw ? n - at : KFUZZ_BLOCK_BYTES;
        uint8_t *const start = is_raw ? to : to + 4;
        if (is_stored) {
            int64_t i, part;
            block.at = kfuzz_put_uvarint(start, (uint64_t) size);
            for (i = 0; i < size; i += part) {
                part = size - i < KFUZZ_BLOCK_BYTES ? size - i : KFUZZ_BLOCK_BYTES;
                kfuzz_put_snappy_literals(&block, p + at + i, part);
            }
        } else {
            kfuzz_squeeze(KFUZZ_SNAPPY, p + at, size, start, &block, 0);
        }
        if (!is_raw)
            kfuzz_put_big(to, 4, (uint64_t) (block.at - start));
        to = block.at;
        at += size;
    } while (at < n);
    return to - out;
}

static int64_t kfuzz_write_lz4(const uint8_t *p, int64_t n, uint8_t *out, int is_stored, int covers_magic)
{
    static const uint8_t header[6] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40};
    uint8_t *to = out + KFUZZ_LZ4_HEADER_BYTES;
    int64_t at;
    kfuzz_block block;
    memcpy(out, header, sizeof(header));
    out[6] = kfuzz_lz4_checksum(out, covers_magic);
    for (at = 0; at < n;) {
        const int64_t size = n - at < KFUZZ_BLOCK_BYTES ? n - at : KFUZZ_BLOCK_BYTES;
        int64_t taken = size;
        if (is_stored)
            memcpy(to + 4, p + at, (size_t) size);
        else
            taken = kfuzz_squeeze(KFUZZ_LZ4, p + at, size, to + 4, &block, 0);
        kfuzz_put_little(to, 4, (uint64_t) taken | (is_stored ? 0x80000000u : 0));
        to += 4 + taken;
        at += size;
    }
    kfuzz_put_little(to, 4, 0);
    return to + 4 - out;
}

/* A frame of raw blocks. Unless `is_stored`, a repeat of one byte is a block of its own. */
static int64_t kfuzz_write_zstd(const uint8_t *p, int64_t n, uint8_t *out, int is_stored)
{
    /* No content size, no checksum, a window of 128 KiB. */
    static const uint8_t header[6] = {0x28, 0xb5, 0x2f, 0xfd, 0, 0x38};
    uint8_t *to = out + sizeof(header);
    int64_t at = 0;
    memcpy(out, header, sizeof(header));
    do {
        const int64_t most = n - at < KFUZZ_ZSTD_BLOCK_BYTES ? n - at : KFUZZ_ZSTD_BLOCK_BYTES;
        int64_t size = is_stored ? most : 0, run = 0;
        while (size + run < most && run < KFUZZ_RUN_MIN) {
            run = 1;
            while (size + run < most && p[at + size + run] == p[at + size])
                run++;
            if (run < KFUZZ_RUN_MIN) {
                size += run;
                run = 0;
            }
        }
        /* First what is before the repeat, then the repeat. */
        if (size)
            run = 0;
        kfuzz_put_little(to, 3, (uint64_t) (size + run) << 3 | (run ? 2 : 0) | (at + size + run == n));
        to += 3;
        if (run) {
            *to++ = p[at];
        } else if (size) {
            memcpy(to, p + at, (size_t) size);
            to += size;
        }
        at += size + run;
    } while (at < n);
    return to - out;
}

/* Write n bytes as a payload of this codec. Of every form that a reader takes, each comes up. 0 if there is no memory. */
static int kfuzz_pack(kfuzz_text *packed, int codec, int magic, kfuzz_dice *dice, const uint8_t *p, int64_t n)
{
    const int is_stored = kfuzz_chance(dice, 0.5);
    const int is_odd = kfuzz_chance(dice, 0.1);
    /* Blocks have headers: four bytes for 32 KiB, or for each repeat of 32 bytes. */
    if (!kfuzz_reserve(packed, kfuzz_squeezed_most(n) + n / 8 + 64))
        return 0; /* unreachable: only if memory runs out */
    packed->n = codec == KFUZZ_GZIP ? kfuzz_write_gzip(p, n, packed->p, is_stored)
        : codec == KFUZZ_SNAPPY     ? kfuzz_write_snappy(p, n, packed->p, is_stored, is_odd)
        : codec == KFUZZ_LZ4        ? kfuzz_write_lz4(p, n, packed->p, is_stored, magic == 0 && !is_odd)
                                    : kfuzz_write_zstd(p, n, packed->p, is_stored);
    return 1;
}

/* Parts that hold nothing, which readers must pass over: members of gzip, chunks of snappy, frames and blocks. */
enum kfuzz_nothing_place { KFUZZ_IN_FRONT, KFUZZ_AT_START, KFUZZ_BEHIND, KFUZZ_NOTHING_PLACES };

static const struct {
    uint8_t codec, size, header;
    /* Where it may be, one bit for each place. */
    uint8_t places;
    uint8_t bytes[20];
} kfuzz_nothings[] = {
    {KFUZZ_GZIP, 20, 0, 5, {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff, 3}},
    {KFUZZ_GZIP, 5, KFUZZ_GZIP_HEADER_BYTES, 2, {0, 0, 0, 0xff, 0xff}},
    {KFUZZ_SNAPPY, 4, KFUZZ_XERIAL_BYTES, 6, {0}},
    {KFUZZ_SNAPPY, 5, KFUZZ_XERIAL_BYTES, 6, {0, 0, 0, 1, 0}},
    {KFUZZ_SNAPPY, 16, KFUZZ_XERIAL_BYTES, 6, {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}},
    {KFUZZ_LZ4, 11, 0, 5, {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82}},
    {KFUZZ_LZ4, 4, KFUZZ_LZ4_HEADER_BYTES, 2, {0, 0, 0, 0x80}},
    {KFUZZ_LZ4, 8, 0, 5, {0x50, 0x2a, 0x4d, 0x18}},
    {KFUZZ_ZSTD, 9, 0, 5, {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1}},
    {KFUZZ_ZSTD, 3, 6, 2, {0}},
    {KFUZZ_ZSTD, 8, 0, 5, {0x50, 0x2a, 0x4d, 0x18}},
};

enum { KFUZZ_NOTHING_COUNT = sizeof(kfuzz_nothings) / sizeof(kfuzz_nothings[0]) };

/* Add a part that holds nothing to a stream that kfuzz_pack has written, or write the stream twice. */
static void kfuzz_add_nothing(kfuzz_text *packed, int codec, kfuzz_dice *dice)
{
    int64_t which = kfuzz_below(dice, KFUZZ_NOTHING_COUNT + 1), place = kfuzz_below(dice, KFUZZ_NOTHING_PLACES), at;
    /* A raw snappy block has no parts. */
    if (codec == KFUZZ_SNAPPY && (packed->n < KFUZZ_XERIAL_BYTES || memcmp(packed->p, kfuzz_xerial, 8)))
        return;
    if (which == KFUZZ_NOTHING_COUNT) {
        kfuzz_repeat(packed, 0, packed->n, 1);
        return;
    }
    while (kfuzz_nothings[which].codec != codec)
        which = (which + 1) % KFUZZ_NOTHING_COUNT;
    while (!(kfuzz_nothings[which].places >> place & 1))
        place = (place + 1) % KFUZZ_NOTHING_PLACES;
    at = place == KFUZZ_IN_FRONT ? 0 : place == KFUZZ_BEHIND ? packed->n : kfuzz_nothings[which].header;
    kfuzz_put(packed, at, 0, kfuzz_nothings[which].bytes, kfuzz_nothings[which].size);
}

#endif
