from libc.stdint cimport int64_t

# The first `used` bytes of a bytes object that nobody else has seen: itself, cut, or a copy if much would be lost.
cdef bytes cut_bytes(bytes made, int64_t used)
