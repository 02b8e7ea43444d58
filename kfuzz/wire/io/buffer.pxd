# Holds a buffer's bytes as long as a `HeldBuffer` object lives. Cython's typed memoryviews do the same, but they make a
# small call several times slower and add 20,000 lines of C to each module that uses one.
from libc.stdint cimport int64_t, uint8_t

cdef class HeldBuffer:
    cdef Py_buffer view
    cdef const uint8_t *p    # the first byte; never NULL
    cdef int64_t n           # the number of bytes

# The bytes of ``data``, of any item type. TypeError if it is not a buffer, BufferError if it is not contiguous.
cdef HeldBuffer hold(object data)
