/* Powers of x modulo a CRC's polynomial, which the folding kernels multiply by. */
#ifndef KFUZZ_CRC_POWER_H
#define KFUZZ_CRC_POWER_H

#include <stdint.h>

/* x^power mod P; bits as in a CRC's register, the highest power last. The shift is what reflected products lack. */
static inline uint64_t kfuzz_crc_power(uint32_t polynomial, int power)
{
    uint32_t value = 0x80000000;
    while (power--)
        value = value >> 1 ^ (value & 1 ? polynomial : 0);
    return (uint64_t) value << 1;
}

/* The factors for the two halves of 128 bits, over a distance of so many bits. */
static inline void kfuzz_crc_factors(uint32_t polynomial, uint64_t factors[2], int bits)
{
    factors[0] = kfuzz_crc_power(polynomial, bits + 32);
    factors[1] = kfuzz_crc_power(polynomial, bits - 32);
}

#endif
