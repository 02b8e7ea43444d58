# The bytes of a buffer, held for as long as an object lives. Cython's typed memoryviews would do the same at several
# times the cost of a small call, and with 20,000 lines of C in each module that has one.
from libc.stdint cimport int64_t, uint8_t

cdef class Held:
    cdef Py_buffer view
    cdef const uint8_t *p    # where they begin; never NULL
    cdef int64_t n           # how many they are

# The bytes of ``data``, whatever its items are. TypeError for what has none, BufferError for what has gaps.
cdef Held hold(object data)
