"""Makes the objects that the reader copies: one for each struct, with the defaults of its tagged fields."""

from cpython.object cimport PyObject, PyTypeObject

from kfuzz.wire.io.scratch cimport Scratch
from kfuzz.wire.messages.plan cimport (
    K_STRUCT, Plan, Program, counted, field_of, op_t, owned, set_number, set_object,
)
from kfuzz.wire.messages.values cimport (
    T_BOOL, T_BYTE, T_DOUBLE, T_INT, T_LONGLONG, T_OBJECT_EX, T_SHORT, T_UINT, T_USHORT, UNKNOWN, Keyed, array_type,
    copy_struct, struct_type,
)
from kfuzz.wire.messages.writer cimport put_field, way_t

cdef extern from "Python.h":
    PyObject *PyType_GenericAlloc(PyTypeObject *type, Py_ssize_t size) except NULL

cdef tuple NOTHING = ()

# The member type of a number in an object, by its kind.
cdef int[8] MEMBERS = [T_BOOL, T_BYTE, T_SHORT, T_USHORT, T_INT, T_UINT, T_LONGLONG, T_DOUBLE]


cdef inline int member_of(const op_t *op) noexcept nogil:
    """The C member type of a field in an object."""
    return MEMBERS[op.kind] if op.is_number else T_OBJECT_EX


cdef int make_models(Program program) except -1:
    cdef Plan plan
    for plan in program.plans:
        if plan.array_type is None:
            plan.array_type = array_type(plan.map_keys)
    # The root's model is made last, so if it exists, all models exist.
    for plan in reversed(program.plans):
        make_model(program, plan)
    return 0


cdef int make_model(Program program, Plan plan) except -1:
    cdef const op_t *op
    cdef int i
    if plan.model is not None:
        return 0
    kind = made_type(plan)
    model = owned(PyType_GenericAlloc(<PyTypeObject *> kind, 0))
    if plan.c.flexible:
        set_object(<char *> <PyObject *> model + plan.c.unknown, counted(NOTHING))
    for i in range(plan.c.tagged_count):
        op = &plan.c.tagged[i]
        if op.there:
            set_default(program, <PyObject *> model, op)
    # Making a type may run the garbage collector. A callback of it may have decoded a message and set the model.
    if plan.model is None:
        plan.model = model
    return 0


cdef object made_type(Plan plan):
    """The type for the objects of a struct. Also sets the offsets of the fields."""
    cdef list there = [i for i in range(plan.c.tagged_count) if plan.c.tagged[i].there]
    cdef list members = [member_of(&plan.c.ops[i]) for i in range(plan.c.count)]
    cdef int place = plan.c.count
    members += [member_of(&plan.c.tagged[i]) for i in there]
    names = tuple(plan.blank)
    # The blank dict has the same names, except that of the unknown tagged fields.
    if plan.c.flexible:
        names += (UNKNOWN,)
        members.append(T_OBJECT_EX)
    type_made, offsets = struct_type(plan.name, names, members)
    # Defaults of fields that this version lacks are attributes of the type, so objects stay small and fast to make.
    for name, (default, _, named) in plan.absent.items():
        setattr(type_made, name, absent_value(default, named))
    plan.c.objects = <int> members.count(T_OBJECT_EX)
    for i in range(plan.c.count):
        plan.c.ops[i].offset = offsets[i]
    for i in there:
        plan.c.tagged[<int> i].offset = offsets[place]
        place += 1
    if plan.c.flexible:
        plan.c.unknown = offsets[place]
    return type_made


cdef object absent_value(object default, tuple named):
    """The default that objects have for a field that the version lacks. Structs have the fields of all versions."""
    cdef Py_ssize_t i
    if isinstance(default, list):
        return array_type((<Keyed> default).keys)() if type(default) is Keyed else NOTHING
    if type(default) is not dict:
        return default
    struct_name, inner = named
    names = tuple(default)
    type_made, offsets = struct_type(struct_name, names, [T_OBJECT_EX] * len(names))
    made = owned(PyType_GenericAlloc(<PyTypeObject *> type_made, 0))
    for i in range(len(names)):
        value = absent_value(default[names[i]], inner[names[i]])
        set_object(<char *> <PyObject *> made + <Py_ssize_t> offsets[i], counted(value))
    return made


cdef int set_default(Program program, PyObject *made, const op_t *op) except -1:
    cdef Scratch scratch
    cdef way_t way
    if op.is_number:
        scratch = Scratch.__new__(Scratch)
        way.above = NULL
        way.depth = 1
        put_field(program, &scratch.out, op, <object> op.default, &way)
        set_number(field_of(made, op), scratch.out.start, op.kind)
    else:
        set_object(field_of(made, op), counted(default_of(program, op)))
    return 0


cdef object default_of(Program program, const op_t *op):
    """The default that objects have for a field that is not a number."""
    cdef Plan plan = <Plan> op.plan.owner if op.kind == K_STRUCT else None
    cdef PyObject *raw
    cdef int i
    if isinstance(<object> op.default, list):
        return NOTHING if plan is None else plan.array_type()
    if type(<object> op.default) is not dict:
        return <object> op.default
    # The struct may have no model yet.
    make_model(program, plan)
    raw = copy_struct(<PyObject *> plan.model, plan.c.objects)
    made = owned(raw)
    for i in range(plan.c.count):
        set_default(program, raw, &plan.c.ops[i])
    return made
