"""The mutator's random numbers. Python's ``random`` may draw other numbers in another version; this never does."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t


cdef class Dice:
    def __cinit__(self, seed, stream=0):
        self.state = dice_of(seed & 0xffffffffffffffff, stream & 0xffffffffffffffff)

    def below(self, int64_t n):
        if n < 1 or n > 0x100000000:
            raise ValueError(f"n is {n}; it must be from 1 to 2^32")
        return roll_below(&self.state, n)

    def chance(self, double probability):
        return roll_chance(&self.state, probability)

    def pick(self, choices):
        return choices[roll_below(&self.state, len(choices))]

    def octets(self, Py_ssize_t n):
        cdef Py_ssize_t i
        if n < 0:
            raise ValueError(f"n is {n}; it must not be negative")
        out = PyBytes_FromStringAndSize(NULL, n)
        cdef uint8_t *p = <uint8_t *> PyBytes_AS_STRING(out)
        for i in range(n):
            p[i] = <uint8_t> (roll(&self.state) >> 56)
        return out
