/* Finds which inputs reach something that no input before them reached, as libFuzzer does: by how often each counter of
 * the compiled modules was incremented, in steps (1, 2, 3, 4, 8, 16, 32, 128). libFuzzer sets the counters to zero before
 * each input, and decides only after the target has returned. */
#ifndef KFUZZ_COVERAGE_H
#define KFUZZ_COVERAGE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Most counters are zero, so they are looked at in blocks. */
enum { KFUZZ_COUNTERS_AT_ONCE = 64 };

/* The counters of a module, and a bit for each step that each of them has reached. */
typedef struct {
    const uint8_t *counters;
    int64_t n;
    uint8_t *seen;
} kfuzz_region;

static uint8_t kfuzz_step_of(uint8_t count)
{
    static const uint8_t steps[] = {0, 1, 2, 4, 8, 8, 8, 8, 16, 16, 16, 16, 16, 16, 16, 16};
    return count < 16 ? steps[count] : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* Whether the counters show a step for the first time; note all steps. */
static int kfuzz_is_new(const kfuzz_region *regions, int64_t count)
{
    int is_new = 0;
    int64_t r, i, k;
    for (r = 0; r < count; r++) {
        const kfuzz_region *region = &regions[r];
        for (i = 0; i < region->n; i += KFUZZ_COUNTERS_AT_ONCE) {
            const int64_t end = i + KFUZZ_COUNTERS_AT_ONCE < region->n ? i + KFUZZ_COUNTERS_AT_ONCE : region->n;
            uint64_t words[KFUZZ_COUNTERS_AT_ONCE / 8] = {0}, any = 0;
            memcpy(words, region->counters + i, (size_t) (end - i));
            for (k = 0; k < KFUZZ_COUNTERS_AT_ONCE / 8; k++)
                any |= words[k];
            if (!any)
                continue;
            for (k = i; k < end; k++) {
                const uint8_t step = kfuzz_step_of(region->counters[k]);
                is_new |= step & ~region->seen[k];
                region->seen[k] |= step;
            }
        }
    }
    return is_new != 0;
}

/* How many inputs met the first tier, and how many the second one too. */
typedef struct {
    int64_t inputs;
    int64_t twice;
} kfuzz_tally;

static const kfuzz_tally *kfuzz_told;

static void kfuzz_tell(void)
{
    fprintf(stderr, "tiers: %lld inputs, %lld in both\n", (long long) kfuzz_told->inputs, (long long) kfuzz_told->twice);
}

/* libFuzzer ends the process by exit(), and Python does not notice. */
static int kfuzz_tell_at_exit(const kfuzz_tally *tally)
{
    kfuzz_told = tally;
    return atexit(kfuzz_tell);
}

#endif
