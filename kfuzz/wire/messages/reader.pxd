from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.messages.plan cimport Plan, Program

# All of these take bytes that the checker has accepted.
cdef object make_message(Program program, const uint8_t *p, bint as_objects)
cdef PyObject *text_of(const uint8_t *p, int64_t n, const char *errors) except NULL
cdef PyObject *primitive_of(const uint8_t *p, int kind) except NULL

# Adds the fields that the version lacks to a message that was read into dicts.
cdef int add_absent(Plan plan, dict made) except -1
