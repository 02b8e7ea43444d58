from kfuzz.wire.message.plan cimport Program

# Make what the reader of objects copies; it may be called again.
cdef int make_models(Program program) except -1
