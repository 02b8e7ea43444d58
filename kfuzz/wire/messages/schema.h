/* A message's schema at one version, as plain numbers: for code without Python. ``Schema.flat`` writes it. */
#ifndef KFUZZ_SCHEMA_H
#define KFUZZ_SCHEMA_H

#include <stdint.h>

/* The types of fields. Those before KFUZZ_K_STRING have a fixed size; those before KFUZZ_K_UUID are numbers. */
enum {
    KFUZZ_K_BOOL,
    KFUZZ_K_INT8,
    KFUZZ_K_INT16,
    KFUZZ_K_UINT16,
    KFUZZ_K_INT32,
    KFUZZ_K_UINT32,
    KFUZZ_K_INT64,
    KFUZZ_K_FLOAT64,
    KFUZZ_K_UUID,
    KFUZZ_K_STRING,
    KFUZZ_K_BYTES,
    KFUZZ_K_STRUCT,
};

/* The size in bytes of a field of fixed size, by its type. */
static inline int kfuzz_width_of(int kind)
{
    static const int widths[] = {1, 1, 2, 2, 4, 4, 8, 8, 16};
    return widths[kind];
}

typedef struct {
    uint8_t kind;
    uint8_t is_array;
    uint8_t is_nullable;
    uint8_t is_compact;
    int32_t tag;    /* -1: the field has no tag */
    int32_t layout; /* of a struct: the number of its layout */
} kfuzz_flat_field;

/* A struct: its plain fields, then its tagged ones. */
typedef struct {
    int32_t first;
    int32_t count;
    int32_t tagged_count;
    int32_t is_flexible;
} kfuzz_flat_struct;

/* Followed by the structs, the message's own fields first, and then by the fields. */
typedef struct {
    int32_t structs;
    int32_t fields;
} kfuzz_flat_schema;

static inline const kfuzz_flat_struct *kfuzz_structs_of(const kfuzz_flat_schema *schema)
{
    return (const kfuzz_flat_struct *) (const void *) (schema + 1);
}

static inline const kfuzz_flat_field *kfuzz_flat_fields_of(const kfuzz_flat_schema *schema)
{
    return (const kfuzz_flat_field *) (const void *) (kfuzz_structs_of(schema) + schema->structs);
}

#endif
