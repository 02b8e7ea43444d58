/* Shortens bytes objects in place. */
#ifndef KFUZZ_CUT_H
#define KFUZZ_CUT_H

#include <Python.h>

/* Only for an object that no other code has seen. It keeps the memory after its new end. */
static inline void kfuzz_cut_bytes(PyObject *bytes, Py_ssize_t n)
{
    Py_SET_SIZE(bytes, n);
    PyBytes_AS_STRING(bytes)[n] = 0;
}

#endif
