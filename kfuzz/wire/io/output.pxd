from libc.stdint cimport int64_t

# The first `used` bytes of an object that no other code has seen: shortened in place, or a copy if much is unused.
cdef bytes cut_bytes(bytes made, int64_t used)
