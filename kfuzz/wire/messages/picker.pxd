from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.messages.plan cimport Program

cdef tuple picked_of(Program program, const uint8_t *start, const uint8_t *stop)
