/* Objects that are a struct's values, read by name through the type's members, and nothing else: first what is an object
 * itself, behind it the numbers as C has them. They never change, and hold texts, bytes, and tuples of their kind: none is
 * part of a cycle, so the collector need not know of them.
 *
 * Numbers become Python's when they are asked for. That saves some 20 ns for each beyond 256: the messages of benchmarks/
 * of medium size have 44 such of 95, and take 4.2 us to read, which would be a quarter more. It goes where most who read
 * ask for most numbers, or where a number costs no more to make than to copy. */
#ifndef KFUZZ_VALUES_H
#define KFUZZ_VALUES_H

#include <Python.h>
#include <structmember.h>
#include <string.h>

static inline PyObject **kfuzz_objects_of(PyObject *value)
{
    return (PyObject **) ((char *) value + sizeof(PyObject));
}

/* Another one with the same fields; ``objects`` of them are objects. */
static inline PyObject *kfuzz_copy_struct(PyObject *model, int objects)
{
    PyTypeObject *type = Py_TYPE(model);
    PyObject *made = PyObject_New(PyObject, type);
    int i;
    if (made == NULL)
        return NULL;
    memcpy(kfuzz_objects_of(made), kfuzz_objects_of(model), (size_t) type->tp_basicsize - sizeof(PyObject));
    for (i = 0; i < objects; i++)
        Py_XINCREF(kfuzz_objects_of(made)[i]);
    return made;
}

static void kfuzz_drop_struct(PyObject *value)
{
    PyTypeObject *type = Py_TYPE(value);
    PyObject **object = kfuzz_objects_of(value);
    const PyMemberDef *member = type->tp_members;
    /* The last member has neither name nor type. */
    for (; member->type == T_OBJECT_EX; member++)
        Py_XDECREF(*object++);
    PyObject_Free(value);
    Py_DECREF(type);
}

/* Whether two of one type have the same bytes behind their objects, of which this is told the number. */
static inline int kfuzz_same_numbers(PyObject *value, PyObject *other, Py_ssize_t *objects)
{
    PyTypeObject *type = Py_TYPE(value);
    const PyMemberDef *member = type->tp_members;
    while (member->type == T_OBJECT_EX)
        member++;
    *objects = member - type->tp_members;
    return memcmp(kfuzz_objects_of(value) + *objects, kfuzz_objects_of(other) + *objects,
                  (size_t) type->tp_basicsize - sizeof(PyObject) - (size_t) *objects * sizeof(PyObject *)) == 0;
}

/* A type with these members, those that are objects first. */
static PyObject *kfuzz_struct_type(const char *name, PyTypeObject *base, PyMemberDef *members, Py_ssize_t size)
{
    PyType_Slot slots[] = {{Py_tp_dealloc, (void *) kfuzz_drop_struct}, {Py_tp_members, members}, {0, NULL}};
    PyType_Spec spec = {
        .name = name,
        .basicsize = (int) size,
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    PyObject *made = PyType_FromSpecWithBases(&spec, (PyObject *) base);
    /* CPython 3.11 does not say so where it has no memory for the name. */
    if (made == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    return made;
}

#endif
