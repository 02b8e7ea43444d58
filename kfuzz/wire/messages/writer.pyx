"""The writer: makes bytes from dicts or objects."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memmove

from collections.abc import Mapping

from kfuzz.errors import EncodeError

from kfuzz.wire.io.cursor cimport unlikely
from kfuzz.wire.io.format cimport STRING_BYTES_MAX, UUID_BYTES
from kfuzz.wire.io.scratch cimport grow, out_t
from kfuzz.wire.io.sink cimport put_bytes, put_int8, put_int16, put_int32, put_int64, put_uvarint
from kfuzz.wire.messages.checker cimport DEEPEST
from kfuzz.wire.messages.plan cimport (
    K_BOOL, K_FLOAT64, K_INT8, K_INT16, K_INT32, K_INT64, K_STRING, K_STRUCT, K_UINT16, K_UINT32, K_UUID, Plan, Program,
    field_of, field_width, op_of, op_t, plan_t, width_of,
)
from kfuzz.wire.messages.values cimport UNKNOWN, StructValue

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object dict, object key) except? NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow)
    # Declared so that Cython does not check for an error, which takes as long as the call.
    const char *utf8_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    void PyErr_Clear()
    bint PyObject_CheckBuffer(object given)
    bint PyIndex_Check(object given)
    object PyBytes_FromObject(object given)
    object PyNumber_Index(object given)

cdef int refuse_size() except -1:  # unreachable: needs 2 GiB of contents
    raise EncodeError(f"a message of more than {INT32_MAX} bytes; no request is so large")  # unreachable: takes 2 GiB


cdef int more_room(out_t *out, int64_t size) except -1:
    if out.p - out.start + size > INT32_MAX:
        return refuse_size()  # unreachable: needs 2 GiB of contents
    return grow(out, size)


cdef inline int need(out_t *out, int64_t size) except -1:
    if size <= out.end - out.p:
        return 0
    return more_room(out, size)


cdef inline int put_length(out_t *out, const op_t *op, bint short_one, int64_t n) except -1:
    """Write a length or a count, -1 for null, and make room for the bytes that follow."""
    need(out, 8 + max(n, 0))
    if op.compact:
        out.p = put_uvarint(out.p, <uint32_t> (n + 1))
    elif short_one:
        out.p = put_int16(out.p, <int16_t> n)
    else:
        out.p = put_int32(out.p, <int32_t> n)
    return 0


# The smallest value of each integer kind, and below the largest. The first kind is bool.
cdef int64_t[7] LEAST = [0, -(1 << 7), -(1 << 15), 0, -(<int64_t> 1 << 31), 0, INT64_MIN]
cdef int64_t[7] MOST = [1, (1 << 7) - 1, (1 << 15) - 1, (1 << 16) - 1, (<int64_t> 1 << 31) - 1, (<int64_t> 1 << 32) - 1,
                        INT64_MAX]
INT_NAMES = {K_INT8: "int8", K_INT16: "int16", K_UINT16: "uint16", K_INT32: "int32", K_UINT32: "uint32",
             K_INT64: "int64"}


cdef void put_kept(out_t *out, const char *field, int kind) noexcept:
    """Write a number of an object. There is room for it."""
    cdef int16_t two
    cdef int32_t four
    cdef int64_t eight
    if width_of(kind) == 1:
        out.p = put_int8(out.p, field[0])
    elif width_of(kind) == 2:
        memcpy(&two, field, 2)
        out.p = put_int16(out.p, two)
    elif width_of(kind) == 4:
        memcpy(&four, field, 4)
        out.p = put_int32(out.p, four)
    else:
        memcpy(&eight, field, 8)
        out.p = put_int64(out.p, eight)


cdef int put_message(Program program, out_t *out, message) except -1:
    put_struct(program, out, program.root, message, NULL)
    # The buffer may have had room for more than this.
    if out.p - out.start > INT32_MAX:
        return refuse_size()  # unreachable: needs 2 GiB of contents
    return 0


cdef str path_of(Program program, const way_t *way):
    """The path of a value, such as ``FetchRequest.topics[3].partitions``."""
    cdef list words = []
    while way != NULL:
        words.append(f".{<object> way.op.name}" + (f"[{way.element}]" if way.element >= 0 else ""))
        way = way.above
    return program.name + "".join(reversed(words))


cdef inline int enter(Program program, way_t *way, Plan plan, const way_t *above) except -1:
    way.above = above
    way.depth = 1 if above == NULL else above.depth + 1
    if unlikely(way.depth > DEEPEST) and plan.c.count > 0:
        raise EncodeError(f"{path_of(program, above)} lies {way.depth} structs deep; a message has {DEEPEST} at most")
    return 0


cdef int put_struct(Program program, out_t *out, Plan plan, object given, const way_t *above) except -1:
    if isinstance(given, StructValue):
        if type(given) is type(plan.model):
            return put_object(program, out, plan, given, above)
        # An object of another version, or from definitions that were loaded again.
        given = given.to_dict()
    if type(given) is not dict:
        given = dict_of(program, given, above)
    # The assignment makes Cython hold a reference. Python code that runs for a field may drop the caller's reference.
    return put_dict(program, out, plan, <dict> given, above)


cdef dict dict_of(Program program, object given, const way_t *above):
    if not isinstance(given, Mapping):
        raise EncodeError(f"{path_of(program, above)} is {type(given).__name__}; it must be a dict or another mapping")
    return dict(given)


cdef int put_object(Program program, out_t *out, Plan plan, object given, const way_t *above) except -1:
    cdef PyObject *raw = <PyObject *> given
    cdef way_t way
    cdef const op_t *op
    cdef uint32_t count = 0
    cdef Py_ssize_t found = 0
    cdef int i
    enter(program, &way, plan, above)
    for i in range(plan.c.count):
        op = &plan.c.ops[i]
        if op.is_number:
            need(out, 8)
            put_kept(out, field_of(raw, op), op.kind)
        else:
            put_field(program, out, op, <object> (<PyObject **> field_of(raw, op))[0], &way)
    if not plan.c.flexible:
        return 0
    if <tuple> (<PyObject **> (<char *> raw + plan.c.unknown))[0] != ():
        return put_all_tags(program, out, plan, given.to_dict(), &way, &found)
    for i in range(plan.c.tagged_count):
        count += not is_model_value(plan, i, given)
    need(out, 8)
    out.p = put_uvarint(out.p, count)
    for i in range(plan.c.tagged_count):
        if not is_model_value(plan, i, given):
            op = &plan.c.tagged[i]
            put_tagged(program, out, op, getattr(given, <str> op.name), &way)
    return 0


cdef int put_dict(Program program, out_t *out, Plan plan, dict given, const way_t *above) except -1:
    cdef way_t way
    cdef const op_t *op
    cdef PyObject *name
    cdef PyObject *value
    cdef Py_ssize_t at = 0
    cdef Py_ssize_t ahead
    cdef Py_ssize_t found = 0
    cdef int i
    enter(program, &way, plan, above)
    for i in range(plan.c.count):
        op = &plan.c.ops[i]
        # Most dicts have their names in the order of the definition; then no name is looked up. No pointer into the
        # dict is kept from one field to the next: writing a field may run Python code, which may change the dict.
        ahead = at
        while PyDict_Next(given, &ahead, &name, &value) and name != op.name and is_tagged(&plan.c, name):
            at = ahead
        if ahead != at and name == op.name:
            at = ahead
        else:
            value = PyDict_GetItemWithError(given, <object> op.name)
        if value == NULL:
            put_field(program, out, op, <object> op.default, &way)
        else:
            found += 1
            put_field(program, out, op, <object> value, &way)
    if plan.c.flexible:
        put_tags(program, out, plan, given, &way, &found)
    if found != PyDict_Size(given):
        require_nothing_lost(program, plan, given, above)
    return 0


cdef int require_nothing_lost(Program program, Plan plan, dict given, const way_t *above) except -1:
    """Refuse unknown names, and fields that this version lacks unless they are ignorable or have their default."""
    cdef list fields = fields_of(plan)
    for name, value in given.items():
        if name in fields or (name == UNKNOWN and plan.c.flexible):
            continue
        path = path_of(program, above) + (f"[{name}]" if type(name) is int else f".{name}")
        if name == UNKNOWN:
            if value:
                raise EncodeError(f"{path} are given, but version {program.version} has no tags")
            continue
        if name not in plan.absent:
            raise EncodeError(f"{path} is not a field; the fields are {', '.join(fields) or 'none'}")
        default, ignorable, _ = plan.absent[name]
        if not ignorable and not is_default(value, default):
            raise EncodeError(f"{path} is {value!r}, and version {program.version} has no place for it; leave it out, "
                              "or take another version")
    return 0


cdef int put_tags(Program program, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
    """Write the tagged fields that differ from their defaults. Adds the number of names that it finds to ``found``."""
    cdef PyObject *value
    cdef const op_t *op
    cdef uint32_t count = 0
    cdef int i
    need(out, 8)
    # All names were found already, so no field can be tagged.
    if found[0] == PyDict_Size(given):
        out.p = put_uvarint(out.p, 0)
        return 0
    if PyDict_GetItemWithError(given, UNKNOWN) != NULL:
        return put_all_tags(program, out, plan, given, way, found)
    for i in range(plan.c.tagged_count):
        value = tagged_value(&plan.c.tagged[i], given)
        if value != NULL:
            found[0] += 1
            count += not is_default(<object> value, <object> plan.c.tagged[i].default)
    out.p = put_uvarint(out.p, count)
    if count == 0:
        return 0
    for i in range(plan.c.tagged_count):
        op = &plan.c.tagged[i]
        value = tagged_value(op, given)
        if value != NULL and not is_default(<object> value, <object> op.default):
            put_tagged(program, out, op, <object> value, way)
            count -= 1
    if count != 0:
        return refuse_change(program, way.above)
    return 0


cdef int refuse_change(Program program, const way_t *way) except -1:
    raise EncodeError(f"{path_of(program, way)} has changed while it was written; write it again")


cdef int put_all_tags(Program program, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
    """Like put_tags, for values with unknown tagged fields."""
    cdef PyObject *value
    cdef const op_t *op
    cdef list tags = []
    cdef int i
    cdef int64_t before = -1
    need(out, 8)
    for i in range(plan.c.tagged_count):
        op = &plan.c.tagged[i]
        value = tagged_value(op, given)
        if value == NULL:
            continue
        found[0] += 1
        if not is_default(<object> value, <object> op.default):
            tags.append((op.tag, i, <object> value))
    found[0] += 1
    path = f"{path_of(program, way.above)}.{UNKNOWN}"
    for tag, data in checked_unknown(given[UNKNOWN], path):
        if op_of(&plan.c, tag) != NULL:
            raise EncodeError(f"{path}: tag {tag} is known; give the field by its name")
        if tag <= before:
            raise EncodeError(f"{path}: tag {tag} comes after tag {before}; give tags in ascending order, each once")
        before = tag
        tags.append((tag, -1, data))
    tags.sort(key=first_of)
    out.p = put_uvarint(out.p, <uint32_t> len(tags))
    for tag, place, data in tags:
        if place < 0:
            need(out, 16 + len(data))
            out.p = put_uvarint(out.p, <uint32_t> tag)
            out.p = put_uvarint(out.p, <uint32_t> len(data))
            out.p = put_bytes(out.p, <const uint8_t *> PyBytes_AS_STRING(data), len(data))
        else:
            put_tagged(program, out, &plan.c.tagged[<int> place], data, way)
    return 0


cdef int put_tagged(Program program, out_t *out, const op_t *op, object given, way_t *way) except -1:
    """Write a tagged field and its size. Five bytes are reserved for the size; unused ones are closed up at the end."""
    cdef int64_t start
    cdef int64_t size
    cdef uint8_t *value
    need(out, 16)
    out.p = put_uvarint(out.p, <uint32_t> op.tag)
    start = out.p - out.start
    out.p += 5
    put_field(program, out, op, given, way)
    size = out.p - out.start - start - 5
    value = out.start + start + 5
    out.p = out.start + start
    out.p = put_uvarint(out.p, <uint32_t> size)
    memmove(out.p, value, <size_t> size)
    out.p += size
    return 0


cdef int put_field(Program program, out_t *out, const op_t *op, object given, way_t *way) except -1:
    cdef Py_ssize_t count
    way.op = op
    way.element = -1
    if not op.array:
        return put_value(program, out, op, given, False, way)
    if given is None:
        if not op.nullable:
            raise EncodeError(f"{path_of(program, way)} is None; it must be a list in version {program.version}")
        return put_length(out, op, False, -1)
    if isinstance(given, list):
        count = PyList_GET_SIZE(given)
        put_length(out, op, False, count)
        for element in <list> given:
            way.element += 1
            put_value(program, out, op, element, True, way)
        if unlikely(way.element + 1 != count):
            way.element = -1
            return refuse_change(program, way)
    elif isinstance(given, tuple):
        put_length(out, op, False, PyTuple_GET_SIZE(given))
        for element in <tuple> given:
            way.element += 1
            put_value(program, out, op, element, True, way)
    else:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a list")
    return 0


cdef int put_value(Program program, out_t *out, const op_t *op, object given, bint element, way_t *way) except -1:
    if op.kind < K_FLOAT64:
        return put_number(program, out, op, given, way)
    if op.kind == K_STRUCT:
        if op.nullable and not element:
            need(out, 1)
            # The number 0 or 1 of a tagged struct is a varint, which takes one byte too.
            out.p = put_int8(out.p, 1 if given is not None else 0 if op.tag >= 0 else -1)
            if given is None:
                return 0
        return put_struct(program, out, <Plan> op.plan.owner, given, way)
    if op.kind == K_FLOAT64:
        return put_float(program, out, given, way)
    if given is None:
        if not op.nullable or element or op.kind == K_UUID:
            raise EncodeError(f"{path_of(program, way)} is None; it must not be in version {program.version}")
        return put_length(out, op, op.kind == K_STRING, -1)
    if op.kind == K_STRING:
        return put_text(program, out, op, given, way)
    return put_data(program, out, op, given, way)


cdef const char *utf8_or_refusal(Program program, object given, Py_ssize_t *n, const way_t *way) except NULL:
    """Encode again to see the error: it may have been a lack of memory, which is not a fault of the text."""
    try:
        return PyUnicode_AsUTF8AndSize(given, n)
    except UnicodeEncodeError:
        raise EncodeError(f"{path_of(program, way)} has half a surrogate pair in it, which is not valid text") from None


cdef int put_text(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef const char *text
    cdef Py_ssize_t n
    if type(given) is not str:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a str")
    text = utf8_of(given, &n)
    if text == NULL:
        PyErr_Clear()
        text = utf8_or_refusal(program, given, &n, way)
    if n > STRING_BYTES_MAX:
        raise EncodeError(f"{path_of(program, way)} takes {n} bytes; a string takes {STRING_BYTES_MAX} at most")
    put_length(out, op, True, n)
    out.p = put_bytes(out.p, <const uint8_t *> text, n)
    return 0


cdef bytes bytes_of(Program program, object given, const way_t *way):
    """A copy of the bytes of a bytes-like object, such as a bytearray or a memoryview."""
    held = given
    if not PyObject_CheckBuffer(held):
        raise EncodeError(f"{path_of(program, way)} is {type(held).__name__}; it must be bytes")
    return PyBytes_FromObject(held)


cdef int put_data(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef Py_ssize_t n
    if type(given) is not bytes:
        return put_data(program, out, op, bytes_of(program, given, way), way)
    n = PyBytes_GET_SIZE(given)
    if op.kind != K_UUID:
        put_length(out, op, False, n)
    elif n == UUID_BYTES:
        need(out, n)
    else:
        raise EncodeError(f"{path_of(program, way)} has {n} bytes; a uuid has {UUID_BYTES}")
    out.p = put_bytes(out.p, <const uint8_t *> PyBytes_AS_STRING(given), n)
    return 0


cdef object index_of(Program program, object given, const way_t *way, str wanted):
    """The int of an object with ``__index__``, such as an ``IntEnum``. A bool is not accepted."""
    held = given
    if type(held) is bool or not PyIndex_Check(held):
        raise EncodeError(f"{path_of(program, way)} is {type(held).__name__}; it must be {wanted}")
    return plain_int(held)


cdef object plain_int(object given):
    # The index may be of a subclass of int, whose methods may do anything.
    return int.__add__(PyNumber_Index(given), 0)


cdef int put_float(Program program, out_t *out, object given, const way_t *way) except -1:
    cdef double real
    cdef int64_t raw
    if type(given) is not float and type(given) is not int:
        given = index_of(program, given, way, "a float")
    try:
        real = given
    except OverflowError:
        raise EncodeError(f"{path_of(program, way)} is {number_of(given)}; it does not fit float64") from None
    memcpy(&raw, &real, 8)
    need(out, 8)
    out.p = put_int64(out.p, raw)
    return 0


cdef int put_number(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef int64_t number
    cdef int overflow
    need(out, 8)
    if op.kind == K_BOOL:
        if type(given) is not bool:
            raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a bool")
        out.p = put_int8(out.p, given is True)
        return 0
    if type(given) is not int:
        return put_number(program, out, op, index_of(program, given, way, "an int"), way)
    number = PyLong_AsLongLongAndOverflow(given, &overflow)
    if unlikely(overflow != 0 or number < LEAST[op.kind] or number > MOST[op.kind]):
        raise EncodeError(f"{path_of(program, way)} is {number_of(given)}; it does not fit {INT_NAMES[op.kind]}")
    if op.kind == K_INT32 or op.kind == K_UINT32:
        out.p = put_int32(out.p, <int32_t> number)
    elif op.kind == K_INT64:
        out.p = put_int64(out.p, <int64_t> number)
    elif op.kind == K_INT8:
        out.p = put_int8(out.p, <int> number)
    else:
        out.p = put_int16(out.p, <int16_t> number)
    return 0


cdef inline bint is_tagged(const plan_t *plan, const PyObject *name) noexcept:
    cdef int i
    for i in range(plan.tagged_count):
        if plan.tagged[i].name == name:
            return True
    return False


cdef bint is_model_value(Plan plan, int place, object given) except -1:
    """Whether a tagged field of an object has its default, so that it may be left out."""
    cdef const op_t *op = &plan.c.tagged[place]
    cdef PyObject *model = <PyObject *> plan.model
    if not op.there:
        return True
    # Most fields have the same bytes as the default. Others may be equal with different bytes, such as floats.
    if memcmp(field_of(<PyObject *> given, op), field_of(model, op), field_width(op)) == 0:
        return True
    return is_default(getattr(given, <str> op.name), getattr(plan.model, <str> op.name))


cdef inline PyObject *tagged_value(const op_t *op, dict given) except? NULL:
    """The value given for a tagged field. NULL if there is none, or if the version lacks the field."""
    return PyDict_GetItemWithError(given, <object> op.name) if op.there else NULL


cdef str number_of(object value):
    """An int in decimal. If it is too long to read, only its length in bits."""
    return str(value) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"


cdef bint is_default(object value, object default) except -1:
    """Whether a value is the default, so that a tagged field may be left out. A struct may lack fields."""
    cdef PyObject *name
    cdef PyObject *inner
    cdef PyObject *other
    cdef Py_ssize_t at = 0
    if value is default:
        return True
    if type(default) is dict and isinstance(value, StructValue):
        value = value.to_dict()
    if isinstance(default, list):
        # A list as default is empty. The value may be a tuple or a ``Keyed`` list.
        return (isinstance(value, list) and PyList_GET_SIZE(value) == 0
                or isinstance(value, tuple) and PyTuple_GET_SIZE(value) == 0)
    if type(value) is not type(default):
        value = as_type_of(default, value)
        if type(default) is float and type(value) is int:
            return value == default
        if type(value) is not type(default):
            return False
    if type(default) is not dict:
        return value == default
    while PyDict_Next(value, &at, &name, &inner):
        other = PyDict_GetItemWithError(default, <object> name)
        if other == NULL or not is_default(<object> inner, <object> other):
            return False
    return True


cdef object as_type_of(object default, object value):
    """Convert a value to the default's type if the writer accepts it for that type. Otherwise return it unchanged."""
    held = value
    if type(default) is dict and isinstance(held, Mapping):
        return dict(held)
    if type(default) is bytes and PyObject_CheckBuffer(held):
        return PyBytes_FromObject(held)
    if (type(default) is int or type(default) is float) and type(held) is not bool and PyIndex_Check(held):
        return plain_int(held)
    return held


def first_of(pair):
    return pair[0]


cdef list checked_unknown(object value, str path):
    made = []
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path} is {type(value).__name__}; it must be a list of tags and bytes")
    for pair in value:
        if type(pair) is not tuple or len(pair) != 2:
            raise EncodeError(f"{path} has {pair!r}; it must be a tuple of a tag and bytes")
        tag, data = as_type_of(0, pair[0]), as_type_of(b"", pair[1])
        if type(tag) is not int or type(data) is not bytes:
            raise EncodeError(f"{path} has {pair!r}; it must be a tuple of a tag and bytes")
        # Kafka's writers use the largest int32 for "no tag".
        if not 0 <= tag < INT32_MAX:
            raise EncodeError(f"{path}: tag {tag} is not valid; tags go from 0 to {INT32_MAX - 1}")
        made.append((tag, data))
    return made


cdef list fields_of(Plan plan):
    """The names of all fields in this version."""
    cdef int i
    return [*plan.names, *[plan.tagged_names[i] for i in range(plan.c.tagged_count) if plan.c.tagged[i].there]]
