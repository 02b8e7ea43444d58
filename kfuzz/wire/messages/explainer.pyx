"""The explainer: finds the place of each value, length, count and tag of a message."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t

from kfuzz.wire.messages.plan cimport (
    K_STRING, K_STRUCT, Plan, Program, get_length, get_uvarint, op_of, op_t, owned, width_of,
)
from kfuzz.wire.messages.reader cimport primitive_of, text_of
from kfuzz.wire.messages.values cimport UNKNOWN


cdef list places_of(Program program, const uint8_t *start, const uint8_t *stop, int64_t most):
    """The places of everything between ``start`` and ``stop``, but not more than ``most`` if that is not 0.

    The checker has accepted these bytes.
    """
    cdef Places places = Places.__new__(Places)
    places.base = places.p = start
    places.stop = stop
    places.text_errors = program.text_errors
    places.made = []
    places.most = most
    places.take_struct(program.root, program.name)
    return places.made


@cython.final
cdef class Places:
    """Collects places up to ``stop``. Each ``take`` method returns whether to continue."""

    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef const uint8_t *stop
    cdef list made
    cdef int64_t most
    cdef bytes text_errors

    cdef bint add(self, const uint8_t *end, str path, str part, object value) except -1:
        self.made.append((self.p - self.base, end - self.p, path, part, value))
        self.p = end
        return self.most == 0 or len(self.made) < self.most

    cdef bint take_uvarint(self, str path, str part, uint32_t *out) except -1:
        cdef const uint8_t *end = self.p
        # The last varint before a refusal may be cut off.
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
                return False  # unreachable: the checker stops before
        return True

    cdef bint take_bytes(self, int64_t n, str path) except -1:
        if n > self.stop - self.p:
            return False  # unreachable: the checker stops before
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
        cdef uint32_t word
        cdef int64_t n
        if op.kind == K_STRUCT:
            if op.nullable and not element and op.tag >= 0:
                if not self.take_uvarint(path, "presence", &word):
                    return False  # unreachable: the checker stops before
                if <int32_t> word <= 0:
                    return True
            elif op.nullable and not element:
                if self.p >= self.stop:
                    return False
                n = <int8_t> self.p[0]
                if not self.add(self.p + 1, path, "presence", n):
                    return False
                if n < 0:
                    return True
            return self.take_struct(<Plan> op.plan.owner, path)
        if op.kind < K_STRING:
            if self.p >= self.stop:
                return False
            return self.add(self.p + width_of(op.kind), path, "value", owned(primitive_of(self.p, op.kind)))
        if not self.take_length(op, op.kind == K_STRING, path, "length", &n):
            return False
        if n <= 0:
            return True
        if op.kind != K_STRING or n > self.stop - self.p:
            return self.take_bytes(n, path)
        return self.add(self.p + n, path, "value", owned(text_of(self.p, n, PyBytes_AS_STRING(self.text_errors))))
