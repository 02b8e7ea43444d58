"""Holds the bytes of a buffer for the compiled modules; see buffer.pxd."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


@cython.final
@cython.freelist(8)
cdef class HeldBuffer:
    def __dealloc__(self):
        PyBuffer_Release(&self.view)


cdef HeldBuffer hold(object data):
    cdef HeldBuffer held = HeldBuffer.__new__(HeldBuffer)
    PyObject_GetBuffer(data, &held.view, PyBUF_SIMPLE)
    held.n = held.view.len
    held.p = <const uint8_t *> held.view.buf if held.n else <const uint8_t *> b""
    return held
