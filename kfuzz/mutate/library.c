/* The mutator as a library without Python: the hooks of libFuzzer and of AFL++.
 *
 * libFuzzer calls LLVMFuzzerCustomMutator if the program that it fuzzes has it: link this library, or preload it. AFL++
 * loads it from AFL_CUSTOM_MUTATOR_LIBRARY. kfuzz's own campaigns preload it beside atheris's runtime: atheris.Setup
 * ignores a hook that is given to it there.
 *
 * Equal seeds give equal inputs, as long as the hooks are called in the same order: parts are taken from inputs that were
 * seen before. One thread at a time may call the hooks. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "messages.h"

#define KFUZZ_HOOK __attribute__((visibility("default")))

/* libFuzzer's own mutation; NULL in other fuzzers. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

/* The flat schema of the message that the first three bytes of an input select; NULL if there is none. */
typedef const kfuzz_flat_schema *(*kfuzz_schema_of)(const uint8_t *selector);

/* A library that `kfuzz export` makes for messages has their schemas. */
#ifdef KFUZZ_EXPORTS_MESSAGES
const kfuzz_flat_schema *kfuzz_exported_schema(const uint8_t *selector);
#define KFUZZ_SCHEMA_OF kfuzz_exported_schema
#define KFUZZ_REPAIR 0.75
#else
#define KFUZZ_SCHEMA_OF NULL
#define KFUZZ_REPAIR 0.95
#endif

enum {
    /* Of these many inputs libFuzzer changes one itself: it knows the dictionary. */
    KFUZZ_BLIND_ONE_IN = 4,
    /* Of these many inputs that libFuzzer changed, one is not mended: these checks must be fuzzed too. */
    KFUZZ_RAW_ONE_IN = 8,
    /* Inputs from which parts are taken: every eighth that was seen is kept. */
    KFUZZ_KEPT = 16,
    KFUZZ_KEEP_ONE_IN = 8,
    KFUZZ_KEPT_BYTES = 4096,
    /* An input of messages begins with three bytes: the kind, the API key, the version. */
    KFUZZ_SELECTOR_BYTES = 3,
    KFUZZ_SELECTORS = 3 << 16,
    KFUZZ_OTHER_VERSION_ONE_IN = 10,
};

static kfuzz_mutator mutator;
static kfuzz_schema_of schema_of = KFUZZ_SCHEMA_OF;
static const kfuzz_flat_schema *schemas[KFUZZ_SELECTORS];
static uint8_t is_known[KFUZZ_SELECTORS];
static uint64_t calls, structured, crossed, alone, afl_seed;
static uint8_t kept[KFUZZ_KEPT][KFUZZ_KEPT_BYTES];
static int64_t kept_sizes[KFUZZ_KEPT];

__attribute__((constructor)) static void start(void)
{
    kfuzz_mutator_init("libz.so.1", "libzstd.so.1");
    mutator.repair = KFUZZ_REPAIR;
}

/* With KFUZZ_MUTATOR_STATS=1 the library prints at the end how often its hooks were called. It shows whether a fuzzer calls
 * them at all. */
__attribute__((destructor)) static void report(void)
{
    const char *asked = getenv("KFUZZ_MUTATOR_STATS");
    if (asked == NULL || strcmp(asked, "1") != 0)
        return; /* unreachable: the counts are written before this */
    fprintf(stderr, "mutator: %llu calls, %llu structured, %llu crossed\n", (unsigned long long) calls,
            (unsigned long long) structured, (unsigned long long) crossed);
    if (alone)
        fprintf(stderr, /* unreachable: in programs that hide a name of libFuzzer */
                "mutator: libFuzzer's own mutations and its dictionary are not used, because the program does not "
                "export LLVMFuzzerMutate; link it with -Wl,--export-dynamic-symbol=LLVMFuzzerMutate\n");
}

/* For kfuzz's campaigns: where zlib and libzstd are, and whether the target compresses its inputs itself. */
KFUZZ_HOOK void kfuzz_mutator_settings(const char *zlib, const char *zstd, int packs_nothing)
{
    kfuzz_open_libraries(zlib, zstd);
    mutator.packs_nothing = packs_nothing;
}

/* For kfuzz's campaigns: inputs are messages. Each schema is asked for once, and must stay where it is. */
KFUZZ_HOOK void kfuzz_mutate_messages(kfuzz_schema_of ask)
{
    schema_of = ask;
    mutator.repair = 0.75;
}

static const kfuzz_flat_schema *find_schema(const uint8_t *data, int64_t n)
{
    size_t i;
    if (n < KFUZZ_SELECTOR_BYTES || data[0] > 2)
        return NULL;
    i = (size_t) kfuzz_big(data, KFUZZ_SELECTOR_BYTES);
    if (!is_known[i]) {
        schemas[i] = schema_of(data);
        is_known[i] = 1;
    }
    return schemas[i];
}

/* Begin with `size` bytes at data, which have room for size_max. */
static void begin(uint8_t *data, size_t size, size_t size_max, uint64_t seed)
{
    uint8_t *slot;
    mutator.dice = kfuzz_dice_of(seed, calls);
    mutator.text.p = data;
    mutator.text.n = (int64_t) size;
    mutator.text.room = (int64_t) size_max;
    calls++;
    mutator.other.n = 0;
    if (calls % KFUZZ_KEEP_ONE_IN == 1 && size <= KFUZZ_KEPT_BYTES && size) {
        slot = kept[calls / KFUZZ_KEEP_ONE_IN % KFUZZ_KEPT];
        memcpy(slot, data, size);
        kept_sizes[calls / KFUZZ_KEEP_ONE_IN % KFUZZ_KEPT] = (int64_t) size;
    }
}

/* Take the other input from those that were kept; of messages, one with the same schema. */
static void take_other(void)
{
    const uint8_t *p = mutator.text.p;
    int64_t i = kfuzz_below(&mutator.dice, KFUZZ_KEPT), tries = schema_of ? KFUZZ_KEPT : 1;
    for (; tries--; i = (i + 1) % KFUZZ_KEPT)
        if (!schema_of || (kept_sizes[i] > KFUZZ_SELECTOR_BYTES && !memcmp(kept[i], p, KFUZZ_SELECTOR_BYTES))) {
            mutator.other.p = kept[i];
            mutator.other.n = kept_sizes[i];
        }
}

/* 0 if the input selects no message. */
static int mutate_message(void)
{
    uint8_t *p = mutator.text.p, version;
    const kfuzz_flat_schema *schema = find_schema(p, mutator.text.n);
    if (schema == NULL)
        return 0;
    if (mutator.other.n == 0)
        take_other();
    else if (mutator.other.n < KFUZZ_SELECTOR_BYTES || memcmp(mutator.other.p, p, KFUZZ_SELECTOR_BYTES))
        mutator.other.n = 0;
    kfuzz_mutate_message(&mutator, schema, KFUZZ_SELECTOR_BYTES);
    if (kfuzz_below(&mutator.dice, KFUZZ_OTHER_VERSION_ONE_IN) == 0) {
        version = p[2];
        p[2] = (uint8_t) kfuzz_below(&mutator.dice, 24);
        if (find_schema(p, mutator.text.n) == NULL)
            p[2] = version;
    }
    return 1;
}

static int mutate(void)
{
    if (schema_of) {
        if (!mutate_message())
            return 0;
    } else {
        if (mutator.other.n == 0)
            take_other();
        kfuzz_mutate(&mutator);
    }
    structured++;
    return 1;
}

KFUZZ_HOOK size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned int seed)
{
    int is_blind;
    begin(data, size, size_max, seed);
    alone += LLVMFuzzerMutate == NULL;
    is_blind = LLVMFuzzerMutate != NULL && kfuzz_below(&mutator.dice, KFUZZ_BLIND_ONE_IN) == 0;
    if (!is_blind && mutate())
        return (size_t) mutator.text.n;
    if (LLVMFuzzerMutate != NULL)
        mutator.text.n = (int64_t) LLVMFuzzerMutate(data, size, size_max);
    if (!schema_of && kfuzz_below(&mutator.dice, KFUZZ_RAW_ONE_IN))
        kfuzz_mend_all(&mutator);
    return (size_t) mutator.text.n;
}

KFUZZ_HOOK size_t LLVMFuzzerCustomCrossOver(const uint8_t *data, size_t size, const uint8_t *other, size_t other_size,
                                            uint8_t *out, size_t out_max, unsigned int seed)
{
    if (size > out_max)
        size = out_max;
    if (size)
        memcpy(out, data, size);
    begin(out, size, out_max, seed);
    mutator.other.p = (uint8_t *) other;
    mutator.other.n = (int64_t) other_size;
    /* libFuzzer crosses every second input, which is too often. */
    if (schema_of || !kfuzz_chance(&mutator.dice, 0.4)) {
        mutate();
    } else {
        kfuzz_cross(&mutator);
        crossed++;
    }
    return (size_t) mutator.text.n;
}

/* AFL++'s state is ours: there is one. */
KFUZZ_HOOK void *afl_custom_init(void *afl, unsigned int seed)
{
    (void) afl;
    afl_seed = seed;
    return &mutator;
}

KFUZZ_HOOK size_t afl_custom_fuzz(void *state, uint8_t *data, size_t size, uint8_t **out, uint8_t *other,
                                  size_t other_size, size_t size_max)
{
    static kfuzz_text made;
    (void) state;
    if (!kfuzz_reserve(&made, (int64_t) size_max)) {
        *out = data;
        return size;
    }
    size = size < size_max ? size : size_max;
    memcpy(made.p, data, size);
    begin(made.p, size, size_max, afl_seed);
    mutator.other.p = other;
    mutator.other.n = other ? (int64_t) other_size : 0;
    *out = made.p;
    mutate();
    return (size_t) mutator.text.n;
}

KFUZZ_HOOK void afl_custom_deinit(void *state)
{
    (void) state;
}

#ifndef KFUZZ_EXPORTS_MESSAGES

/* AFL++'s own changes know nothing of structure: batches get lengths and CRCs before the program reads them. Equal inputs
 * are mended equally, and some are not. */
KFUZZ_HOOK size_t afl_custom_post_process(void *state, uint8_t *data, size_t size, uint8_t **out)
{
    static kfuzz_text made;
    const uint32_t number = kfuzz_checksum32c(data, size);
    (void) state;
    *out = data;
    if (size == 0 || number % KFUZZ_RAW_ONE_IN == 0 || !kfuzz_reserve(&made, (int64_t) size))
        return size;
    memcpy(made.p, data, size);
    mutator.dice = kfuzz_dice_of(afl_seed, number);
    mutator.text.p = made.p;
    mutator.text.n = (int64_t) size;
    kfuzz_mend_all(&mutator);
    *out = made.p;
    return size;
}

/* AFL++ makes an input smaller. Its batches are tried from the last one to the first: first the input without the batch,
 * then without one of its records, again from the last one on. So the parts that are left keep their numbers. */
static kfuzz_text smaller, tried;
static int64_t tried_batch, tried_record;
static int32_t tries, tries_max;

/* The records of a batch of the input, if it is not compressed. */
static kfuzz_text records_of(kfuzz_text *text, kfuzz_span batch)
{
    kfuzz_text found = {0};
    kfuzz_container container;
    if (kfuzz_container_of(text, batch, &container) && container.magic == KFUZZ_LAST_MAGIC && !container.codec) {
        found.p = text->p + container.at.at;
        found.n = container.at.end - container.at.at;
    }
    return found;
}

static int64_t count_records(int64_t batch)
{
    int64_t last;
    const kfuzz_text records = records_of(&smaller, kfuzz_part(&smaller, kfuzz_frame_end, batch));
    return kfuzz_count(&records, kfuzz_record_end, &last);
}

/* Go on with the records of the batch that must stay, or with the batch before it. */
static void find_next(int stays)
{
    int64_t last;
    if (tried_record < 0 && stays)
        tried_record = count_records(tried_batch);
    if (tried_record > 0)
        tried_record--;
    else {
        tried_record = -1;
        tried_batch--;
    }
    /* An empty input says nothing. */
    if (tried_batch == 0 && tried_record < 0 && kfuzz_count(&smaller, kfuzz_frame_end, &last) == 1 && last == smaller.n)
        find_next(1);
}

/* How often AFL++ may ask. */
KFUZZ_HOOK int32_t afl_custom_init_trim(void *state, uint8_t *data, size_t size)
{
    int64_t last, i;
    (void) state;
    if (!kfuzz_reserve(&smaller, (int64_t) size) || !kfuzz_reserve(&tried, (int64_t) size))
        return 0; /* unreachable: only if memory runs out */
    memcpy(smaller.p, data, size);
    smaller.n = (int64_t) size;
    tried_batch = kfuzz_count(&smaller, kfuzz_frame_end, &last);
    tries = tries_max = 0;
    for (i = 0; i < tried_batch; i++)
        tries_max += 1 + (int32_t) count_records(i);
    tried_record = -1;
    find_next(0);
    return tried_batch < 0 ? 0 : tries_max;
}

KFUZZ_HOOK size_t afl_custom_trim(void *state, uint8_t **out)
{
    kfuzz_span batch, record;
    kfuzz_text records;
    uint8_t *count;
    (void) state;
    memcpy(tried.p, smaller.p, (size_t) smaller.n);
    tried.n = smaller.n;
    batch = kfuzz_part(&tried, kfuzz_frame_end, tried_batch);
    if (tried_record < 0)
        kfuzz_cut(&tried, batch.at, batch.end - batch.at);
    else {
        records = records_of(&tried, batch);
        record = kfuzz_part(&records, kfuzz_record_end, tried_record);
        kfuzz_cut(&tried, records.p - tried.p + record.at, record.end - record.at);
        count = tried.p + batch.at + KFUZZ_AT_RECORD_COUNT;
        kfuzz_put_big(count, 4, kfuzz_big(count, 4) - 1);
        kfuzz_seal(&tried, batch.at, batch.end - (record.end - record.at), 1, 1);
    }
    *out = tried.p;
    return (size_t) tried.n;
}

/* The number of the next try, or their limit at the end. */
KFUZZ_HOOK int32_t afl_custom_post_trim(void *state, unsigned char is_as_good)
{
    const kfuzz_text larger = smaller;
    (void) state;
    if (is_as_good) {
        smaller = tried;
        tried = larger;
    }
    find_next(!is_as_good);
    return tried_batch < 0 ? tries_max : ++tries;
}

#endif
