from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.message.plan cimport Program

# All take bytes that the checker has accepted.
cdef object make_message(Program program, const uint8_t *p, bint as_objects)
cdef object text_at(const uint8_t *p, int64_t n, const char *errors)
cdef object primitive_at(const uint8_t *p, int kind)
