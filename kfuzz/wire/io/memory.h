/* Where C code takes its memory. In Python's modules the memory is Python's, so that its tools see it. The mutator's
 * library has no Python. */
#ifndef KFUZZ_MEMORY_H
#define KFUZZ_MEMORY_H

#include <stddef.h>

#ifdef Py_PYTHON_H
#define KFUZZ_REALLOC PyMem_RawRealloc
#define KFUZZ_FREE PyMem_RawFree
#else
#include <stdlib.h>
#define KFUZZ_REALLOC realloc
#define KFUZZ_FREE free
#endif

/* Whether there was no memory since this was last set to 0. The mutator continues without it; its Python face raises. */
static int kfuzz_memory_failed;

static void *kfuzz_moved(void *memory, size_t n)
{
    void *moved = KFUZZ_REALLOC(memory, n);
    kfuzz_memory_failed |= moved == NULL;
    return moved;
}

#endif
