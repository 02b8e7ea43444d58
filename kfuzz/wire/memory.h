/* Where C code takes its memory. In Python's modules the memory is Python's, so that its tools see it. The mutator's
 * library has no Python. */
#ifndef KFUZZ_MEMORY_H
#define KFUZZ_MEMORY_H

#ifdef Py_PYTHON_H
#define KFUZZ_REALLOC PyMem_RawRealloc
#define KFUZZ_FREE PyMem_RawFree
#else
#include <stdlib.h>
#define KFUZZ_REALLOC realloc
#define KFUZZ_FREE free
#endif

#endif
