/* Functions that must be part of each caller, so that the compiler can specialize them for constant arguments. */
#ifndef KFUZZ_INLINE_H
#define KFUZZ_INLINE_H

#define KFUZZ_INLINE static inline __attribute__((always_inline))

#endif
