"""The reader: makes dicts or objects from bytes that the checker has accepted."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_Next, PyDict_SetItem
from cpython.list cimport PyList_Append
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF
from cpython.tuple cimport PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.io.cursor cimport load16, load32, load64, unlikely
from kfuzz.wire.io.format cimport UUID_BYTES
from kfuzz.wire.messages.plan cimport (
    K_BOOL, K_FLOAT64, K_INT8, K_INT16, K_INT32, K_INT64, K_STRING, K_STRUCT, K_UINT16, K_UINT32, Plan, Program,
    counted, field_of, get_length, get_uvarint, is_ascii, is_changeable, op_of, op_t, owned, set_number, set_object,
    width_of,
)
from kfuzz.wire.messages.values cimport UNKNOWN, Keyed, copy_struct, keyed

cdef extern from "Python.h":
    # Declared with PyObject *, so that Cython does not count the references that they return or take.
    PyObject *PyDict_New() except NULL
    PyObject *PyDict_Copy(object dict) except NULL
    int set_item "PyDict_SetItem"(PyObject *dict, PyObject *name, PyObject *value)
    PyObject *PyLong_FromLong(long number) except NULL
    PyObject *PyLong_FromLongLong(long long number) except NULL
    PyObject *PyBool_FromLong(long flag) except NULL
    PyObject *PyFloat_FromDouble(double number) except NULL
    PyObject *bytes_of "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size) except NULL
    PyObject *PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar) except NULL
    void *PyUnicode_DATA(PyObject *text)
    PyObject *PyList_New(Py_ssize_t size) except NULL
    void PyList_SET_ITEM(PyObject *list, Py_ssize_t at, PyObject *value)
    PyObject *PyTuple_New(Py_ssize_t size) except NULL
    void PyTuple_SET_ITEM(PyObject *tuple, Py_ssize_t at, PyObject *value)
    PyObject *PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t size) except NULL
    bint PyGC_Disable()
    bint PyGC_Enable()


# The reader's position, and its options.
cdef struct reader_t:
    const uint8_t *p
    bint as_objects            # objects and tuples; otherwise dicts and lists
    const char *text_errors    # the error handler for text that is not UTF-8


cdef PyObject *text_of(const uint8_t *p, int64_t n, const char *errors) except NULL:
    cdef PyObject *made
    # CPython caches strings of one character.
    if n < 2 or unlikely(not is_ascii(p, n)):
        return counted(PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, errors))
    made = PyUnicode_New(<Py_ssize_t> n, 127)
    memcpy(PyUnicode_DATA(made), p, <size_t> n)
    return made


cdef PyObject *float_of(const uint8_t *p) except NULL:
    cdef uint64_t raw = load64(p)
    cdef double value
    memcpy(&value, &raw, 8)
    return PyFloat_FromDouble(value)


cdef inline PyObject *long_of(int64_t number) except NULL:
    # PyLong_FromLong is faster for numbers that fit.
    return PyLong_FromLong(<int32_t> number) if number == <int32_t> number else PyLong_FromLongLong(number)


cdef PyObject *primitive_of(const uint8_t *p, int kind) except NULL:
    """A primitive of fixed size."""
    if kind == K_INT32:
        return PyLong_FromLong(<int32_t> load32(p))
    elif kind == K_INT64:
        return long_of(<int64_t> load64(p))
    elif kind == K_INT16:
        return PyLong_FromLong(<int16_t> load16(p))
    elif kind == K_BOOL:
        return PyBool_FromLong(p[0])
    elif kind == K_INT8:
        return PyLong_FromLong(<int8_t> p[0])
    elif kind == K_UINT16:
        return PyLong_FromLong(load16(p))
    elif kind == K_UINT32:
        return PyLong_FromLongLong(load32(p))
    elif kind == K_FLOAT64:
        return float_of(p)
    return bytes_of(<const char *> p, UUID_BYTES)


cdef object fresh(object default):
    """A copy of a default that is a list or dict, because the caller may change it."""
    cdef PyObject *name
    cdef PyObject *value
    cdef Py_ssize_t at = 0
    if isinstance(default, list):
        return keyed((<Keyed> default).keys) if type(default) is Keyed else []
    made = owned(PyDict_Copy(default))
    while PyDict_Next(default, &at, &name, &value):
        if is_changeable(<object> value):
            PyDict_SetItem(made, <object> name, fresh(<object> value))
    return made


cdef object make_message(Program program, const uint8_t *p, bint as_objects):
    cdef reader_t r
    # In a large message the garbage collector would visit all values again after every few hundred new ones, and find
    # nothing, because the reader makes no cycles.
    cdef bint collecting = PyGC_Disable()
    r.p = p
    r.as_objects = as_objects
    r.text_errors = PyBytes_AS_STRING(program.text_errors)
    try:
        return owned(make_struct(&r, program.root))
    finally:
        if collecting:
            PyGC_Enable()


cdef PyObject *make_struct(reader_t *r, Plan plan) except NULL:
    return make_object(r, plan) if r.as_objects else make_dict(r, plan)


cdef PyObject *make_object(reader_t *r, Plan plan) except NULL:
    cdef PyObject *raw = copy_struct(<PyObject *> plan.model, plan.c.objects)
    cdef const op_t *op
    cdef int i
    made = owned(raw)
    for i in range(plan.c.count):
        op = &plan.c.ops[i]
        if op.is_number:
            set_number(field_of(raw, op), r.p, op.kind)
            r.p += width_of(op.kind)
        else:
            (<PyObject **> field_of(raw, op))[0] = make_field(r, op)
    if plan.c.flexible:
        unknown = make_tags(r, plan, raw)
        if unknown:
            set_object(<char *> raw + plan.c.unknown, counted(tuple(unknown)))
    return counted(made)


cdef PyObject *make_dict(reader_t *r, Plan plan) except NULL:
    # A copy already has the names, in their order, and room for the values: that is half of the work. A small dict is
    # faster to make than to copy, because CPython keeps some small tables for reuse.
    cdef PyObject *raw = PyDict_New() if plan.few else PyDict_Copy(plan.blank)
    cdef PyObject *value
    cdef const op_t *op = plan.c.ops
    cdef const op_t *end = op + plan.c.count
    cdef const uint8_t *p = r.p
    cdef int64_t n
    cdef int i
    made = owned(raw)
    while op < end:
        # The most common kinds are read here: a call, and keeping the position in memory, cost as much as these values.
        if op.array:
            r.p = p
            value = make_array(r, op)
            p = r.p
        elif op.kind == K_INT32:
            value = PyLong_FromLong(<int32_t> load32(p))
            p += 4
        elif op.kind == K_INT64:
            value = long_of(<int64_t> load64(p))
            p += 8
        elif op.kind == K_INT16:
            value = PyLong_FromLong(<int16_t> load16(p))
            p += 2
        elif op.kind == K_STRING and op.compact and 0 < p[0] < 0x80:
            n = p[0] - 1
            value = text_of(p + 1, n, r.text_errors)
            p += 1 + n
        else:
            r.p = p
            value = make_value(r, op, False)
            p = r.p
        put(raw, op, value)
        op += 1
    r.p = p
    if plan.c.flexible:
        # The blank dict has the other defaults.
        for i in range(plan.c.tagged_count):
            op = &plan.c.tagged[i]
            if op.there and is_changeable(<object> op.default):
                PyDict_SetItem(<dict> raw, <object> op.name, fresh(<object> op.default))
        unknown = make_tags(r, plan, raw)
        if unknown:
            PyDict_SetItem(<dict> raw, UNKNOWN, unknown)
    return counted(made)


cdef inline int put(PyObject *made, const op_t *op, PyObject *value) except -1:
    """Put a value into the dict, which takes over the reference."""
    cdef int done = set_item(made, op.name, value)
    Py_DECREF(<object> value)
    return done


cdef inline int give(reader_t *r, PyObject *made, const op_t *op) except -1:
    """Read a field into the dict or the object."""
    if not r.as_objects:
        return put(made, op, make_field(r, op))
    if op.is_number:
        set_number(field_of(made, op), r.p, op.kind)
        r.p += width_of(op.kind)
    else:
        set_object(field_of(made, op), make_field(r, op))
    return 0


cdef list make_tags(reader_t *r, Plan plan, PyObject *made):
    """Read the tagged fields. Returns the unknown ones, or None if there are none."""
    cdef const op_t *op
    cdef uint32_t count
    cdef uint32_t tag
    cdef uint32_t size
    cdef uint32_t _i
    cdef list unknown = None
    r.p = get_uvarint(r.p, &count)
    for _i in range(count):
        r.p = get_uvarint(r.p, &tag)
        r.p = get_uvarint(r.p, &size)
        op = op_of(&plan.c, tag)
        if op != NULL:
            give(r, made, op)
            continue
        if unknown is None:
            unknown = []
        unknown.append((tag, PyBytes_FromStringAndSize(<const char *> r.p, size)))
        r.p += size
    return unknown


cdef inline PyObject *make_field(reader_t *r, const op_t *op) except NULL:
    return make_array(r, op) if op.array else make_value(r, op, False)


cdef PyObject *make_array(reader_t *r, const op_t *op) except NULL:
    cdef int64_t n
    r.p = get_length(r.p, op, False, &n)
    if n < 0:
        return counted(None)
    return make_tuple(r, op, <Py_ssize_t> n) if r.as_objects else make_list(r, op, <Py_ssize_t> n)


cdef PyObject *make_tuple(reader_t *r, const op_t *op, Py_ssize_t n) except NULL:
    cdef PyObject *raw
    cdef Py_ssize_t i
    cdef Plan plan = <Plan> op.plan.owner if op.kind == K_STRUCT else None
    if plan is None or PyTuple_GET_SIZE(plan.map_keys) == 0:
        raw = PyTuple_New(n)
    else:
        raw = PyType_GenericAlloc(<PyTypeObject *> plan.array_type, n)
    made = owned(raw)
    for i in range(n):
        PyTuple_SET_ITEM(raw, i, make_value(r, op, True))
    return counted(made)


cdef PyObject *make_list(reader_t *r, const op_t *op, Py_ssize_t n) except NULL:
    cdef PyObject *raw
    cdef Py_ssize_t i
    cdef Plan plan = <Plan> op.plan.owner if op.kind == K_STRUCT else None
    if plan is not None and PyTuple_GET_SIZE(plan.map_keys) != 0:
        return make_keyed(r, plan, n)
    raw = PyList_New(n)
    made = owned(raw)
    for i in range(n):
        PyList_SET_ITEM(raw, i, make_value(r, op, True) if plan is None else make_dict(r, plan))
    return counted(made)


cdef PyObject *make_keyed(reader_t *r, Plan plan, Py_ssize_t n) except NULL:
    cdef Py_ssize_t _i
    made = keyed(plan.map_keys)
    for _i in range(n):
        # CPython can make a list with room for all elements, but no subclass of it. Copying costs more than appending.
        PyList_Append(made, owned(make_dict(r, plan)))
    return counted(made)


cdef inline PyObject *make_value(reader_t *r, const op_t *op, bint element) except NULL:
    cdef const uint8_t *at = r.p
    cdef uint32_t word
    cdef int64_t n
    if op.kind < K_STRING:
        r.p = at + width_of(op.kind)
        return primitive_of(at, op.kind)
    if op.kind == K_STRUCT:
        if op.nullable and not element and op.tag >= 0:
            r.p = get_uvarint(at, &word)
            if <int32_t> word <= 0:
                return counted(None)
        elif op.nullable and not element:
            r.p = at + 1
            if <int8_t> at[0] < 0:
                return counted(None)
        return make_struct(r, <Plan> op.plan.owner)
    at = get_length(at, op, op.kind == K_STRING, &n)
    if n < 0:
        r.p = at
        return counted(None)
    r.p = at + n
    if op.kind == K_STRING:
        return text_of(at, n, r.text_errors)
    return bytes_of(<const char *> at, <Py_ssize_t> n)


# -- fields that the version lacks

cdef int add_absent(Plan plan, dict made) except -1:
    """Add the defaults of fields that the version lacks to a struct and to the structs in it."""
    cdef int i
    for name, (default, _, _) in plan.absent.items():
        made[name] = fresh(default) if is_changeable(default) else default
    for i in range(plan.c.count):
        add_within(&plan.c.ops[i], made)
    for i in range(plan.c.tagged_count):
        if plan.c.tagged[i].there:
            add_within(&plan.c.tagged[i], made)
    return 0


cdef int add_within(const op_t *op, dict made) except -1:
    if op.kind != K_STRUCT:
        return 0
    value = made[<str> op.name]
    if value is None:
        return 0
    if not op.array:
        return add_absent(<Plan> op.plan.owner, <dict> value)
    for element in <list> value:
        add_absent(<Plan> op.plan.owner, <dict> element)
    return 0
