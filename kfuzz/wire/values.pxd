from cpython.object cimport PyObject, PyTypeObject

cdef extern from "values.h":
    # A new value of a type that ``struct_type`` has made; its slots are empty, and must all be filled.
    PyObject *new_struct "kfuzz_new_struct"(PyTypeObject *type) except NULL
    # By the places of the type's names.
    PyObject **slots_of "kfuzz_slots_of"(PyObject *value) noexcept nogil


cdef class StructValue:
    pass


cdef class Keyed(list):
    cdef readonly tuple keys
    cdef dict index


cdef str UNKNOWN

cdef type struct_type(str name, tuple names)
cdef type array_type(tuple keys)
cdef Keyed keyed(list elements, tuple keys)
