from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.scratch cimport Scratch

cdef struct step_t
cdef struct choice_t

# The record that a value belongs to; the key is that of ``put_key``, or a number.
cdef struct owner_t:
    int64_t offset, timestamp
    uint64_t key
    int32_t key_size
    bint key_is_number

cdef class ValueWriter:
    cdef step_t *steps
    cdef choice_t *choices
    cdef int step_count
    # Values one after the other, with room for so many as were asked for.
    cdef Scratch made
    cdef bytes texts
    cdef const uint8_t *text_bytes
    # Forget the values.
    cdef void clear(self) noexcept nogil
    # Add the value of one record: its size, and where it begins in ``made``.
    cdef int32_t add(self, uint64_t seed, const owner_t *owner, int64_t *at) noexcept nogil
    cdef uint8_t *run(self, uint8_t *p, int at, int end, uint64_t seed, const owner_t *owner,
                      int64_t item) noexcept nogil
