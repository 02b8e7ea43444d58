"""The writer: dicts or objects to bytes."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove

from kfuzz.errors import EncodeError

from kfuzz.wire.cursor cimport kfuzz_be16, kfuzz_be32, kfuzz_be64, unlikely
from kfuzz.wire.message.plan cimport (
    K_BOOL, K_FLOAT64, K_INT8, K_INT16, K_INT32, K_INT64, K_STRING, K_STRUCT, K_UINT16, K_UINT32, K_UUID, Plan, Program,
    field_of, field_width, op_of, op_t, plan_t, width_of,
)
from kfuzz.wire.scratch cimport grow, out_t
from kfuzz.wire.values cimport UNKNOWN, StructValue

cdef extern from "Python.h":
    PyObject *PyDict_GetItemWithError(object dict, object key) except? NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow)
    # Without Cython's look at whether it failed, which takes as long as the call.
    const char *utf8_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size)
    void PyErr_Clear()

cdef int refuse_size() except -1:
    raise EncodeError(f"the message takes more than {INT32_MAX} bytes; no request is so large")


cdef int more_room(out_t *out, int64_t size) except -1:
    if out.p - out.start + size > INT32_MAX:
        return refuse_size()
    return grow(out, size)


cdef inline int need(out_t *out, int64_t size) except -1:
    if size <= out.end - out.p:
        return 0
    return more_room(out, size)


cdef inline void put16(out_t *out, uint16_t value) noexcept:
    value = kfuzz_be16(value)
    memcpy(out.p, &value, 2)
    out.p += 2


cdef inline void put32(out_t *out, uint32_t value) noexcept:
    value = kfuzz_be32(value)
    memcpy(out.p, &value, 4)
    out.p += 4


cdef inline void put64(out_t *out, uint64_t value) noexcept:
    value = kfuzz_be64(value)
    memcpy(out.p, &value, 8)
    out.p += 8


cdef inline void put_uvarint(out_t *out, uint32_t value) noexcept:
    while value >= 0x80:
        out.p[0] = <uint8_t> (value | 0x80)
        out.p += 1
        value >>= 7
    out.p[0] = <uint8_t> value
    out.p += 1


cdef inline int put_length(out_t *out, const op_t *op, bint short_one, int64_t n) except -1:
    """A length or a count, -1 for null, and room for what it is the length of."""
    need(out, 8 + max(n, 0))
    if op.compact:
        put_uvarint(out, <uint32_t> (n + 1))
    elif short_one:
        put16(out, <uint16_t> n)
    else:
        put32(out, <uint32_t> n)
    return 0


# Of the integers, by their kinds; the first is a bool.
cdef int64_t[7] LEAST = [0, -(1 << 7), -(1 << 15), 0, -(<int64_t> 1 << 31), 0, INT64_MIN]
cdef int64_t[7] MOST = [1, (1 << 7) - 1, (1 << 15) - 1, (1 << 16) - 1, (<int64_t> 1 << 31) - 1, (<int64_t> 1 << 32) - 1,
                        INT64_MAX]
INT_NAMES = {K_INT8: "int8", K_INT16: "int16", K_UINT16: "uint16", K_INT32: "int32", K_UINT32: "uint32",
             K_INT64: "int64"}


# The next entry of a dict; the name is NULL at the end.
cdef struct entry_t:
    Py_ssize_t at
    PyObject *name
    PyObject *value


cdef void put_kept(out_t *out, const char *field, int kind) noexcept:
    """The bytes of a number that an object has; there is room for them."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if width_of(kind) == 1:
        out.p[0] = <uint8_t> field[0]
        out.p += 1
    elif width_of(kind) == 2:
        memcpy(&two, field, 2)
        put16(out, two)
    elif width_of(kind) == 4:
        memcpy(&four, field, 4)
        put32(out, four)
    else:
        memcpy(&eight, field, 8)
        put64(out, eight)


cdef int put_message(Program program, out_t *out, message) except -1:
    put_struct(program, out, program.root, message, NULL)
    # There may have been room for more.
    if out.p - out.start > INT32_MAX:
        return refuse_size()
    return 0


cdef str path_of(Program program, const way_t *way):
    """``FetchRequest.topics[3].partitions``."""
    cdef list words = []
    while way != NULL:
        words.append(f".{<object> way.op.name}" + (f"[{way.element}]" if way.element >= 0 else ""))
        way = way.above
    return program.name + "".join(reversed(words))


cdef int put_struct(Program program, out_t *out, Plan plan, object given, const way_t *above) except -1:
    if isinstance(given, StructValue):
        if type(given) is type(plan.model):
            return put_object(program, out, plan, given, above)
        # One of another version, or of definitions that were read again.
        given = given.to_dict()
    if type(given) is not dict:
        raise EncodeError(f"{path_of(program, above)} is {type(given).__name__}; it must be a dict")
    return put_dict(program, out, plan, given, above)


cdef int put_object(Program program, out_t *out, Plan plan, object given, const way_t *above) except -1:
    cdef PyObject *raw = <PyObject *> given
    cdef way_t way
    cdef const op_t *op
    cdef uint32_t count = 0
    cdef Py_ssize_t found = 0
    cdef int i
    way.above = above
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
    put_uvarint(out, count)
    for i in range(plan.c.tagged_count):
        if not is_model_value(plan, i, given):
            op = &plan.c.tagged[i]
            put_tagged(program, out, op, getattr(given, <str> op.name), &way)
    return 0


cdef int put_dict(Program program, out_t *out, Plan plan, dict given, const way_t *above) except -1:
    cdef way_t way
    cdef const op_t *op
    cdef PyObject *value
    cdef entry_t next
    cdef Py_ssize_t found = 0
    cdef int i
    way.above = above
    next.at = 0
    advance(&next, given)
    for i in range(plan.c.count):
        op = &plan.c.ops[i]
        # Most dicts have their names in the order of the definition; only then nothing is looked up.
        while next.name != op.name and is_tagged(&plan.c, next.name):
            advance(&next, given)
        if next.name == op.name:
            value = next.value
            advance(&next, given)
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
    """Fields that this version has no place for have their defaults, or do not matter; others do not exist."""
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
            raise EncodeError(f"{path} is no field of it; there are {', '.join(fields) or 'none'}")
        default, ignorable = plan.absent[name]
        if not ignorable and not is_default(value, default):
            raise EncodeError(f"{path} is {value!r}, and version {program.version} has no place for it; leave it out, "
                              "or take another version")
    return 0


cdef int put_tags(Program program, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
    """The tagged fields that are not as by default, by tags; ``found`` counts the names that there were."""
    cdef PyObject *value
    cdef const op_t *op
    cdef uint32_t count = 0
    cdef int i
    need(out, 8)
    # Nothing is left that could be tagged.
    if found[0] == PyDict_Size(given):
        put_uvarint(out, 0)
        return 0
    if PyDict_GetItemWithError(given, UNKNOWN) != NULL:
        return put_all_tags(program, out, plan, given, way, found)
    for i in range(plan.c.tagged_count):
        value = tagged_value(&plan.c.tagged[i], given)
        if value != NULL:
            found[0] += 1
            count += not is_default(<object> value, <object> plan.c.tagged[i].default)
    put_uvarint(out, count)
    if count == 0:
        return 0
    for i in range(plan.c.tagged_count):
        op = &plan.c.tagged[i]
        value = tagged_value(op, given)
        if value != NULL and not is_default(<object> value, <object> op.default):
            put_tagged(program, out, op, <object> value, way)
    return 0


cdef int put_all_tags(Program program, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
    """The same with the unknown ones among them."""
    cdef PyObject *value
    cdef const op_t *op
    cdef list tags = []
    cdef int i
    cdef int64_t before = -1
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
            raise EncodeError(f"{path}: tag {tag} comes after tag {before}; give them by rising numbers, each once")
        before = tag
        tags.append((tag, -1, data))
    tags.sort(key=first_of)
    put_uvarint(out, <uint32_t> len(tags))
    for tag, place, data in tags:
        if place < 0:
            need(out, 16 + len(data))
            put_uvarint(out, <uint32_t> tag)
            put_uvarint(out, <uint32_t> len(data))
            memcpy(out.p, PyBytes_AS_STRING(data), <size_t> len(data))
            out.p += len(data)
        else:
            put_tagged(program, out, &plan.c.tagged[<int> place], data, way)
    return 0


cdef int put_tagged(Program program, out_t *out, const op_t *op, object given, way_t *way) except -1:
    """The field behind its size, which is known when it is written: five bytes are left for it, and closed up."""
    cdef int64_t start
    cdef int64_t size
    cdef uint8_t *value
    need(out, 16)
    put_uvarint(out, <uint32_t> op.tag)
    start = out.p - out.start
    out.p += 5
    put_field(program, out, op, given, way)
    size = out.p - out.start - start - 5
    value = out.start + start + 5
    out.p = out.start + start
    put_uvarint(out, <uint32_t> size)
    memmove(out.p, value, <size_t> size)
    out.p += size
    return 0


cdef int put_field(Program program, out_t *out, const op_t *op, object given, way_t *way) except -1:
    way.op = op
    way.element = -1
    if not op.array:
        return put_value(program, out, op, given, False, way)
    if given is None:
        if not op.nullable:
            raise EncodeError(f"{path_of(program, way)} is None; it must be a list in version {program.version}")
        return put_length(out, op, False, -1)
    if isinstance(given, list):
        put_length(out, op, False, PyList_GET_SIZE(given))
        for element in <list> given:
            way.element += 1
            put_value(program, out, op, element, True, way)
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
            out.p[0] = 0xff if given is None else 1
            out.p += 1
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


cdef int put_text(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef const char *text
    cdef Py_ssize_t n
    if type(given) is not str:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a str")
    text = utf8_of(given, &n)
    if text == NULL:
        PyErr_Clear()
        raise EncodeError(f"{path_of(program, way)} has half a surrogate pair in it; that is no text")
    if n > 0x7fff:
        raise EncodeError(f"{path_of(program, way)} takes {n} bytes; a string takes {0x7fff} at most")
    put_length(out, op, True, n)
    memcpy(out.p, text, <size_t> n)
    out.p += n
    return 0


cdef int put_data(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef Py_ssize_t n
    if type(given) is not bytes:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be bytes")
    n = PyBytes_GET_SIZE(given)
    if op.kind != K_UUID:
        put_length(out, op, False, n)
    elif n == 16:
        need(out, n)
    else:
        raise EncodeError(f"{path_of(program, way)} has {n} bytes; a uuid has 16")
    memcpy(out.p, PyBytes_AS_STRING(given), <size_t> n)
    out.p += n
    return 0


cdef int put_float(Program program, out_t *out, object given, const way_t *way) except -1:
    cdef double real
    cdef uint64_t raw
    if type(given) is not float and type(given) is not int:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a float")
    try:
        real = given
    except OverflowError:
        raise EncodeError(f"{path_of(program, way)} is {number_of(given)}; it does not fit float64") from None
    memcpy(&raw, &real, 8)
    need(out, 8)
    put64(out, raw)
    return 0


cdef int put_number(Program program, out_t *out, const op_t *op, object given, const way_t *way) except -1:
    cdef int64_t number
    cdef int overflow
    need(out, 8)
    if op.kind == K_BOOL:
        if type(given) is not bool:
            raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be a bool")
        out.p[0] = given is True
        out.p += 1
        return 0
    if type(given) is not int:
        raise EncodeError(f"{path_of(program, way)} is {type(given).__name__}; it must be an int")
    number = PyLong_AsLongLongAndOverflow(given, &overflow)
    if unlikely(overflow != 0 or number < LEAST[op.kind] or number > MOST[op.kind]):
        raise EncodeError(f"{path_of(program, way)} is {number_of(given)}; it does not fit {INT_NAMES[op.kind]}")
    if op.kind == K_INT32 or op.kind == K_UINT32:
        put32(out, <uint32_t> number)
    elif op.kind == K_INT64:
        put64(out, <uint64_t> number)
    elif op.kind == K_INT8:
        out.p[0] = <uint8_t> number
        out.p += 1
    else:
        put16(out, <uint16_t> number)
    return 0


cdef inline void advance(entry_t *next, dict given) noexcept:
    if PyDict_Next(given, &next.at, &next.name, &next.value) == 0:
        next.name = NULL


cdef inline bint is_tagged(const plan_t *plan, const PyObject *name) noexcept:
    cdef int i
    for i in range(plan.tagged_count):
        if plan.tagged[i].name == name:
            return True
    return False


cdef bint is_model_value(Plan plan, int place, object given) except -1:
    """Whether an object has a tagged field that may be left out."""
    cdef const op_t *op = &plan.c.tagged[place]
    cdef PyObject *model = <PyObject *> plan.model
    if not op.there:
        return True
    # The very same, as most are; a float may be another and yet equal.
    if memcmp(field_of(<PyObject *> given, op), field_of(model, op), field_width(op)) == 0:
        return True
    return is_default(getattr(given, <str> op.name), getattr(plan.model, <str> op.name))


cdef inline PyObject *tagged_value(const op_t *op, dict given) except? NULL:
    """What is given for a tagged field; NULL for nothing, and in versions that have none."""
    return PyDict_GetItemWithError(given, <object> op.name) if op.there else NULL


cdef str number_of(object value):
    """An int in decimal; of one that is too long for anybody to read, its length."""
    return str(value) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"


cdef bint is_default(object value, object default) except -1:
    """Whether a tagged field may be left out; a struct may leave out those of its fields that are as by default."""
    cdef PyObject *name
    cdef PyObject *inner
    cdef PyObject *other
    cdef Py_ssize_t at = 0
    if value is default:
        return True
    if type(default) is dict and isinstance(value, StructValue):
        value = value.to_dict()
    if type(default) is list:
        # That of every array; an array may be a tuple, or a list with a find of its own.
        return isinstance(value, (list, tuple)) and len(value) == 0
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


def first_of(pair):
    return pair[0]


cdef list checked_unknown(object value, str path):
    made = []
    if not isinstance(value, (list, tuple)):
        raise EncodeError(f"{path} is {type(value).__name__}; it must be a list of tags and bytes")
    for pair in value:
        if type(pair) is not tuple or len(pair) != 2 or type(pair[0]) is not int or type(pair[1]) is not bytes:
            raise EncodeError(f"{path} has {pair!r}; it must be a tuple of a tag and bytes")
        # The last one stands for no tag at all among Kafka's writers.
        if not 0 <= pair[0] < INT32_MAX:
            raise EncodeError(f"{path}: tag {pair[0]} is none; tags go from 0 to {INT32_MAX - 1}")
        made.append(pair)
    return made


cdef list fields_of(Plan plan):
    """The names of all fields that this version has."""
    cdef int i
    return [*plan.names, *[plan.tagged_names[i] for i in range(plan.c.tagged_count) if plan.c.tagged[i].there]]
