"""Collects a codec's output. Blocks are written directly into the final memory, so they need no joining."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from libc.stdint cimport int64_t

cdef extern from *:
    """
    /* The object keeps the memory after its new end. */
    static void kfuzz_cut_bytes(PyObject *bytes, Py_ssize_t n)
    {
        Py_SET_SIZE(bytes, n);
        PyBytes_AS_STRING(bytes)[n] = 0;
    }
    """
    void kfuzz_cut_bytes(object bytes, Py_ssize_t n)

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **string, Py_ssize_t size) except -1


cdef bytes cut_bytes(bytes made, int64_t used):
    cdef int64_t capacity = PyBytes_GET_SIZE(made)
    # _PyBytes_Resize would return the unused pages of a large block to the system, and the next allocation would pay
    # for cleared pages: `encode-columns` of benchmarks/ takes three times as long. So keep the block if at least half
    # of it is used, and copy the bytes out of it otherwise.
    if used < capacity / 2 or capacity < 64:
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(made), <Py_ssize_t> used)
    kfuzz_cut_bytes(made, <Py_ssize_t> used)
    return made


class Full(Exception):
    """The output has reached its size limit."""


# The first estimate: the remaining input grows by at most this factor.
cdef enum:
    USUAL_RATIO = 8


@cython.final
cdef class Output:
    """The interface is described in output.pyi."""

    cdef readonly int64_t room
    cdef public str mismatch
    cdef list pieces
    # The memory of the blocks, or NULL. This is the only reference, because _PyBytes_Resize requires that.
    cdef PyObject *made
    cdef int64_t capacity
    cdef int64_t used

    def __cinit__(self, int64_t room):
        self.room = room
        self.mismatch = ""

    def __dealloc__(self):
        Py_XDECREF(self.made)

    def add(self, bytes piece not None):
        cdef int64_t size = PyBytes_GET_SIZE(piece)
        if self.pieces is None:
            self.pieces = []
        self.pieces.append(piece if size <= self.room else piece[:self.room])
        self.room -= size
        if self.room < 0:
            raise Full

    def fill(self, write, block, int64_t most, int64_t rest):
        cdef int64_t size
        cdef int64_t given = len(block)
        if most < 0 or rest < 0:
            raise ValueError(f"most is {most} and rest is {rest}; neither may be negative")
        if self.made == NULL:
            self.open(min(most + min(most * ((rest + given - 1) // max(given, 1)), USUAL_RATIO * rest), self.room))
        if most > self.capacity - self.used:
            _PyBytes_Resize(&self.made, <Py_ssize_t> max(self.used + most, 2 * self.capacity))
            self.capacity = PyBytes_GET_SIZE(<object> self.made)
        space = PyMemoryView_FromMemory(PyBytes_AS_STRING(<object> self.made) + self.used, <Py_ssize_t> most,
                                        PyBUF_WRITE)
        try:
            size = write(block, space)
        finally:
            space.release()
        if size < 0 or size > most:
            raise ValueError(f"write returned {size}; the space has {most} bytes")
        self.room -= size
        if self.room < 0:
            self.used += size + self.room
            raise Full
        self.used += size
        return size

    cdef int open(self, int64_t capacity) except -1:
        made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> max(capacity, 64))
        Py_INCREF(made)
        self.made = <PyObject *> made
        self.capacity = PyBytes_GET_SIZE(made)
        return 0

    def tail(self, int64_t size):
        if size < 0 or size > self.used:
            raise ValueError(f"size is {size}; the blocks have {self.used} bytes")
        return PyMemoryView_FromMemory(PyBytes_AS_STRING(<object> self.made) + self.used - size, <Py_ssize_t> size,
                                       PyBUF_READ)

    def close(self):
        cdef bytes made
        cdef int64_t used
        if self.made == NULL:
            pieces = self.pieces
            self.pieces = None
            return b"" if pieces is None else b"".join(pieces)
        made = <bytes> self.made
        Py_XDECREF(self.made)
        self.made = NULL
        used, self.used = self.used, 0
        return cut_bytes(made, used)
