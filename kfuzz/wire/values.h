/* Objects that are a struct's values: a slot for each field, read by name through the type's members, and nothing else.
 * They never change, and hold numbers, texts and tuples of their kind: none is part of a cycle, so the collector need not
 * know of them. */
#ifndef KFUZZ_VALUES_H
#define KFUZZ_VALUES_H

#include <Python.h>
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *slots[];
} kfuzz_struct;

static inline PyObject **kfuzz_slots_of(PyObject *value)
{
    return ((kfuzz_struct *) value)->slots;
}

static inline Py_ssize_t kfuzz_slot_count(PyTypeObject *type)
{
    return (type->tp_basicsize - (Py_ssize_t) sizeof(kfuzz_struct)) / (Py_ssize_t) sizeof(PyObject *);
}

static inline PyObject *kfuzz_new_struct(PyTypeObject *type)
{
    kfuzz_struct *made = PyObject_New(kfuzz_struct, type);
    if (made != NULL) {
        Py_ssize_t i, count = kfuzz_slot_count(type);
        for (i = 0; i < count; i++)
            made->slots[i] = NULL;
    }
    return (PyObject *) made;
}

static void kfuzz_drop_struct(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    Py_ssize_t i, count = kfuzz_slot_count(type);
    for (i = 0; i < count; i++)
        Py_XDECREF(kfuzz_slots_of(value)[i]);
    PyObject_Free(value);
    Py_DECREF(type);
}

/* A type with members of these names, which must live as long as it does. */
static PyObject *kfuzz_struct_type(const char *name, PyTypeObject *base, PyObject *names)
{
    Py_ssize_t i, count = PyTuple_GET_SIZE(names);
    PyMemberDef *members = PyMem_Calloc((size_t) count + 1, sizeof(PyMemberDef));
    PyType_Slot slots[] = {{Py_tp_dealloc, (void *) kfuzz_drop_struct}, {Py_tp_members, members}, {0, NULL}};
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int) (sizeof(kfuzz_struct) + (size_t) count * sizeof(PyObject *)),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyObject *type = NULL;
    if (members == NULL)
        return PyErr_NoMemory();
    for (i = 0; i < count; i++) {
        members[i].name = PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i));
        if (members[i].name == NULL)
            goto done;
        members[i].type = T_OBJECT_EX;
        members[i].offset = (Py_ssize_t) (sizeof(kfuzz_struct) + (size_t) i * sizeof(PyObject *));
        members[i].flags = READONLY;
    }
    type = PyType_FromSpecWithBases(&spec, (PyObject *) base);
done:
    PyMem_Free(members);
    return type;
}

#endif
