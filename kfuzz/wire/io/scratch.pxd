from libc.stdint cimport int64_t, uint8_t

# Output that is being written: bytes from `start` to `p`, room up to `end`.
cdef struct out_t:
    uint8_t *start
    uint8_t *p
    uint8_t *end

# Enlarge the memory, so that ``size`` more bytes fit. False if there is no memory.
cdef bint enlarge(out_t *out, int64_t size) noexcept nogil
cdef int grow(out_t *out, int64_t size) except -1 nogil

# Make room for ``size`` more bytes at ``out.p``. The caller has checked that ``size`` is within its limits.
cdef inline int reserve(out_t *out, int64_t size) except -1 nogil:
    if size <= out.end - out.p:
        return 0
    return grow(out, size)

cdef class Scratch:
    cdef out_t out
