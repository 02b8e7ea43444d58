from cpython.object cimport PyObject

cdef extern from "values.h":
    # The C types of a struct's members.
    enum:
        T_OBJECT_EX
        T_BOOL
        T_BYTE
        T_SHORT
        T_USHORT
        T_INT
        T_UINT
        T_LONGLONG
        T_DOUBLE
    # A copy of ``model``, whose first ``objects`` fields are Python objects.
    PyObject *copy_struct "kfuzz_copy_struct"(PyObject *model, int objects) except NULL


cdef class StructValue:
    pass


cdef class Keyed(list):
    cdef readonly tuple keys
    cdef dict index


cdef str UNKNOWN

cdef tuple struct_type(str name, tuple names, list members)
cdef type array_type(tuple keys)
cdef Keyed keyed(tuple keys)
