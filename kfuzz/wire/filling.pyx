"""Bytes that are written where they stay: what a codec makes in pieces need not be put together afterwards."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t

cdef extern from "cut.h":
    void kfuzz_cut_bytes(object bytes, Py_ssize_t n)

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **string, Py_ssize_t size) except -1


cdef bytes cut_bytes(bytes made, int64_t used):
    cdef int64_t capacity = PyBytes_GET_SIZE(made)
    # Shrinking a large block sends the rest of its pages back, and the next one pays for clearing them; so a little is
    # left where it is, and of much a copy is made.
    if used < capacity / 4 * 3 or capacity < 64:
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(made), <Py_ssize_t> used)
    kfuzz_cut_bytes(made, <Py_ssize_t> used)
    return made


@cython.final
cdef class Filling:
    """The interface is described in filling.pyi."""

    # The only reference, as _PyBytes_Resize asks.
    cdef PyObject *made
    cdef int64_t capacity
    cdef int64_t used

    def __cinit__(self, int64_t capacity):
        made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> max(capacity, 64))
        Py_INCREF(made)
        self.made = <PyObject *> made
        self.capacity = PyBytes_GET_SIZE(made)

    def __dealloc__(self):
        Py_XDECREF(self.made)

    cdef char *at(self, int64_t place) except NULL:
        if self.made == NULL:
            raise ValueError("the filling is closed")
        return PyBytes_AS_STRING(<object> self.made) + place

    def put(self, write, block, int64_t most):
        cdef int64_t size
        self.at(0)
        if most > self.capacity - self.used:
            _PyBytes_Resize(&self.made, <Py_ssize_t> max(self.used + most, 2 * self.capacity))
            self.capacity = PyBytes_GET_SIZE(<object> self.made)
        space = PyMemoryView_FromMemory(self.at(self.used), <Py_ssize_t> max(most, 0), PyBUF_WRITE)
        try:
            size = write(block, space)
        finally:
            space.release()
        if size < 0 or size > most:
            raise ValueError(f"{size} bytes written where there was space for {most}")
        self.used += size
        return size

    def drop(self, int64_t size):
        if size < 0 or size > self.used:
            raise ValueError(f"the last {size} of {self.used} bytes")
        self.used -= size

    def tail(self, int64_t size):
        if size < 0 or size > self.used:
            raise ValueError(f"the last {size} of {self.used} bytes")
        return PyMemoryView_FromMemory(self.at(self.used - size), <Py_ssize_t> size, PyBUF_READ)

    def close(self):
        cdef bytes made
        self.at(0)
        made = <bytes> self.made
        Py_XDECREF(self.made)
        self.made = NULL
        return cut_bytes(made, self.used)
