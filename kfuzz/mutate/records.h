/* The mutator for record batches and messages of any magic: it changes their structure, then mends most of what the
 * change broke. Any bytes are accepted, nothing fails, and the size never goes beyond the room of the text.
 *
 * docs/mutate.md explains each kind of change. */
#ifndef KFUZZ_RECORDS_H
#define KFUZZ_RECORDS_H

#include <stdint.h>
#include <string.h>

#include "crc32c.h"
#include "container.h"
#include "places.h"
#include "walk.h"

/* The kinds of changes, their names and their weights. */
#define KFUZZ_KINDS(KIND)                                                                                              \
    KIND(FIELD, "field", 8)                                                                                            \
    KIND(FIELD_SWAP, "field-swap", 1)                                                                                  \
    KIND(RECORD_NUMBER, "record-number", 8)                                                                            \
    KIND(RECORD_RESIZE, "record-resize", 5)                                                                            \
    KIND(RECORD_VARINT, "record-varint", 4)                                                                            \
    KIND(RECORD_HEADER, "record-header", 4)                                                                            \
    KIND(RECORD_SCRAMBLE, "record-scramble", 5)                                                                        \
    KIND(RECORD_DUPLICATE, "record-duplicate", 2)                                                                      \
    KIND(RECORD_DROP, "record-drop", 2)                                                                                \
    KIND(RECORD_REORDER, "record-reorder", 2)                                                                          \
    KIND(RECORD_SPLICE, "record-splice", 2)                                                                            \
    KIND(PAYLOAD_SCRAMBLE, "payload-scramble", 6)                                                                      \
    KIND(CONTAINER_SCRAMBLE, "container-scramble", 5)                                                                  \
    KIND(FRAME_SCRAMBLE, "frame-scramble", 4)                                                                          \
    KIND(BATCH_SPLICE, "batch-splice", 2)                                                                              \
    KIND(BATCH_DUPLICATE, "batch-duplicate", 2)                                                                        \
    KIND(BATCH_DROP, "batch-drop", 2)                                                                                  \
    KIND(BATCH_REORDER, "batch-reorder", 2)                                                                            \
    KIND(BATCH_TRUNCATE, "batch-truncate", 2)                                                                          \
    KIND(BATCH_MAGIC, "batch-magic", 2)                                                                                \
    KIND(BATCH_CODEC, "batch-codec", 2)                                                                                \
    KIND(BATCH_NEST, "batch-nest", 2)                                                                                  \
    KIND(RAW_SCRAMBLE, "raw-scramble", 2)

#define KFUZZ_KIND_NUMBER(number, name, weight) KFUZZ_##number,
enum kfuzz_kind { KFUZZ_KINDS(KFUZZ_KIND_NUMBER) KFUZZ_KIND_COUNT };

#define KFUZZ_KIND_NAME(number, name, weight) name,
static const char *const kfuzz_kind_names[] = {KFUZZ_KINDS(KFUZZ_KIND_NAME)};

#define KFUZZ_KIND_WEIGHT(number, name, weight) weight,
static const uint8_t kfuzz_kind_weights[] = {KFUZZ_KINDS(KFUZZ_KIND_WEIGHT)};

/* The probability that a field follows from the batch before, if there is one. */
#define KFUZZ_CONTINUES 0.25
/* The probability that a payload gets a part that holds nothing, or comes twice. */
#define KFUZZ_NOTHING 0.03

#define KFUZZ_KIND_SUM(number, name, weight) +(weight)

enum {
    /* How often a kind is drawn again for input that has no part for it. */
    KFUZZ_TRIES = 8,
    KFUZZ_ROUNDS = 5,
    KFUZZ_WEIGHTS = 0 KFUZZ_KINDS(KFUZZ_KIND_SUM),
};

typedef struct {
    kfuzz_dice dice;
    /* The probability of each repair, from 0 to 1. */
    double repair;
    /* Whether repair keeps the form of a Produce request: offset deltas that count from 0. */
    int is_produced;
    /* Whether payloads stay uncompressed: the caller compresses them after the mutation. */
    int packs_nothing;
    /* Another input, from which parts are taken; it may be empty. */
    kfuzz_text other;
    /* The input. */
    kfuzz_text text;
    kfuzz_text payload;
    kfuzz_text packed;
    kfuzz_decompressor decompressor;
    /* Of messages: the parts of the text, and of the other input. */
    kfuzz_places places;
    kfuzz_places other_places;
    /* How often each kind was applied. */
    uint64_t kinds[KFUZZ_KIND_COUNT];
} kfuzz_mutator;

/* For processors without CRC-32C. */
static kfuzz_crc_tables kfuzz_crc32c_tables;

/* Call once before anything else. */
static void kfuzz_mutator_init(const char *zlib, const char *zstd)
{
    kfuzz_open_libraries(zlib, zstd);
    kfuzz_crc32_init();
    if (KFUZZ_CRC_THERE)
        kfuzz_crc_init();
    kfuzz_crc_fill_tables(kfuzz_crc32c_tables, KFUZZ_CRC_POLYNOMIAL);
}

static void kfuzz_mutator_free(kfuzz_mutator *m)
{
    KFUZZ_FREE(m->text.p);
    KFUZZ_FREE(m->payload.p);
    KFUZZ_FREE(m->packed.p);
    KFUZZ_FREE(m->places.made);
    KFUZZ_FREE(m->other_places.made);
    kfuzz_free_decompressor(&m->decompressor);
}

/* ------------------------------------------------------------------------------------------------ repair */

static inline int kfuzz_mends(kfuzz_mutator *m)
{
    return kfuzz_chance(&m->dice, m->repair);
}

static uint32_t kfuzz_checksum32c(const uint8_t *p, size_t n)
{
    if (KFUZZ_CRC_THERE)
        return kfuzz_crc32c(0, p, n);
    return ~kfuzz_crc_by_tables(kfuzz_crc32c_tables, ~0u, p, n); /* unreachable: for processors without CRC-32C */
}

static uint32_t kfuzz_checksum32(const uint8_t *p, size_t n)
{
    if (KFUZZ_CRC32_THERE)
        return kfuzz_crc32(0, p, n);
    return kfuzz_crc32_plain(0, p, n); /* unreachable: for processors without these products */
}

/* Correct the length (if `length`) and the CRC (if `crc`) of the batch or message in [at, end). A frame that is too short
 * to have them stays as it is. */
static void kfuzz_seal(kfuzz_text *text, int64_t at, int64_t end, int length, int crc)
{
    uint8_t *p = text->p + at;
    const int64_t n = end - at;
    if (n < KFUZZ_AT_ATTRIBUTES)
        return;
    if (length)
        kfuzz_put_big(p + KFUZZ_AT_BATCH_LENGTH, 4, (uint64_t) (n - KFUZZ_LOG_OVERHEAD));
    if (crc && p[KFUZZ_AT_MAGIC] == KFUZZ_LAST_MAGIC)
        kfuzz_put_big(p + KFUZZ_AT_CRC, 4,
                      kfuzz_checksum32c(p + KFUZZ_AT_ATTRIBUTES, (size_t) (n - KFUZZ_AT_ATTRIBUTES)));
    else if (crc)
        kfuzz_put_big(p + KFUZZ_MESSAGE_AT_CRC, 4, kfuzz_checksum32(p + KFUZZ_AT_MAGIC, (size_t) (n - KFUZZ_AT_MAGIC)));
}

/* The same, each with the probability `repair`. */
static void kfuzz_mend(kfuzz_mutator *m, kfuzz_text *text, int64_t at, int64_t end)
{
    const int length = kfuzz_mends(m);
    kfuzz_seal(text, at, end, length, kfuzz_mends(m));
}

/* ------------------------------------------------------------------------------------------------ one record */

static int kfuzz_put_number(kfuzz_text *text, kfuzz_varint number, int64_t value)
{
    uint8_t bytes[KFUZZ_VARLONG];
    return kfuzz_put(text, number.at, number.size, bytes, kfuzz_put_varlong(bytes, value) - bytes);
}

/* After a change of the record's body, which grew by `grown` bytes: give it the length that fits, or another one. */
static int kfuzz_mend_record(kfuzz_mutator *m, kfuzz_text *text, kfuzz_span record, int length_size, int64_t grown)
{
    const kfuzz_varint length = {record.at, length_size, 0};
    const int64_t body = record.end + grown - record.at - length_size;
    return kfuzz_put_number(text, length, kfuzz_mends(m) ? body : kfuzz_below(&m->dice, 2 * body + 2));
}

/* Varints that take more bytes than they need, end too early or never, or change their sign. */
static int kfuzz_other_varint(kfuzz_mutator *m, kfuzz_text *text, kfuzz_varint number)
{
    static const uint8_t sizes[] = {0, 4, 5, 5, 6, 9, 10, 11};
    uint8_t bytes[16];
    int64_t size = kfuzz_below(&m->dice, 8), n, i;
    switch (kfuzz_below(&m->dice, 6)) {
    case 0:
        text->p[number.at + number.size - 1] |= 0x80;
        return 1;
    case 1:
        kfuzz_cut(text, number.at + number.size - 1, 1);
        return 1;
    case 2:
        text->p[number.at] ^= 1;
        return 1;
    default:
        size = size ? sizes[size] : number.size + 1;
        n = kfuzz_put_varlong(bytes, number.value) - bytes;
        for (i = n; i < size; i++) {
            bytes[i - 1] |= 0x80;
            bytes[i] = 0;
        }
        return kfuzz_put(text, number.at, number.size, bytes, n > size ? n : size);
    }
}

static const int16_t kfuzz_sizes[] = {-1, -1, 0, 0, 1, 1, 2, 3, 63, 64, 127, 128, 255, 300};

/* Give the `old` bytes of a key or value at `from` another size: null (-1), empty, at the ends of varints. The caller
 * writes `*size` in front of them. */
static int kfuzz_resize(kfuzz_mutator *m, kfuzz_text *text, int64_t from, int64_t end, int64_t old, int64_t *size)
{
    uint8_t bytes[300];
    int64_t keeps;
    *size = kfuzz_sizes[kfuzz_below(&m->dice, sizeof(kfuzz_sizes) / sizeof(kfuzz_sizes[0]))];
    old = old > 0 ? old : 0;
    keeps = old < *size ? old : *size > 0 ? *size : 0;
    if (old > end - from)
        return 0;
    memset(bytes, (int) ('a' + kfuzz_below(&m->dice, 26)), sizeof(bytes));
    return kfuzz_put(text, from + keeps, old - keeps, bytes, *size > keeps ? *size - keeps : 0);
}

/* Drop, copy or exchange a record's headers, and mostly count them again. */
static int kfuzz_change_headers(kfuzz_mutator *m, kfuzz_text *text, const kfuzz_varint *numbers, int count,
                                int64_t end)
{
    const int headers = (count - KFUZZ_N_FIRST_HEADER) / 2;
    const kfuzz_varint *first = &numbers[KFUZZ_N_FIRST_HEADER], *header, *value;
    int64_t grown, after;
    if (count < KFUZZ_N_FIRST_HEADER)
        return 0;
    if (headers == 0) {
        /* A header whose key is one byte and whose value is null, or a null key. */
        static const uint8_t header_bytes[] = {2, 'k', 1, 1, 1};
        const int is_null = kfuzz_chance(&m->dice, 0.2);
        if (!kfuzz_put(text, numbers[KFUZZ_N_HEADERS].at + numbers[KFUZZ_N_HEADERS].size, 0,
                       header_bytes + (is_null ? 3 : 0), is_null ? 2 : 3))
            return 0; /* unreachable: only if memory runs out */
        grown = 1;
    } else {
        header = first + 2 * kfuzz_below(&m->dice, headers);
        value = header + 1;
        after = value->at + value->size;
        if (value->value > end - after)
            return 0;
        after += value->value > 0 ? value->value : 0;
        switch (kfuzz_below(&m->dice, 3)) {
        case 0:
            kfuzz_cut(text, header->at, after - header->at);
            grown = -1;
            break;
        case 1:
            grown = kfuzz_chance(&m->dice, 0.8) ? 1 : 1 + kfuzz_below(&m->dice, 20);
            if (!kfuzz_repeat(text, header->at, after - header->at, grown))
                return 0; /* unreachable: only if memory runs out */
            break;
        default:
            if (header == first)
                return 0;
            kfuzz_exchange(text, first->at, header->at, header->at, after);
            return 1;
        }
    }
    if (kfuzz_mends(m))
        return kfuzz_put_number(text, numbers[KFUZZ_N_HEADERS], kfuzz_sum(numbers[KFUZZ_N_HEADERS].value, grown));
    return 1;
}

/* Change one record in a payload of magic 2. */
static int kfuzz_change_record(kfuzz_mutator *m, enum kfuzz_kind kind, kfuzz_text *text, kfuzz_span record)
{
    static const uint8_t widths[] = {1, 2, 4, 4, 8};
    kfuzz_varint numbers[KFUZZ_NUMBERS_MAX];
    const int count = kfuzz_numbers(text, record, numbers);
    const int64_t before = text->n;
    const int which = count ? (int) kfuzz_below(&m->dice, count) : 0;
    const kfuzz_varint number = numbers[which];
    int64_t size;
    int done;
    if (count == 0)
        return 0;
    switch (kind) {
    case KFUZZ_RECORD_NUMBER:
        if (kfuzz_chance(&m->dice, 0.05) && record.end - numbers[0].at > numbers[0].size) {
            text->p[numbers[0].at + numbers[0].size] = kfuzz_telling_byte(&m->dice); /* attributes */
            return 1;
        }
        done = kfuzz_put_number(text, number, kfuzz_number(&m->dice, number.value, widths[kfuzz_below(&m->dice, 5)]));
        break;
    case KFUZZ_RECORD_VARINT:
        done = kfuzz_other_varint(m, text, number);
        break;
    case KFUZZ_RECORD_RESIZE:
        if (which < KFUZZ_N_KEY || which == KFUZZ_N_HEADERS)
            return 0;
        done = kfuzz_resize(m, text, number.at + number.size, record.end, number.value, &size)
            && kfuzz_put_number(text, number, size);
        break;
    case KFUZZ_RECORD_HEADER:
        done = kfuzz_change_headers(m, text, numbers, count, record.end);
        break;
    default:
        kfuzz_scramble(text, record.at + numbers[0].size, record.end, &m->dice);
        done = 1;
    }
    /* A changed length stays as it is. */
    if (!done || (which == KFUZZ_N_LENGTH && (kind == KFUZZ_RECORD_NUMBER || kind == KFUZZ_RECORD_VARINT)))
        return done;
    return kfuzz_mend_record(m, text, record, numbers[0].size, text->n - before);
}

/* ------------------------------------------------------------------------------------------------ one message */

/* Where the value's length of a message of magic 0 or 1 is; -1 if it ends before that. */
static int64_t kfuzz_value_at(const kfuzz_text *text, kfuzz_span message)
{
    const int64_t key_at = message.at + (text->p[message.at + KFUZZ_AT_MAGIC] ? KFUZZ_KEY_AT_V1 : KFUZZ_KEY_AT_V0);
    int32_t size;
    if (message.end - key_at < KFUZZ_LENGTHS_BYTES)
        return -1;
    size = (int32_t) kfuzz_big(text->p + key_at, 4);
    return size > message.end - key_at - KFUZZ_LENGTHS_BYTES ? -1 : key_at + 4 + (size > 0 ? size : 0);
}

/* Change a field's number in place. */
static void kfuzz_change_field(kfuzz_mutator *m, kfuzz_text *text, int64_t at, int width)
{
    /* The sign matters: the number of a narrow field is negative. */
    const int shift = 64 - 8 * width;
    const int64_t value = (int64_t) (kfuzz_big(text->p + at, width) << shift) >> shift;
    kfuzz_put_big(text->p + at, width, (uint64_t) kfuzz_number(&m->dice, value, width));
}

/* Change one message of magic 0 or 1. The caller mends its length and CRC. */
static int kfuzz_change_message(kfuzz_mutator *m, enum kfuzz_kind kind, kfuzz_text *text, kfuzz_span message)
{
    const int magic = text->p[message.at + KFUZZ_AT_MAGIC];
    const int64_t value_at = magic > 1 ? -1 : kfuzz_value_at(text, message);
    const int64_t key_at = message.at + (magic ? KFUZZ_KEY_AT_V1 : KFUZZ_KEY_AT_V0);
    const kfuzz_field *fields;
    int64_t at, size;
    int count, which;
    switch (kind) {
    case KFUZZ_RECORD_SCRAMBLE:
        kfuzz_scramble(text, message.at, message.end, &m->dice);
        return 1;
    case KFUZZ_PAYLOAD_SCRAMBLE:
        if (message.end < key_at)
            return 0;
        kfuzz_scramble(text, key_at, message.end, &m->dice);
        return 1;
    case KFUZZ_RECORD_NUMBER:
        fields = kfuzz_fields_of(magic, &count);
        which = (int) kfuzz_below(&m->dice, count + 1);
        if (which < count && message.end - message.at >= fields[which].at + fields[which].width) {
            kfuzz_change_field(m, text, message.at + fields[which].at, fields[which].width);
            return 1;
        }
        if (value_at < 0)
            return 0;
        kfuzz_change_field(m, text, value_at, 4);
        return 1;
    case KFUZZ_RECORD_RESIZE:
        if (value_at < 0)
            return 0;
        at = kfuzz_chance(&m->dice, 0.5) ? key_at : value_at;
        if (!kfuzz_resize(m, text, at + 4, message.end, (int32_t) kfuzz_big(text->p + at, 4), &size))
            return 0;
        kfuzz_put_big(text->p + at, 4, (uint64_t) size);
        return 1;
    default:
        return 0;
    }
}

/* ------------------------------------------------------------------------------------------------ payloads */

/* The payload of a batch, or the value of a wrapper: where it is, and how it is compressed. */
typedef struct {
    kfuzz_span at;
    int magic;
    int codec;
    /* Where a wrapper's value length is. */
    int64_t length_at;
} kfuzz_container;

/* Find the payload of the batch or wrapper at `frame`. 0 if there is none: a plain message, or a header that is cut. */
static int kfuzz_container_of(const kfuzz_text *text, kfuzz_span frame, kfuzz_container *container)
{
    const uint8_t *p = text->p + frame.at;
    container->magic = p[KFUZZ_AT_MAGIC];
    container->at.end = frame.end;
    if (container->magic == KFUZZ_LAST_MAGIC) {
        if (frame.end - frame.at < KFUZZ_HEADER_SIZE)
            return 0;
        container->codec = p[KFUZZ_AT_ATTRIBUTES + 1] & KFUZZ_CODEC_MASK;
        container->at.at = frame.at + KFUZZ_HEADER_SIZE;
        return container->codec <= KFUZZ_LAST_CODEC;
    }
    if (container->magic > KFUZZ_LAST_MAGIC || (container->length_at = kfuzz_value_at(text, frame)) < 0)
        return 0;
    container->codec = p[KFUZZ_MESSAGE_AT_ATTRIBUTES] & KFUZZ_CODEC_MASK;
    container->at.at = container->length_at + 4;
    return container->codec > 0 && container->codec <= KFUZZ_LAST_MESSAGE_CODEC;
}

/* Decompress the payload into m->payload. A payload that cannot be decompressed is copied: a target may compress its
 * inputs only after the mutation. */
static int kfuzz_open_payload(kfuzz_mutator *m, const kfuzz_text *text, const kfuzz_container *container)
{
    const uint8_t *p = text->p + container->at.at;
    int64_t n = container->at.end - container->at.at;
    m->payload.n = 0;
    if (container->codec && kfuzz_open(&m->decompressor, container->codec, container->magic, p, n)) {
        p = m->decompressor.out;
        n = m->decompressor.size;
    }
    return kfuzz_reserve(&m->payload, n + m->text.room) && kfuzz_put(&m->payload, 0, 0, p, n);
}

/* Put m->payload in the payload's place, and mostly compress it with `codec` and mend a wrapper's length. Returns by how
 * much the frame grew, or INT64_MIN if there is no room. */
static int64_t kfuzz_close_payload(kfuzz_mutator *m, const kfuzz_container *container, int codec)
{
    const int64_t before = m->text.n, old = container->at.end - container->at.at;
    kfuzz_text *from = &m->payload;
    kfuzz_dice other;
    if (codec && (m->packs_nothing ? 0 : kfuzz_mends(m))) {
        if (!kfuzz_pack(&m->packed, codec, container->magic, &m->dice, from->p, from->n))
            return INT64_MIN; /* unreachable: only if memory runs out */
        /* With a dice of its own, so that all other inputs of a seed stay as they were. */
        other = m->dice;
        if (kfuzz_chance(&other, KFUZZ_NOTHING))
            kfuzz_add_nothing(&m->packed, codec, &other);
        from = &m->packed;
    }
    if (!kfuzz_put(&m->text, container->at.at, old, from->p, from->n))
        return INT64_MIN;
    if (container->magic != KFUZZ_LAST_MAGIC && kfuzz_mends(m))
        kfuzz_put_big(m->text.p + container->length_at, 4, (uint64_t) from->n);
    return m->text.n - before;
}

/* Insert a record or message of the other input. `part_end` says which of the two. */
static int kfuzz_splice_part(kfuzz_mutator *m, kfuzz_text *text, kfuzz_part_end part_end, int64_t at)
{
    kfuzz_container container;
    kfuzz_span frame, part;
    kfuzz_text inside;
    if (!kfuzz_any(&m->other, kfuzz_frame_end, &m->dice, &frame))
        return 0;
    if (part_end == kfuzz_frame_end)
        return kfuzz_put(text, at, 0, m->other.p + frame.at, frame.end - frame.at);
    if (!kfuzz_container_of(&m->other, frame, &container) || container.magic != KFUZZ_LAST_MAGIC)
        return 0;
    inside.p = m->other.p + container.at.at;
    inside.n = container.at.end - container.at.at;
    if (container.codec) {
        if (!kfuzz_open(&m->decompressor, container.codec, container.magic, inside.p, inside.n))
            return 0;
        inside.p = m->decompressor.out;
        inside.n = m->decompressor.size;
    }
    return kfuzz_any(&inside, part_end, &m->dice, &part)
        && kfuzz_put(text, at, 0, inside.p + part.at, part.end - part.at);
}

/* Change which parts there are, or one of them; batches in the input, records in a payload, messages in a wrapper. */
static int kfuzz_change_parts(kfuzz_mutator *m, enum kfuzz_kind kind, kfuzz_text *text, kfuzz_part_end part_end)
{
    int64_t last;
    const int64_t count = kfuzz_count(text, part_end, &last);
    const int64_t i = count ? kfuzz_below(&m->dice, count) : 0;
    kfuzz_span part, other;
    if (kind == KFUZZ_RECORD_SPLICE || kind == KFUZZ_BATCH_SPLICE) {
        int64_t at = last;
        if (count && !kfuzz_chance(&m->dice, 0.3))
            at = kfuzz_part(text, part_end, i).at;
        return kfuzz_splice_part(m, text, part_end, at);
    }
    if (count == 0)
        return 0;
    part = kfuzz_part(text, part_end, i);
    switch (kind) {
    case KFUZZ_RECORD_DUPLICATE:
    case KFUZZ_BATCH_DUPLICATE:
        return kfuzz_repeat(text, part.at, part.end - part.at,
                            kfuzz_chance(&m->dice, 0.9) ? 1 : 1 + kfuzz_below(&m->dice, 8));
    case KFUZZ_RECORD_DROP:
    case KFUZZ_BATCH_DROP:
        if (kind == KFUZZ_BATCH_DROP && count == 1)
            return 0;
        kfuzz_cut(text, part.at, part.end - part.at);
        return 1;
    case KFUZZ_RECORD_REORDER:
    case KFUZZ_BATCH_REORDER:
        if (i == 0)
            return 0;
        other = kfuzz_part(text, part_end, kfuzz_below(&m->dice, i));
        kfuzz_exchange(text, other.at, other.end, part.at, part.end);
        return 1;
    default:
        break;
    }
    if (part_end == kfuzz_record_end)
        return kfuzz_change_record(m, kind, text, part);
    last = text->n;
    if (!kfuzz_change_message(m, kind, text, part))
        return 0;
    part.end += text->n - last;
    if (kfuzz_mends(m) && kind != KFUZZ_RECORD_NUMBER)
        kfuzz_seal(text, part.at, part.end, 1, 0);
    return 1;
}

/* Give the messages inside a wrapper their CRCs. */
static void kfuzz_mend_messages(kfuzz_mutator *m, kfuzz_text *text)
{
    int64_t at = 0, end;
    for (; at < text->n && (end = kfuzz_frame_end(text, at)) >= 0; at = end)
        if (kfuzz_mends(m))
            kfuzz_seal(text, at, end, 0, 1);
}

/* Offset deltas 0, 1, 2, … and the matching last offset delta, as a broker requires of a producer. */
static void kfuzz_renumber(kfuzz_mutator *m, uint8_t *header)
{
    int64_t at = 0, end, i = 0, last;
    if (kfuzz_mends(m))
        kfuzz_put_big(header + KFUZZ_AT_LAST_OFFSET_DELTA, 4,
                      (uint64_t) kfuzz_count(&m->payload, kfuzz_record_end, &last) - 1);
    if (!kfuzz_mends(m))
        return;
    for (; at < m->payload.n && (end = kfuzz_record_end(&m->payload, at)) >= 0; at = end, i++) {
        kfuzz_varint numbers[KFUZZ_NUMBERS_MAX];
        const kfuzz_span record = {at, end};
        const int64_t before = m->payload.n;
        int64_t grown;
        if (kfuzz_numbers(&m->payload, record, numbers) <= KFUZZ_N_OFFSET
            || !kfuzz_put_number(&m->payload, numbers[KFUZZ_N_OFFSET], i))
            continue;
        grown = m->payload.n - before;
        if (grown && kfuzz_put_number(&m->payload, numbers[KFUZZ_N_LENGTH], numbers[KFUZZ_N_LENGTH].value + grown))
            end += m->payload.n - before;
    }
}

/* Change what is inside a batch or wrapper. Returns by how much the frame grew, or INT64_MIN if nothing was changed. */
static int64_t kfuzz_change_payload(kfuzz_mutator *m, enum kfuzz_kind kind, kfuzz_span frame)
{
    kfuzz_container container;
    kfuzz_part_end part_end;
    uint8_t *header;
    int64_t last;
    if (!kfuzz_container_of(&m->text, frame, &container) || !kfuzz_open_payload(m, &m->text, &container))
        return INT64_MIN;
    part_end = container.magic == KFUZZ_LAST_MAGIC ? kfuzz_record_end : kfuzz_frame_end;
    if (kind == KFUZZ_PAYLOAD_SCRAMBLE)
        kfuzz_scramble(&m->payload, 0, m->payload.n, &m->dice);
    else if (!kfuzz_change_parts(m, kind, &m->payload, part_end))
        return INT64_MIN;
    header = m->text.p + frame.at;
    if (container.magic == KFUZZ_LAST_MAGIC) {
        if (kind != KFUZZ_PAYLOAD_SCRAMBLE && kfuzz_mends(m))
            kfuzz_put_big(header + KFUZZ_AT_RECORD_COUNT, 4,
                          (uint64_t) kfuzz_count(&m->payload, kfuzz_record_end, &last));
        if (m->is_produced && kind >= KFUZZ_RECORD_DUPLICATE && kind <= KFUZZ_RECORD_SPLICE)
            kfuzz_renumber(m, header);
    } else {
        kfuzz_mend_messages(m, &m->payload);
    }
    return kfuzz_close_payload(m, &container, container.codec);
}

/* ------------------------------------------------------------------------------------------------ one batch */

/* Another codec: in the attributes, and mostly of the payload too. */
static int64_t kfuzz_change_codec(kfuzz_mutator *m, kfuzz_span frame)
{
    kfuzz_container container;
    uint8_t *attributes;
    int codec;
    int64_t grown;
    if (!kfuzz_container_of(&m->text, frame, &container) || !kfuzz_open_payload(m, &m->text, &container))
        return INT64_MIN;
    codec = (int) kfuzz_below(&m->dice, KFUZZ_CODEC_MASK + 1);
    /* Not all of the eight numbers have a codec. For those the payload stays as it is. */
    grown = codec > KFUZZ_LAST_CODEC ? 0 : kfuzz_close_payload(m, &container, codec);
    if (grown == INT64_MIN)
        return INT64_MIN;
    attributes = m->text.p + frame.at
        + (container.magic == KFUZZ_LAST_MAGIC ? KFUZZ_AT_ATTRIBUTES + 1 : KFUZZ_MESSAGE_AT_ATTRIBUTES);
    *attributes = (uint8_t) ((*attributes & ~KFUZZ_CODEC_MASK) | codec);
    return grown;
}

/* Put the frame into a wrapper, or what a wrapper holds in its place. */
static int64_t kfuzz_nest(kfuzz_mutator *m, kfuzz_span frame)
{
    uint8_t header[KFUZZ_KEY_AT_V1 + KFUZZ_LENGTHS_BYTES];
    const int magic = kfuzz_chance(&m->dice, 0.5), codec = 1 + (int) kfuzz_below(&m->dice, KFUZZ_LAST_MESSAGE_CODEC);
    const int64_t before = m->text.n, key_at = magic ? KFUZZ_KEY_AT_V1 : KFUZZ_KEY_AT_V0;
    kfuzz_container container;
    if (kfuzz_container_of(&m->text, frame, &container) && container.magic != KFUZZ_LAST_MAGIC
        && kfuzz_chance(&m->dice, 0.3)) {
        if (!kfuzz_open_payload(m, &m->text, &container)
            || !kfuzz_put(&m->text, frame.at, frame.end - frame.at, m->payload.p, m->payload.n))
            return INT64_MIN;
        return m->text.n - before;
    }
    if (!kfuzz_pack(&m->packed, codec, magic, &m->dice, m->text.p + frame.at, frame.end - frame.at))
        return INT64_MIN; /* unreachable: only if memory runs out */
    memset(header, 0, sizeof(header));
    memcpy(header, m->text.p + frame.at, 8);
    header[KFUZZ_AT_MAGIC] = (uint8_t) magic;
    header[KFUZZ_MESSAGE_AT_ATTRIBUTES] = (uint8_t) codec;
    kfuzz_put_big(header + key_at, 4, ~0u);
    kfuzz_put_big(header + key_at + 4, 4, (uint64_t) m->packed.n);
    if (m->packed.n + key_at + KFUZZ_LENGTHS_BYTES - (frame.end - frame.at) > m->text.room - m->text.n)
        return INT64_MIN;
    kfuzz_put(&m->text, frame.at, frame.end - frame.at, m->packed.p, m->packed.n);
    kfuzz_put(&m->text, frame.at, 0, header, key_at + KFUZZ_LENGTHS_BYTES);
    return m->text.n - before;
}

/* Give the field what follows from the same field of the batch before: the same, the next or the last number, or the one
 * after its records, as offsets and sequences continue. A reader's rules for a log compare just these. */
static int kfuzz_continue_field(kfuzz_mutator *m, kfuzz_span frame, const kfuzz_field *field)
{
    /* The step that is added to the number, and whether the last offset delta is added too. */
    static const struct { int8_t step, adds_delta; } choices[] = {
        {0, 0}, {0, 0}, {1, 0}, {1, 0}, {1, 0}, {-1, 0}, {0, 1}, {1, 1},
    };
    uint8_t *p = m->text.p;
    const uint8_t *before = p;
    uint64_t value, delta = 0;
    int64_t at = 0, end, size, which;
    for (end = 0; end < frame.at; end = kfuzz_frame_end(&m->text, end))
        at = end;
    before += at;
    size = end - at;
    if (size < field->at + field->width)
        return 0;
    value = kfuzz_big(before + field->at, field->width);
    if (before[KFUZZ_AT_MAGIC] == KFUZZ_LAST_MAGIC && size >= KFUZZ_HEADER_SIZE)
        delta = kfuzz_big(before + KFUZZ_AT_LAST_OFFSET_DELTA, 4);
    which = kfuzz_below(&m->dice, sizeof(choices) / sizeof(choices[0]));
    value += (uint64_t) (int64_t) choices[which].step + (choices[which].adds_delta ? delta : 0);
    kfuzz_put_big(p + frame.at + field->at, field->width, value);
    return 1;
}

/* Change one batch or message of the input, and mend its length and CRC. */
static int kfuzz_change_frame(kfuzz_mutator *m, enum kfuzz_kind kind)
{
    static const uint8_t magics[] = {0, 1, 2, 0, 1, 2, 3, 0x82, 0xff};
    kfuzz_text *text = &m->text;
    kfuzz_span frame;
    kfuzz_container container;
    const kfuzz_field *field;
    const int64_t before = text->n;
    int64_t grown = 0;
    int magic, count, i, j;
    if (!kfuzz_any(text, kfuzz_frame_end, &m->dice, &frame))
        return 0;
    magic = text->p[frame.at + KFUZZ_AT_MAGIC];
    switch (kind) {
    case KFUZZ_FIELD:
        field = kfuzz_fields_of(magic, &count);
        field += kfuzz_below(&m->dice, count);
        if (frame.end - frame.at < field->at + field->width)
            return 0;
        if (!kfuzz_chance(&m->dice, KFUZZ_CONTINUES) || !kfuzz_continue_field(m, frame, field))
            kfuzz_change_field(m, text, frame.at + field->at, field->width);
        /* Repair must not undo the change of a length or CRC. */
        if (field->at == KFUZZ_AT_BATCH_LENGTH)
            kfuzz_seal(text, frame.at, frame.end, 0, 1);
        else if (field->at == (magic == KFUZZ_LAST_MAGIC ? KFUZZ_AT_CRC : KFUZZ_MESSAGE_AT_CRC))
            kfuzz_seal(text, frame.at, frame.end, 1, 0);
        else
            break;
        return 1;
    case KFUZZ_FIELD_SWAP:
        field = kfuzz_fields_of(magic, &count);
        i = (int) kfuzz_below(&m->dice, count);
        /* The next field of the same width, in a circle. */
        for (j = (i + 1) % count; field[j].width != field[i].width; j = (j + 1) % count)
            ;
        if (j < i) {
            const int first = j;
            j = i;
            i = first;
        }
        if (i == j || frame.end - frame.at < field[j].at + field[j].width)
            return 0;
        kfuzz_exchange(text, frame.at + field[i].at, frame.at + field[i].at + field[i].width,
                       frame.at + field[j].at, frame.at + field[j].at + field[j].width);
        break;
    case KFUZZ_FRAME_SCRAMBLE:
        kfuzz_scramble(text, frame.at, frame.end, &m->dice);
        break;
    case KFUZZ_BATCH_MAGIC:
        text->p[frame.at + KFUZZ_AT_MAGIC] = magics[kfuzz_below(&m->dice, sizeof(magics))];
        break;
    case KFUZZ_CONTAINER_SCRAMBLE:
        if (!kfuzz_container_of(text, frame, &container) || container.codec == 0)
            return 0;
        kfuzz_scramble(text, container.at.at, container.at.end, &m->dice);
        if (container.magic != KFUZZ_LAST_MAGIC && kfuzz_mends(m))
            kfuzz_put_big(text->p + container.length_at, 4,
                          (uint64_t) (container.at.end + text->n - before - container.at.at));
        break;
    case KFUZZ_BATCH_CODEC:
        grown = kfuzz_change_codec(m, frame);
        break;
    case KFUZZ_BATCH_NEST:
        grown = kfuzz_nest(m, frame);
        break;
    default:
        grown = kfuzz_change_payload(m, kind, frame);
        if (grown == INT64_MIN && magic < KFUZZ_LAST_MAGIC)
            /* A plain message has no payload: change the message itself. */
            grown = kfuzz_change_message(m, kind, text, frame) ? 0 : INT64_MIN;
    }
    if (grown == INT64_MIN)
        return 0;
    kfuzz_mend(m, text, frame.at, frame.end + text->n - before);
    return 1;
}

static int kfuzz_apply(kfuzz_mutator *m, enum kfuzz_kind kind)
{
    switch (kind) {
    case KFUZZ_RAW_SCRAMBLE:
        kfuzz_scramble(&m->text, 0, m->text.n, &m->dice);
        return 1;
    case KFUZZ_BATCH_TRUNCATE:
        m->text.n = kfuzz_below(&m->dice, m->text.n + 1);
        return 1;
    case KFUZZ_BATCH_SPLICE:
    case KFUZZ_BATCH_DUPLICATE:
    case KFUZZ_BATCH_DROP:
    case KFUZZ_BATCH_REORDER:
        return kfuzz_change_parts(m, kind, &m->text, kfuzz_frame_end);
    default:
        return kfuzz_change_frame(m, kind);
    }
}

/* A kind, each as often as its weight says of the sum of all weights. */
static int kfuzz_draw_kind(kfuzz_mutator *m, const uint8_t *weights, int64_t sum)
{
    int64_t drawn = kfuzz_below(&m->dice, sum);
    int kind = 0;
    for (; drawn >= weights[kind]; kind++)
        drawn -= weights[kind];
    return kind;
}

/* Apply one to three changes to m->text. */
static void kfuzz_mutate(kfuzz_mutator *m)
{
    static const uint8_t rounds[KFUZZ_ROUNDS] = {1, 1, 1, 2, 3};
    int round = rounds[kfuzz_below(&m->dice, KFUZZ_ROUNDS)], tries;
    while (round--) {
        enum kfuzz_kind kind = KFUZZ_RAW_SCRAMBLE;
        for (tries = 0; tries < KFUZZ_TRIES; tries++) {
            kind = (enum kfuzz_kind) kfuzz_draw_kind(m, kfuzz_kind_weights, KFUZZ_WEIGHTS);
            if (kfuzz_apply(m, kind))
                break;
        }
        if (tries == KFUZZ_TRIES) {
            kind = KFUZZ_RAW_SCRAMBLE;
            kfuzz_apply(m, kind);
        }
        m->kinds[kind]++;
    }
}

/* Join m->text and m->other: a record, a message or a batch of the other one comes into the text. */
static void kfuzz_cross(kfuzz_mutator *m)
{
    const enum kfuzz_kind first = kfuzz_chance(&m->dice, 0.7) ? KFUZZ_RECORD_SPLICE : KFUZZ_BATCH_SPLICE;
    const enum kfuzz_kind second = first == KFUZZ_RECORD_SPLICE ? KFUZZ_BATCH_SPLICE : KFUZZ_RECORD_SPLICE;
    const enum kfuzz_kind kind = kfuzz_apply(m, first) ? first : kfuzz_apply(m, second) ? second : KFUZZ_RAW_SCRAMBLE;
    if (kind == KFUZZ_RAW_SCRAMBLE)
        kfuzz_apply(m, kind);
    m->kinds[kind]++;
}

/* After a change that knew nothing of structure: give every batch its CRC, and mostly the last one its length. */
static void kfuzz_mend_all(kfuzz_mutator *m)
{
    kfuzz_text *text = &m->text;
    const int mends_length = kfuzz_mends(m);
    int64_t at = 0, end;
    while (text->n - at > KFUZZ_AT_MAGIC) {
        end = kfuzz_frame_end(text, at);
        if (end < 0 && !mends_length)
            return;
        kfuzz_seal(text, at, end < 0 ? text->n : end, end < 0, 1);
        at = end < 0 ? text->n : end;
    }
}

#endif
