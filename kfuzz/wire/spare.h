/* Bytes objects that nobody has kept serve again: to make one and let it go costs more than to fill it.
 *
 * The gain, over the mixed set of benchmarks/ by CPython 3.11, of a loop over `iterate` that asks for keys and values: 120 ns
 * a record in place of 142 to 151. This goes when the gain is below a twentieth, or when CPython hides one of two fields.
 * Writing `ob_shash` resets the hash, and the reference count shows that nobody else has the object. Builds without the
 * interpreter's lock leave it out already. */
#ifndef KFUZZ_SPARE_H
#define KFUZZ_SPARE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "copy.h"
#include "cut.h"

/* Room is made up to here: who keeps one of a few bytes should not keep a megabyte with it. */
#define KFUZZ_SPARE_MOST (7 * KFUZZ_COPY_SLACK - 1)

/* `bytes` is NULL or a reference of its own to an object with room for `room` bytes; `roomy` where that is one less than
 * a multiple of the slack, so that copies need not be exact. */
typedef struct {
    PyObject *bytes;
    int64_t room;
    int roomy;
} kfuzz_spare;

static PyObject *kfuzz_more_bytes(kfuzz_spare *spare, int held, const uint8_t *p, int64_t n)
{
    PyObject *before = spare->bytes;
    /* Nobody kept the one before, so nobody may keep this one either. */
    const int roomy = before != NULL && Py_REFCNT(before) == 1 + held;
    const int64_t room = roomy ? n | (KFUZZ_COPY_SLACK - 1) : n;
    PyObject *made;
    if (n > KFUZZ_SPARE_MOST)
        return PyBytes_FromStringAndSize((const char *) p, (Py_ssize_t) n);
    made = PyBytes_FromStringAndSize(NULL, (Py_ssize_t) room);
    if (made == NULL)
        return NULL;
    memcpy(PyBytes_AS_STRING(made), p, (size_t) n);
    if (roomy)
        kfuzz_cut_bytes(made, (Py_ssize_t) n);
    spare->bytes = made;
    spare->room = room;
    spare->roomy = roomy;
    Py_XDECREF(before);
    Py_INCREF(made);
    return made;
}

/* A new reference to `n` bytes as those at p, of which `readable` may be read; NULL with an error set. `holder` is what
 * the record has now that the bytes are for: if it is the spare, that is one reference that is nobody else's. */
static inline PyObject *kfuzz_spare_bytes(kfuzz_spare *spare, const PyObject *holder, const uint8_t *p, int64_t n,
                                          int64_t readable)
{
    PyObject *bytes = spare->bytes;
    const int held = holder == bytes;
#ifndef Py_GIL_DISABLED
    /* Without further references no hash, no view and no borrower can remember what was in it. */
    if (bytes != NULL && Py_REFCNT(bytes) == 1 + held && spare->roomy && n <= spare->room) {
        kfuzz_copy((uint8_t *) PyBytes_AS_STRING(bytes), p, n, readable);
        kfuzz_cut_bytes(bytes, (Py_ssize_t) n);
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
    return kfuzz_more_bytes(spare, held, p, n);
}

#endif
