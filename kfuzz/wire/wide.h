/* Whether this processor has registers of 512 bits and what goes with them, and code for those that have.
 *
 * The gain has not been measured since the code was moved: the machines at hand have no such registers. `python -m
 * benchmarks --path columns` on one that has tells it; below a twentieth the wide kernels go. */
#ifndef KFUZZ_WIDE_H
#define KFUZZ_WIDE_H

#if defined(__x86_64__) && defined(__GNUC__)

#define KFUZZ_WIDE_THERE                                                                                               \
    (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&  \
     __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("bmi2"))
#define KFUZZ_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,lzcnt")))
#define KFUZZ_HAS_WIDE 1

#else

#define KFUZZ_WIDE_THERE 0
#define KFUZZ_HAS_WIDE 0

#endif
#endif
