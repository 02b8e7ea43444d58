# A schema's structs and fields in C, and small helpers. The checker, reader, writer and explainer share them.
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF, Py_XDECREF
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.io.cursor cimport load16, load32, load64

# The types of fields. Those before K_STRING have a fixed size; those before K_UUID are numbers.
cdef extern from "schema.h" nogil:
    cdef enum:
        K_BOOL "KFUZZ_K_BOOL"
        K_INT8 "KFUZZ_K_INT8"
        K_INT16 "KFUZZ_K_INT16"
        K_UINT16 "KFUZZ_K_UINT16"
        K_INT32 "KFUZZ_K_INT32"
        K_UINT32 "KFUZZ_K_UINT32"
        K_INT64 "KFUZZ_K_INT64"
        K_FLOAT64 "KFUZZ_K_FLOAT64"
        K_UUID "KFUZZ_K_UUID"
        K_STRING "KFUZZ_K_STRING"
        K_BYTES "KFUZZ_K_BYTES"
        K_STRUCT "KFUZZ_K_STRUCT"

    int width_of "kfuzz_width_of"(int kind)

    ctypedef struct flat_field_t "kfuzz_flat_field":
        uint8_t kind
        uint8_t is_array
        uint8_t is_nullable
        uint8_t is_compact
        int32_t tag
        int32_t layout

    ctypedef struct flat_struct_t "kfuzz_flat_struct":
        int32_t first
        int32_t count
        int32_t tagged_count
        int32_t is_flexible

    ctypedef struct flat_schema_t "kfuzz_flat_schema":
        int32_t structs
        int32_t fields

    const flat_struct_t *kfuzz_structs_of(const flat_schema_t *schema)
    const flat_field_t *kfuzz_flat_fields_of(const flat_schema_t *schema)

# Parts of a message that a proxy wants to know.
cdef enum:
    PICK_NOTHING
    PICK_RECORDS
    PICK_ERROR
    PICK_HOST

cdef struct plan_t

# A field as it is in one version.
cdef struct op_t:
    int kind
    int pick
    bint array
    bint nullable
    bint compact
    bint there                 # False: a tag that only other versions have; it is refused
    int32_t tag                # -1: the field has no tag
    int place                  # index among the plain fields, or among the tagged ones
    bint is_number             # objects hold it as a C number, not as a Python object
    Py_ssize_t offset          # offset of the value in an object
    # The number of consecutive fields from here on that accept any bytes, and their total size in bytes.
    int run_count
    int run_bytes
    plan_t *plan               # only for a struct
    # Both are borrowed from the Plan.
    PyObject *name
    PyObject *default

cdef struct plan_t:
    op_t *ops
    int count
    op_t *tagged               # sorted by tag
    int tagged_count
    Py_ssize_t unknown         # offset of the unknown tagged fields in an object
    int objects                # how many fields of an object are Python objects
    bint flexible
    PyObject *owner            # the Plan that this struct is a member of; borrowed


cdef class Plan:
    """One struct of a schema: the C plan, and the names and defaults of its fields in the same order."""

    cdef plan_t c
    cdef str name
    cdef tuple names
    cdef tuple tagged_names
    cdef tuple defaults
    cdef tuple tagged_defaults
    # Fields that this version lacks: name to (default, ignorable, the names of structs in the default).
    cdef dict absent
    cdef tuple map_keys            # by which elements are found in arrays of this struct
    # The reader copies one of these two: a dict with all names in their order, or an object with the defaults of the
    # tagged fields.
    cdef dict blank
    cdef object model
    cdef bint few                  # no tagged fields, and CPython's smallest dict has room for all names
    cdef type array_type           # the type for arrays of this struct, in objects


cdef class Program:
    """A message at one version: its structs, the message's own fields first."""

    cdef readonly str name
    cdef readonly int version
    cdef list plans
    cdef Plan root
    cdef bytes text_errors         # the error handler for text that is not UTF-8


cdef bytes flat_of(Program program)

cdef inline const op_t *op_of(const plan_t *plan, int64_t tag) noexcept nogil:
    cdef int i
    for i in range(plan.tagged_count):
        if plan.tagged[i].tag == tag:
            return &plan.tagged[i]
    return NULL

cdef inline bint is_any(int kind) noexcept nogil:
    """Whether any bytes are a valid value of this type."""
    return kind < K_STRING and kind != K_BOOL

# -- reads of bytes that the checker has accepted

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

cdef inline uint64_t word_at(const uint8_t *p) noexcept nogil:
    cdef uint64_t word
    memcpy(&word, p, 8)
    return word

cdef inline bint is_ascii(const uint8_t *p, int64_t n) noexcept nogil:
    cdef uint64_t seen = 0
    cdef int64_t at = 0
    if n >= 8:
        # The last word may overlap the one before it, because few strings have a multiple of eight bytes.
        while at < n - 8:
            seen |= word_at(p + at)
            at += 8
        seen |= word_at(p + n - 8)
    else:
        while at < n:
            seen |= p[at]
            at += 1
    return seen & <uint64_t> 0x8080808080808080ULL == 0

# -- references, and fields of objects

cdef inline PyObject *counted(object made) noexcept:
    """A new reference, for a caller that takes it over."""
    Py_INCREF(made)
    return <PyObject *> made

cdef inline object owned(PyObject *made):
    """Take over a reference; it is dropped if an error is raised."""
    value = <object> made
    Py_DECREF(value)
    return value

cdef inline char *field_of(PyObject *made, const op_t *op) noexcept:
    return <char *> made + op.offset

cdef inline size_t field_width(const op_t *op) noexcept:
    return <size_t> width_of(op.kind) if op.is_number else sizeof(PyObject *)

cdef inline void set_object(char *field, PyObject *value) noexcept:
    """Put ``value`` into a field, which takes over the reference."""
    # The field holds a default, or the value of an earlier tag with the same number.
    Py_XDECREF((<PyObject **> field)[0])
    (<PyObject **> field)[0] = value

cdef inline void set_number(char *field, const uint8_t *p, int kind) noexcept:
    """Put a number into a field, from its bytes."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    if width_of(kind) == 1:
        field[0] = p[0] != 0 if kind == K_BOOL else <char> p[0]
    elif width_of(kind) == 2:
        two = load16(p)
        memcpy(field, &two, 2)
    elif width_of(kind) == 4:
        four = load32(p)
        memcpy(field, &four, 4)
    else:
        eight = load64(p)
        memcpy(field, &eight, 8)

cdef inline bint is_changeable(object default) noexcept:
    return isinstance(default, (list, dict))
