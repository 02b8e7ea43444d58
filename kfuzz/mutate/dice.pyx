"""The mutator's random numbers. Python's ``random`` may draw other numbers in another version; this never does."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t

from kfuzz.wire.splitmix cimport mix, nth


cdef class Dice:
    def __cinit__(self, seed, stream=0):
        cdef uint64_t low = seed & 0xffffffffffffffff
        cdef uint64_t which = stream & 0xffffffffffffffff
        self.state.key = mix(nth(low, 1) ^ (which * 0xd1342543de82ef95ULL + 1))
        self.state.counter = 0

    def below(self, uint64_t n):
        if n < 1 or n > 0x100000000:
            raise ValueError(f"n is {n}; it must be from 1 to 2^32")
        return roll_below(&self.state, n)

    def chance(self, double probability):
        return (roll(&self.state) >> 11) * (1.0 / 9007199254740992.0) < probability

    def pick(self, choices):
        return choices[roll_below(&self.state, <uint64_t> len(choices))]

    def octets(self, Py_ssize_t n):
        cdef Py_ssize_t i
        if n < 0:
            raise ValueError(f"n is {n}; it must not be negative")
        out = PyBytes_FromStringAndSize(NULL, n)
        cdef uint8_t *p = <uint8_t *> PyBytes_AS_STRING(out)
        for i in range(n):
            p[i] = <uint8_t> (roll(&self.state) >> 56)
        return out
