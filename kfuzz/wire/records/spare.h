/* Reuses bytes objects to which no other code has a reference: creating and freeing one costs more than refilling it.
 *
 * The gain, measured with CPython 3.11 on the mixed set of benchmarks/, for a loop over `iterate` that reads keys and
 * values: 120 ns a record instead of 142 to 151. Remove this when the gain is below a twentieth, or when CPython hides
 * one of the two fields that it needs: `ob_shash`, to reset the hash, and the reference count, which shows that no
 * other code has the object. Builds without the GIL already leave it out. */
#ifndef KFUZZ_SPARE_H
#define KFUZZ_SPARE_H

#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "copy.h"
#include "cut.h"

/* Only objects up to this size are reused: a program that keeps a short one should not keep a large block with it. */
#define KFUZZ_SPARE_MOST (7 * KFUZZ_COPY_SLACK - 1)

/* `bytes` is NULL or an owned reference to an object with room for `room` bytes. `roomy`: `room` is one less than a
 * multiple of the slack, so that a copy may write beyond its end. */
typedef struct {
    PyObject *bytes;
    int64_t room;
    int roomy;
} kfuzz_spare;

/* To be called after the contents of bytes have changed. */
static inline void kfuzz_forget_hash(PyObject *bytes)
{
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif
    ((PyBytesObject *) bytes)->ob_shash = -1;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif
}

static PyObject *kfuzz_more_bytes(kfuzz_spare *spare, int held, const uint8_t *p, int64_t n)
{
    PyObject *before = spare->bytes;
    /* If no other code kept the previous object, none will probably keep this one: give it room for reuse. */
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

/* A new reference to an object with the `n` bytes at p, where `readable` bytes may be read; NULL with an error set.
 * `holder` is the object that the record has in this field now. If it is the spare, one of its references is the
 * record's. */
static inline PyObject *kfuzz_spare_bytes(kfuzz_spare *spare, const PyObject *holder, const uint8_t *p, int64_t n,
                                          int64_t readable)
{
    PyObject *bytes = spare->bytes;
    const int held = holder == bytes;
#ifndef Py_GIL_DISABLED
    /* With no other reference, no other code can have seen the hash or hold a view or a borrowed pointer. */
    if (bytes != NULL && Py_REFCNT(bytes) == 1 + held && spare->roomy && n <= spare->room) {
        kfuzz_copy((uint8_t *) PyBytes_AS_STRING(bytes), p, n, readable);
        kfuzz_cut_bytes(bytes, (Py_ssize_t) n);
        kfuzz_forget_hash(bytes);
        Py_INCREF(bytes);
        return bytes;
    }
#endif
    return kfuzz_more_bytes(spare, held, p, n);
}

/* Headers are kept by their number, up to this one. */
#define KFUZZ_SPARE_HEADERS 4
/* Keys and values of kept headers have room for this many bytes, or exactly as many as they had when they were made. */
#define KFUZZ_HEADER_ROOM (KFUZZ_COPY_SLACK - 1)

/* `tuples[n - 1]` is NULL or an owned reference to a tuple of n pairs. If its bit in `roomy` is set, its keys and
 * values have room as above. */
typedef struct {
    PyObject *tuples[KFUZZ_SPARE_HEADERS];
    unsigned roomy;
} kfuzz_spare_headers;

/* Whether no other code has a reference to the kept tuple of `count` pairs, or to one of the pairs. `holder` as in
 * kfuzz_spare_bytes. */
static inline int kfuzz_headers_are_spare(const kfuzz_spare_headers *spare, const PyObject *holder, int32_t count)
{
#ifndef Py_GIL_DISABLED
    PyObject *tuple = spare->tuples[count - 1];
    int32_t i;
    if (tuple == NULL || Py_REFCNT(tuple) != 1 + (holder == tuple))
        return 0;
    for (i = 0; i < count; i++)
        if (Py_REFCNT(PyTuple_GET_ITEM(tuple, i)) != 1)
            return 0;
    return 1;
#else
    return 0;
#endif
}

/* A new reference to bytes with the room of a kept header's key or value; NULL with an error set. */
static PyObject *kfuzz_roomy_bytes(const uint8_t *p, int64_t n)
{
    PyObject *made;
    if (n > KFUZZ_HEADER_ROOM)
        return PyBytes_FromStringAndSize((const char *) p, (Py_ssize_t) n);
    made = PyBytes_FromStringAndSize(NULL, KFUZZ_HEADER_ROOM);
    if (made == NULL)
        return NULL; /* unreachable: only if memory runs out */
    memcpy(PyBytes_AS_STRING(made), p, (size_t) n);
    kfuzz_cut_bytes(made, (Py_ssize_t) n);
    return made;
}

/* Set item `i` of a pair to the `n` bytes at p, or to None if n is negative; -1 with an error set. `readable` as in
 * kfuzz_spare_bytes. In a roomy pair the item so far is NULL, None or has its room, and its bytes are reused. */
static inline int kfuzz_set_item(PyObject *pair, int i, const uint8_t *p, int64_t n, int64_t readable, int roomy)
{
    PyObject *before = PyTuple_GET_ITEM(pair, i);
    PyObject *after = Py_None;
    if (roomy && before != NULL && n >= 0 && n <= KFUZZ_HEADER_ROOM && Py_REFCNT(before) == 1 &&
        Py_SIZE(before) <= KFUZZ_HEADER_ROOM) {
        kfuzz_copy((uint8_t *) PyBytes_AS_STRING(before), p, n, readable);
        kfuzz_cut_bytes(before, (Py_ssize_t) n);
        kfuzz_forget_hash(before);
        return 0;
    }
    if (n < 0)
        Py_INCREF(after);
    else
        after = roomy ? kfuzz_roomy_bytes(p, n) : PyBytes_FromStringAndSize((const char *) p, (Py_ssize_t) n);
    if (after == NULL)
        return -1;
    PyTuple_SET_ITEM(pair, i, after);
    Py_XDECREF(before);
    return 0;
}

#endif
