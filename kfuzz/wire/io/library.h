/* Functions of libraries that other Python packages have loaded. Compiling this needs none of their headers. */
#ifndef KFUZZ_LIBRARY_H
#define KFUZZ_LIBRARY_H

#include <dlfcn.h>
#include <stddef.h>

/* ISO C does not allow converting an object pointer to a function pointer; POSIX allows it for dlsym's result. */
static void kfuzz_find(void *library, const char *name, void *function)
{
    *(void **) function = library ? dlsym(library, name) : NULL;
}

#endif
