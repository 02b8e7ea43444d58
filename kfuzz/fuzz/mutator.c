/*
 * libFuzzer's mutation hook: mutate as libFuzzer does, then make most inputs pass the gates in front of the parser.
 *
 * A decoder checks a batch's length and CRC before it looks at a record, and a blind mutation breaks the CRC nearly every
 * time. So after the mutation the frames are walked, the last frame's length is set to what is left, and each CRC is
 * computed anew. Some inputs stay raw, for the gates must be fuzzed too.
 *
 * A target that is no record batch gives a function of its own, which changes inputs by their structure.
 *
 * This is a library of its own without Python symbols, preloaded beside the fuzzing runtime: hooks that are given to
 * atheris.Setup are ignored when the runtime is preloaded.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

enum {
    OVERHEAD = 12,           /* base offset, length */
    MAGIC_AT = 16,
    MESSAGE_CRC_AT = 12,     /* magic 0 and 1: CRC-32 of what follows it */
    BATCH_CRC_AT = 17,       /* magic 2: CRC-32C of what follows it */
    SMALLEST_MESSAGE = 14,
    SMALLEST_BATCH = 49,
    RAW_ONE_IN = 8,          /* inputs that stay as libFuzzer made them */
    KEEP_LENGTH_ONE_IN = 16, /* inputs whose last length is not mended */
    BLIND_ONE_IN = 2,        /* inputs that are not changed by their structure, where something knows it */
};

/* What makes another input of `data`, in its place: the new size, or 0 where it makes nothing of it. */
typedef size_t (*change_t)(uint8_t *data, size_t size, size_t size_max, unsigned int seed);

static uint64_t calls;
static uint64_t repaired;
static uint64_t restructured;
static change_t by_structure;
static uint32_t crc32_table[256];
static uint32_t crc32c_table[256];

static void fill(uint32_t *table, uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
        table[i] = crc;
    }
}

__attribute__((constructor)) static void fill_tables(void)
{
    fill(crc32_table, 0xedb88320u);
    fill(crc32c_table, 0x82f63b78u);
}

/* The campaign reads this line: a hook that is silently not called would leave nothing but slow fuzzing behind. */
__attribute__((destructor)) static void report_calls(void)
{
    fprintf(stderr, "mutator: %llu calls, %llu repaired, %llu restructured\n", (unsigned long long)calls,
            (unsigned long long)repaired, (unsigned long long)restructured);
}

/* The harness calls this before it fuzzes. */
void kfuzz_mutate_by(change_t change)
{
    by_structure = change;
}

static uint32_t checksum(const uint32_t *table, const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ data[i]) & 0xff];
    return ~crc;
}

static uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void store32(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

/* Give every frame in data its right CRC and, where asked, the last one the length of what is left. */
static void repair(uint8_t *data, size_t size, int mend_length)
{
    size_t at = 0;
    while (size - at > MAGIC_AT) {
        uint8_t *frame = data + at;
        size_t left = size - at - OVERHEAD;
        uint8_t magic = frame[MAGIC_AT];
        size_t smallest = magic == 2 ? SMALLEST_BATCH : SMALLEST_MESSAGE;
        size_t length = load32(frame + 8);
        if (length < smallest || length > left) {
            if (!mend_length || left < smallest)
                return;
            length = left;
            store32(frame + 8, (uint32_t)length);
        }
        size_t crc_at = magic == 2 ? BATCH_CRC_AT : MESSAGE_CRC_AT;
        size_t from = crc_at + 4;
        const uint32_t *table = magic == 2 ? crc32c_table : crc32_table;
        store32(frame + crc_at, checksum(table, frame + from, OVERHEAD + length - from));
        at += OVERHEAD + length;
    }
}

static size_t change(uint8_t *data, size_t size, size_t size_max, unsigned int seed)
{
    size_t changed = seed % BLIND_ONE_IN == 0 ? 0 : by_structure(data, size, size_max, seed / BLIND_ONE_IN);
    if (changed == 0)
        return LLVMFuzzerMutate(data, size, size_max);
    restructured++;
    return changed;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned int seed)
{
    calls++;
    if (by_structure)
        return change(data, size, size_max, seed);
    size = LLVMFuzzerMutate(data, size, size_max);
    /* The seed's low bits are as good as any: libFuzzer draws it afresh for each call. */
    if (seed % RAW_ONE_IN == 0)
        return size;
    repair(data, size, seed / RAW_ONE_IN % KEEP_LENGTH_ONE_IN != 0);
    repaired++;
    return size;
}
