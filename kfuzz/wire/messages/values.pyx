"""The Python values of a message's structs and arrays. values.pyi describes the interface."""

from cpython.list cimport PyList_Append
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool, PyTypeObject

from kfuzz.errors import UsageError

cdef extern from "values.h":
    ctypedef struct PyMemberDef:
        const char *name
        int type
        Py_ssize_t offset
        int flags
    enum:
        READONLY
    PyObject **kfuzz_objects_of(PyObject *value)
    bint kfuzz_same_numbers(PyObject *value, PyObject *other, Py_ssize_t *objects)
    object kfuzz_struct_type(const char *name, PyTypeObject *base, PyMemberDef *members, Py_ssize_t size)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8(object text) except NULL

cdef str UNKNOWN = "_unknownTaggedFields"
# The same name for modules that are not compiled.
UNKNOWN_TAGGED_FIELDS = UNKNOWN


# Cython compiles list.pop(self, place) to self.pop(place) for some lists, which would recurse. A variable avoids this.
cdef object list_pop = list.pop


cdef class Keyed(list):
    def __init__(self, elements=(), tuple keys not None=()):
        list.__init__(self, elements)
        self.keys = keys

    def __reduce__(self):
        return Keyed, (list(self), self.keys)

    def find(self, **values):
        cdef tuple wanted = asked(self.keys, values)
        # The index is made on first use, and again after a change. Another thread may drop it meanwhile, so a local
        # variable holds it.
        cdef dict index = self.index
        if index is None:
            index = index_of([tuple([element[key] for key in self.keys]) for element in self], self)
            self.index = index
        return index.get(wanted)

    def append(self, element):
        self.index = None
        list.append(self, element)

    def clear(self):
        self.index = None
        list.clear(self)

    def extend(self, elements):
        self.index = None
        list.extend(self, elements)

    def insert(self, place, element):
        self.index = None
        list.insert(self, place, element)

    def remove(self, element):
        self.index = None
        list.remove(self, element)

    def reverse(self):
        self.index = None
        list.reverse(self)

    def pop(self, place=-1):
        self.index = None
        return list_pop(self, place)

    def sort(self, *, key=None, reverse=False):
        self.index = None
        list.sort(self, key=key, reverse=reverse)

    def __setitem__(self, place, value):
        self.index = None
        list.__setitem__(self, place, value)

    def __delitem__(self, place):
        self.index = None
        list.__delitem__(self, place)

    def __iadd__(self, elements):
        self.extend(elements)
        return self

    def __imul__(self, times):
        self.index = None
        return list.__imul__(self, times)


class KeyedTuple(tuple):
    # Each struct with map keys has its own subclass. The index is made on first use.
    keys = ()

    def find(self, **values):
        wanted = asked(self.keys, values)
        if not hasattr(self, "_index"):
            self._index = index_of([tuple([getattr(element, key) for key in self.keys]) for element in self], self)
        return self._index.get(wanted)


cdef tuple asked(tuple keys, dict values):
    if set(values) != set(keys):
        names = " and ".join(values) or "nothing"
        raise UsageError(f"elements are found by {' and '.join(keys)}, not by {names}")
    return tuple([values[key] for key in keys])


cdef dict index_of(list keys, elements):
    """The first element for each key."""
    cdef dict made = {}
    for key, element in zip(keys, elements):
        made.setdefault(key, element)
    return made


cdef Keyed keyed(tuple keys):
    """An empty list with these map keys."""
    cdef Keyed made = Keyed.__new__(Keyed)
    made.keys = keys
    return made


cdef type array_type(tuple keys):
    """The type of arrays of a struct with these map keys."""
    return type("KeyedTuple", (KeyedTuple,), {"__slots__": (), "keys": keys}) if keys else tuple


cdef class StructValue:
    __match_args__ = ()

    def __cinit__(self):
        raise TypeError("only a reader makes a StructValue")

    def to_dict(self):
        # Unknown tagged fields are pairs in both forms.
        return {name: list(value) if name == UNKNOWN else in_dicts(value) for name, value in fields_of(self).items()}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in fields_of(self).items()])})"

    def __eq__(self, other):
        cdef Py_ssize_t objects
        cdef Py_ssize_t i
        if not isinstance(other, StructValue):
            return NotImplemented
        if type(self) is type(other) and kfuzz_same_numbers(<PyObject *> self, <PyObject *> other, &objects):
            for i in range(objects):
                if not PyObject_RichCompareBool(<object> kfuzz_objects_of(<PyObject *> self)[i],
                                                <object> kfuzz_objects_of(<PyObject *> other)[i], Py_EQ):
                    return False
            return True
        # Numbers with different bytes may be equal, such as 0.0 and -0.0.
        if type(self).__match_args__ != type(other).__match_args__:
            return False
        for name in type(self).__match_args__:
            if getattr(self, name) != getattr(other, name):
                return False
        return True


cdef dict fields_of(StructValue value):
    """The fields by name. The entry for unknown tagged fields is left out if there are none."""
    cdef dict made = {name: getattr(value, name) for name in type(value).__match_args__}
    if UNKNOWN in made and not made[UNKNOWN]:
        del made[UNKNOWN]
    return made


cdef object in_dicts(value):
    """The value with dicts and lists instead of objects and tuples."""
    if isinstance(value, StructValue):
        return value.to_dict()
    if not isinstance(value, tuple):
        return value
    made = keyed(value.keys) if isinstance(value, KeyedTuple) else []
    for element in value:
        PyList_Append(made, in_dicts(element))
    return made


cdef dict WIDTHS = {T_OBJECT_EX: sizeof(PyObject *), T_BOOL: 1, T_BYTE: 1, T_SHORT: 2, T_USHORT: 2, T_INT: 4, T_UINT: 4,
                    T_LONGLONG: 8, T_DOUBLE: 8}


cdef tuple struct_type(str name, tuple names, list members):
    """A type whose values have these fields, and the offset of each field. ``members`` has their C member types.

    Python objects come first, in their order. Numbers follow, the widest first, so that no padding lies between them.
    The type points into ``names``, so it also keeps a reference to them.
    """
    cdef PyMemberDef *made = <PyMemberDef *> PyMem_Calloc(<size_t> (len(names) + 1), sizeof(PyMemberDef))
    cdef PyMemberDef *one = made
    cdef Py_ssize_t size = sizeof(PyObject)
    cdef list offsets = [0] * len(names)
    if made == NULL:
        raise MemoryError
    try:
        for _, _, place in sorted([(kind != T_OBJECT_EX, -WIDTHS[kind], i) for i, kind in enumerate(members)]):
            one.name = PyUnicode_AsUTF8(names[place])
            one.type = members[place]
            one.offset = offsets[place] = size
            one.flags = READONLY
            size += WIDTHS[members[place]]
            one += 1
        full_name = f"kfuzz.wire.messages.values.{name}".encode()
        type_made = kfuzz_struct_type(full_name, <PyTypeObject *> StructValue, made, size)
    finally:
        PyMem_Free(made)
    type_made.__match_args__ = names
    return type_made, offsets
