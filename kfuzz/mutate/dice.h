/* The mutator's random numbers. They depend only on the seed, the stream and how many were drawn before. */
#ifndef KFUZZ_DICE_H
#define KFUZZ_DICE_H

#include <stdint.h>

#include "splitmix.h"

typedef struct {
    uint64_t key;
    uint64_t counter;
} kfuzz_dice;

static inline kfuzz_dice kfuzz_dice_of(uint64_t seed, uint64_t stream)
{
    const kfuzz_dice dice = {kfuzz_mix(kfuzz_nth(seed, 1) ^ (stream * 0xd1342543de82ef95ull + 1)), 0};
    return dice;
}

static inline uint64_t kfuzz_roll(kfuzz_dice *dice)
{
    return kfuzz_nth(dice->key, ++dice->counter);
}

/* In [0, n), for n from 1 to 2^32. The small bias of scaling by multiplication does not matter here. */
static inline int64_t kfuzz_below(kfuzz_dice *dice, int64_t n)
{
    return (int64_t) (((kfuzz_roll(dice) >> 32) * (uint64_t) n) >> 32);
}

/* 1 with this probability, from 0 to 1. */
static inline int kfuzz_chance(kfuzz_dice *dice, double probability)
{
    return (double) (kfuzz_roll(dice) >> 11) * (1.0 / 9007199254740992.0) < probability;
}

#endif
