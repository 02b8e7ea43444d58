/* Bytes objects that end earlier than they were made for. */
#ifndef KFUZZ_CUT_H
#define KFUZZ_CUT_H

#include <Python.h>

/* Of bytes that nobody else has seen; what is behind their new end stays theirs. */
static inline void kfuzz_cut_bytes(PyObject *bytes, Py_ssize_t n)
{
    Py_SET_SIZE(bytes, n);
    PyBytes_AS_STRING(bytes)[n] = 0;
}

#endif
