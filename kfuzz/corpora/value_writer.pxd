from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef struct step_t
cdef struct choice_t
cdef struct target_t

# A change of a row: the ``round``-th of the row with the number ``rank``, whose random numbers are those of ``rows``.
cdef struct change_t:
    uint64_t rows
    int64_t rank, round
    int kind, partition

# The record that a value belongs to; the key is that of ``put_key``. ``change`` is NULL if it is no change of a row.
cdef struct owner_t:
    int64_t offset, timestamp
    uint64_t key
    int32_t key_size
    int key_form
    const change_t *change

cdef class ValueWriter:
    cdef step_t *steps
    cdef choice_t *choices
    cdef target_t *targets
    cdef int step_count
    cdef object program
    cdef bytes texts
    cdef const uint8_t *text_bytes
    # Write the value of one record and return its end. May overwrite up to seven bytes after it.
    cdef uint8_t *write(self, uint8_t *p, uint64_t seed, const owner_t *owner) noexcept nogil
    cdef uint8_t *run_row(self, uint8_t *p, const step_t *s, const owner_t *owner) noexcept nogil
    cdef uint8_t *run(self, uint8_t *p, int at, int end, uint64_t seed, const owner_t *owner,
                      int64_t item) noexcept nogil
