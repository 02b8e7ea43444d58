"""What structs and arrays of a message are as values; the interface is described in values.pyi."""

from cpython.object cimport Py_EQ, PyObject, PyObject_RichCompareBool, PyTypeObject

from kfuzz.errors import UsageError

cdef extern from "values.h":
    object kfuzz_struct_type(const char *name, PyTypeObject *base, object names)

cdef extern from "Python.h":
    int PyList_SetSlice(object list, Py_ssize_t low, Py_ssize_t high, object items) except -1

cdef str UNKNOWN = "_unknownTaggedFields"


cdef class Keyed(list):
    def __init__(self, elements=(), tuple keys not None=()):
        list.__init__(self, elements)
        self.keys = keys

    def __reduce__(self):
        return Keyed, (list(self), self.keys)

    def find(self, **values):
        wanted = asked(self.keys, values)
        # Made when it is first asked for, and again when the list has changed.
        if self.index is None:
            self.index = index_of([tuple([element[key] for key in self.keys]) for element in self], self)
        return self.index.get(wanted)

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
        return list.pop(self, place)

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
    # Of each struct that has map keys there is a subclass; an index is made when it is first asked for.
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
    """Of each key the first element."""
    cdef dict made = {}
    for key, element in zip(keys, elements):
        made.setdefault(key, element)
    return made


cdef Keyed keyed(list elements, tuple keys):
    cdef Keyed made = Keyed.__new__(Keyed)
    made.keys = keys
    PyList_SetSlice(made, 0, 0, elements)
    return made


cdef type array_type(tuple keys):
    """Of the arrays of a struct with these map keys."""
    return type("KeyedTuple", (KeyedTuple,), {"__slots__": (), "keys": keys}) if keys else tuple


cdef class StructValue:
    __match_args__ = ()

    def to_dict(self):
        # Of unknown fields there are pairs in both forms.
        return {name: list(value) if name == UNKNOWN else in_dicts(value) for name, value in fields_of(self).items()}

    def __repr__(self):
        return f"{type(self).__name__}({', '.join([f'{name}={value!r}' for name, value in fields_of(self).items()])})"

    def __eq__(self, other):
        cdef PyObject **ours
        cdef PyObject **theirs
        cdef Py_ssize_t i
        if not isinstance(other, StructValue):
            return NotImplemented
        if type(self).__match_args__ != type(other).__match_args__:
            return False
        ours, theirs = slots_of(<PyObject *> self), slots_of(<PyObject *> other)
        for i in range(len(type(self).__match_args__)):
            if not PyObject_RichCompareBool(<object> ours[i], <object> theirs[i], Py_EQ):
                return False
        return True


cdef dict fields_of(StructValue value):
    """The fields by name, without the unknown ones if there are none."""
    cdef PyObject **slots = slots_of(<PyObject *> value)
    cdef Py_ssize_t i
    cdef dict made = {}
    for i, name in enumerate(type(value).__match_args__):
        one = <object> slots[i]
        if name != UNKNOWN or one:
            made[name] = one
    return made


cdef object in_dicts(value):
    """The value as it is in the other form."""
    if isinstance(value, StructValue):
        return value.to_dict()
    if not isinstance(value, tuple):
        return value
    made = [in_dicts(element) for element in value]
    return keyed(made, value.keys) if isinstance(value, KeyedTuple) else made


cdef type struct_type(str name, tuple names):
    """A type whose values have these fields. ``names`` must live as long as the type; it keeps them itself."""
    made = kfuzz_struct_type(f"kfuzz.wire.values.{name}".encode(), <PyTypeObject *> StructValue, names)
    made.__match_args__ = names
    return made
