/* Finds whether this processor has 512-bit registers and the instructions that the wide kernels need.
 *
 * The gain has not been measured since the code was moved, because the machines at hand have no such registers. To
 * measure it, run `python -m benchmarks --path columns` on one that has them. Remove the wide kernels if the gain is
 * below a twentieth. */
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
