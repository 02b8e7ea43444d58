"""Works on bytes that may be malformed: scrambles them, finds records, writes lengths and CRCs.

Nothing here trusts its input. A walk ends at the first length that it cannot follow.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kfuzz.mutate.dice cimport Dice, dice_t, roll, roll_below
from kfuzz.wire.cursor cimport load32
from kfuzz.wire.format cimport (
    AT_ATTRIBUTES, AT_BATCH_LENGTH, AT_CRC, AT_MAGIC, LOG_OVERHEAD, MESSAGE_AT_CRC, VARLONG,
)
from kfuzz.wire.sink cimport put_int32, zigzag

from kfuzz.wire.checksum import crc32, crc32c
from kfuzz.wire.framing import frames

cdef enum:
    GROWTH = 40                # the most bytes that one change adds
    ROUNDS_MAX = 3
    TELLING = 12

cdef uint8_t[TELLING] telling_bytes = [0, 1, 2, 3, 4, 0x0f, 0x7f, 0x80, 0x81, 0xf0, 0xfe, 0xff]


# ------------------------------------------------------------------------------------------------- scramble

cdef int64_t change(uint8_t *data, int64_t n, dice_t *dice) noexcept nogil:
    """Change ``data`` in one place. Returns its new size, which is at most ``GROWTH`` bytes larger."""
    cdef int64_t at, size, source, i
    cdef uint64_t kind
    if n == 0:
        data[0] = 0
        n = 1
    at = <int64_t> roll_below(dice, <uint64_t> n)
    kind = roll_below(dice, 8)
    if kind == 0:
        data[at] = telling_bytes[roll_below(dice, TELLING)]
    elif kind == 1:
        data[at] ^= <uint8_t> (1 << roll_below(dice, 8))
    elif kind == 2:
        size = min(<int64_t> (1 << (2 * roll_below(dice, 3))) >> 1 | 1, n - at)
        memmove(data + at, data + at + size, <size_t> (n - at - size))
        n -= size
    elif kind == 3:
        size = 1 + <int64_t> roll_below(dice, 9)
        memmove(data + at + size, data + at, <size_t> (n - at))
        for i in range(size):
            data[at + i] = telling_bytes[roll_below(dice, TELLING)]
        n += size
    elif kind == 4:
        data[at] = <uint8_t> (roll(dice) >> 56)
    elif kind == 5:
        size = 1 + <int64_t> roll_below(dice, 30)
        for i in range(size):
            data[n + i] = <uint8_t> (roll(dice) >> 56)
        n += size
    elif kind == 6:
        # Add -4 to 4 to a number of four bytes.
        if n - at >= 4:
            put_int32(data + at, <int32_t> (load32(data + at) + <uint32_t> roll_below(dice, 9) - 4))
    else:
        source = <int64_t> roll_below(dice, <uint64_t> n)
        size = min(1 + <int64_t> roll_below(dice, 16), n - max(at, source))
        memmove(data + at, data + source, <size_t> size)
    return n


def scramble(bytes data not None, Dice dice not None):
    """``data`` with one to three changes that ignore its structure."""
    cdef int64_t n = PyBytes_GET_SIZE(data)
    cdef uint64_t rounds
    cdef uint8_t *work = <uint8_t *> PyMem_Malloc(<size_t> (n + ROUNDS_MAX * GROWTH + 1))
    if work == NULL:
        raise MemoryError
    try:
        memcpy(work, PyBytes_AS_STRING(data), <size_t> n)
        with nogil:
            rounds = roll_below(&dice.state, 4)
            n = change(work, n, &dice.state)
            while rounds >= 2:
                n = change(work, n, &dice.state)
                rounds -= 1
        return PyBytes_FromStringAndSize(<char *> work, <Py_ssize_t> n)
    finally:
        PyMem_Free(work)


# ------------------------------------------------------------------------------------------------- varints

cdef int get_varlong(const uint8_t *p, const uint8_t *end, int64_t *out) noexcept nogil:
    """The size of the zigzag varint at ``p``, or 0 if none ends within ten bytes."""
    cdef uint64_t raw = 0
    cdef int size = 0
    while size < VARLONG and p + size < end:
        raw |= (<uint64_t> (p[size] & 0x7f)) << (7 * size)
        size += 1
        if p[size - 1] < 0x80:
            out[0] = <int64_t> ((raw >> 1) ^ (~(raw & 1) + 1))
            return size
    return 0


def varlong(int64_t value, int smallest=1):
    """The zigzag varint of ``value``; if shorter than ``smallest`` bytes, stretched to an overlong form."""
    cdef uint64_t raw = zigzag(value)
    cdef uint8_t[16] out
    cdef int size = 0
    while raw >= 0x80 or size + 1 < min(smallest, 16):
        out[size] = <uint8_t> (raw & 0x7f) | 0x80
        raw >>= 7
        size += 1
    out[size] = <uint8_t> raw
    return PyBytes_FromStringAndSize(<char *> out, size + 1)


def record_spans(bytes payload not None):
    """The records in a decompressed payload as [start, end) pairs, up to the first unusable length."""
    cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(payload)
    cdef int64_t n = PyBytes_GET_SIZE(payload)
    cdef int64_t at = 0
    cdef int64_t length = 0
    cdef int size
    spans = []
    while at < n:
        size = get_varlong(base + at, base + n, &length)
        if size == 0 or length < 0 or length > n - at - size:
            break
        spans.append((at, at + size + length))
        at += size + length
    return spans


def record_numbers(bytes record not None):
    """The varints of one record as ``(at, size, value)``, up to the first unreadable one. Its length comes first."""
    cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(record)
    cdef int64_t n = PyBytes_GET_SIZE(record)
    cdef int64_t at = 0
    cdef int64_t value = 0
    cdef int64_t index = 0
    cdef int size
    numbers = []
    # Length, timestamp delta, offset delta, key length, value length, header count, then two lengths per header.
    while at < n:
        size = get_varlong(base + at, base + n, &value)
        if size == 0:
            break
        numbers.append((at, size, value))
        at += size
        if index == 0:
            at += 1            # attributes
        elif (index == 3 or index == 4 or index > 5) and value > 0:
            if value > n - at:
                break
            at += value
        index += 1
    return numbers


# ------------------------------------------------------------------------------------------------- repair

def seal(bytes frame not None, bint length, bint crc):
    """``frame``, which is one whole batch or message, with a correct batch length and CRC.

    ``length`` and ``crc`` say which of the two to correct. A frame too short to hold them is returned unchanged.
    """
    cdef int64_t n = PyBytes_GET_SIZE(frame)
    cdef uint8_t *p
    if n < AT_ATTRIBUTES:
        return frame
    out = PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame), <Py_ssize_t> n)
    p = <uint8_t *> PyBytes_AS_STRING(out)
    if length:
        put_int32(p + AT_BATCH_LENGTH, <int32_t> (n - LOG_OVERHEAD))
    if crc:
        if p[AT_MAGIC] == 2:
            put_int32(p + AT_CRC, <int32_t> <uint32_t> crc32c(memoryview(out)[AT_ATTRIBUTES:]))
        else:
            put_int32(p + MESSAGE_AT_CRC, <int32_t> <uint32_t> crc32(memoryview(out)[AT_MAGIC:]))
    return out


def frame_spans(bytes data not None):
    """The whole batches and messages in ``data`` (any magic) as [start, end) pairs, up to the first unusable length."""
    return [(at, at + size) for at, size, _ in frames(data, any_magic=True)]
