# C arrays that grow; free them with PyMem_RawFree. Writers use ``scratch`` for their output instead.
from cpython.mem cimport PyMem_RawRealloc
from libc.stdint cimport int64_t

# Make room for `count` items of `size` bytes. False if there is no memory; the array is then unchanged.
cdef inline bint resize(void **array, int64_t count, size_t size) noexcept nogil:
    cdef void *moved = PyMem_RawRealloc(array[0], <size_t> count * size)
    if moved == NULL:
        return False
    array[0] = moved
    return True
