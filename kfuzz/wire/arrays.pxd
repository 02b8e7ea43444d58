# Arrays in C that grow; PyMem_RawFree frees them. For memory that a writer fills, there is ``scratch``.
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int64_t

# Room for `count` items of `size` bytes; False where there is no memory, and the array stays as it is.
cdef inline bint resize(void **array, int64_t count, size_t size) noexcept nogil:
    cdef void *moved = PyMem_RawRealloc(array[0], <size_t> count * size)
    if moved == NULL:
        return False
    array[0] = moved
    return True
