"""The watch over one mapping of a file; guard.h has the signal's handler, guard.pyi describes the interface."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef extern from "guard.h" nogil:
    ctypedef struct watched_t:
        int is_cut
    watched_t *watch(const void *start, size_t size, bint is_writable)
    void pause_watch(watched_t *one)
    void resume_watch(watched_t *one)
    void end_watch(watched_t *one)


@cython.final
cdef class Guard:
    cdef watched_t *watched

    def __cinit__(self, data not None, *, bint is_writable=False):
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self.watched = watch(view.buf, <size_t> view.len, is_writable)
        PyBuffer_Release(&view)
        if self.watched == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.watched != NULL:
            end_watch(self.watched)

    @property
    def is_cut(self):
        return self.watched.is_cut != 0

    def pause(self):
        pause_watch(self.watched)

    def resume(self):
        resume_watch(self.watched)
