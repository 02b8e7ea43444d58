"""A schema's structs in C, made from the dicts with which ``kfuzz.messages.schemas`` describes them."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int32_t, uint8_t

from sys import intern

KINDS = {
    "bool": K_BOOL, "int8": K_INT8, "int16": K_INT16, "uint16": K_UINT16, "int32": K_INT32, "uint32": K_UINT32,
    "int64": K_INT64, "float64": K_FLOAT64, "uuid": K_UUID, "string": K_STRING, "bytes": K_BYTES, "records": K_BYTES,
    "struct": K_STRUCT,
}

# CPython's smallest dict has room for this many names.
cdef enum:
    SMALL_DICT = 5


cdef void count_runs(plan_t *plan) noexcept:
    cdef op_t *op
    cdef int i
    for i in range(plan.count - 1, -1, -1):
        op = &plan.ops[i]
        if is_any(op.kind) and not op.array:
            # The array has one entry more than fields; all its members are 0.
            op.run_count = plan.ops[i + 1].run_count + 1
            op.run_bytes = plan.ops[i + 1].run_bytes + width_of(op.kind)


@cython.final
@cython.auto_pickle(False)
cdef class Plan:
    def __dealloc__(self):
        PyMem_Free(self.c.ops)
        PyMem_Free(self.c.tagged)


@cython.auto_pickle(False)
cdef class Program:
    def __cinit__(self, str name not None, int version, list plans not None, str text_errors not None):
        cdef Plan plan
        cdef dict described
        self.name = name
        self.version = version
        self.text_errors = text_errors.encode()
        self.plans = [Plan.__new__(Plan) for _ in plans]
        for plan, described in zip(self.plans, plans):
            fill(self, plan, described)
        self.root = self.plans[0]


cdef bytes flat_of(Program program):
    """The schema as plain numbers; schema.h describes them. A tag that only other versions have is left out."""
    cdef Plan plan
    cdef int fields = 0
    cdef int i
    for plan in program.plans:
        fields += plan.c.count + plan.c.tagged_count
    made = bytes(sizeof(flat_schema_t) + len(program.plans) * sizeof(flat_struct_t) + fields * sizeof(flat_field_t))
    cdef flat_schema_t *flat = <flat_schema_t *> PyBytes_AS_STRING(made)
    flat.structs = <int32_t> len(program.plans)
    cdef flat_struct_t *one = <flat_struct_t *> kfuzz_structs_of(flat)
    cdef flat_field_t *field = <flat_field_t *> kfuzz_flat_fields_of(flat)
    cdef dict numbers = {id(plan): number for number, plan in enumerate(program.plans)}
    for plan in program.plans:
        one.first = flat.fields
        one.is_flexible = plan.c.flexible
        for i in range(plan.c.count):
            flatten(field + flat.fields, &plan.c.ops[i], numbers)
            flat.fields += 1
        one.count = plan.c.count
        for i in range(plan.c.tagged_count):
            if plan.c.tagged[i].there:
                flatten(field + flat.fields, &plan.c.tagged[i], numbers)
                flat.fields += 1
                one.tagged_count += 1
        one += 1
    return made


cdef int flatten(flat_field_t *field, const op_t *op, dict numbers) except -1:
    field.kind = <uint8_t> op.kind
    field.is_array = op.array
    field.is_nullable = op.nullable
    field.is_compact = op.compact
    field.tag = op.tag
    field.layout = numbers[id(<object> op.plan.owner)] if op.kind == K_STRUCT else 0
    return 0


cdef int fill(Program program, Plan plan, dict described) except -1:
    plan.c.flexible = described["flexible"]
    plan.name = described["name"]
    plan.absent = described["absent"]
    plan.map_keys = described["map_keys"]
    # Names in source code are interned too, so most names can be compared by their address.
    plan.names = tuple([intern(field["name"]) for field in described["fields"]])
    plan.tagged_names = tuple([intern(field["name"]) for field in described["tagged"]])
    plan.defaults = tuple([field["default"] for field in described["fields"]])
    plan.tagged_defaults = tuple([field["default"] for field in described["tagged"]])
    plan.c.ops = new_ops(plan.names)
    plan.c.count = <int> len(plan.names)
    plan.c.tagged = new_ops(plan.tagged_names)
    plan.c.tagged_count = <int> len(plan.tagged_names)
    plan.c.owner = <PyObject *> plan
    fill_ops(program, plan.c.ops, described["fields"], plan.names, plan.defaults)
    fill_ops(program, plan.c.tagged, described["tagged"], plan.tagged_names, plan.tagged_defaults)
    count_runs(&plan.c)
    plan.blank = dict.fromkeys(plan.names)
    for i in range(plan.c.tagged_count):
        if plan.c.tagged[i].there:
            default = plan.tagged_defaults[i]
            plan.blank[plan.tagged_names[i]] = None if is_changeable(default) else default
    plan.few = len(plan.blank) == plan.c.count <= SMALL_DICT
    return 0


cdef int pick_of(dict field) except -1:
    """The kind of thing that the picker takes of this field."""
    if field["kind"] == "records":
        return PICK_RECORDS
    # The error of a partition can be called `partitionErrorCode`.
    if field["kind"] == "int16" and field["name"].lower().endswith("errorcode"):
        return PICK_ERROR
    return PICK_HOST if field["kind"] == "string" and field["name"] == "host" else PICK_NOTHING


cdef op_t *new_ops(tuple names) except NULL:
    # count_runs reads one entry after the last field.
    cdef op_t *ops = <op_t *> PyMem_Calloc(<size_t> (len(names) + 1), sizeof(op_t))
    if ops == NULL:
        raise MemoryError
    return ops


cdef int fill_ops(Program program, op_t *ops, list fields, tuple names, tuple defaults) except -1:
    cdef op_t *op
    cdef Py_ssize_t i
    for i in range(len(names)):
        field = fields[i]
        op = &ops[i]
        op.kind = KINDS[field["kind"]]
        op.pick = pick_of(field)
        op.array = field["array"]
        op.nullable = field["nullable"]
        op.compact = field["compact"]
        op.there = field["there"]
        op.tag = field["tag"]
        op.place = <int> i
        op.is_number = op.kind < K_UUID and not op.array
        op.plan = &(<Plan> program.plans[field["plan"]]).c if op.kind == K_STRUCT else NULL
        op.name = PyTuple_GET_ITEM(names, i)
        op.default = PyTuple_GET_ITEM(defaults, i)
    return 0
