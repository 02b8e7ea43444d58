/* Finds batches, messages, records and their numbers in bytes that may be malformed. A walk ends at the first length
 * that it cannot follow. Broken lengths are what mutants are made for, so these walks are more lenient than a reader. */
#ifndef KFUZZ_WALK_H
#define KFUZZ_WALK_H

#include <stdint.h>

#include "fields.h"
#include "format.h"
#include "varint.h"
#include "text.h"

/* The bytes [at, end). */
typedef struct {
    int64_t at;
    int64_t end;
} kfuzz_span;

/* A varint of a record. */
typedef struct {
    int64_t at;
    int size;
    int64_t value;
} kfuzz_varint;

/* The varints of a record, in their order; two lengths for each header follow. */
enum {
    KFUZZ_N_LENGTH,
    KFUZZ_N_TIMESTAMP,
    KFUZZ_N_OFFSET,
    KFUZZ_N_KEY,
    KFUZZ_N_VALUE,
    KFUZZ_N_HEADERS,
    KFUZZ_N_FIRST_HEADER,
    KFUZZ_NUMBERS_MAX = 256,
};

/* Finds the part that begins at `at` and returns its end; -1 if there is none. */
typedef int64_t (*kfuzz_part_end)(const kfuzz_text *text, int64_t at);

/* The size of the zigzag varint at p; 0 if none ends within ten bytes. */
static int kfuzz_get_varlong(const uint8_t *p, const uint8_t *end, int64_t *value)
{
    uint64_t raw = 0;
    int size = 0;
    while (size < KFUZZ_VARLONG && end - p > size) {
        raw |= (uint64_t) (p[size] & 0x7f) << (7 * size);
        if (p[size++] < 0x80) {
            *value = (int64_t) (raw >> 1 ^ (0 - (raw & 1)));
            return size;
        }
    }
    return 0;
}

/* A batch or message of any magic, if its length leaves room for a magic and fits. */
static int64_t kfuzz_frame_end(const kfuzz_text *text, int64_t at)
{
    const int64_t left = text->n - at - KFUZZ_LOG_OVERHEAD;
    int32_t length;
    if (left <= KFUZZ_AT_MAGIC - KFUZZ_LOG_OVERHEAD)
        return -1;
    length = (int32_t) kfuzz_big(text->p + at + KFUZZ_AT_BATCH_LENGTH, 4);
    if (length <= KFUZZ_AT_MAGIC - KFUZZ_LOG_OVERHEAD || length > left)
        return -1;
    return at + KFUZZ_LOG_OVERHEAD + length;
}

static int64_t kfuzz_record_end(const kfuzz_text *text, int64_t at)
{
    int64_t length = 0;
    const int size = kfuzz_get_varlong(text->p + at, text->p + text->n, &length);
    return size == 0 || length < 0 || length > text->n - at - size ? -1 : at + size + length;
}

/* How many parts follow each other from the first byte on, and where the last one ends. */
static int64_t kfuzz_count(const kfuzz_text *text, kfuzz_part_end part_end, int64_t *last)
{
    int64_t count = 0, end;
    *last = 0;
    while (*last < text->n && (end = part_end(text, *last)) >= 0) {
        *last = end;
        count++;
    }
    return count;
}

/* Part number i, which exists. */
static kfuzz_span kfuzz_part(const kfuzz_text *text, kfuzz_part_end part_end, int64_t i)
{
    kfuzz_span part = {0, part_end(text, 0)};
    while (i--) {
        part.at = part.end;
        part.end = part_end(text, part.at);
    }
    return part;
}

/* Any part; 0 if there is none. */
static int kfuzz_any(const kfuzz_text *text, kfuzz_part_end part_end, kfuzz_dice *dice, kfuzz_span *part)
{
    int64_t last;
    const int64_t count = kfuzz_count(text, part_end, &last);
    if (count == 0)
        return 0;
    *part = kfuzz_part(text, part_end, count == 1 ? 0 : kfuzz_below(dice, count));
    return 1;
}

/* The varints of the record in [at, end), up to the first one that cannot be read. Returns how many there are. */
static int kfuzz_numbers(const kfuzz_text *text, kfuzz_span record, kfuzz_varint *numbers)
{
    int64_t at = record.at;
    int i;
    for (i = 0; i < KFUZZ_NUMBERS_MAX && at < record.end; i++) {
        kfuzz_varint *number = &numbers[i];
        number->at = at;
        number->size = kfuzz_get_varlong(text->p + at, text->p + record.end, &number->value);
        if (number->size == 0)
            break;
        at += number->size;
        if (i == KFUZZ_N_LENGTH)
            at++; /* attributes */
        else if (i >= KFUZZ_N_KEY && i != KFUZZ_N_HEADERS && number->value > 0) {
            if (number->value > record.end - at)
                return i + 1;
            at += number->value;
        }
    }
    return i;
}

/* The fixed fields of a batch or message. */
static const kfuzz_field *kfuzz_fields_of(int magic, int *count)
{
    *count = magic == 0 ? KFUZZ_V0_FIELDS : magic == 1 ? KFUZZ_V1_FIELDS : KFUZZ_HEADER_FIELDS;
    return magic == 0 ? kfuzz_v0_fields : magic == 1 ? kfuzz_v1_fields : kfuzz_header_fields;
}

#endif
