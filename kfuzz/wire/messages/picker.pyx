"""The picker: finds the record batches, the errors and the hosts of a message, without making its values."""

cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kfuzz.wire.io.cursor cimport load16
from kfuzz.wire.messages.plan cimport (
    K_STRING, K_STRUCT, PICK_ERROR, PICK_HOST, PICK_NOTHING, PICK_RECORDS, Program, get_length, get_uvarint, op_of,
    op_t, plan_t, width_of,
)


cdef tuple picked_of(Program program, const uint8_t *start, const uint8_t *stop):
    """Everything that is picked between ``start`` and ``stop``. The checker has accepted these bytes."""
    cdef Picker picker = Picker.__new__(Picker)
    picker.base = picker.p = start
    picker.stop = stop
    picker.records = []
    picker.errors = {}
    picker.take_struct(&program.root.c)
    return picker.records, picker.errors, picker.has_host


@cython.final
cdef class Picker:
    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef list records
    cdef dict errors
    cdef bint has_host

    cdef int take_struct(self, const plan_t *plan) except -1:
        cdef const op_t *op
        cdef uint32_t count
        cdef uint32_t tag
        cdef uint32_t size
        cdef uint32_t _i
        cdef int i
        for i in range(plan.count):
            self.take_field(&plan.ops[i])
        if not plan.flexible:
            return 0
        self.p = get_uvarint(self.p, &count)
        for _i in range(count):
            self.p = get_uvarint(get_uvarint(self.p, &tag), &size)
            op = op_of(plan, tag)
            if op != NULL:
                self.take_field(op)
            else:
                self.p += size
        return 0

    cdef int take_field(self, const op_t *op) except -1:
        cdef int64_t n
        cdef int64_t _i
        if not op.array:
            return self.take_value(op, False)
        self.p = get_length(self.p, op, False, &n)
        if n > 0 and op.kind < K_STRING:
            self.p += n * width_of(op.kind)
            return 0
        for _i in range(n):
            self.take_value(op, True)
        return 0

    cdef int take_value(self, const op_t *op, bint element) except -1:
        cdef uint32_t word
        cdef int64_t n
        if op.kind == K_STRUCT:
            if op.nullable and not element and op.tag >= 0:
                self.p = get_uvarint(self.p, &word)
                if <int32_t> word <= 0:
                    return 0
            elif op.nullable and not element:
                n = <int8_t> self.p[0]
                self.p += 1
                if n < 0:
                    return 0
            return self.take_struct(op.plan)
        if op.kind < K_STRING:
            if op.pick == PICK_ERROR and load16(self.p) != 0:
                n = <int16_t> load16(self.p)
                self.errors[n] = self.errors.get(n, 0) + 1
            self.p += width_of(op.kind)
            return 0
        self.p = get_length(self.p, op, op.kind == K_STRING, &n)
        if n < 0:
            return 0
        if op.pick != PICK_NOTHING:
            if op.pick == PICK_RECORDS:
                self.records.append((self.p - self.base, n))
            elif op.pick == PICK_HOST and n:
                self.has_host = True
        self.p += n
        return 0
