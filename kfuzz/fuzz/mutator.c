/*
 * libFuzzer's mutation hook: it mutates like libFuzzer, then repairs most inputs so that they reach the parser.
 *
 * A decoder checks a batch's length and CRC before it reads a record. A blind mutation nearly always breaks the CRC. So
 * after the mutation the hook walks the frames, sets the last frame's length to the bytes left, and computes each CRC
 * again. Some inputs stay unrepaired, because these checks must be fuzzed too.
 *
 * A target for other inputs than record batches supplies a function that changes inputs by their structure.
 *
 * This is a separate library without Python symbols, preloaded beside the fuzzing runtime. We cannot pass the hook to
 * atheris.Setup: atheris ignores such hooks when the runtime is preloaded.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max);

enum {
    OVERHEAD = 12,           /* base offset, length */
    MAGIC_AT = 16,
    MESSAGE_CRC_AT = 12,     /* magic 0 and 1: CRC-32 of all bytes after it */
    BATCH_CRC_AT = 17,       /* magic 2: CRC-32C of all bytes after it */
    SMALLEST_MESSAGE = 14,
    SMALLEST_BATCH = 49,
    RAW_ONE_IN = 8,          /* inputs that are not repaired */
    KEEP_LENGTH_ONE_IN = 16, /* repaired inputs that keep their last length */
    BLIND_ONE_IN = 2,        /* inputs that libFuzzer changes although by_structure is set */
};

/* Changes `data` in place and returns the new size, or 0 if it cannot use the input. */
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

/* The campaign reads this line. Otherwise nobody would notice if the hook were never called. */
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

/* Give every frame in data its right CRC. With mend_length, set the last frame's length to the bytes left. */
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
    /* The seed's low bits are random enough: libFuzzer draws a new seed for each call. */
    if (seed % RAW_ONE_IN == 0)
        return size;
    repair(data, size, seed / RAW_ONE_IN % KEEP_LENGTH_ONE_IN != 0);
    repaired++;
    return size;
}
