/* KFUZZ_PORTABLE=1 in the environment turns off our own loops that need AVX-512 or PCLMUL, so that one machine can show
 * both speeds. A module asks once, when it is imported. What zlib and other libraries use is their affair. */
#ifndef KFUZZ_PORTABLE_H
#define KFUZZ_PORTABLE_H

#include <stdlib.h>
#include <string.h>

static inline int kfuzz_portable(void)
{
    const char *asked = getenv("KFUZZ_PORTABLE");
    return asked != NULL && strcmp(asked, "1") == 0;
}

#endif
