"""Messages by their schemas: one walk that checks bytes, one that makes values of what was checked, and the writer.

A schema is a definition at one version, flat: a list of fields for each struct. Mirrors what Kafka's generated classes
(``org.apache.kafka.common.message``) do with a ``ByteBufferAccessor``; the interface is described in message.pyi.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Next, PyDict_SetItem, PyDict_Size
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject, PyTypeObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport (
    INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcmp, memcpy, memmove

from sys import intern

from kfuzz.errors import EncodeError

from kfuzz.wire.cursor cimport kfuzz_be16, kfuzz_be32, kfuzz_be64, load16, load32, load64, unlikely
from kfuzz.wire.scratch cimport Scratch, grow, out_t
from kfuzz.wire.values cimport (
    T_BOOL, T_BYTE, T_DOUBLE, T_INT, T_LONGLONG, T_OBJECT_EX, T_SHORT, T_UINT, T_USHORT, UNKNOWN, StructValue,
    array_type, copy_struct, keyed, struct_type,
)

cdef extern from "Python.h":
    # What is made goes where it belongs without being counted up and down again.
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
    PyObject *PyDict_GetItemWithError(object dict, object key) except? NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow)
    # Without Cython's look at whether it failed, which takes as long as the call.
    const char *utf8_of "PyUnicode_AsUTF8AndSize"(object text, Py_ssize_t *size)
    void PyErr_Clear()
    bint PyGC_Disable()
    bint PyGC_Enable()

# What Kafka 4.4 makes room for at most: elements of an array, tagged fields of a struct.
cdef enum:
    MOST_ELEMENTS = 1000000
    MOST_TAGS = 10000

# How deep structs may stand in one another; Kafka's own stop at five.
cdef enum:
    DEEPEST = 64

cdef enum:
    K_BOOL
    K_INT8
    K_INT16
    K_UINT16
    K_INT32
    K_UINT32
    K_INT64
    K_FLOAT64
    K_UUID
    K_STRING
    K_BYTES
    K_STRUCT

KINDS = {
    "bool": K_BOOL, "int8": K_INT8, "int16": K_INT16, "uint16": K_UINT16, "int32": K_INT32, "uint32": K_UINT32,
    "int64": K_INT64, "float64": K_FLOAT64, "uuid": K_UUID, "string": K_STRING, "bytes": K_BYTES, "records": K_BYTES,
    "struct": K_STRUCT,
}

# What a primitive of fixed size takes.
cdef int[9] WIDTHS = [1, 1, 2, 2, 4, 4, 8, 8, 16]

# What numbers are in an object.
cdef int[8] MEMBERS = [T_BOOL, T_BYTE, T_SHORT, T_USHORT, T_INT, T_UINT, T_LONGLONG, T_DOUBLE]

cdef enum:
    BOOL_NOT_0_OR_1
    BYTES_AFTER_MESSAGE
    COUNT_EXCEEDS_MESSAGE
    COUNT_TOO_LARGE
    LENGTH_BELOW_MINUS_ONE
    LENGTH_EXCEEDS_MESSAGE
    MESSAGE_CUT
    NESTED_TOO_DEEP
    NULL_NOT_ALLOWED
    STRING_NOT_UTF8
    STRING_TOO_LONG
    TAG_COUNT_EXCEEDS_MESSAGE
    TAG_COUNT_TOO_LARGE
    TAG_NOT_ASCENDING
    TAG_NOT_IN_VERSION
    TAG_REPEATED
    TAG_SIZE_EXCEEDS_MESSAGE
    TAG_SIZE_MISMATCH
    TAG_UNKNOWN
    VARINT_OVERLONG
    VARINT_TOO_LONG
    CODE_COUNT

# In the order of the numbers above.
CODES = (
    "bool-not-0-or-1", "bytes-after-message", "count-exceeds-message", "count-too-large", "length-below-minus-one",
    "length-exceeds-message", "message-cut", "nested-too-deep", "null-not-allowed", "string-not-utf8",
    "string-too-long", "tag-count-exceeds-message", "tag-count-too-large", "tag-not-ascending", "tag-not-in-version",
    "tag-repeated", "tag-size-exceeds-message", "tag-size-mismatch", "tag-unknown", "varint-overlong",
    "varint-too-long",
)

cdef struct plan_t

# A field as it is in one version.
cdef struct op_t:
    int kind
    bint array
    bint nullable
    bint compact
    bint there                 # a tag of other versions is known, and refused
    int32_t tag                # -1: none
    int place                  # among its plan's, tagged ones by themselves
    bint is_number             # which an object holds as it is, and not as an object
    Py_ssize_t offset          # of its value in an object
    # From here on, fields of which any bytes will do: how many, and what they take.
    int run_count
    int run_bytes
    plan_t *plan               # of a struct
    # Both are its Plan's.
    PyObject *name
    PyObject *default

cdef struct plan_t:
    op_t *ops
    int count
    op_t *tagged               # by tags
    int tagged_count
    Py_ssize_t unknown         # the offset of the unknown fields in an object
    int objects                # how many of an object's fields are objects themselves
    bint flexible
    int number
    PyObject *owner            # the Plan that this is of

# A step of the way to a field: which one, and the element of an array, -1 for none.
cdef struct step_t:
    const plan_t *plan
    const op_t *op
    int64_t element

# The first of its code.
cdef struct message_note_t:
    int64_t at
    int64_t found
    int64_t allowed
    int depth
    step_t steps[DEEPEST]

cdef struct walk_t:
    const uint8_t *base
    const uint8_t *end
    int depth
    step_t steps[DEEPEST]
    uint64_t seen
    message_note_t *notes      # by codes


cdef void note(walk_t *w, int code, const uint8_t *at, int64_t found, int64_t allowed) noexcept nogil:
    cdef message_note_t *first
    if w.seen >> code & 1:
        return
    w.seen |= (<uint64_t> 1) << code
    first = &w.notes[code]
    first.at = at - w.base
    first.found = found
    first.allowed = allowed
    first.depth = w.depth
    memcpy(first.steps, w.steps, <size_t> w.depth * sizeof(step_t))


# ------------------------------------------------------------------------------------------------- checking

cdef inline const uint8_t *check_uvarint(walk_t *w, const uint8_t *p, uint32_t *out) noexcept nogil:
    """An unsigned varint of five bytes at most; what does not fit 32 bits is dropped, as Java drops it."""
    if p < w.end and p[0] < 0x80:
        out[0] = p[0]
        return p + 1
    return check_long_uvarint(w, p, out)


cdef const uint8_t *check_long_uvarint(walk_t *w, const uint8_t *p, uint32_t *out) noexcept nogil:
    cdef const uint8_t *start = p
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte = 0x80
    while byte >= 0x80:
        if unlikely(p >= w.end):
            note(w, MESSAGE_CUT, p, 0, 1)
            return NULL
        if unlikely(shift == 35):
            note(w, VARINT_TOO_LONG, start, 6, 5)
            return NULL
        byte = p[0]
        raw |= <uint64_t> (byte & 0x7f) << shift
        shift += 7
        p += 1
    if unlikely((shift > 7 and byte == 0) or raw >> 32 != 0):
        note(w, VARINT_OVERLONG, start, p - start, 5)
    out[0] = <uint32_t> raw
    return p


cdef inline const uint8_t *check_length(walk_t *w, const uint8_t *p, const op_t *op, bint short_one, bint nullable,
                                        int64_t *out) noexcept nogil:
    """A length or a count; -1 for null, which is allowed then."""
    cdef const uint8_t *start = p
    cdef uint32_t raw
    cdef int64_t n
    if op.compact:
        p = check_uvarint(w, p, &raw)
        if unlikely(p == NULL):
            return NULL
        n = <int32_t> (raw - 1)
    elif short_one:
        if unlikely(w.end - p < 2):
            note(w, MESSAGE_CUT, p, w.end - p, 2)
            return NULL
        n = <int16_t> load16(p)
        p += 2
    else:
        if unlikely(w.end - p < 4):
            note(w, MESSAGE_CUT, p, w.end - p, 4)
            return NULL
        n = <int32_t> load32(p)
        p += 4
    if n < 0:
        if unlikely(not nullable):
            note(w, NULL_NOT_ALLOWED, start, n, 0)
            return NULL
        if unlikely(n < -1):
            note(w, LENGTH_BELOW_MINUS_ONE, start, n, -1)
        n = -1
    out[0] = n
    return p


cdef inline uint64_t word_at(const uint8_t *p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word


cdef inline bint is_ascii(const uint8_t *p, int64_t n) noexcept nogil:
    cdef uint64_t seen = 0
    cdef int64_t at = 0
    if n >= 8:
        # The last word may overlap the one before: a text seldom is whole words long.
        while at < n - 8:
            seen |= word_at(p + at)
            at += 8
        seen |= word_at(p + n - 8)
    else:
        while at < n:
            seen |= p[at]
            at += 1
    return seen & <uint64_t> 0x8080808080808080ULL == 0


cdef const uint8_t *check_value(walk_t *w, const uint8_t *p, const op_t *op, bint element) noexcept nogil:
    """A value that is no array; elements of arrays are never null."""
    cdef const uint8_t *start = p
    cdef int64_t n
    if op.kind < K_STRING:
        if unlikely(w.end - p < WIDTHS[op.kind]):
            note(w, MESSAGE_CUT, p, w.end - p, WIDTHS[op.kind])
            return NULL
        if op.kind == K_BOOL and unlikely(p[0] > 1):
            note(w, BOOL_NOT_0_OR_1, p, p[0], 1)
        return p + WIDTHS[op.kind]
    if op.kind == K_STRUCT:
        if op.nullable and not element:
            if unlikely(p >= w.end):
                note(w, MESSAGE_CUT, p, 0, 1)
                return NULL
            if <int8_t> p[0] < 0:
                if unlikely(<int8_t> p[0] < -1):
                    note(w, LENGTH_BELOW_MINUS_ONE, p, <int8_t> p[0], -1)
                return p + 1
            if unlikely(p[0] != 1):
                note(w, BOOL_NOT_0_OR_1, p, p[0], 1)
            p += 1
        return check_struct(w, p, op.plan)
    p = check_length(w, p, op, op.kind == K_STRING, op.nullable and not element, &n)
    if unlikely(p == NULL) or n < 0:
        return p
    if op.kind == K_STRING and unlikely(n > 0x7fff):
        note(w, STRING_TOO_LONG, start, n, 0x7fff)
        return NULL
    if unlikely(n > w.end - p):
        note(w, LENGTH_EXCEEDS_MESSAGE, start, n, w.end - p)
        return NULL
    if op.kind == K_STRING and unlikely(not is_ascii(p, n)):
        check_text(w, p, n)
    return p + n


cdef void check_text(walk_t *w, const uint8_t *p, int64_t n) noexcept nogil:
    with gil:
        try:
            PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, NULL)
        except UnicodeDecodeError:
            note(w, STRING_NOT_UTF8, p, n, 0)
        except MemoryError:
            pass


cdef inline int member_of(const op_t *op) noexcept nogil:
    """What a field is in an object."""
    return MEMBERS[op.kind] if op.is_number else T_OBJECT_EX


cdef inline bint is_any(int kind) noexcept nogil:
    """Whether all bytes are a value of it."""
    return kind < K_STRING and kind != K_BOOL


cdef const uint8_t *check_field(walk_t *w, const uint8_t *p, const plan_t *plan, const op_t *op) noexcept nogil:
    cdef const uint8_t *start = p
    cdef step_t *step
    cdef int64_t n
    cdef int64_t i
    if unlikely(w.depth == DEEPEST):
        note(w, NESTED_TOO_DEEP, p, DEEPEST, DEEPEST)
        return NULL
    step = &w.steps[w.depth]
    step.plan = plan
    step.op = op
    step.element = -1
    w.depth += 1
    if not op.array:
        p = check_value(w, p, op, False)
    else:
        p = check_length(w, p, op, False, op.nullable, &n)
        if unlikely(p == NULL):
            return NULL
        # Kafka asks so before it makes room, whatever the elements take.
        if unlikely(n > w.end - p):
            note(w, COUNT_EXCEEDS_MESSAGE, start, n, w.end - p)
            return NULL
        if unlikely(n > MOST_ELEMENTS):
            note(w, COUNT_TOO_LARGE, start, n, MOST_ELEMENTS)
            return NULL
        if n > 0 and is_any(op.kind) and n * WIDTHS[op.kind] <= w.end - p:
            p += n * WIDTHS[op.kind]
            n = 0
        for i in range(n):
            step.element = i
            p = check_struct(w, p, op.plan) if op.kind == K_STRUCT else check_value(w, p, op, True)
            if unlikely(p == NULL):
                return NULL
    if unlikely(p == NULL):
        return NULL
    w.depth -= 1
    return p


cdef inline const uint8_t *after_plain(const walk_t *w, const uint8_t *p, const op_t *op) noexcept nogil:
    """Behind a flag, or a text or bytes with a length of one byte, that nothing is to be said of; NULL for the rest."""
    cdef int64_t n
    if op.array or p >= w.end or unlikely(w.depth == DEEPEST):
        return NULL
    if op.kind == K_BOOL:
        return p + 1 if p[0] <= 1 else NULL
    if not op.compact or op.kind < K_STRING or op.kind == K_STRUCT or p[0] >= 0x80:
        return NULL
    n = <int64_t> p[0] - 1
    p += 1
    if n < 0:
        return p if op.nullable else NULL
    if n > w.end - p or (op.kind == K_STRING and not is_ascii(p, n)):
        return NULL
    return p + n


cdef const uint8_t *check_struct(walk_t *w, const uint8_t *p, const plan_t *plan) noexcept nogil:
    cdef const uint8_t *after
    cdef const op_t *op
    cdef int i = 0
    while i < plan.count:
        op = &plan.ops[i]
        if op.run_count and op.run_bytes <= w.end - p and w.depth < DEEPEST:
            p += op.run_bytes
            i += op.run_count
            continue
        after = after_plain(w, p, op)
        if after == NULL:
            after = check_field(w, p, plan, op)
            if unlikely(after == NULL):
                return NULL
        p = after
        i += 1
    if not plan.flexible:
        return p
    # Most have no tagged fields.
    if p < w.end and p[0] == 0:
        return p + 1
    return check_tags(w, p, plan)


cdef const op_t *op_of(const plan_t *plan, int64_t tag) noexcept nogil:
    cdef int i
    for i in range(plan.tagged_count):
        if plan.tagged[i].tag == tag:
            return &plan.tagged[i]
    return NULL


cdef const uint8_t *check_tags(walk_t *w, const uint8_t *p, const plan_t *plan) noexcept nogil:
    cdef const uint8_t *start = p
    cdef const uint8_t *value
    cdef const op_t *op
    cdef int64_t before = -1
    cdef uint32_t count
    cdef uint32_t tag
    cdef uint32_t size
    cdef uint32_t _i
    p = check_uvarint(w, p, &count)
    if unlikely(p == NULL):
        return NULL
    if unlikely(count > w.end - p):
        note(w, TAG_COUNT_EXCEEDS_MESSAGE, start, count, w.end - p)
        return NULL
    if unlikely(count > MOST_TAGS):
        note(w, TAG_COUNT_TOO_LARGE, start, count, MOST_TAGS)
        return NULL
    for _i in range(count):
        start = p
        p = check_uvarint(w, p, &tag)
        if unlikely(p == NULL):
            return NULL
        if unlikely(tag == before):
            note(w, TAG_REPEATED, start, tag, before + 1)
        elif unlikely(<int64_t> tag < before):
            note(w, TAG_NOT_ASCENDING, start, tag, before + 1)
        before = max(before, <int64_t> tag)
        value = p
        p = check_uvarint(w, p, &size)
        if unlikely(p == NULL):
            return NULL
        op = op_of(plan, tag)
        if op == NULL:
            note(w, TAG_UNKNOWN, start, tag, 0)
            if unlikely(size > w.end - p):
                note(w, TAG_SIZE_EXCEEDS_MESSAGE, value, size, w.end - p)
                return NULL
            p += size
            continue
        if unlikely(not op.there):
            note(w, TAG_NOT_IN_VERSION, start, tag, 0)
            return NULL
        value = p
        p = check_field(w, p, plan, op)
        if unlikely(p == NULL):
            return NULL
        # Kafka does not look at the size of what it knows.
        if unlikely(p - value != size):
            note(w, TAG_SIZE_MISMATCH, start, size, p - value)
    return p


# ------------------------------------------------------------------------------------------------- values

# What is read here has been checked.
cdef inline const uint8_t *get_uvarint(const uint8_t *p, uint32_t *out) noexcept:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte = 0x80
    while byte >= 0x80:
        byte = p[0]
        raw |= <uint64_t> (byte & 0x7f) << shift
        shift += 7
        p += 1
    out[0] = <uint32_t> raw
    return p


cdef inline const uint8_t *get_length(const uint8_t *p, const op_t *op, bint short_one, int64_t *out) noexcept:
    cdef uint32_t raw
    if op.compact:
        p = get_uvarint(p, &raw)
        out[0] = <int32_t> (raw - 1)
        return p
    if short_one:
        out[0] = <int16_t> load16(p)
        return p + 2
    out[0] = <int32_t> load32(p)
    return p + 4


cdef tuple NOTHING = ()


# What makes values: where it is, and what a struct is put into.
cdef struct reader_t:
    const uint8_t *p
    bint as_objects            # and arrays are tuples; else dicts and lists


cdef inline PyObject *counted(object made) noexcept:
    """A reference to hand over."""
    Py_INCREF(made)
    return <PyObject *> made


cdef inline object owned(PyObject *made):
    """What has been handed over, or is to be dropped if anything is raised."""
    value = <object> made
    Py_DECREF(value)
    return value


cdef inline PyObject *text_of(const uint8_t *p, int64_t n, bytes errors) except NULL:
    cdef PyObject *made
    # Of one letter Python keeps a text.
    if n < 2 or unlikely(not is_ascii(p, n)):
        return counted(decoded_text(p, n, errors))
    made = PyUnicode_New(<Py_ssize_t> n, 127)
    memcpy(PyUnicode_DATA(made), p, <size_t> n)
    return made


cdef object decoded_text(const uint8_t *p, int64_t n, bytes errors):
    try:
        return PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, NULL)
    except UnicodeDecodeError:
        return PyUnicode_DecodeUTF8(<const char *> p, <Py_ssize_t> n, PyBytes_AS_STRING(errors))


cdef PyObject *float_of(const uint8_t *p) except NULL:
    cdef uint64_t raw = load64(p)
    cdef double value
    memcpy(&value, &raw, 8)
    return PyFloat_FromDouble(value)


cdef inline PyObject *primitive_of(const uint8_t *p, int kind) except NULL:
    """A primitive of fixed size."""
    cdef int64_t number
    if kind == K_INT32:
        return PyLong_FromLong(<int32_t> load32(p))
    elif kind == K_INT64:
        number = <int64_t> load64(p)
        # The other one is made for such numbers.
        return PyLong_FromLong(<int32_t> number) if number == <int32_t> number else PyLong_FromLongLong(number)
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
    return bytes_of(<const char *> p, 16)


# ------------------------------------------------------------------------------------------------- writing

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

# The way down to what is being written. Each step stands in the frame of its struct's writer.
cdef struct way_t:
    const way_t *above
    const op_t *op
    int64_t element            # -1: the field itself


# Of a dict, the one that comes next; no name at the end.
cdef struct entry_t:
    Py_ssize_t at
    PyObject *name
    PyObject *value


cdef void count_runs(plan_t *plan) noexcept:
    cdef op_t *op
    cdef int i
    for i in range(plan.count - 1, -1, -1):
        op = &plan.ops[i]
        if is_any(op.kind) and not op.array:
            # Behind the last one there is room for one more, of which all is 0.
            op.run_count = plan.ops[i + 1].run_count + 1
            op.run_bytes = plan.ops[i + 1].run_bytes + WIDTHS[op.kind]


@cython.final
cdef class Plan:
    """The names and defaults of a struct's fields, in the order of its C plan."""

    cdef plan_t c
    cdef str name
    cdef tuple names
    cdef tuple tagged_names
    cdef tuple defaults            # of both, as values; what can be changed is made anew
    cdef tuple tagged_defaults
    # Fields that this version lacks: name to (default, ignorable).
    cdef dict absent
    cdef tuple map_keys            # of a struct that arrays are looked up by
    # What is read is put into a copy of one of these two: all names in their order, or an object with the defaults of
    # the tagged fields.
    cdef dict blank
    cdef object model
    cdef type array_type           # of its arrays, where they are not lists

    def __dealloc__(self):
        PyMem_Free(self.c.ops)
        PyMem_Free(self.c.tagged)

    cdef list fields(self):
        """The names of all that this version has."""
        cdef int i
        return [*self.names, *[self.tagged_names[i] for i in range(self.c.tagged_count) if self.c.tagged[i].there]]


cdef inline char *field_of(PyObject *made, const op_t *op) noexcept:
    return <char *> made + op.offset


cdef inline size_t field_width(const op_t *op) noexcept:
    return <size_t> WIDTHS[op.kind] if op.is_number else sizeof(PyObject *)


cdef inline void set_number(char *field, const uint8_t *p, int kind) noexcept:
    """A number, from its bytes, as an object has it."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if WIDTHS[kind] == 1:
        field[0] = p[0] != 0 if kind == K_BOOL else <char> p[0]
    elif WIDTHS[kind] == 2:
        two = load16(p)
        memcpy(field, &two, 2)
    elif WIDTHS[kind] == 4:
        four = load32(p)
        memcpy(field, &four, 4)
    else:
        eight = load64(p)
        memcpy(field, &eight, 8)


cdef void put_kept(out_t *out, const char *field, int kind) noexcept:
    """The bytes of a number that an object has; there is room for them."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if WIDTHS[kind] == 1:
        out.p[0] = <uint8_t> field[0]
        out.p += 1
    elif WIDTHS[kind] == 2:
        memcpy(&two, field, 2)
        put16(out, two)
    elif WIDTHS[kind] == 4:
        memcpy(&four, field, 4)
        put32(out, four)
    else:
        memcpy(&eight, field, 8)
        put64(out, eight)


cdef inline void set_object(char *field, PyObject *value) noexcept:
    """Hand ``value`` over."""
    # There is a default; and a repeated tag has been here before.
    Py_XDECREF((<PyObject **> field)[0])
    (<PyObject **> field)[0] = value


@cython.final
cdef class Schema:
    """The interface is described in message.pyi."""

    cdef readonly str name
    cdef readonly int version
    cdef list plans
    cdef Plan root
    cdef message_note_t *notes
    cdef bytes text_errors

    def __cinit__(self):
        self.notes = <message_note_t *> PyMem_Calloc(CODE_COUNT, sizeof(message_note_t))
        if self.notes == NULL:
            raise MemoryError

    def __init__(self, str name not None, int version, list plans not None, str text_errors not None):
        cdef Plan plan
        cdef dict described
        self.name = name
        self.version = version
        self.text_errors = text_errors.encode()
        self.plans = [Plan.__new__(Plan) for _ in plans]
        for plan, described in zip(self.plans, plans):
            self.fill(plan, described)
        self.root = self.plans[0]

    def __dealloc__(self):
        PyMem_Free(self.notes)

    cdef int fill(self, Plan plan, dict described) except -1:
        plan.c.flexible = described["flexible"]
        plan.c.number = self.plans.index(plan)
        plan.name = described["name"]
        plan.absent = described["absent"]
        plan.map_keys = described["map_keys"]
        # Interned as the names in anybody's source code are: most are then known by where they stand.
        plan.names = tuple([intern(field["name"]) for field in described["fields"]])
        plan.tagged_names = tuple([intern(field["name"]) for field in described["tagged"]])
        plan.defaults = tuple([field["default"] for field in described["fields"]])
        plan.tagged_defaults = tuple([field["default"] for field in described["tagged"]])
        plan.c.count = <int> len(plan.names)
        plan.c.tagged_count = <int> len(plan.tagged_names)
        plan.c.ops = self.ops(described["fields"], plan.names, plan.defaults)
        plan.c.tagged = self.ops(described["tagged"], plan.tagged_names, plan.tagged_defaults)
        plan.c.owner = <PyObject *> plan
        count_runs(&plan.c)
        plan.blank = dict.fromkeys(plan.names)
        for i in range(plan.c.tagged_count):
            if plan.c.tagged[i].there:
                default = plan.tagged_defaults[i]
                plan.blank[plan.tagged_names[i]] = None if is_changeable(default) else default
        return 0

    cdef op_t *ops(self, list fields, tuple names, tuple defaults) except NULL:
        cdef op_t *ops = <op_t *> PyMem_Calloc(<size_t> (len(fields) + 1), sizeof(op_t))
        cdef op_t *op
        cdef Py_ssize_t i
        if ops == NULL:
            raise MemoryError
        for i in range(len(fields)):
            field = fields[i]
            op = &ops[i]
            op.kind = KINDS[field["kind"]]
            op.array = field["array"]
            op.nullable = field["nullable"]
            op.compact = field["compact"]
            op.there = field["there"]
            op.tag = field["tag"]
            op.place = <int> i
            op.is_number = op.kind < K_UUID and not op.array
            op.plan = &(<Plan> self.plans[field["plan"]]).c if op.kind == K_STRUCT else NULL
            op.name = PyTuple_GET_ITEM(names, i)
            op.default = PyTuple_GET_ITEM(defaults, i)
        return ops

    # -- reading

    cdef const uint8_t *walk(self, walk_t *w, const uint8_t *p, int64_t n) noexcept nogil:
        w.base = p
        w.end = p + n
        w.depth = 0
        w.seen = 0
        w.notes = self.notes
        p = check_struct(w, p, &self.root.c)
        if p != NULL and p < w.end:
            note(w, BYTES_AFTER_MESSAGE, p, w.end - p, 0)
        return p

    def check(self, data, /):
        cdef Py_buffer view
        if type(data) is bytes:
            return self.checked(<const uint8_t *> PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            return self.checked(<const uint8_t *> view.buf, view.len)
        finally:
            PyBuffer_Release(&view)

    cdef tuple checked(self, const uint8_t *start, int64_t n):
        cdef walk_t w
        cdef const uint8_t *end = self.walk(&w, start, n)
        return -1 if end == NULL else end - start, self.notes_of(&w) if w.seen else NOTHING

    def decode(self, bytes data not None, /):
        return self.decoded(data, False)

    def decode_objects(self, bytes data not None, /):
        if self.root.model is None:
            self.make_models()
        return self.decoded(data, True)

    cdef tuple decoded(self, bytes data, bint as_objects):
        cdef walk_t w
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = self.walk(&w, p, PyBytes_GET_SIZE(data))
        if end == NULL:
            return -1, self.notes_of(&w), None
        return self.made(&w, end, as_objects)

    def places(self, bytes data not None, /):
        cdef walk_t w
        cdef const uint8_t *start = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef const uint8_t *end = self.walk(&w, start, PyBytes_GET_SIZE(data))
        cdef Places made = Places.__new__(Places)
        cdef int64_t refused_at
        notes = self.notes_of(&w) if w.seen else NOTHING
        made.schema = self
        made.base = made.p = start
        # What stands before a refusal has been checked.
        made.stop = end
        if end == NULL:
            refused_at = max([note[1] for note in notes])
            made.stop = start + refused_at
        made.made = []
        made.take_struct(self.root, self.name)
        return -1 if end == NULL else end - start, notes, made.made

    cdef tuple notes_of(self, const walk_t *w):
        cdef const message_note_t *first
        cdef int code
        cdef int i
        cdef list made = []
        for code in range(CODE_COUNT):
            if w.seen >> code & 1:
                first = &w.notes[code]
                made.append((CODES[code], first.at, first.found, first.allowed,
                             [self.step_of(&first.steps[i]) for i in range(first.depth)]))
        return tuple(made)

    cdef tuple step_of(self, const step_t *step):
        cdef Plan plan = self.plans[step.plan.number]
        names = plan.names if step.op.tag < 0 else plan.tagged_names
        return names[step.op.place], step.element

    cdef int make_models(self) except -1:
        cdef Plan plan
        for plan in self.plans:
            if plan.array_type is None:
                plan.array_type = array_type(plan.map_keys)
        # The root's comes last: who has it has all.
        for plan in reversed(self.plans):
            self.make_model(plan)
        return 0

    cdef int make_model(self, Plan plan) except -1:
        cdef const op_t *op
        cdef int i
        if plan.model is not None:
            return 0
        kind = self.made_type(plan)
        model = owned(PyType_GenericAlloc(<PyTypeObject *> kind, 0))
        if plan.c.flexible:
            set_object(<char *> <PyObject *> model + plan.c.unknown, counted(NOTHING))
        for i in range(plan.c.tagged_count):
            op = &plan.c.tagged[i]
            if op.there:
                self.set_default(<PyObject *> model, op)
        # Making a type runs the collector, and whoever listens to it may have decoded.
        if plan.model is None:
            plan.model = model
        return 0

    cdef object made_type(self, Plan plan):
        """A type for the objects of a struct, in which each field has its place."""
        cdef list there = [i for i in range(plan.c.tagged_count) if plan.c.tagged[i].there]
        cdef list members = [member_of(&plan.c.ops[i]) for i in range(plan.c.count)]
        cdef int place = plan.c.count
        members += [member_of(&plan.c.tagged[i]) for i in there]
        names = tuple(plan.blank)
        # Every dict has the same names, but for the unknown fields.
        if plan.c.flexible:
            names += (UNKNOWN,)
            members.append(T_OBJECT_EX)
        type_made, offsets = struct_type(plan.name, names, members)
        plan.c.objects = <int> members.count(T_OBJECT_EX)
        for i in range(plan.c.count):
            plan.c.ops[i].offset = offsets[i]
        for i in there:
            plan.c.tagged[<int> i].offset = offsets[place]
            place += 1
        if plan.c.flexible:
            plan.c.unknown = offsets[place]
        return type_made

    cdef int set_default(self, PyObject *made, const op_t *op) except -1:
        cdef Scratch scratch
        cdef way_t way
        if op.is_number:
            scratch = Scratch.__new__(Scratch)
            way.above = NULL
            self.put_field(&scratch.out, op, <object> op.default, &way)
            set_number(field_of(made, op), scratch.out.start, op.kind)
        else:
            set_object(field_of(made, op), counted(self.default_of(op)))
        return 0

    cdef object default_of(self, const op_t *op):
        """The default of what is no number, as objects have it."""
        cdef Plan plan = <Plan> op.plan.owner if op.kind == K_STRUCT else None
        cdef PyObject *raw
        cdef int i
        if type(<object> op.default) is list:
            return NOTHING if plan is None else plan.array_type()
        if type(<object> op.default) is not dict:
            return <object> op.default
        # The struct may not have had its turn.
        self.make_model(plan)
        raw = copy_struct(<PyObject *> plan.model, plan.c.objects)
        made = owned(raw)
        for i in range(plan.c.count):
            self.set_default(raw, &plan.c.ops[i])
        return made

    cdef tuple made(self, const walk_t *w, const uint8_t *end, bint as_objects):
        # Of a large message the collector would look at all values again for every few hundred new ones, and find
        # nothing: no garbage is made here.
        cdef bint collecting = PyGC_Disable()
        cdef reader_t r
        r.p = w.base
        r.as_objects = as_objects
        try:
            return end - w.base, self.notes_of(w) if w.seen else NOTHING, owned(self.make_struct(&r, self.root))
        finally:
            if collecting:
                PyGC_Enable()

    cdef PyObject *make_struct(self, reader_t *r, Plan plan) except NULL:
        return self.make_object(r, plan) if r.as_objects else self.make_dict(r, plan)

    cdef PyObject *make_object(self, reader_t *r, Plan plan) except NULL:
        cdef PyObject *raw = copy_struct(<PyObject *> plan.model, plan.c.objects)
        cdef const op_t *op
        cdef int i
        made = owned(raw)
        for i in range(plan.c.count):
            op = &plan.c.ops[i]
            if op.is_number:
                set_number(field_of(raw, op), r.p, op.kind)
                r.p += WIDTHS[op.kind]
            else:
                (<PyObject **> field_of(raw, op))[0] = self.make_field(r, op)
        if plan.c.flexible:
            unknown = self.make_tags(r, plan, raw)
            if unknown:
                set_object(<char *> raw + plan.c.unknown, counted(tuple(unknown)))
        return counted(made)

    cdef PyObject *make_dict(self, reader_t *r, Plan plan) except NULL:
        # A copy has the names, in their order, and room for the values: that is half of the work.
        cdef PyObject *raw = PyDict_Copy(plan.blank)
        cdef const op_t *op
        cdef int i
        made = owned(raw)
        for i in range(plan.c.count):
            self.give(r, raw, &plan.c.ops[i])
        if plan.c.flexible:
            # The other defaults stand in the blank.
            for i in range(plan.c.tagged_count):
                op = &plan.c.tagged[i]
                if op.there and is_changeable(<object> op.default):
                    PyDict_SetItem(<dict> raw, <object> op.name, fresh(<object> op.default))
            unknown = self.make_tags(r, plan, raw)
            if unknown:
                PyDict_SetItem(<dict> raw, UNKNOWN, unknown)
        return counted(made)

    cdef inline int give(self, reader_t *r, PyObject *made, const op_t *op) except -1:
        """Read a field into the dict or the object."""
        cdef PyObject *value
        cdef int done
        if r.as_objects and op.is_number:
            set_number(field_of(made, op), r.p, op.kind)
            r.p += WIDTHS[op.kind]
            return 0
        value = self.make_field(r, op)
        if r.as_objects:
            set_object(field_of(made, op), value)
            return 0
        done = set_item(made, op.name, value)
        Py_XDECREF(value)
        return done

    cdef list make_tags(self, reader_t *r, Plan plan, PyObject *made):
        """Read the tagged fields; those that are not known are returned, None for none."""
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
                self.give(r, made, op)
                continue
            if unknown is None:
                unknown = []
            unknown.append((tag, PyBytes_FromStringAndSize(<const char *> r.p, size)))
            r.p += size
        return unknown

    cdef inline PyObject *make_field(self, reader_t *r, const op_t *op) except NULL:
        return self.make_array(r, op) if op.array else self.make_value(r, op, False)

    cdef PyObject *make_array(self, reader_t *r, const op_t *op) except NULL:
        cdef PyObject *raw
        cdef int64_t n
        cdef int64_t i
        cdef Plan plan = <Plan> op.plan.owner if op.kind == K_STRUCT else None
        r.p = get_length(r.p, op, False, &n)
        if n < 0:
            return counted(None)
        if not r.as_objects:
            raw = PyList_New(<Py_ssize_t> n)
        elif plan is None or PyTuple_GET_SIZE(plan.map_keys) == 0:
            raw = PyTuple_New(<Py_ssize_t> n)
        else:
            raw = PyType_GenericAlloc(<PyTypeObject *> plan.array_type, <Py_ssize_t> n)
        made = owned(raw)
        for i in range(n):
            if r.as_objects:
                PyTuple_SET_ITEM(raw, i, self.make_value(r, op, True))
            else:
                PyList_SET_ITEM(raw, i, self.make_value(r, op, True))
        if not r.as_objects and plan is not None and PyTuple_GET_SIZE(plan.map_keys) != 0:
            return counted(keyed(made, plan.map_keys))
        return counted(made)

    cdef inline PyObject *make_value(self, reader_t *r, const op_t *op, bint element) except NULL:
        cdef const uint8_t *at = r.p
        cdef int64_t n
        if op.kind < K_STRING:
            r.p = at + WIDTHS[op.kind]
            return primitive_of(at, op.kind)
        if op.kind == K_STRUCT:
            if op.nullable and not element:
                r.p = at + 1
                if <int8_t> at[0] < 0:
                    return counted(None)
            return self.make_struct(r, <Plan> op.plan.owner)
        at = get_length(at, op, op.kind == K_STRING, &n)
        if n < 0:
            r.p = at
            return counted(None)
        r.p = at + n
        if op.kind == K_STRING:
            return text_of(at, n, self.text_errors)
        return bytes_of(<const char *> at, <Py_ssize_t> n)

    # -- writing

    def encode(self, message not None, /):
        cdef Scratch scratch = Scratch.__new__(Scratch)
        self.put_message(&scratch.out, message)
        return PyBytes_FromStringAndSize(<const char *> scratch.out.start, scratch.out.p - scratch.out.start)

    def size(self, message not None, /):
        cdef Scratch scratch = Scratch.__new__(Scratch)
        self.put_message(&scratch.out, message)
        return scratch.out.p - scratch.out.start

    cdef int put_message(self, out_t *out, message) except -1:
        self.put_struct(out, self.root, message, NULL)
        # There may have been room for more.
        if out.p - out.start > INT32_MAX:
            return refuse_size()
        return 0

    cdef str path_of(self, const way_t *way):
        """``FetchRequest.topics[3].partitions``."""
        cdef list words = []
        while way != NULL:
            words.append(f".{<object> way.op.name}" + (f"[{way.element}]" if way.element >= 0 else ""))
            way = way.above
        return self.name + "".join(reversed(words))

    cdef int put_struct(self, out_t *out, Plan plan, object given, const way_t *above) except -1:
        if isinstance(given, StructValue):
            if type(given) is type(plan.model):
                return self.put_object(out, plan, given, above)
            # One of another version, or of definitions that were read again.
            given = given.to_dict()
        if type(given) is not dict:
            raise EncodeError(f"{self.path_of(above)} is {type(given).__name__}; it must be a dict")
        return self.put_dict(out, plan, given, above)

    cdef int put_object(self, out_t *out, Plan plan, object given, const way_t *above) except -1:
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
                self.put_field(out, op, <object> (<PyObject **> field_of(raw, op))[0], &way)
        if not plan.c.flexible:
            return 0
        if <tuple> (<PyObject **> (<char *> raw + plan.c.unknown))[0] != ():
            return self.put_all_tags(out, plan, given.to_dict(), &way, &found)
        for i in range(plan.c.tagged_count):
            count += not is_model_value(plan, i, given)
        need(out, 8)
        put_uvarint(out, count)
        for i in range(plan.c.tagged_count):
            if not is_model_value(plan, i, given):
                op = &plan.c.tagged[i]
                self.put_tagged(out, op, getattr(given, <str> op.name), &way)
        return 0

    cdef int put_dict(self, out_t *out, Plan plan, dict given, const way_t *above) except -1:
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
                self.put_field(out, op, <object> op.default, &way)
            else:
                found += 1
                self.put_field(out, op, <object> value, &way)
        if plan.c.flexible:
            self.put_tags(out, plan, given, &way, &found)
        if found != PyDict_Size(given):
            self.require_nothing_lost(plan, given, above)
        return 0

    cdef int require_nothing_lost(self, Plan plan, dict given, const way_t *above) except -1:
        """Fields that this version has no place for have their defaults, or do not matter; others do not exist."""
        cdef list fields = plan.fields()
        for name, value in given.items():
            if name in fields or (name == UNKNOWN and plan.c.flexible):
                continue
            path = self.path_of(above) + (f"[{name}]" if type(name) is int else f".{name}")
            if name == UNKNOWN:
                if value:
                    raise EncodeError(f"{path} are given, but version {self.version} has no tags")
                continue
            if name not in plan.absent:
                raise EncodeError(f"{path} is no field of it; there are {', '.join(fields) or 'none'}")
            default, ignorable = plan.absent[name]
            if not ignorable and not is_default(value, default):
                raise EncodeError(f"{path} is {value!r}, and version {self.version} has no place for it; leave it out, "
                                  "or take another version")
        return 0

    cdef int put_tags(self, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
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
            return self.put_all_tags(out, plan, given, way, found)
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
                self.put_tagged(out, op, <object> value, way)
        return 0

    cdef int put_all_tags(self, out_t *out, Plan plan, dict given, way_t *way, Py_ssize_t *found) except -1:
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
        path = f"{self.path_of(way.above)}.{UNKNOWN}"
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
                self.put_tagged(out, &plan.c.tagged[<int> place], data, way)
        return 0

    cdef int put_tagged(self, out_t *out, const op_t *op, object given, way_t *way) except -1:
        """The field behind its size, which is known when it is written: five bytes are left for it, and closed up."""
        cdef int64_t start
        cdef int64_t size
        cdef uint8_t *value
        need(out, 16)
        put_uvarint(out, <uint32_t> op.tag)
        start = out.p - out.start
        out.p += 5
        self.put_field(out, op, given, way)
        size = out.p - out.start - start - 5
        value = out.start + start + 5
        out.p = out.start + start
        put_uvarint(out, <uint32_t> size)
        memmove(out.p, value, <size_t> size)
        out.p += size
        return 0

    cdef int put_field(self, out_t *out, const op_t *op, object given, way_t *way) except -1:
        way.op = op
        way.element = -1
        if not op.array:
            return self.put_value(out, op, given, False, way)
        if given is None:
            if not op.nullable:
                raise EncodeError(f"{self.path_of(way)} is None; it must be a list in version {self.version}")
            return put_length(out, op, False, -1)
        if isinstance(given, list):
            put_length(out, op, False, PyList_GET_SIZE(given))
            for element in <list> given:
                way.element += 1
                self.put_value(out, op, element, True, way)
        elif isinstance(given, tuple):
            put_length(out, op, False, PyTuple_GET_SIZE(given))
            for element in <tuple> given:
                way.element += 1
                self.put_value(out, op, element, True, way)
        else:
            raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be a list")
        return 0

    cdef int put_value(self, out_t *out, const op_t *op, object given, bint element, way_t *way) except -1:
        if op.kind < K_FLOAT64:
            return self.put_number(out, op, given, way)
        if op.kind == K_STRUCT:
            if op.nullable and not element:
                need(out, 1)
                out.p[0] = 0xff if given is None else 1
                out.p += 1
                if given is None:
                    return 0
            return self.put_struct(out, <Plan> op.plan.owner, given, way)
        if op.kind == K_FLOAT64:
            return self.put_float(out, given, way)
        if given is None:
            if not op.nullable or element or op.kind == K_UUID:
                raise EncodeError(f"{self.path_of(way)} is None; it must not be in version {self.version}")
            return put_length(out, op, op.kind == K_STRING, -1)
        if op.kind == K_STRING:
            return self.put_text(out, op, given, way)
        return self.put_bytes(out, op, given, way)

    cdef int put_text(self, out_t *out, const op_t *op, object given, const way_t *way) except -1:
        cdef const char *text
        cdef Py_ssize_t n
        if type(given) is not str:
            raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be a str")
        text = utf8_of(given, &n)
        if text == NULL:
            PyErr_Clear()
            raise EncodeError(f"{self.path_of(way)} has half a surrogate pair in it; that is no text")
        if n > 0x7fff:
            raise EncodeError(f"{self.path_of(way)} takes {n} bytes; a string takes {0x7fff} at most")
        put_length(out, op, True, n)
        memcpy(out.p, text, <size_t> n)
        out.p += n
        return 0

    cdef int put_bytes(self, out_t *out, const op_t *op, object given, const way_t *way) except -1:
        cdef Py_ssize_t n
        if type(given) is not bytes:
            raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be bytes")
        n = PyBytes_GET_SIZE(given)
        if op.kind != K_UUID:
            put_length(out, op, False, n)
        elif n == 16:
            need(out, n)
        else:
            raise EncodeError(f"{self.path_of(way)} has {n} bytes; a uuid has 16")
        memcpy(out.p, PyBytes_AS_STRING(given), <size_t> n)
        out.p += n
        return 0

    cdef int put_float(self, out_t *out, object given, const way_t *way) except -1:
        cdef double real
        cdef uint64_t raw
        if type(given) is not float and type(given) is not int:
            raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be a float")
        try:
            real = given
        except OverflowError:
            raise EncodeError(f"{self.path_of(way)} is {number_of(given)}; it does not fit float64") from None
        memcpy(&raw, &real, 8)
        need(out, 8)
        put64(out, raw)
        return 0

    cdef int put_number(self, out_t *out, const op_t *op, object given, const way_t *way) except -1:
        cdef int64_t number
        cdef int overflow
        need(out, 8)
        if op.kind == K_BOOL:
            if type(given) is not bool:
                raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be a bool")
            out.p[0] = given is True
            out.p += 1
            return 0
        if type(given) is not int:
            raise EncodeError(f"{self.path_of(way)} is {type(given).__name__}; it must be an int")
        number = PyLong_AsLongLongAndOverflow(given, &overflow)
        if unlikely(overflow != 0 or number < LEAST[op.kind] or number > MOST[op.kind]):
            raise EncodeError(f"{self.path_of(way)} is {number_of(given)}; it does not fit {INT_NAMES[op.kind]}")
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


cdef inline bint is_changeable(object default):
    return type(default) is list or type(default) is dict


cdef object fresh(object default):
    """A default that can be changed, as a value of its own."""
    cdef PyObject *name
    cdef PyObject *value
    cdef Py_ssize_t at = 0
    if type(default) is list:
        return []
    made = owned(PyDict_Copy(default))
    while PyDict_Next(default, &at, &name, &value):
        if is_changeable(<object> value):
            PyDict_SetItem(made, <object> name, fresh(<object> value))
    return made


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


# ------------------------------------------------------------------------------------------------- explaining

@cython.final
cdef class Places:
    """Where everything of a message stands, up to ``stop``. Each ``take`` says whether to go on."""

    cdef Schema schema
    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef list made

    cdef bint add(self, const uint8_t *end, str path, str part, object value) except -1:
        self.made.append((self.p - self.base, end - self.p, path, part, value))
        self.p = end
        return True

    cdef bint take_uvarint(self, str path, str part, uint32_t *out) except -1:
        cdef const uint8_t *end = self.p
        # The last number before a refusal may be cut.
        while end < self.stop and end[0] & 0x80:
            end += 1
        if end >= self.stop:
            return False
        get_uvarint(self.p, out)
        return self.add(end + 1, path, part, out[0])

    cdef bint take_length(self, const op_t *op, bint short_one, str path, str part, int64_t *out) except -1:
        cdef uint32_t raw
        cdef const uint8_t *end
        if op.compact:
            if not self.take_uvarint(path, part, &raw):
                return False
            out[0] = <int32_t> (raw - 1)
            return True
        if self.p >= self.stop:
            return False
        end = get_length(self.p, op, short_one, out)
        return self.add(end, path, part, out[0])

    cdef bint take_struct(self, Plan plan, str path) except -1:
        cdef int i
        for i in range(plan.c.count):
            if not self.take_field(&plan.c.ops[i], f"{path}.{plan.names[i]}"):
                return False
        return self.take_tags(plan, path) if plan.c.flexible else True

    cdef bint take_tags(self, Plan plan, str path) except -1:
        cdef const op_t *op
        cdef uint32_t count
        cdef uint32_t tag
        cdef uint32_t size
        cdef uint32_t _i
        if not self.take_uvarint(path, "tag-count", &count):
            return False
        for _i in range(count):
            if not self.take_uvarint(path, "tag", &tag):
                return False
            op = op_of(&plan.c, tag)
            name = f"{path}.{plan.tagged_names[op.place]}" if op != NULL else f"{path}.{UNKNOWN}[{tag}]"
            if not self.take_uvarint(name, "tag-size", &size):
                return False
            if op != NULL:
                if not self.take_field(op, name):
                    return False
            elif size and not self.take_bytes(size, name):
                return False
        return True

    cdef bint take_bytes(self, int64_t n, str path) except -1:
        if n > self.stop - self.p:
            return False
        return self.add(self.p + n, path, "value", PyBytes_FromStringAndSize(<const char *> self.p, <Py_ssize_t> n))

    cdef bint take_field(self, const op_t *op, str path) except -1:
        cdef int64_t n
        cdef int64_t i
        if not op.array:
            return self.take_value(op, False, path)
        if not self.take_length(op, False, path, "count", &n):
            return False
        for i in range(n):
            if not self.take_value(op, True, f"{path}[{i}]"):
                return False
        return True

    cdef bint take_value(self, const op_t *op, bint element, str path) except -1:
        cdef int64_t n
        if op.kind == K_STRUCT:
            if op.nullable and not element:
                if self.p >= self.stop:
                    return False
                n = <int8_t> self.p[0]
                self.add(self.p + 1, path, "presence", n)
                if n < 0:
                    return True
            return self.take_struct(self.schema.plans[op.plan.number], path)
        if op.kind < K_STRING:
            if self.p >= self.stop:
                return False
            return self.add(self.p + WIDTHS[op.kind], path, "value", owned(primitive_of(self.p, op.kind)))
        if not self.take_length(op, op.kind == K_STRING, path, "length", &n):
            return False
        if n <= 0:
            return True
        if op.kind != K_STRING or n > self.stop - self.p:
            return self.take_bytes(n, path)
        return self.add(self.p + n, path, "value", owned(text_of(self.p, n, self.schema.text_errors)))
