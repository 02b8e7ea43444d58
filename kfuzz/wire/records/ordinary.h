/* A fast loop over runs of ordinary records of magic 2. An ordinary record is what producers write: each varint has its
 * shortest form, and there is nothing to note. A run ends at the first other record. The general loop
 * (record_batch.pyx) then reads that record field by field. Only the general loop makes notes. */
#ifndef KFUZZ_ORDINARY_H
#define KFUZZ_ORDINARY_H

#include <stdint.h>
#include <string.h>

#include "inline.h"
#include "ascii.h"

/* A record's place in the payload. 32-bit places are enough: a payload is smaller than 2 GiB (LIMIT_BYTES). For a
 * message of magic 0 or 1, the deltas hold its offset and timestamp. */
typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    int32_t at;
    int32_t length;
    int32_t key_at;
    int32_t key_length; /* -1: null */
    int32_t value_at;
    int32_t value_length;
    int32_t headers_at; /* after the count */
    int32_t header_count;
    int32_t first_header; /* index into the header rows */
    int16_t attributes;
    int16_t untimed; /* true if it has no timestamp, as in magic 0 */
} kfuzz_row;

typedef struct {
    int32_t key_at;
    int32_t key_length;
    int32_t value_at;
    int32_t value_length; /* -1: null */
} kfuzz_header_row;

/* The output of a run. */
typedef struct {
    kfuzz_row *rows;
    int64_t count;
    int64_t capacity;
    kfuzz_header_row *headers;
    int64_t header_count;
    int64_t header_capacity;
    int with_headers; /* true: fill the header rows */
    int no_memory;    /* true: out of memory, a row is missing */
    int64_t most;         /* fill so many rows, and headers of one record; 0: all */
    int64_t headers_most;
    int is_full;      /* true: there are more records than rows */
    int64_t stopped;      /* where the last record that is no ordinary one begins, or where the records end */
} kfuzz_rows;

/* The limits for the records of a run. */
typedef struct {
    int64_t offset_before;  /* the previous record's offset delta; -1 before the first record */
    int64_t offset_most;    /* the largest offset delta that needs no note */
    int64_t timestamp_most; /* the largest timestamp delta that needs no note */
    int64_t turn_records;   /* how many records to read before their headers; at first KFUZZ_TURN_RECORDS */
} kfuzz_run;

/* A record with headers that are not read yet. */
typedef struct {
    const uint8_t *headers; /* after the count */
    const uint8_t *wall;
    kfuzz_row *row; /* if rows are filled */
} kfuzz_delayed;

/* A record's fields before its headers. */
typedef struct {
    uint64_t length;
    uint64_t timestamp; /* zigzag */
    uint64_t offset;    /* zigzag */
    uint64_t key;       /* the length, zigzag */
    uint64_t value;     /* the length, zigzag */
    const uint8_t *key_at;
    const uint8_t *value_at;
    const uint8_t *wall; /* one past the record's last byte, computed from its length */
} kfuzz_fields;

/* kfuzz_get_fields loads up to this many bytes before its first test: 2 for the length, 1 for the attributes, and 5 each
 * for the timestamp, the offset and the key's length. The general loop reads records with fewer bytes left. */
#define KFUZZ_ORDINARY_BYTES 18

/* The most records that a run reads before it reads their headers. After headers that are not ordinary this number is 1,
 * and doubles with each turn, because the records of such a turn are read again. */
#define KFUZZ_TURN_RECORDS 64

#define kfuzz_rare(x) __builtin_expect(!!(x), 0)

/* Returns p, but hides its origin: the compiler cannot assume that it equals another pointer. */
KFUZZ_INLINE const uint8_t *kfuzz_apart(const uint8_t *p)
{
    __asm__("" : "+r"(p));
    return p;
}

/* Reads a varint of one or two bytes without a branch, because both sizes are equally likely. `bad` becomes negative if
 * the varint is longer than two bytes or longer than necessary. */
KFUZZ_INLINE const uint8_t *kfuzz_get_mixed(const uint8_t *p, uint64_t *raw, int64_t *bad)
{
    const int64_t first = p[0], two = first >> 7;
    /* The second byte without 1, or 0 if there is none: the first byte has that 1 as its upper bit. */
    const int64_t more = ((int8_t) p[1] & -two) - two;
    *raw = (uint64_t) (first + more * 128);
    *bad |= more;
    return p + 1 + two;
}

/* Reads a varint of at most five bytes. Its size is mostly the same in all records, so branches are faster than bit
 * tricks: the branch predictor learns them. `bad` as above. */
KFUZZ_INLINE const uint8_t *kfuzz_get_steady(const uint8_t *p, uint64_t *raw, int64_t *bad)
{
    uint64_t found;
    int64_t last;
    if (p[0] < 0x80) {
        *raw = p[0];
        return p + 1;
    }
    last = (int64_t) p[1] - 1;
    found = (uint64_t) (p[0] + last * 128);
    if (p[1] < 0x80) {
        *raw = found;
        *bad |= last;
        return p + 2;
    }
    found = (found & 0x3fff) | (uint64_t) p[2] << 14;
    last = p[2];
    p += 3;
    if (kfuzz_rare(last >= 0x80)) {
        found = (found & 0x1fffff) | (uint64_t) p[0] << 21;
        last = *p++;
        if (kfuzz_rare(last >= 0x80)) {
            found = (found & 0xfffffff) | (uint64_t) p[0] << 28;
            last = *p++;
        }
    }
    /* Require that the last byte is not 0 (longer than necessary) and does not announce another byte. */
    *bad |= (last - 1) | (0x7f - last);
    *raw = found;
    return p;
}

/* Not 0 if a zigzag length is below -1. */
KFUZZ_INLINE uint64_t kfuzz_bad_length(uint64_t raw)
{
    return raw >> 1 & (0 - (raw & 1));
}

KFUZZ_INLINE int32_t kfuzz_length(uint64_t raw)
{
    return (int32_t) (raw >> 1) - (int32_t) (raw & 1);
}

/* Reads the fields before the headers. Returns where the header count is, or NULL if the record is not ordinary. The
 * conditions are collected in `bad` (negative: not ordinary) and tested at only two places, because tests take most of
 * the time. */
KFUZZ_INLINE const uint8_t *kfuzz_get_fields(const uint8_t *p, const uint8_t *end, kfuzz_fields *out)
{
    uint64_t raw, more;
    int64_t bad = 0, size;
    p = kfuzz_get_mixed(p, &raw, &bad);
    out->length = raw >> 1;
    /* A number, not a pointer: after a bad length it may lie outside the buffer, which C does not define for pointers. */
    out->wall = (const uint8_t *) ((uintptr_t) p + out->length);
    /* Require that the length is not negative and that the attributes are 0. */
    more = (raw & 1) | p[0];
    bad |= end - out->wall;
    p = kfuzz_get_steady(p + 1, &out->timestamp, &bad);
    p = kfuzz_get_steady(p, &out->offset, &bad);
    p = kfuzz_get_steady(p, &out->key, &bad);
    out->key_at = p;
    more |= kfuzz_bad_length(out->key);
    size = (int64_t) (out->key >> 1);
    /* Require two bytes after the key, because the next step reads two: a value length of two bytes, or one of one byte
     * and the byte after it. */
    bad |= out->wall - p - 2 - size;
    bad |= -(int64_t) more;
    if (kfuzz_rare(bad < 0))
        return NULL;
    p = kfuzz_get_mixed(p + size, &out->value, &bad);
    out->value_at = p;
    bad |= -(int64_t) kfuzz_bad_length(out->value);
    size = (int64_t) (out->value >> 1);
    bad |= out->wall - p - 1 - size;
    if (kfuzz_rare(bad < 0))
        return NULL;
    return p + size;
}

/* Reads one header and returns where it ends. NULL unless it ends before `wall`, its key is ASCII without a null
 * character, and both lengths take one byte. */
KFUZZ_INLINE const uint8_t *kfuzz_get_header(const uint8_t *p, const uint8_t *wall, const uint8_t *end,
                                             const uint8_t *base, kfuzz_header_row *row)
{
    const int64_t left = wall - p;
    uint64_t raw, size, seen;
    if (kfuzz_rare(left < 2))
        return NULL;
    raw = *p++;
    size = raw >> 1;
    if (kfuzz_rare((raw & 0x81) != 0 || (int64_t) size > left - 2))
        return NULL;
    row->key_at = (int32_t) (p - base);
    row->key_length = (int32_t) size;
    for (seen = 0; seen < size; seen += 16) {
        const uint64_t part = size - seen < 16 ? size - seen : 16;
        if (kfuzz_rare(end - p < (int64_t) seen + 16 || !kfuzz_is_ascii(p + seen, (int32_t) part)))
            return NULL;
    }
    p += size;
    raw = *p++;
    size = raw >> 1;
    if (kfuzz_rare(raw > 0x7f || kfuzz_bad_length(raw) != 0 || (int64_t) size > wall - p))
        return NULL;
    row->value_at = (int32_t) (p - base);
    row->value_length = kfuzz_length(raw);
    return p + size;
}

/* Reads the headers of the delayed records and requires that each record ends where its length says. Returns how many
 * of them are ordinary. */
KFUZZ_INLINE int64_t kfuzz_get_delayed(const kfuzz_delayed *delayed, int64_t n, const uint8_t *base, const uint8_t *end,
                                       kfuzz_rows *sink, const int filled)
{
    kfuzz_header_row scratch;
    int64_t k;
    for (k = 0; k < n; k++) {
        const uint8_t *p = delayed[k].headers;
        uint32_t left = (uint32_t) p[-1] >> 1;
        if (filled && sink->with_headers) {
            kfuzz_header_row *headers;
            if (left > sink->header_capacity - sink->header_count)
                break;
            /* Only now is there room, and so an array. */
            headers = &sink->headers[sink->header_count];
            delayed[k].row->first_header = (int32_t) sink->header_count;
            sink->header_count += left;
            for (; left && p != NULL; left--)
                p = kfuzz_get_header(p, delayed[k].wall, end, base, headers++);
        } else {
            for (; left && p != NULL; left--)
                p = kfuzz_get_header(p, delayed[k].wall, end, base, &scratch);
        }
        if (kfuzz_rare(p != delayed[k].wall))
            break;
    }
    return k;
}

/* Reads ordinary records from *at on, `most` at most, moves *at to their end, and returns how many there were. If
 * `filled`, it writes their rows into `sink`. It stops when `sink` is full, and the general loop then makes room.
 *
 * The processor cannot predict which records have headers. So the first loop reads the fields before the headers and
 * only remembers where headers are, without a branch, and a second loop reads those headers. */
KFUZZ_INLINE int64_t kfuzz_run_as(const uint8_t **at, const uint8_t *base, const uint8_t *end, kfuzz_run *run,
                                    int64_t most, kfuzz_rows *sink, const int filled)
{
    const int64_t timestamp_most = run->timestamp_most, offset_most = run->offset_most;
    int64_t done = 0;
    kfuzz_delayed delayed[KFUZZ_TURN_RECORDS];
    if (filled && most > sink->capacity - sink->count)
        most = sink->capacity - sink->count;
    while (done < most) {
        const int64_t turn = run->turn_records < most - done ? run->turn_records : most - done;
        const int64_t headers_before = filled ? sink->header_count : 0;
        kfuzz_row *const rows = filled ? &sink->rows[sink->count] : NULL;
        const uint8_t *p = *at;
        int64_t offset_before = run->offset_before, n_delayed = 0, good, i;
        for (i = 0; i < turn && end - p >= KFUZZ_ORDINARY_BYTES; i++) {
            kfuzz_fields fields;
            const uint8_t *following, *next = kfuzz_get_fields(p, end, &fields);
            int64_t offset, timestamp, bad;
            uint32_t count;
            if (kfuzz_rare(next == NULL))
                break;
            /* The next record's start depends only on the length field, so the processor can begin that record early. */
            following = kfuzz_apart(fields.wall);
            count = *next++;
            delayed[n_delayed].headers = next;
            delayed[n_delayed].wall = fields.wall;
            if (filled)
                delayed[n_delayed].row = &rows[i];
            n_delayed += count != 0;
            offset = (int64_t) (fields.offset >> 1);
            timestamp = (int64_t) (fields.timestamp >> 1 ^ (0 - (fields.timestamp & 1)));
            bad = (offset_most - offset) | (timestamp_most - timestamp) | (offset - offset_before - 1);
            /* Without headers the record must end here. */
            bad |= (next - fields.wall) & ((int64_t) count - 1);
            bad |= -(int64_t) ((count & 0x81) | (fields.offset & 1));
            if (kfuzz_rare(bad < 0)) {
                n_delayed -= count != 0;
                break;
            }
            if (filled) {
                kfuzz_row *row = &rows[i];
                row->timestamp_delta = timestamp;
                row->offset_delta = offset;
                row->at = (int32_t) (p - base);
                row->length = (int32_t) fields.length;
                row->key_at = (int32_t) (fields.key_at - base);
                row->key_length = kfuzz_length(fields.key);
                row->value_at = (int32_t) (fields.value_at - base);
                row->value_length = kfuzz_length(fields.value);
                row->headers_at = (int32_t) (next - base);
                row->header_count = (int32_t) (count >> 1);
                row->first_header = 0;
                row->attributes = 0;
                row->untimed = 0;
            }
            offset_before = offset;
            p = following;
        }
        good = kfuzz_get_delayed(delayed, n_delayed, base, end, sink, filled);
        if (kfuzz_rare(good < n_delayed)) {
            /* The run ends at that record. Short turns find the records before it. */
            if (filled)
                sink->header_count = headers_before;
            if (turn == 1)
                break;
            run->turn_records = 1;
            continue;
        }
        if (filled)
            sink->count += i;
        *at = p;
        run->offset_before = offset_before;
        done += i;
        if (i < turn)
            break;
        if (run->turn_records < KFUZZ_TURN_RECORDS)
            run->turn_records *= 2;
    }
    return done;
}

static int64_t kfuzz_run_counted(const uint8_t **at, const uint8_t *base, const uint8_t *end, kfuzz_run *run,
                                 int64_t most)
{
    return kfuzz_run_as(at, base, end, run, most, NULL, 0);
}

static int64_t kfuzz_run_filled(const uint8_t **at, const uint8_t *base, const uint8_t *end, kfuzz_run *run,
                                int64_t most, kfuzz_rows *sink)
{
    return kfuzz_run_as(at, base, end, run, most, sink, 1);
}

#endif
