/* Bytes objects that nobody has kept serve again: to make one and let it go costs more than to fill it. */
#ifndef KFUZZ_SPARE_H
#define KFUZZ_SPARE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "copy.h"

/* Room is made up to here: who keeps one of a few bytes should not keep a megabyte with it. */
#define KFUZZ_SPARE_MOST (7 * KFUZZ_COPY_SLACK - 1)

/* `bytes` is NULL or a reference of its own to an object with room for `room` bytes; `roomy` where that is one less than
 * a multiple of the slack, so that copies need not be exact. */
typedef struct {
    PyObject *bytes;
    int64_t room;
    int roomy;
} kfuzz_spare;

static PyObject *kfuzz_more_bytes(kfuzz_spare *spare, const uint8_t *p, int64_t n)
{
    PyObject *before = spare->bytes;
    /* Nobody kept the one before, so nobody may keep this one either. */
    const int roomy = before != NULL && Py_REFCNT(before) == 1 && n <= KFUZZ_SPARE_MOST;
    const int64_t room = roomy ? n | (KFUZZ_COPY_SLACK - 1) : n;
    PyObject *made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t) room);
    if (made == NULL)
        return NULL;
    memcpy(PyBytes_AS_STRING(made), p, (size_t) n);
    if (roomy) {
        Py_SET_SIZE(made, (Py_ssize_t) n);
        PyBytes_AS_STRING(made)[n] = 0;
    }
    spare->bytes = made;
    spare->room = room;
    spare->roomy = roomy;
    Py_XDECREF(before);
    Py_INCREF(made);
    return made;
}

/* A new reference to `n` bytes as those at p, of which `readable` may be read; NULL with an error set. */
static inline PyObject *kfuzz_spare_bytes(kfuzz_spare *spare, const uint8_t *p, int64_t n, int64_t readable)
{
#ifndef Py_GIL_DISABLED
    PyObject *bytes = spare->bytes;
    /* With one reference it is this one, and no hash, no view and no borrower can remember what was in it. */
    if (bytes != NULL && Py_REFCNT(bytes) == 1 && spare->roomy && n <= spare->room) {
        char *to = PyBytes_AS_STRING(bytes);
        kfuzz_copy((uint8_t *) to, p, n, readable);
        to[n] = 0;
        Py_SET_SIZE(bytes, (Py_ssize_t) n);
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
        ((PyBytesObject *) bytes)->ob_shash = -1;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
        Py_INCREF(bytes);
        return bytes;
    }
#endif
    return kfuzz_more_bytes(spare, p, n);
}

#endif
