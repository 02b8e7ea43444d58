from kfuzz.wire.messages.plan cimport Program

# Makes the objects that the reader copies. It may be called again.
cdef int make_models(Program program) except -1
