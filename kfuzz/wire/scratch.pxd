from libc.stdint cimport int64_t, uint8_t

# What is being written, from start to p, and the room for it, to end.
cdef struct out_t:
    uint8_t *start
    uint8_t *p
    uint8_t *end

cdef int grow(out_t *out, int64_t size) except -1

# Room for ``size`` more bytes at ``out.p``; the caller knows that they may be that many.
cdef inline int reserve(out_t *out, int64_t size) except -1:
    if size <= out.end - out.p:
        return 0
    return grow(out, size)

cdef class Scratch:
    cdef out_t out
