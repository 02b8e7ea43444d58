/* Powers of x modulo a CRC's polynomial; the folding kernels multiply by them. */
#ifndef KFUZZ_CRC_POWER_H
#define KFUZZ_CRC_POWER_H

#include <stdint.h>

/* CRC-32C's. Bits as in a CRC's register, the highest power last; x^32 has no room in it. */
#define KFUZZ_CRC_POLYNOMIAL 0x82f63b78u

/* x^power mod P, in the bit order of the CRC register: the lowest bit is the highest power. The shift by one makes up
 * for the carry-less product, which in this bit order comes out one bit too low. */
static inline uint64_t kfuzz_crc_power(uint32_t polynomial, int power)
{
    uint32_t value = 0x80000000;
    while (power--)
        value = value >> 1 ^ (value & 1 ? polynomial : 0);
    return (uint64_t) value << 1;
}

/* The factors for the two halves of 128 bits, over a distance of `bits` bits. */
static inline void kfuzz_crc_factors(uint32_t polynomial, uint64_t factors[2], int bits)
{
    factors[0] = kfuzz_crc_power(polynomial, bits + 32);
    factors[1] = kfuzz_crc_power(polynomial, bits - 32);
}

#endif
