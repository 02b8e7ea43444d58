"""Checks a message's bytes without the GIL and without making values.

Mirrors what Kafka's generated classes (``org.apache.kafka.common.message``) do with a ``ByteBufferAccessor``.
"""

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kfuzz.wire.io.cursor cimport find_uvarint, load16, load32, unlikely, valid_utf8
from kfuzz.wire.io.format cimport ELEMENTS_MAX, STRING_BYTES_MAX, TAGS_MAX, VARINT
from kfuzz.wire.messages.plan cimport K_BOOL, K_STRING, K_STRUCT, Plan, is_any, is_ascii, op_of, op_t, plan_t, width_of

# In the order of their numbers in checker.pxd.
CODES = (
    "bool-not-0-or-1", "bytes-after-message", "count-exceeds-message", "count-too-large", "length-below-minus-one",
    "length-exceeds-message", "message-cut", "nested-too-deep", "null-not-allowed", "string-not-utf8",
    "string-too-long", "tag-count-exceeds-message", "tag-count-too-large", "tag-not-ascending", "tag-not-in-version",
    "tag-repeated", "tag-size-exceeds-message", "tag-size-mismatch", "tag-unknown", "varint-overlong",
    "varint-too-long",
)


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


cdef inline const uint8_t *check_uvarint(walk_t *w, const uint8_t *p, uint32_t *out) noexcept nogil:
    """Read an unsigned varint of at most five bytes. Bits beyond 32 are dropped, as in Java."""
    if p < w.end and p[0] < 0x80:
        out[0] = p[0]
        return p + 1
    return check_long_uvarint(w, p, out)


cdef const uint8_t *check_long_uvarint(walk_t *w, const uint8_t *p, uint32_t *out) noexcept nogil:
    cdef uint64_t raw
    cdef int size = find_uvarint(p, w.end - p, VARINT, &raw)
    if unlikely(size == -1):
        note(w, MESSAGE_CUT, w.end, 0, 1)
        return NULL
    if unlikely(size < 0):
        note(w, VARINT_TOO_LONG, p, VARINT + 1, VARINT)
        return NULL
    if unlikely((size > 1 and p[size - 1] == 0) or raw >> 32 != 0):
        note(w, VARINT_OVERLONG, p, size, VARINT)
    out[0] = <uint32_t> raw
    return p + size


cdef inline const uint8_t *check_length(walk_t *w, const uint8_t *p, const op_t *op, bint short_one, bint nullable,
                                        int64_t *out) noexcept nogil:
    """Read a length or a count; -1 is null. A null that is not allowed is refused."""
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


cdef const uint8_t *check_value(walk_t *w, const uint8_t *p, const op_t *op, bint element) noexcept nogil:
    """Check a value that is not an array. Elements of arrays are never null."""
    cdef const uint8_t *start = p
    cdef uint32_t word
    cdef int64_t n
    if op.kind < K_STRING:
        if unlikely(w.end - p < width_of(op.kind)):
            note(w, MESSAGE_CUT, p, w.end - p, width_of(op.kind))
            return NULL
        if op.kind == K_BOOL and unlikely(p[0] > 1):
            note(w, BOOL_NOT_0_OR_1, p, p[0], 1)
        return p + width_of(op.kind)
    if op.kind == K_STRUCT:
        if op.nullable and not element and op.tag >= 0:
            # Kafka writes whether a tagged struct is there as a varint, and a plain one as an int8.
            p = check_uvarint(w, p, &word)
            if unlikely(p == NULL):
                return NULL
            if <int32_t> word < 0:
                note(w, LENGTH_BELOW_MINUS_ONE, start, <int32_t> word, -1)
            if <int32_t> word <= 0:
                return p
            if unlikely(word != 1):
                note(w, BOOL_NOT_0_OR_1, start, word, 1)
        elif op.nullable and not element:
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
    if op.kind == K_STRING and unlikely(n > STRING_BYTES_MAX):
        note(w, STRING_TOO_LONG, start, n, STRING_BYTES_MAX)
        return NULL
    if unlikely(n > w.end - p):
        note(w, LENGTH_EXCEEDS_MESSAGE, start, n, w.end - p)
        return NULL
    if op.kind == K_STRING and unlikely(not is_ascii(p, n)) and not valid_utf8(p, n):
        note(w, STRING_NOT_UTF8, p, n, 0)
    return p + n


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
        # Kafka makes the same check before it allocates, whatever the size of the elements.
        if unlikely(n > w.end - p):
            note(w, COUNT_EXCEEDS_MESSAGE, start, n, w.end - p)
            return NULL
        if unlikely(n > ELEMENTS_MAX):
            note(w, COUNT_TOO_LARGE, start, n, ELEMENTS_MAX)
            return NULL
        if n > 0:
            w.elements += n
        if n > 0 and is_any(op.kind) and n * width_of(op.kind) <= w.end - p:
            p += n * width_of(op.kind)
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
    """The end of a bool, or of a text or bytes with a length of one byte, if it has no findings; otherwise NULL."""
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
    # Most structs have no tagged fields.
    if p < w.end and p[0] == 0:
        return p + 1
    return check_tags(w, p, plan)


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
    if unlikely(count > TAGS_MAX):
        note(w, TAG_COUNT_TOO_LARGE, start, count, TAGS_MAX)
        return NULL
    w.elements += count
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
        # Kafka ignores the size of a tagged field that it knows.
        if unlikely(p - value != size):
            note(w, TAG_SIZE_MISMATCH, start, size, p - value)
    return p


cdef const uint8_t *check_message(walk_t *w, const plan_t *root, const uint8_t *p, int64_t n) noexcept nogil:
    w.base = p
    w.end = p + n
    w.depth = 0
    w.elements = 0
    w.seen = 0
    p = check_struct(w, p, root)
    if p != NULL and p < w.end:
        note(w, BYTES_AFTER_MESSAGE, p, w.end - p, 0)
    return p


cdef tuple notes_of(const walk_t *w):
    cdef const message_note_t *first
    cdef int code
    cdef int i
    cdef list made = []
    for code in range(CODE_COUNT):
        if w.seen >> code & 1:
            first = &w.notes[code]
            made.append((CODES[code], first.at, first.found, first.allowed,
                         [step_of(&first.steps[i]) for i in range(first.depth)]))
    return tuple(made)


cdef tuple step_of(const step_t *step):
    cdef Plan plan = <Plan> step.plan.owner
    names = plan.names if step.op.tag < 0 else plan.tagged_names
    return names[step.op.place], step.element
