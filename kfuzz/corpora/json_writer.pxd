from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef struct step_t
cdef struct choice_t

cdef class JsonWriter:
    cdef step_t *steps
    cdef choice_t *choices
    cdef int step_count
    cdef bytes texts
    cdef const uint8_t *text_bytes
    # Write the JSON value of one record and return its end. May overwrite up to seven bytes after it.
    cdef uint8_t *write(self, uint8_t *p, uint64_t seed, int64_t offset, int64_t timestamp, uint64_t key,
                        int32_t key_size, int key_form) noexcept nogil
