"""Output memory that is kept from one writer to the next.

The length of a batch or a message is not known in advance. Growing a new block for each one returns pages to the system
and requests them again, which costs more than writing the bytes.
"""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from cpython.mem cimport PyMem_RawFree
from libc.stdint cimport int64_t

from kfuzz.wire.io.arrays cimport resize


cdef enum:
    # Kafka's default limit for a batch. Larger memory is freed instead of kept.
    KEPT_BYTES = 1 << 20

# Memory that no writer uses now; its `p` has no meaning. Taking the memory clears this slot.
cdef out_t kept = out_t(NULL, NULL, NULL)


cdef bint enlarge(out_t *out, int64_t size) noexcept nogil:
    cdef int64_t used = out.p - out.start
    cdef int64_t capacity = 2 * used + size + 256
    if not resize(<void **> &out.start, capacity, 1):
        return False
    out.p = out.start + used
    out.end = out.start + capacity
    return True


cdef int grow(out_t *out, int64_t size) except -1 nogil:
    if not enlarge(out, size):
        with gil:
            raise MemoryError
    return 0


@cython.final
@cython.freelist(4)
cdef class Scratch:
    """The interface is described in scratch.pyi."""

    def __cinit__(self):
        global kept
        self.out = kept
        self.out.p = self.out.start
        kept = out_t(NULL, NULL, NULL)

    def __dealloc__(self):
        global kept
        if kept.start == NULL and self.out.end - self.out.start <= KEPT_BYTES:
            kept = self.out
        else:
            PyMem_RawFree(self.out.start)

    def __len__(self):
        return self.out.p - self.out.start

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.out.start, self.out.p - self.out.start, True, flags)
