from libc.stdint cimport uint8_t

from kfuzz.wire.message.plan cimport Program

cdef list places_of(Program program, const uint8_t *start, const uint8_t *stop)
