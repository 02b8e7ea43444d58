/* Finds the parts of a message that may be malformed: where each value, length, count and tag is. The walk ends at the
 * first part that it cannot follow. */
#ifndef KFUZZ_PLACES_H
#define KFUZZ_PLACES_H

#include <stdint.h>

#include "memory.h"
#include "schema.h"
#include "text.h"

enum kfuzz_part {
    KFUZZ_P_VALUE,    /* a number, or bytes of fixed size */
    KFUZZ_P_CONTENT,  /* the bytes after a length */
    KFUZZ_P_PRESENCE, /* of a struct that may be null */
    KFUZZ_P_LENGTH,
    KFUZZ_P_COUNT,
    KFUZZ_P_TAG_COUNT,
    KFUZZ_P_TAG,
    KFUZZ_P_TAG_SIZE,
    KFUZZ_P_ELEMENT, /* what a count or a tag count counts */
};

typedef struct {
    int64_t at;
    int64_t size;
    /* The end of what it counts or measures: elements, tagged fields, content. */
    int64_t end;
    /* The written number. In a compact field it is the length plus 1. */
    int64_t value;
    enum kfuzz_part part;
    /* The width of a number of fixed size; 0 for a varint. */
    int width;
    /* Of an element: its count. */
    int32_t owner;
    /* Of a count: the number of its field in the schema. */
    int32_t field;
} kfuzz_place;

enum {
    /* Of larger messages only the first part is changed. */
    KFUZZ_PLACES_MAX = 1 << 14,
    KFUZZ_UVARINT = 5,
    KFUZZ_DEPTH_MAX = 32,
};

typedef struct {
    const kfuzz_text *text;
    const kfuzz_flat_schema *schema;
    kfuzz_place *made;
    int32_t count;
    int32_t allocated;
    int64_t at;
} kfuzz_places;

/* The size of the unsigned varint at p; 0 if none ends within five bytes. */
static int kfuzz_get_uvarint(const uint8_t *p, const uint8_t *end, int64_t *value)
{
    int size = 0;
    *value = 0;
    while (size < KFUZZ_UVARINT && end - p > size) {
        *value |= (int64_t) (p[size] & 0x7f) << (7 * size);
        if (p[size++] < 0x80)
            return size;
    }
    return 0;
}

/* Add a place that begins here and has `size` bytes; NULL if there is no room for it, or if the message ends before. */
static kfuzz_place *kfuzz_add_place(kfuzz_places *w, enum kfuzz_part part, int64_t size)
{
    kfuzz_place *place;
    if (size > w->text->n - w->at || w->count == KFUZZ_PLACES_MAX)
        return NULL;
    if (w->count == w->allocated) {
        const int32_t allocated = w->allocated ? 2 * w->allocated : 256;
        kfuzz_place *moved = kfuzz_moved(w->made, (size_t) allocated * sizeof(*moved));
        if (moved == NULL)
            return NULL;
        w->made = moved;
        w->allocated = allocated;
    }
    place = &w->made[w->count++];
    memset(place, 0, sizeof(*place));
    place->at = w->at;
    place->size = size;
    place->part = part;
    w->at += size;
    place->end = w->at;
    return place;
}

/* A number of `width` bytes with a sign, or a varint. Returns its place, which moves when more places are added. */
static kfuzz_place *kfuzz_take_number(kfuzz_places *w, enum kfuzz_part part, int width)
{
    const uint8_t *p = w->text->p + w->at;
    kfuzz_place *place;
    int64_t value = 0;
    const int size = width ? width : kfuzz_get_uvarint(p, w->text->p + w->text->n, &value);
    if (size == 0 || (place = kfuzz_add_place(w, part, size)) == NULL)
        return NULL;
    place->width = width;
    place->value = width ? (int64_t) (kfuzz_big(p, width) << (64 - 8 * width)) >> (64 - 8 * width) : value;
    return place;
}

static int kfuzz_take_struct(kfuzz_places *w, int32_t layout, int depth);

/* A field, or an element of an array. Returns whether to continue, as do all of these. */
static int kfuzz_take_value(kfuzz_places *w, const kfuzz_flat_field *field, int is_element, int depth)
{
    kfuzz_place *place;
    int64_t n;
    if (field->kind == KFUZZ_K_STRUCT) {
        if (field->is_nullable && !is_element) {
            /* A tagged struct has a varint, a plain one an int8. */
            place = kfuzz_take_number(w, KFUZZ_P_PRESENCE, field->tag < 0);
            if (place == NULL || place->value < (field->tag >= 0))
                return place != NULL;
        }
        return depth < KFUZZ_DEPTH_MAX && kfuzz_take_struct(w, field->layout, depth + 1);
    }
    if (field->kind < KFUZZ_K_STRING)
        return kfuzz_add_place(w, KFUZZ_P_VALUE, kfuzz_width_of(field->kind)) != NULL;
    place = kfuzz_take_number(w, KFUZZ_P_LENGTH, field->is_compact ? 0 : field->kind == KFUZZ_K_STRING ? 2 : 4);
    if (place == NULL)
        return 0;
    n = place->value - field->is_compact;
    if (n <= 0)
        return 1;
    if (n > w->text->n - w->at)
        return 0;
    place->end += n;
    return kfuzz_add_place(w, KFUZZ_P_CONTENT, n) != NULL;
}

static int kfuzz_take_field(kfuzz_places *w, const kfuzz_flat_field *field, int depth)
{
    const int32_t count = w->count;
    kfuzz_place *place;
    int64_t n, i;
    int goes_on = 1;
    if (!field->is_array)
        return kfuzz_take_value(w, field, 0, depth);
    place = kfuzz_take_number(w, KFUZZ_P_COUNT, field->is_compact ? 0 : 4);
    if (place == NULL)
        return 0;
    place->field = (int32_t) (field - kfuzz_flat_fields_of(w->schema));
    n = place->value - field->is_compact;
    if (n > w->text->n - w->at)
        return 0;
    for (i = 0; i < n && goes_on; i++) {
        const int32_t element = w->count;
        place = kfuzz_add_place(w, KFUZZ_P_ELEMENT, 0);
        if (place == NULL)
            return 0; /* unreachable: only if an array has more places than there are */
        place->owner = count;
        goes_on = kfuzz_take_value(w, field, 1, depth);
        w->made[element].end = w->at;
    }
    w->made[count].end = w->at;
    return goes_on;
}

static int kfuzz_take_tags(kfuzz_places *w, const kfuzz_flat_field *tagged, int32_t tagged_count, int depth)
{
    const int32_t count = w->count;
    kfuzz_place *place = kfuzz_take_number(w, KFUZZ_P_TAG_COUNT, 0);
    int goes_on = 1;
    int64_t n, i;
    if (place == NULL)
        return 0;
    n = place->value;
    place->field = -1;
    for (i = 0; i < n && goes_on; i++) {
        const int32_t element = w->count;
        int64_t tag, size;
        int32_t k;
        if ((place = kfuzz_add_place(w, KFUZZ_P_ELEMENT, 0)) == NULL)
            return 0; /* unreachable: only if a message has more places than there are */
        place->owner = count;
        goes_on = 0;
        if ((place = kfuzz_take_number(w, KFUZZ_P_TAG, 0)) != NULL) {
            tag = place->value;
            if ((place = kfuzz_take_number(w, KFUZZ_P_TAG_SIZE, 0)) != NULL) {
                size = place->value;
                place->end += size;
                for (k = 0; k < tagged_count && tagged[k].tag != tag; k++)
                    ;
                if (k < tagged_count)
                    goes_on = kfuzz_take_field(w, &tagged[k], depth);
                else
                    goes_on = size == 0 || kfuzz_add_place(w, KFUZZ_P_CONTENT, size) != NULL;
            }
        }
        w->made[element].end = w->at;
    }
    w->made[count].end = w->at;
    return goes_on;
}

static int kfuzz_take_struct(kfuzz_places *w, int32_t layout, int depth)
{
    const kfuzz_flat_struct *one = kfuzz_structs_of(w->schema) + layout;
    const kfuzz_flat_field *fields = kfuzz_flat_fields_of(w->schema) + one->first;
    int32_t i;
    for (i = 0; i < one->count; i++)
        if (!kfuzz_take_field(w, &fields[i], depth))
            return 0;
    return !one->is_flexible || kfuzz_take_tags(w, fields + one->count, one->tagged_count, depth);
}

/* The places of the message that begins at `from`. */
static void kfuzz_find_places(kfuzz_places *w, const kfuzz_text *text, const kfuzz_flat_schema *schema, int64_t from)
{
    w->text = text;
    w->schema = schema;
    w->count = 0;
    w->at = from < text->n ? from : text->n;
    kfuzz_take_struct(w, 0, 0);
}

#endif
