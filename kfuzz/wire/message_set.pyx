"""Magic 0 and 1, the message: a parser of one message, a loop over those inside a wrapper, and the writer.

Mirrors ``org.apache.kafka.common.record.LegacyRecord`` and ``AbstractLegacyRecordBatch``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t

from kfuzz.errors import EncodeError

from kfuzz.wire.cursor cimport load32, load64
from kfuzz.wire.format cimport (
    AT_BASE_OFFSET, AT_BATCH_LENGTH, AT_MAGIC, INNER_BYTES_MAX, KEY_AT_V0, KEY_AT_V1, LENGTHS_BYTES, LOG_OVERHEAD,
    MESSAGE_AT_ATTRIBUTES, MESSAGE_AT_CRC, MESSAGE_AT_TIMESTAMP, SMALLEST_MESSAGE,
)
from kfuzz.wire.held cimport Held, hold
from kfuzz.wire.report cimport (
    BATCH_LENGTH_BELOW_MINIMUM,
    BATCH_LENGTH_TOO_LARGE,
    BYTES_AFTER_MESSAGE,
    F_BATCH_LENGTH,
    F_KEY_LENGTH,
    F_VALUE,
    F_VALUE_LENGTH,
    INNER_PARTIAL_TAIL,
    LENGTH_BELOW_MINUS_ONE,
    LENGTH_EXCEEDS_RECORD,
    MESSAGE_TRUNCATED,
    clear,
    note,
    report_t,
    to_notes,
)
from kfuzz.wire.sink cimport put_bytes, put_int8, put_int32, put_int64

cdef struct message_t:
    int64_t offset
    int64_t timestamp
    int64_t key_at
    int64_t value_at
    int32_t key_length         # -1: null
    int32_t value_length       # -1: null
    uint32_t crc
    int32_t magic
    int32_t attributes


# ------------------------------------------------------------------------------------------------- reading

cdef bint get_nullable(const uint8_t *base, int64_t *at, int64_t end, int field, int64_t record, report_t *report,
                       int64_t *value_at, int32_t *value_length) noexcept nogil:
    """A 4-byte length at ``at[0]`` and that many bytes; ``at`` moves behind them. Below 0 is null to Kafka."""
    cdef int32_t n
    if end - at[0] < 4:
        note(report, MESSAGE_TRUNCATED, field, at[0], record, -1, end - at[0], 4)
        return False
    n = <int32_t> load32(base + at[0])
    if n < -1:
        note(report, LENGTH_BELOW_MINUS_ONE, field, at[0], record, -1, n, -1)
    elif n > end - at[0] - 4:
        note(report, LENGTH_EXCEEDS_RECORD, field, at[0], record, -1, n, end - at[0] - 4)
        return False
    at[0] += 4
    value_at[0] = at[0]
    value_length[0] = -1
    if n >= 0:
        value_length[0] = n
        at[0] += n
    return True


cdef bint get_message(const uint8_t *base, int64_t start, int64_t end, int64_t record, message_t *m,
                      report_t *report) noexcept nogil:
    """The message in ``[start, end)``, 26 bytes at least. Any magic but 0 has magic 1's layout, as in Kafka."""
    cdef const uint8_t *p = base + start
    cdef int64_t at = start + KEY_AT_V0
    m.offset = <int64_t> load64(p + AT_BASE_OFFSET)
    m.crc = load32(p + MESSAGE_AT_CRC)
    m.magic = p[AT_MAGIC]
    m.attributes = p[MESSAGE_AT_ATTRIBUTES]
    m.timestamp = -1
    if m.magic != 0:
        # The frame's smallest size is magic 0's; the eight bytes of a timestamp are then just there.
        m.timestamp = <int64_t> load64(p + MESSAGE_AT_TIMESTAMP)
        at = start + KEY_AT_V1
    if not get_nullable(base, &at, end, F_KEY_LENGTH, record, report, &m.key_at, &m.key_length):
        return False
    if not get_nullable(base, &at, end, F_VALUE_LENGTH, record, report, &m.value_at, &m.value_length):
        return False
    if at != end:
        note(report, BYTES_AFTER_MESSAGE, F_VALUE, at, record, -1, end - at, 0)
    return True


cdef object span(const uint8_t *base, int64_t at, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *> base + at, length)


cdef tuple to_tuple(const uint8_t *base, int64_t start, int64_t end, const message_t *m, bint objects):
    return (
        m.offset, m.crc, m.magic, m.attributes, m.timestamp,
        span(base, m.key_at, m.key_length) if objects else None,
        (m.value_at, m.value_length),
        (start, end),
    )


def parse_message(data not None, int64_t at, int64_t size):
    """The message of ``size`` bytes at ``at``, found whole by ``next_frame``: ``(message or None, notes)``."""
    cdef report_t report
    cdef message_t m
    cdef Held held = hold(data)
    cdef int64_t n = held.n
    if at < 0 or size < LOG_OVERHEAD + SMALLEST_MESSAGE or size > n or at > n - size:
        raise IndexError(f"no message of {size} bytes at {at} in {n} bytes")
    clear(&report)
    if not get_message(held.p, at, at + size, -1, &m, &report):
        return None, to_notes(&report, 0)
    return to_tuple(held.p, at, at + size, &m, True), to_notes(&report, 0)


def parse_messages(payload not None, bint objects):
    """The messages inside a wrapper's decompressed value: ``(ok, messages, notes)``.

    As ``AbstractLegacyRecordBatch.DataLogInputStream`` reads them: a cut last message is dropped without a word.
    """
    cdef Held held = hold(payload)
    cdef int64_t n = held.n
    cdef int64_t at = 0
    cdef int64_t record = 0
    cdef int32_t size
    cdef report_t report
    cdef message_t m
    cdef const uint8_t *base = held.p
    cdef list messages = []
    clear(&report)
    while n - at >= LOG_OVERHEAD:
        size = <int32_t> load32(base + at + AT_BATCH_LENGTH)
        if size < SMALLEST_MESSAGE:
            note(&report, BATCH_LENGTH_BELOW_MINIMUM, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, record, -1, size,
                 SMALLEST_MESSAGE)
            return False, messages, to_notes(&report, 0)
        if size > INNER_BYTES_MAX:
            note(&report, BATCH_LENGTH_TOO_LARGE, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, record, -1, size,
                 INNER_BYTES_MAX)
            return False, messages, to_notes(&report, 0)
        if size > n - at - LOG_OVERHEAD:
            break
        if not get_message(base, at, at + LOG_OVERHEAD + size, record, &m, &report):
            return False, messages, to_notes(&report, 0)
        messages.append(to_tuple(base, at, at + LOG_OVERHEAD + size, &m, objects))
        at += LOG_OVERHEAD + size
        record += 1
    if at != n:
        note(&report, INNER_PARTIAL_TAIL, F_VALUE, at, record, -1, n - at, 0)
    return True, messages, to_notes(&report, 0)


# ------------------------------------------------------------------------------------------------- writing

def encode_message(int magic, int64_t offset, int attributes, int64_t timestamp, key, value, crc32):
    """A whole message with its offset and size in front; ``crc32(bytes)`` computes its checksum.

    ``EncodeError`` where a value does not fit. Mirrors ``LegacyRecord.write``.
    """
    cdef int64_t size
    cdef uint8_t *p
    cdef uint8_t *start
    if magic not in (0, 1):
        raise EncodeError(f"magic {magic} is not a message format; it must be 0 or 1")
    for name, part in (("key", key), ("value", value)):
        if part is not None and type(part) is not bytes:
            raise EncodeError(f"the {name} is {type(part).__name__}; it must be bytes or None")
    size = (KEY_AT_V0 if magic == 0 else KEY_AT_V1) + LENGTHS_BYTES - LOG_OVERHEAD + len(key or b"") + len(value or b"")
    if size > INT32_MAX - LOG_OVERHEAD:
        raise EncodeError(f"the message takes {size} bytes; its size is an int32")
    out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> (LOG_OVERHEAD + size))
    start = <uint8_t *> PyBytes_AS_STRING(out)
    p = put_int64(start, offset)
    p = put_int32(p, <int32_t> size)
    p = put_int32(p, 0)
    p = put_int8(p, magic)
    p = put_int8(p, attributes)
    if magic == 1:
        p = put_int64(p, timestamp)
    for part in (key, value):
        p = put_int32(p, -1 if part is None else <int32_t> PyBytes_GET_SIZE(part))
        if part is not None:
            p = put_bytes(p, <const uint8_t *> PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part))
    put_int32(start + MESSAGE_AT_CRC, <int32_t> <uint32_t> crc32(memoryview(out)[AT_MAGIC:]))
    return out
