/* Values put into a dict by their places. What a reader makes are mostly dicts with the same few names: to look each up
 * again in every one of them takes a fifth of the time. Of Pythons whose dicts we have not looked into, none is plain. */
#ifndef KFUZZ_ENTRIES_H
#define KFUZZ_ENTRIES_H

#include <Python.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000 && !defined(PYPY_VERSION)

#define Py_BUILD_CORE 1
#include "internal/pycore_dict.h"
#undef Py_BUILD_CORE

/* Whether the dict has its entries in a table of its own, in the order in which they came, with nothing but str for
 * names. So has a copy of it then. */
static int kfuzz_is_plain(PyObject *dict)
{
    const PyDictObject *d = (PyDictObject *) dict;
    return d->ma_values == NULL && DK_IS_UNICODE(d->ma_keys) && d->ma_keys->dk_nentries == d->ma_used;
}

/* Of a plain dict that nobody else has seen. */
static inline void kfuzz_set_entry(PyObject *dict, Py_ssize_t place, PyObject *value)
{
    PyObject **entry = &DK_UNICODE_ENTRIES(((PyDictObject *) dict)->ma_keys)[place].me_value;
    PyObject *before = *entry;
    Py_INCREF(value);
    *entry = value;
    Py_DECREF(before);
    /* As a dict itself does: one that holds numbers and texts alone is nothing to the collector. */
    if (PyType_IS_GC(Py_TYPE(value)) && !PyObject_GC_IsTracked(dict))
        PyObject_GC_Track(dict);
}

#else

static int kfuzz_is_plain(PyObject *dict)
{
    (void) dict;
    return 0;
}

static inline void kfuzz_set_entry(PyObject *dict, Py_ssize_t place, PyObject *value)
{
    (void) dict;
    (void) place;
    (void) value;
    Py_UNREACHABLE();
}

#endif

#endif
