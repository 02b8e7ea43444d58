/* KFUZZ_PORTABLE=1 in the environment turns off kfuzz's own loops that need AVX-512, PCLMUL or VPCLMULQDQ, so that one
 * machine can show both speeds. A module reads it once, at import. It has no effect on zlib and other libraries. */
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
