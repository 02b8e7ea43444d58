from libc.stdint cimport int64_t

from kfuzz.wire.io.scratch cimport out_t
from kfuzz.wire.messages.plan cimport Program, op_t

# The path to the value that is being written. Each function keeps its step of the path in a local variable.
cdef struct way_t:
    const way_t *above
    const op_t *op
    int64_t element            # -1: the field itself
    int depth                  # the number of structs from the message down to this one

cdef int put_message(Program program, out_t *out, object message) except -1
cdef int put_field(Program program, out_t *out, const op_t *op, object given, way_t *way) except -1
