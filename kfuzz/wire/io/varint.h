/* Writes varints. Those of records are zigzag numbers. One writer is enough for varints and varlongs, because equal
 * values have the same bytes in both. */
#ifndef KFUZZ_VARINT_H
#define KFUZZ_VARINT_H

#include <stdint.h>

static inline uint64_t kfuzz_zigzag(int64_t value)
{
    return ((uint64_t) value << 1) ^ (uint64_t) (value >> 63);
}

/* The number of significant bits divided by 7, rounded up. Multiplying by 9/64 instead is exact for all 64 widths. */
static inline int kfuzz_varlong_size(int64_t value)
{
    return (int) (((63 - __builtin_clzll(kfuzz_zigzag(value) | 1)) * 9 + 73) >> 6);
}

/* An unsigned varint: seven bits a byte, the lowest first, in the fewest possible bytes. */
static inline uint8_t *kfuzz_put_uvarint(uint8_t *p, uint64_t value)
{
    while (value >= 0x80) {
        *p++ = (uint8_t) (value | 0x80);
        value >>= 7;
    }
    *p++ = (uint8_t) value;
    return p;
}

static inline uint8_t *kfuzz_put_varlong(uint8_t *p, int64_t value)
{
    return kfuzz_put_uvarint(p, kfuzz_zigzag(value));
}

/* The same without a branch on whether it takes one byte or two. It may write one byte beyond the varint. */
static inline uint8_t *kfuzz_put_mixed_varlong(uint8_t *p, int64_t value)
{
    const uint64_t raw = kfuzz_zigzag(value), two = raw >= 0x80;
    if (raw >= 0x4000)
        return kfuzz_put_varlong(p, value);
    p[0] = (uint8_t) (raw | two << 7);
    p[1] = (uint8_t) (raw >> 7);
    return p + 1 + two;
}

#endif
