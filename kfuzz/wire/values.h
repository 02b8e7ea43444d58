/* Objects that hold a struct's values and nothing else. Python reads the values by name through the type's members. The
 * fields that are objects come first, then the numbers as C types. The values never change. They are strings, bytes and
 * tuples of such objects, so they are never part of a cycle and the garbage collector need not track them.
 *
 * A number becomes a Python object only when it is read. That saves about 20 ns for each number above 256. The messages
 * of medium size in benchmarks/ have 95 numbers, 44 of them above 256, and take 4.2 us to read; without this they would
 * take a quarter more. Remove this if most programs read most numbers, or if making a number costs no more than a copy.
 */
#ifndef KFUZZ_VALUES_H
#define KFUZZ_VALUES_H

#include <Python.h>
#include <structmember.h>
#include <string.h>

static inline PyObject **kfuzz_objects_of(PyObject *value)
{
    return (PyObject **) ((char *) value + sizeof(PyObject));
}

/* A new object of the same type with the same values; the first ``objects`` fields are objects. */
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
    /* The last entry is all zeros, so the loop ends there at the latest. */
    for (; member->type == T_OBJECT_EX; member++)
        Py_XDECREF(*object++);
    PyObject_Free(value);
    Py_DECREF(type);
}

/* Whether two values of one type have the same bytes after their object fields. Sets ``*objects`` to the number of
 * those. */
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

/* Create a type with these members; those that are objects must come first. */
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
    /* CPython 3.11 sets no exception if there is no memory for the name. */
    if (made == NULL && !PyErr_Occurred())
        PyErr_NoMemory();
    return made;
}

#endif
