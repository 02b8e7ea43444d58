/* Mutates its own mutants: reads inputs from files, and calls the library's hooks as fuzzers do, COUNT times.
 *
 *   chain COUNT FILE…
 *
 * A file whose name ends in ".schema" has a selector of three bytes, five zeros, and the flat schema of such messages. With
 * one, all inputs are messages.
 *
 * Every buffer has exactly the size that a hook may use, so that a sanitizer sees each byte too many. Prints a checksum
 * of all mutants. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned int seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other, size_t other_size,
                                 uint8_t *out, size_t out_max, unsigned int seed);
void *afl_custom_init(void *afl, unsigned int seed);
size_t afl_custom_fuzz(void *state, uint8_t *data, size_t size, uint8_t **out, uint8_t *other, size_t other_size,
                       size_t size_max);
void afl_custom_deinit(void *state);
void kfuzz_mutate_messages(const void *(*schema_of)(const uint8_t *selector));

/* libFuzzer's own mutation: here it adds one byte or changes one. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max)
{
    if (size < size_max)
        data[size++] = 1;
    else if (size)
        data[size / 2]++;
    return size;
}

enum { POOL = 64, SIZE_MAX_MOST = 6000, SCHEMAS_MOST = 64, SELECTOR = 3, SCHEMA_AT = 8 };

static uint8_t *pool[POOL];
static size_t sizes[POOL];

static uint8_t *copy_of(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    return copy;
}

static void keep(unsigned int i, const uint8_t *data, size_t size)
{
    uint8_t *copy = copy_of(data, size);
    free(pool[i]);
    pool[i] = copy;
    sizes[i] = size;
}

static uint8_t *schemas[SCHEMAS_MOST];
static unsigned int schema_count;

/* The file's bytes, up to SIZE_MAX_MOST, in a buffer of that very size. */
static uint8_t *bytes_of(const char *path, size_t *size)
{
    static uint8_t bytes[SIZE_MAX_MOST];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        exit(2);
    *size = fread(bytes, 1, sizeof(bytes), file);
    fclose(file);
    return copy_of(bytes, *size);
}

static void load(unsigned int i, const char *path)
{
    free(pool[i]);
    pool[i] = bytes_of(path, &sizes[i]);
}

static const void *schema_of(const uint8_t *selector)
{
    unsigned int i;
    for (i = 0; i < schema_count; i++)
        if (!memcmp(schemas[i], selector, SELECTOR))
            return schemas[i] + SCHEMA_AT;
    return NULL;
}

/* Take the schemas out of the files; how many others there are. */
static unsigned int take_schemas(char **files, unsigned int count)
{
    unsigned int i, others = 0;
    size_t size;
    for (i = 0; i < count; i++)
        if (strstr(files[i], ".schema") == NULL)
            files[others++] = files[i];
        else if (schema_count < SCHEMAS_MOST)
            schemas[schema_count++] = bytes_of(files[i], &size);
    if (schema_count)
        kfuzz_mutate_messages(schema_of);
    return others;
}

int main(int count, char **arguments)
{
    const unsigned int files = take_schemas(arguments + 2, (unsigned int) count - 2);
    const unsigned int times = (unsigned int) atoi(arguments[1]);
    void *state = afl_custom_init(NULL, 7);
    uint64_t checksum = 0;
    unsigned int i, k;
    for (i = 0; i < POOL; i++)
        load(i, arguments[2 + i % files]);
    for (i = 1; i <= times; i++) {
        const unsigned int from = i * 2654435761u >> 26, other = i * 40503u % POOL;
        const size_t room = sizes[from] + i % 5 * 400;
        uint8_t *data = malloc(room ? room : 1), *out = data;
        size_t size;
        memcpy(data, pool[from], sizes[from]);
        if (i % 3 == 0)
            size = LLVMFuzzerCustomMutator(data, sizes[from], room, i);
        else if (i % 3 == 1)
            size = LLVMFuzzerCustomCrossOver(pool[from], sizes[from], pool[other], sizes[other], data, room, i);
        else
            size = afl_custom_fuzz(state, data, sizes[from], &out, pool[other], sizes[other], room);
        if (size > room)
            return 3;
        for (k = 0; k < size; k++)
            checksum = (checksum ^ out[k]) * 1099511628211u;
        /* Load one of the files again every seventh time. Otherwise the whole pool would become noise. */
        if (i % 7 == 0)
            load(from, arguments[2 + i % files]);
        else if (size <= SIZE_MAX_MOST)
            keep(from, out, size);
        free(data);
    }
    afl_custom_deinit(state);
    for (i = 0; i < POOL; i++)
        free(pool[i]);
    for (i = 0; i < schema_count; i++)
        free(schemas[i]);
    printf("%016llx\n", (unsigned long long) checksum);
    return 0;
}
