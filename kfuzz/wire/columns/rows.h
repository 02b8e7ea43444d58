/* Writes rows of Arrow's columns as records, up to 64 at a time. Numbers are computed field by field, because the
 * compiler can vectorise that over many rows; the bytes are then written row by row. Rows that are not ordinary are
 * left to the checking loop (ColumnWriter.put_rows); only that loop reports errors.
 *
 * With 512-bit registers `encode-columns` of benchmarks/ takes a fifth less time; without them this gains 4 %. */
#ifndef KFUZZ_ROWS_H
#define KFUZZ_ROWS_H

#include <stdint.h>
#include <string.h>

#include "copy.h"
#include "inline.h"
#include "varint.h"

/* Whether this processor has 512-bit registers and the instructions that the wide form needs. */
#if defined(__x86_64__) && defined(__GNUC__)

#define KFUZZ_WIDE_THERE                                                                                               \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&  \
     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2"))
#define KFUZZ_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt")))
#define KFUZZ_HAS_WIDE 1

#else

#define KFUZZ_WIDE_THERE 0
#define KFUZZ_HAS_WIDE 0

#endif

/* How a column stores the position of its bytes: 32-bit ends, 64-bit ends, or views. ABSENT: every row is null. */
enum { KFUZZ_ENDS, KFUZZ_LARGE_ENDS, KFUZZ_VIEWS, KFUZZ_ABSENT };

/* A view holds up to this many bytes itself. */
#define KFUZZ_INLINE_BYTES 12

/* A column's buffers. */
typedef struct {
    int kind;
    const uint8_t *valid; /* validity bits; NULL if no row is null */
    int64_t first_bit;     /* the first row's bit in them */
    const uint8_t *places; /* the ends or views, from the first row on */
    int64_t rows;
    const uint8_t **data;
    const int64_t *sizes;
    int64_t data_count; /* never 0 */
} kfuzz_column;

/* The n bytes of a row (n is -1 for null), and how many bytes may be read from p on. */
typedef struct {
    const uint8_t *p;
    int64_t n;
    int64_t readable;
} kfuzz_piece;

/* Get the bytes of row i: 1, or 0 if they are not within the column's data. It does not branch on null or on the
 * length, because both are unpredictable. */
static inline int kfuzz_get_piece(const kfuzz_column *column, int64_t i, kfuzz_piece *out)
{
    const int64_t longest_inline = column->kind == KFUZZ_VIEWS ? KFUZZ_INLINE_BYTES : 0;
    int32_t ends[2], view[4];
    int64_t large_ends[2], buffer = 0, at = 0, n = -1, some;
    if (column->kind == KFUZZ_VIEWS) {
        memcpy(view, column->places + 16 * i, 16);
        n = view[0];
        n -= n < 0;
        buffer = view[2];
        at = view[3];
    } else if (column->kind == KFUZZ_ENDS) {
        memcpy(ends, column->places + 4 * i, 8);
        at = ends[0];
        n = (int64_t) ends[1] - at;
        /* -1 means null below, but only validity bits may make a row null: turn a length of -1 into an invalid one. */
        n -= n < 0;
    } else if (column->kind == KFUZZ_LARGE_ENDS) {
        memcpy(large_ends, column->places + 8 * i, 16);
        at = large_ends[0];
        n = large_ends[1] >= at && at >= 0 ? large_ends[1] - at : -2;
    }
    if (column->valid) {
        const int64_t bit = column->first_bit + i;
        n |= (int64_t) (column->valid[bit >> 3] >> (bit & 7) & 1) - 1;
    }
    out->n = n;
    /* Nulls, empty and inline values have no position in the data: use buffer 0, offset 0. */
    some = -(int64_t) (n > longest_inline);
    buffer &= some;
    at &= some;
    if (n < -1 || buffer < 0 || buffer >= column->data_count || at < 0 || at > column->sizes[buffer])
        return 0;
    out->p = column->data[buffer] + at;
    out->readable = column->sizes[buffer] - at;
    if (column->kind == KFUZZ_VIEWS) {
        out->p = some ? out->p : column->places + 16 * i + 4;
        out->readable = some ? out->readable : 16 * (column->rows - i) - 4;
    }
    return n <= out->readable;
}

static inline uint8_t *kfuzz_put_piece(uint8_t *p, const kfuzz_piece *piece)
{
    p = kfuzz_put_mixed_varlong(p, piece->n);
    kfuzz_copy(p, piece->p, piece->n, piece->readable);
    return p + (piece->n & ~(piece->n >> 63));
}

/* The most bytes that a header's two lengths take. */
#define KFUZZ_HEADER_FIXED_BYTES 10

/* Write headers `first` to `last` at p. NULL if they are not valid, or if the room is too small for valid ones. */
static inline uint8_t *kfuzz_put_headers(uint8_t *p, uint8_t *end, const kfuzz_column *keys,
                                         const kfuzz_column *values, int64_t first, int64_t last)
{
    int64_t i;
    if (first < 0 || first > last || last > keys->rows)
        return NULL;
    for (i = first; i < last; i++) {
        kfuzz_piece key, value;
        if (!kfuzz_get_piece(keys, i, &key) || key.n < 0 || !kfuzz_get_piece(values, i, &value))
            return NULL;
        if (key.n + value.n + KFUZZ_HEADER_FIXED_BYTES + KFUZZ_COPY_SLACK > end - p)
            return NULL;
        p = kfuzz_put_piece(p, &key);
        p = kfuzz_put_piece(p, &value);
    }
    return p;
}

/* Write the length of a record with headers, which is known only at its end p. Two bytes at `start` are free for it,
 * nearly always enough; otherwise the record is moved. Returns the record's new end. */
static inline uint8_t *kfuzz_put_length(uint8_t *start, uint8_t *p)
{
    const int64_t body = p - start - 2;
    const int width = kfuzz_varlong_size(body);
    if (width != 2)
        memmove(start + width, start + 2, (size_t) body);
    kfuzz_put_varlong(start, body);
    return start + width + body;
}

/* All columns of a table. */
typedef struct {
    kfuzz_column keys;
    kfuzz_column values;
    kfuzz_column header_keys;
    kfuzz_column header_values;
    const uint8_t *timestamps;  /* int64, or NULL */
    const uint8_t *offsets;     /* int64, or NULL */
    const uint8_t *header_ends; /* int32, one more than there are rows, or NULL */
    /* Validity bits, NULL if no row is null, and the number of the first row's bit. */
    const uint8_t *timestamps_valid;
    int64_t timestamps_bit;
    const uint8_t *headers_valid;
    int64_t headers_bit;
} kfuzz_table;

static inline int kfuzz_bit_at(const uint8_t *bits, int64_t i)
{
    return bits[i >> 3] >> (i & 7) & 1;
}

static inline int64_t kfuzz_int64_at(const uint8_t *numbers, int64_t i)
{
    int64_t value;
    memcpy(&value, numbers + 8 * i, 8);
    return value;
}

static inline int64_t kfuzz_int32_at(const uint8_t *numbers, int64_t i)
{
    int32_t value;
    memcpy(&value, numbers + 4 * i, 4);
    return value;
}

#define KFUZZ_BLOCK 64
/* A copy of a key or a value may read and write up to this many bytes beyond it. */
#define KFUZZ_BLOCK_SLACK 256
/* An ordinary number takes at most four bytes as a varint. Keys and values have smaller limits, so that the record's
 * length is ordinary too. */
#define KFUZZ_ORDINARY_BITS 28

/* The bytes of a block's rows; -1 for null. */
typedef struct {
    const uint8_t *p[KFUZZ_BLOCK];
    int32_t n[KFUZZ_BLOCK];
} kfuzz_pieces;

/* Varints of a block, each in four bytes, and how many of the four are used. */
typedef struct {
    uint32_t bytes[KFUZZ_BLOCK];
    uint32_t size[KFUZZ_BLOCK];
} kfuzz_varints;

/* 64 bytes at any address; the compiler moves them with the widest registers of the target. */
typedef uint8_t kfuzz_line __attribute__((vector_size(64), aligned(1), may_alias));

KFUZZ_INLINE void kfuzz_put_ordinary(kfuzz_varints *out, int j, uint32_t raw)
{
    const uint32_t two = raw >= 0x80, three = raw >= 0x4000, four = raw >= 0x200000;
    out->bytes[j] = (raw & 0x7f) | (raw & 0x3f80) << 1 | (raw & 0x1fc000) << 2 | (raw & 0xfe00000) << 3 | two << 7 |
                    three << 15 | four << 23;
    out->size[j] = 1 + two + three + four;
}

KFUZZ_INLINE uint32_t kfuzz_zigzag32(int32_t value)
{
    return (uint32_t) value << 1 ^ (uint32_t) (value >> 31);
}

/* Find the bytes of m rows. 0 if any are not within the data, or lack the slack after them. */
KFUZZ_INLINE int kfuzz_gather(const kfuzz_column *column, int64_t first, int m, kfuzz_pieces *out)
{
    static const uint8_t nothing[KFUZZ_BLOCK_SLACK];
    uint64_t valid = ~0ull, odd = 0;
    int j;
    if (column->kind == KFUZZ_ABSENT) {
        for (j = 0; j < m; j++) {
            out->p[j] = nothing;
            out->n[j] = -1;
        }
        return 1;
    }
    if (column->kind != KFUZZ_ENDS) {
        for (j = 0; j < m; j++) {
            kfuzz_piece piece;
            if (!kfuzz_get_piece(column, first + j, &piece) || piece.n > INT32_MAX)
                return 0;
            if (piece.readable < (piece.n & ~(piece.n >> 63)) + KFUZZ_BLOCK_SLACK)
                return 0;
            out->p[j] = piece.p;
            out->n[j] = (int32_t) piece.n;
        }
        return 1;
    }
    if (column->valid) {
        const int64_t bit = column->first_bit + first;
        const uint8_t *bits = column->valid + (bit >> 3);
        const int shift = (int) (bit & 7), bytes = (shift + m + 7) >> 3;
        valid = 0;
        memcpy(&valid, bits, (size_t) (bytes < 8 ? bytes : 8));
        valid >>= shift;
        if (bytes > 8)
            valid |= (uint64_t) bits[8] << (64 - shift);
    }
    {
        const uint8_t *data = column->data[0];
        const int64_t most = column->sizes[0] - KFUZZ_BLOCK_SLACK;
        int32_t ends[KFUZZ_BLOCK + 1];
        memcpy(ends, column->places + 4 * first, 4 * (size_t) (m + 1));
        for (j = 0; j < m; j++) {
            const int64_t at = ends[j], n = ends[j + 1] - at;
            /* The top bit is set if any of the three is negative. */
            odd |= (uint64_t) (at | n | (most - at - n));
            out->p[j] = data + at;
            out->n[j] = (int32_t) n | ((int32_t) (valid >> j & 1) - 1);
        }
    }
    return odd >> 63 == 0;
}

/* Write rows `first` to `first + m` at p, in a batch that begins with row `batch_first`. Returns their end, or NULL if
 * one of them is not ordinary; the bytes at p are then meaningless. */
KFUZZ_INLINE uint8_t *kfuzz_put_block_as(const kfuzz_table *table, uint8_t *p, uint8_t *end, int64_t batch_first,
                                         int64_t first, int m, int64_t base_offset, int64_t base_timestamp,
                                         int64_t fixed_bytes, int64_t *largest, const int wide)
{
    kfuzz_pieces keys, values;
    kfuzz_varints timestamps, offsets, key_sizes, value_sizes, lengths;
    uint32_t headers[KFUZZ_BLOCK];
    int64_t top = *largest;
    uint64_t odd = 0;
    int j;
    if (table->timestamps_valid || table->headers_valid)
        return NULL;
    if (!kfuzz_gather(&table->keys, first, m, &keys) || !kfuzz_gather(&table->values, first, m, &values))
        return NULL;
    for (j = 0; j < m; j++) {
        const int64_t timestamp = table->timestamps ? kfuzz_int64_at(table->timestamps, first + j) : -1;
        /* Differences wrap as in Java. */
        const uint64_t raw = kfuzz_zigzag((int64_t) ((uint64_t) timestamp - (uint64_t) base_timestamp));
        top = timestamp > top ? timestamp : top;
        odd |= raw >> KFUZZ_ORDINARY_BITS;
        kfuzz_put_ordinary(&timestamps, j, (uint32_t) raw);
    }
    for (j = 0; j < m; j++) {
        const uint64_t offset = table->offsets ? (uint64_t) kfuzz_int64_at(table->offsets, first + j)
                                               : (uint64_t) base_offset + (uint64_t) (first - batch_first + j);
        const uint64_t raw = kfuzz_zigzag((int64_t) (offset - (uint64_t) base_offset));
        odd |= raw >> KFUZZ_ORDINARY_BITS;
        kfuzz_put_ordinary(&offsets, j, (uint32_t) raw);
    }
    for (j = 0; j < m; j++) {
        kfuzz_put_ordinary(&key_sizes, j, kfuzz_zigzag32(keys.n[j]));
        kfuzz_put_ordinary(&value_sizes, j, kfuzz_zigzag32(values.n[j]));
    }
    for (j = 0; j < m; j++)
        headers[j] = 0;
    if (table->header_ends)
        for (j = 0; j < m; j++)
            headers[j] = (uint32_t) (kfuzz_int32_at(table->header_ends, first + j + 1) -
                                     kfuzz_int32_at(table->header_ends, first + j));
    for (j = 0; j < m; j++) {
        const uint32_t key = (uint32_t) (keys.n[j] & ~(keys.n[j] >> 31));
        const uint32_t value = (uint32_t) (values.n[j] & ~(values.n[j] >> 31));
        odd |= (key | value) >> (KFUZZ_ORDINARY_BITS - 3);
        kfuzz_put_ordinary(&lengths, j, (2 + timestamps.size[j] + offsets.size[j] + key_sizes.size[j] + key +
                                         value_sizes.size[j] + value) << 1);
    }
    if (odd)
        return NULL;
    for (j = 0; j < m; j++) {
        const int64_t key = keys.n[j], value = values.n[j];
        const uint8_t *from;
        uint8_t *const start = p;
        uint8_t *to;
        int64_t n;
        if (key + value + fixed_bytes + KFUZZ_BLOCK_SLACK > end - p)
            return NULL;
        memcpy(p, &lengths.bytes[j], 4);
        p += headers[j] ? 2 : lengths.size[j];
        *p++ = 0;
        memcpy(p, &timestamps.bytes[j], 4);
        p += timestamps.size[j];
        memcpy(p, &offsets.bytes[j], 4);
        p += offsets.size[j];
        memcpy(p, &key_sizes.bytes[j], 4);
        p += key_sizes.size[j];
        for (to = p, from = keys.p[j], n = key;;) {
            *(kfuzz_line *) to = *(const kfuzz_line *) from;
            if ((n -= 64) <= 0)
                break;
            to += 64;
            from += 64;
        }
        p += key & ~(key >> 63);
        memcpy(p, &value_sizes.bytes[j], 4);
        p += value_sizes.size[j];
        for (to = p, from = values.p[j], n = value;;) {
            /* With wide registers, moving 256 bytes takes less time than a misprediction of their number. */
            *(kfuzz_line *) to = *(const kfuzz_line *) from;
            if (wide) {
                *(kfuzz_line *) (to + 64) = *(const kfuzz_line *) (from + 64);
                *(kfuzz_line *) (to + 128) = *(const kfuzz_line *) (from + 128);
                *(kfuzz_line *) (to + 192) = *(const kfuzz_line *) (from + 192);
            }
            if ((n -= wide ? 256 : 64) <= 0)
                break;
            to += wide ? 256 : 64;
            from += wide ? 256 : 64;
        }
        p += value & ~(value >> 63);
        if (headers[j] == 0) {
            *p++ = 0;
            continue;
        }
        p = kfuzz_put_varlong(p, (int32_t) headers[j]);
        p = kfuzz_put_headers(p, end, &table->header_keys, &table->header_values,
                              kfuzz_int32_at(table->header_ends, first + j),
                              kfuzz_int32_at(table->header_ends, first + j + 1));
        if (!p || p - start > INT32_MAX)
            return NULL;
        p = kfuzz_put_length(start, p);
    }
    *largest = top;
    return p;
}

#define KFUZZ_FIND_CHANGE(type)                                                                                        \
    for (; i < n; i++) {                                                                                               \
        type before, here;                                                                                             \
        memcpy(&before, numbers + sizeof(type) * (size_t) (i - 1), sizeof(type));                                      \
        memcpy(&here, numbers + sizeof(type) * (size_t) i, sizeof(type));                                              \
        if (here != before)                                                                                            \
            return i;                                                                                                  \
    }

/* The index of the first number that differs from the one before it, from index i (above 0) on; n if there is none. */
static int64_t kfuzz_find_change(const uint8_t *numbers, int64_t width, int64_t i, int64_t n)
{
    switch (width) {
    case 1:
        KFUZZ_FIND_CHANGE(uint8_t)
        break;
    case 2:
        KFUZZ_FIND_CHANGE(uint16_t)
        break;
    case 4:
        KFUZZ_FIND_CHANGE(uint32_t)
        break;
    default:
        KFUZZ_FIND_CHANGE(uint64_t)
    }
    return n;
}

#if KFUZZ_HAS_WIDE

KFUZZ_WIDE
static uint8_t *kfuzz_put_wide_block(const kfuzz_table *table, uint8_t *p, uint8_t *end, int64_t batch_first,
                                     int64_t first, int m, int64_t base_offset, int64_t base_timestamp,
                                     int64_t fixed_bytes, int64_t *largest)
{
    return kfuzz_put_block_as(table, p, end, batch_first, first, m, base_offset, base_timestamp, fixed_bytes, largest,
                              1);
}

#endif

static uint8_t *kfuzz_put_block(const kfuzz_table *table, uint8_t *p, uint8_t *end, int64_t batch_first, int64_t first,
                                int m, int64_t base_offset, int64_t base_timestamp, int64_t fixed_bytes,
                                int64_t *largest, int wide)
{
#if KFUZZ_HAS_WIDE
    if (wide)
        return kfuzz_put_wide_block(table, p, end, batch_first, first, m, base_offset, base_timestamp, fixed_bytes,
                                    largest);
#endif
    return kfuzz_put_block_as(table, p, end, batch_first, first, m, base_offset, base_timestamp, fixed_bytes, largest,
                              0);
}

#endif
