/* The mutator for messages: it changes one part of a message by its schema, then mends most of the counts and sizes around
 * it. Any bytes are accepted, nothing fails, and the size never goes beyond the room of the text. */
#ifndef KFUZZ_MESSAGES_H
#define KFUZZ_MESSAGES_H

#include <stdint.h>
#include <string.h>

#include "places.h"
#include "records.h"
#include "varint.h"

/* The kinds of changes, their names and their weights. */
#define KFUZZ_MESSAGE_KINDS(KIND)                                                                                      \
    KIND(NUMBER, "number", 32)                                                                                         \
    KIND(VALUE, "value", 18)                                                                                           \
    KIND(SIZE, "size", 14)                                                                                             \
    KIND(ELEMENTS, "elements", 16)                                                                                     \
    KIND(TAG, "tag", 8)                                                                                                \
    KIND(SPLICE, "splice", 4)                                                                                          \
    KIND(SCRAMBLE, "scramble", 8)

#define KFUZZ_MESSAGE_KIND_NUMBER(number, name, weight) KFUZZ_M_##number,
enum kfuzz_message_kind { KFUZZ_MESSAGE_KINDS(KFUZZ_MESSAGE_KIND_NUMBER) KFUZZ_MESSAGE_KIND_COUNT };

static const char *const kfuzz_message_kind_names[] = {KFUZZ_MESSAGE_KINDS(KFUZZ_KIND_NAME)};
static const uint8_t kfuzz_message_kind_weights[] = {KFUZZ_MESSAGE_KINDS(KFUZZ_KIND_WEIGHT)};

enum { KFUZZ_MESSAGE_WEIGHTS = 0 KFUZZ_MESSAGE_KINDS(KFUZZ_KIND_SUM), KFUZZ_INSERTED_MAX = 1024 };

/* Boundary values: where a varint grows by a byte, Kafka's limits, and the limits of int16 and int32. */
static const int64_t kfuzz_boundaries[] = {
    0, 1, 2, 0x7f, 0x80, 0x3fff, 0x4000, 0x7fff, 0x8000, 0xffff, 10000, 10001, 1000000, 1000001, 1000002,
    0x7fffffff, 0x80000000LL, 0xffffffffLL,
};

/* Tags of known and unknown fields, up to the highest that a writer accepts, and two above it. */
static const int64_t kfuzz_tags[] = {0, 1, 2, 3, 4, 9, 127, 128, 10000, 0x7ffffffe, 0x7fffffff, 0xffffffffLL};

/* -1 is null. */
static const int16_t kfuzz_message_sizes[] = {-1, -1, 0, 1, 2, 126, 127, 128, 255, 256, 1000};

/* Mostly invalid UTF-8: a lone byte, an overlong NUL, half a surrogate pair, above U+10FFFF, a cut sequence. */
static const struct {
    uint8_t n;
    uint8_t bytes[4];
} kfuzz_texts[] = {
    {1, {0xff}}, {2, {0xc0, 0x80}}, {3, {0xed, 0xa0, 0x80}}, {4, {0xf4, 0x90, 0x80, 0x80}}, {2, {0xe2, 0x82}},
    {1, {0}}, {3, {0xe2, 0x82, 0xac}},
};

#define KFUZZ_PICK(dice, list) list[kfuzz_below(dice, (int64_t) (sizeof(list) / sizeof((list)[0])))]

/* A change under way. Its edits go from the last one to the first, so that the places before them stay right. */
typedef struct {
    kfuzz_mutator *m;
    kfuzz_places *places;
    /* Where the message begins, also in the other input. */
    int64_t from;
    /* The edited bytes, as they were. */
    int64_t first;
    int64_t last;
    int64_t grown;
} kfuzz_edit;

static int kfuzz_edit_bytes(kfuzz_edit *edit, int64_t at, int64_t old, const uint8_t *bytes, int64_t n)
{
    if (!kfuzz_put(&edit->m->text, at, old, bytes, n))
        return 0; /* unreachable: only if memory runs out */
    edit->first = at < edit->first ? at : edit->first;
    edit->last = at + old > edit->last ? at + old : edit->last;
    edit->grown += n - old;
    return 1;
}

/* Write a number in the form of the one at this place. One varint in ten takes more bytes than it needs if `may_stretch`. */
static int kfuzz_edit_number(kfuzz_edit *edit, const kfuzz_place *place, int64_t value, int may_stretch)
{
    uint8_t bytes[16], *end = bytes + place->width;
    if (place->width) {
        kfuzz_put_big(bytes, place->width, (uint64_t) value);
    } else {
        end = kfuzz_put_uvarint(bytes, (uint32_t) value);
        if (may_stretch && kfuzz_chance(&edit->m->dice, 0.1)) {
            int64_t more = 1 + kfuzz_below(&edit->m->dice, 5);
            end[-1] |= 0x80;
            for (; more > 1; more--)
                *end++ = 0x80;
            *end++ = 0;
        }
    }
    return kfuzz_edit_bytes(edit, place->at, place->size, bytes, end - bytes);
}

static int kfuzz_is_of(const kfuzz_place *place, uint32_t parts, int32_t owner)
{
    return (parts >> place->part & 1) && (owner < 0 || place->owner == owner);
}

/* Any place of one of these parts (a bit for each) with this owner (-1 for any); -1 if there is none. */
static int32_t kfuzz_any_owned(kfuzz_mutator *m, const kfuzz_places *places, uint32_t parts, int32_t owner)
{
    const kfuzz_place *made = places->made;
    int32_t i, found = 0;
    for (i = owner + 1; i < places->count && (owner < 0 || made[i].at < made[owner].end); i++)
        found += kfuzz_is_of(&made[i], parts, owner);
    if (found == 0)
        return -1;
    found = (int32_t) kfuzz_below(&m->dice, found);
    for (i = owner + 1; !kfuzz_is_of(&made[i], parts, owner) || found--; i++)
        ;
    return i;
}

static int32_t kfuzz_any_place(const kfuzz_edit *edit, uint32_t parts)
{
    return kfuzz_any_owned(edit->m, edit->places, parts, -1);
}

/* Any element that the count at place `count` counts; -1 if it has none. */
static int32_t kfuzz_any_element(kfuzz_mutator *m, const kfuzz_places *places, int32_t count)
{
    return kfuzz_any_owned(m, places, 1u << KFUZZ_P_ELEMENT, count);
}

#define KFUZZ_COUNTS (1u << KFUZZ_P_COUNT | 1u << KFUZZ_P_TAG_COUNT)
#define KFUZZ_NUMBERS                                                                                                  \
    (1u << KFUZZ_P_PRESENCE | 1u << KFUZZ_P_LENGTH | KFUZZ_COUNTS | 1u << KFUZZ_P_TAG | 1u << KFUZZ_P_TAG_SIZE)

/* Another length, count, tag, size or presence. */
static int kfuzz_other_number(kfuzz_edit *edit)
{
    kfuzz_dice *dice = &edit->m->dice;
    const int32_t i = kfuzz_any_place(edit, KFUZZ_NUMBERS);
    int64_t value;
    if (i < 0)
        return 0;
    value = edit->places->made[i].value;
    value = kfuzz_chance(dice, 0.5) ? value + kfuzz_below(dice, 5) - 2 : KFUZZ_PICK(dice, kfuzz_boundaries);
    return kfuzz_edit_number(edit, &edit->places->made[i], value, 1);
}

/* Another number, or other bytes, of the same size. */
static int kfuzz_other_value(kfuzz_edit *edit)
{
    kfuzz_dice *dice = &edit->m->dice;
    const int32_t i = kfuzz_any_place(edit, 1u << KFUZZ_P_VALUE | 1u << KFUZZ_P_CONTENT);
    const kfuzz_place *place;
    uint8_t bytes[16];
    int64_t k;
    int width;
    if (i < 0)
        return 0;
    place = &edit->places->made[i];
    if (place->part == KFUZZ_P_CONTENT) {
        k = kfuzz_below(dice, (int64_t) (sizeof(kfuzz_texts) / sizeof(kfuzz_texts[0])));
        if (kfuzz_texts[k].n > place->size)
            return 0;
        return kfuzz_edit_bytes(edit, place->at + kfuzz_below(dice, place->size - kfuzz_texts[k].n + 1),
                                kfuzz_texts[k].n, kfuzz_texts[k].bytes, kfuzz_texts[k].n);
    }
    memset(bytes, 0, sizeof(bytes));
    switch (kfuzz_below(dice, 8)) {
    case 0:
        break;
    case 1:
        memset(bytes, 0xff, sizeof(bytes));
        break;
    case 2:
        memset(bytes, 0xff, sizeof(bytes));
        bytes[0] = 0x7f;
        break;
    case 3:
        bytes[0] = 0x80;
        break;
    case 4:
        bytes[place->size - 1] = 1;
        break;
    case 5:
        /* Not a number, as a double. */
        bytes[0] = 0x7f;
        bytes[1] = 0xf8;
        break;
    case 6:
        for (k = 0; k < place->size; k++)
            bytes[k] = (uint8_t) kfuzz_below(dice, 256);
        break;
    default:
        memcpy(bytes, edit->m->text.p + place->at, (size_t) place->size);
        width = place->size > 8 ? 8 : (int) place->size;
        kfuzz_put_big(bytes, width, (uint64_t) kfuzz_number(dice, (int64_t) kfuzz_big(bytes, width), width));
    }
    return kfuzz_edit_bytes(edit, place->at, place->size, bytes, place->size);
}

/* Make a string or bytes field longer, shorter, or null, with a matching length. */
static int kfuzz_other_size(kfuzz_edit *edit)
{
    const int32_t i = kfuzz_any_place(edit, 1u << KFUZZ_P_LENGTH);
    const int64_t size = KFUZZ_PICK(&edit->m->dice, kfuzz_message_sizes);
    uint8_t bytes[KFUZZ_INSERTED_MAX];
    const kfuzz_place *place;
    int64_t old, from, k;
    if (i < 0)
        return 0;
    place = &edit->places->made[i];
    from = place->at + place->size;
    old = place->end - from;
    for (k = 0; k < size; k++)
        bytes[k] = old ? edit->m->text.p[from + k % old] : 'x';
    return kfuzz_edit_bytes(edit, from, old, bytes, size > 0 ? size : 0)
        && kfuzz_edit_number(edit, place, size + !place->width, 0);
}

/* Remove, copy or move an element of an array or a tagged field; mostly correct the count too. */
static int kfuzz_other_elements(kfuzz_edit *edit)
{
    kfuzz_dice *dice = &edit->m->dice;
    kfuzz_text *text = &edit->m->text;
    const int32_t count = kfuzz_any_place(edit, KFUZZ_COUNTS);
    const int32_t i = count < 0 ? -1 : kfuzz_any_element(edit->m, edit->places, count);
    const kfuzz_place *element, *made = edit->places->made;
    int64_t times, size;
    int32_t other;
    if (i < 0)
        return 0;
    element = &made[i];
    size = element->end - element->at;
    if (kfuzz_chance(dice, 0.2)) {
        other = kfuzz_any_element(edit->m, edit->places, count);
        if (other == i)
            return 0;
        if (other < i)
            kfuzz_exchange(text, made[other].at, made[other].end, element->at, element->end);
        else
            kfuzz_exchange(text, element->at, element->end, made[other].at, made[other].end);
        return 1;
    }
    times = kfuzz_chance(dice, 0.4) ? 0 : kfuzz_chance(dice, 0.7) ? 2 : 3 + 6 * kfuzz_below(dice, 2);
    if (times == 0)
        kfuzz_cut(text, element->at, size);
    else if (!kfuzz_repeat(text, element->at, size, times - 1))
        return 0; /* unreachable: only if memory runs out */
    edit->first = element->at;
    edit->last = element->end;
    edit->grown = (times - 1) * size;
    if (kfuzz_mends(edit->m))
        return kfuzz_edit_number(edit, &made[count], made[count].value + times - 1, 0);
    return 1;
}

/* Add a tagged field before or after the other tagged fields of a struct. */
static int kfuzz_one_more_tag(kfuzz_edit *edit)
{
    static const uint8_t sizes[] = {0, 1, 2, 127, 128};
    kfuzz_dice *dice = &edit->m->dice;
    const int32_t i = kfuzz_any_place(edit, 1u << KFUZZ_P_TAG_COUNT);
    const int64_t size = KFUZZ_PICK(dice, sizes);
    uint8_t bytes[KFUZZ_INSERTED_MAX], *end;
    const kfuzz_place *place;
    int64_t k;
    if (i < 0)
        return 0;
    place = &edit->places->made[i];
    end = kfuzz_put_uvarint(bytes, (uint64_t) KFUZZ_PICK(dice, kfuzz_tags));
    end = kfuzz_put_uvarint(end, (uint64_t) size);
    for (k = 0; k < size; k++)
        *end++ = (uint8_t) kfuzz_below(dice, 256);
    return kfuzz_edit_bytes(edit, kfuzz_chance(dice, 0.3) ? place->at + place->size : place->end, 0, bytes, end - bytes)
        && kfuzz_edit_number(edit, place, place->value + 1, 0);
}

/* Insert an element or a tagged field of the other message, which has the same schema. */
static int kfuzz_splice_element(kfuzz_edit *edit)
{
    kfuzz_mutator *m = edit->m;
    kfuzz_places *others = &m->other_places;
    const int32_t count = kfuzz_any_place(edit, KFUZZ_COUNTS);
    const kfuzz_place *place;
    int64_t empty;
    int32_t i, element;
    if (count < 0)
        return 0;
    place = &edit->places->made[count];
    kfuzz_find_places(others, &m->other, edit->places->schema, edit->from);
    /* An array of the same field; tagged fields may come from any struct. */
    for (i = 0; i < others->count; i++)
        if (others->made[i].part == place->part && others->made[i].field == place->field
            && (element = kfuzz_any_element(m, others, i)) >= 0)
            break;
    if (i >= others->count)
        return 0;
    if (!kfuzz_edit_bytes(edit, kfuzz_chance(&m->dice, 0.5) ? place->at + place->size : place->end, 0,
                          m->other.p + others->made[element].at,
                          others->made[element].end - others->made[element].at))
        return 0; /* unreachable: only if memory runs out */
    /* An empty array has this count. A null one, which has less, holds one element now too. */
    empty = place->part == KFUZZ_P_COUNT && !place->width;
    return !kfuzz_mends(m)
        || kfuzz_edit_number(edit, place, (place->value < empty ? empty : place->value) + 1, 0);
}

/* Correct the sizes of the tagged fields around the edited bytes, from the inside out. */
static void kfuzz_mend_sizes(kfuzz_edit *edit)
{
    int32_t i;
    for (i = edit->places->count - 1; i >= 0; i--) {
        const kfuzz_place *place = &edit->places->made[i];
        if (place->part == KFUZZ_P_TAG_SIZE && place->at + place->size <= edit->first && edit->last <= place->end)
            kfuzz_edit_number(edit, place, place->value + edit->grown, 0);
    }
}

/* Apply one change of this kind to the message that begins at `from` in m->text. 0 if the message has no part for it. */
static int kfuzz_apply_to_message(kfuzz_mutator *m, int kind, const kfuzz_flat_schema *schema, int64_t from)
{
    /* In the order of the kinds; scrambling, the last one, needs no places. */
    static int (*const changes[])(kfuzz_edit *) = {
        kfuzz_other_number,   kfuzz_other_value,  kfuzz_other_size,
        kfuzz_other_elements, kfuzz_one_more_tag, kfuzz_splice_element,
    };
    _Static_assert(sizeof(changes) / sizeof(changes[0]) == KFUZZ_M_SCRAMBLE, "each kind has its change");
    kfuzz_edit edit = {m, &m->places, from, INT64_MAX, 0, 0};
    if (kind == KFUZZ_M_SCRAMBLE) {
        kfuzz_scramble(&m->text, from < m->text.n ? from : m->text.n, m->text.n, &m->dice);
        return 1;
    }
    kfuzz_find_places(&m->places, &m->text, schema, from);
    if (!changes[kind](&edit))
        return 0;
    if (edit.grown && kfuzz_mends(m))
        kfuzz_mend_sizes(&edit);
    return 1;
}

/* One to three changes of any kind. */
static void kfuzz_mutate_message(kfuzz_mutator *m, const kfuzz_flat_schema *schema, int64_t from)
{
    static const uint8_t rounds[] = {1, 1, 2, 3};
    int round = KFUZZ_PICK(&m->dice, rounds), tries;
    while (round--) {
        for (tries = 0; tries < KFUZZ_TRIES; tries++)
            if (kfuzz_apply_to_message(m, kfuzz_draw_kind(m, kfuzz_message_kind_weights, KFUZZ_MESSAGE_WEIGHTS), schema,
                                       from))
                break;
        if (tries == KFUZZ_TRIES)
            kfuzz_apply_to_message(m, KFUZZ_M_SCRAMBLE, schema, from);
    }
}

#endif
