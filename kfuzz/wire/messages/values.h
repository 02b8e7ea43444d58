/* The objects that hold a struct's values. Python code reads them by name, through the members of their type. An object
 * holds its Python objects first, and then its numbers as C numbers. It never changes. Its Python objects are None,
 * strings, bytes, other such objects, and tuples of these or of numbers. It can never be part of a cycle, so the
 * garbage collector does not track it.
 *
 * Python numbers are made only when they are read. That saves some 20 ns for each number above 256. The messages of
 * medium size in benchmarks/ have 44 such numbers of 95, and take 4.2 us to read; it would be a quarter more. Remove
 * this if most callers read most numbers, or if making a Python number becomes as cheap as copying a C number. */
#ifndef KFUZZ_VALUES_H
#define KFUZZ_VALUES_H

#include <Python.h>
#include <structmember.h>
#include <string.h>

static inline PyObject **kfuzz_objects_of(PyObject *value)
{
    return (PyObject **) ((char *) value + sizeof(PyObject));
}

/* A copy of ``model``, whose first ``objects`` fields are Python objects. */
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
    /* All of the last member is 0, so its type is not T_OBJECT_EX. */
    for (; member->type == T_OBJECT_EX; member++)
        Py_XDECREF(*object++);
    PyObject_Free(value);
    Py_DECREF(type);
}

/* Whether two values of one type have the same bytes after their Python objects. Sets ``objects`` to the number of
 * Python objects in each. */
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

/* A type with these members. Python objects must come first. */
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
    /* CPython 3.11 sets no error if it has no memory for the name. */
    if (made == NULL && !PyErr_Occurred())
        PyErr_NoMemory(); /* unreachable: only if memory runs out */
    return made;
}

#endif
