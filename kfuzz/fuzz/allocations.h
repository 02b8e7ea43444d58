/* Refuses large allocations through Python's allocators, and remembers that it did. The compiled modules take all their
 * memory there. Without this, memory that is asked for but never touched would not be seen. */
#ifndef KFUZZ_ALLOCATIONS_H
#define KFUZZ_ALLOCATIONS_H

#include <Python.h>

static PyMemAllocatorEx kfuzz_allocators[3];
static size_t kfuzz_allocation_max;
/* The largest size that was refused since the last question. */
static size_t kfuzz_refused_size;

static int kfuzz_is_refused(size_t size)
{
    if (size <= kfuzz_allocation_max)
        return 0;
    if (size > kfuzz_refused_size)
        kfuzz_refused_size = size;
    return 1;
}

static void *kfuzz_guarded_malloc(void *context, size_t size)
{
    const PyMemAllocatorEx *inner = (const PyMemAllocatorEx *) context;
    return kfuzz_is_refused(size) ? NULL : inner->malloc(inner->ctx, size);
}

static void *kfuzz_guarded_calloc(void *context, size_t count, size_t size)
{
    const PyMemAllocatorEx *inner = (const PyMemAllocatorEx *) context;
    const size_t total = size && count > (size_t) -1 / size ? (size_t) -1 : count * size;
    return kfuzz_is_refused(total) ? NULL : inner->calloc(inner->ctx, count, size);
}

static void *kfuzz_guarded_realloc(void *context, void *block, size_t size)
{
    const PyMemAllocatorEx *inner = (const PyMemAllocatorEx *) context;
    return kfuzz_is_refused(size) ? NULL : inner->realloc(inner->ctx, block, size);
}

static void kfuzz_guarded_free(void *context, void *block)
{
    const PyMemAllocatorEx *inner = (const PyMemAllocatorEx *) context;
    inner->free(inner->ctx, block);
}

/* Refuse more than ``size`` bytes at once from now on. Call it again to change the size. */
static void kfuzz_refuse_above(size_t size)
{
    static const PyMemAllocatorDomain domains[3] = {PYMEM_DOMAIN_RAW, PYMEM_DOMAIN_MEM, PYMEM_DOMAIN_OBJ};
    const int is_set = kfuzz_allocation_max != 0;
    int i;
    kfuzz_allocation_max = size;
    for (i = 0; i < 3 && !is_set; i++) {
        PyMemAllocatorEx guarded = {&kfuzz_allocators[i], kfuzz_guarded_malloc, kfuzz_guarded_calloc,
                                    kfuzz_guarded_realloc, kfuzz_guarded_free};
        PyMem_GetAllocator(domains[i], &kfuzz_allocators[i]);
        PyMem_SetAllocator(domains[i], &guarded);
    }
}

/* The largest size refused since the last call; 0 if there was none. */
static size_t kfuzz_refused(void)
{
    const size_t size = kfuzz_refused_size;
    kfuzz_refused_size = 0;
    return size;
}

#endif
