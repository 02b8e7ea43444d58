"""Messages of magic 0 and 1: the parser of one message, the loop over a wrapper's messages, and the writer.

Mirrors ``org.apache.kafka.common.record.LegacyRecord`` and ``AbstractLegacyRecordBatch``.
"""

from collections import namedtuple

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.errors import EncodeError

from kfuzz.wire.io.checksum cimport crc32_of
from kfuzz.wire.io.cursor cimport load32, load64, unlikely
from kfuzz.wire.io.format cimport (
    AT_BASE_OFFSET,
    AT_BATCH_LENGTH,
    AT_MAGIC,
    CODEC_MASK,
    INNER_BYTES_MAX,
    KEY_AT_V0,
    KEY_AT_V1,
    LAST_CODEC,
    LAST_MESSAGE_CODEC,
    LENGTHS_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MESSAGE_AT_ATTRIBUTES,
    MESSAGE_AT_CRC,
    MESSAGE_AT_TIMESTAMP,
    SMALLEST_MESSAGE,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport (
    ATTRIBUTES_UNUSED_BITS,
    BASE_OFFSET_NEGATIVE,
    BATCH_LENGTH_BELOW_MINIMUM,
    BATCH_LENGTH_TOO_LARGE,
    BYTES_AFTER_MESSAGE,
    CODEC_NOT_ALLOWED,
    CODEC_UNKNOWN,
    CRC_MISMATCH,
    F_ATTRIBUTES,
    F_BASE_OFFSET,
    F_BATCH_LENGTH,
    F_CRC,
    F_KEY_LENGTH,
    F_MAGIC,
    F_VALUE,
    F_VALUE_LENGTH,
    INNER_MAGIC_MISMATCH,
    INNER_PARTIAL_TAIL,
    LENGTH_BELOW_MINUS_ONE,
    LENGTH_EXCEEDS_RECORD,
    MESSAGE_TRUNCATED,
    WRAPPER_CRC_MISMATCH,
    WRAPPER_EMPTY,
    WRAPPER_NESTED,
    WRAPPER_OFFSET_TOO_LOW,
    WRAPPER_VALUE_NULL,
    clear,
    note,
    report_t,
    to_notes,
)
from kfuzz.wire.io.scratch cimport Scratch, out_t, reserve
from kfuzz.wire.io.sink cimport put_bytes, put_int8, put_int32, put_int64, span_t
from kfuzz.wire.records.batch_writer cimport fields_t, take_record
from kfuzz.wire.records.record cimport Record
from kfuzz.wire.records.record_batch cimport next_row

# Unused attribute bits. Magic 0 has only the codec; magic 1 also has the timestamp type.
cdef enum:
    UNUSED_BITS_V0 = 0xf8
    UNUSED_BITS_V1 = 0xf0


# ------------------------------------------------------------------------------------------------- reading

cdef bint get_nullable(const uint8_t *base, int64_t *at, int64_t end, int field, int64_t record, report_t *report,
                       int64_t *value_at, int32_t *value_length) noexcept nogil:
    """Read a 4-byte length at ``at[0]`` and step over it and that many bytes. Kafka reads any length below 0 as null.
    """
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
    """Parse the message in ``[start, end)``, at least 26 bytes. As in Kafka, any magic except 0 has magic 1's layout.
    """
    cdef const uint8_t *p = base + start
    cdef int64_t at = start + KEY_AT_V0
    m.offset = <int64_t> load64(p + AT_BASE_OFFSET)
    m.magic = p[AT_MAGIC]
    m.attributes = p[MESSAGE_AT_ATTRIBUTES]
    m.timestamp = -1
    if m.magic != 0:
        # A frame has at least the size of a message of magic 0. That is just enough to read a timestamp.
        m.timestamp = <int64_t> load64(p + MESSAGE_AT_TIMESTAMP)
        at = start + KEY_AT_V1
    if not get_nullable(base, &at, end, F_KEY_LENGTH, record, report, &m.key_at, &m.key_length):
        return False
    if not get_nullable(base, &at, end, F_VALUE_LENGTH, record, report, &m.value_at, &m.value_length):
        return False
    if at != end:
        note(report, BYTES_AFTER_MESSAGE, F_VALUE, at, record, -1, end - at, 0)
    return True


cdef bint judge_message(const uint8_t *p, int64_t size, message_t *m, report_t *report) noexcept nogil:
    """Judge the message of ``size`` bytes at ``p`` as a consumer does. False, with a note, if it is refused.

    For a wrapper, this does not look inside its value.
    """
    cdef uint32_t actual = crc32_of(p + AT_MAGIC, size - AT_MAGIC)
    cdef uint32_t crc = load32(p + MESSAGE_AT_CRC)
    cdef int codec = p[MESSAGE_AT_ATTRIBUTES] & CODEC_MASK
    cdef int unused
    m.value_at = -1
    if unlikely(actual != crc):
        # A consumer checks the CRC of each record that it returns, but not of a wrapper.
        note(report, WRAPPER_CRC_MISMATCH if codec else CRC_MISMATCH, F_CRC, MESSAGE_AT_CRC, -1, -1, crc, actual)
        if not codec:
            return False
    if unlikely(not get_message(p, 0, size, -1, m, report)):
        m.value_at = -1
        return False
    unused = UNUSED_BITS_V0 if m.magic == 0 else UNUSED_BITS_V1
    if unlikely(m.attributes & unused):
        note(report, ATTRIBUTES_UNUSED_BITS, F_ATTRIBUTES, MESSAGE_AT_ATTRIBUTES, -1, -1, m.attributes, unused)
    if unlikely(m.offset < 0):
        note(report, BASE_OFFSET_NEGATIVE, F_BASE_OFFSET, AT_BASE_OFFSET, -1, -1, m.offset, 0)
    if unlikely(codec > LAST_MESSAGE_CODEC):
        note(report, CODEC_UNKNOWN if codec > LAST_CODEC else CODEC_NOT_ALLOWED, F_ATTRIBUTES, MESSAGE_AT_ATTRIBUTES,
             -1, -1, codec, 0)
        return False
    if unlikely(codec and m.value_length < 0):
        note(report, WRAPPER_VALUE_NULL, F_VALUE, m.value_at, -1, -1, m.value_length, 0)
        return False
    return True


cdef void to_row(const message_t *m, int64_t start, int64_t end, row_t *row) noexcept nogil:
    row.at = <int32_t> start
    row.length = <int32_t> (end - start)
    row.offset_delta = m.offset
    row.timestamp_delta = m.timestamp
    row.untimed = m.magic == 0
    row.attributes = 0
    row.key_at = <int32_t> m.key_at
    row.key_length = m.key_length
    row.value_at = <int32_t> m.value_at
    row.value_length = m.value_length
    row.headers_at = row.header_count = row.first_header = 0


cdef int64_t inner_end(const uint8_t *base, int64_t at, int64_t n) noexcept nogil:
    """Where the message at ``at`` in a wrapper ends; 0 if there are no more, -1 if its size is refused.

    Mirrors ``AbstractLegacyRecordBatch.DataLogInputStream``, which silently drops a cut last message.
    """
    cdef int32_t size
    if n - at < LOG_OVERHEAD:
        return 0
    size = <int32_t> load32(base + at + AT_BATCH_LENGTH)
    if size < SMALLEST_MESSAGE or size > INNER_BYTES_MAX:
        return -1
    return at + LOG_OVERHEAD + size if size <= n - at - LOG_OVERHEAD else 0


cdef int64_t next_inner(const uint8_t *base, int64_t at, int64_t n, int32_t record, message_t *m,
                        report_t *report) noexcept nogil:
    """As ``inner_end``, but also parses the message, and notes why one is refused."""
    cdef int64_t end = inner_end(base, at, n)
    cdef int32_t size
    if end > 0:
        return end if get_message(base, at, end, record, m, report) else -1
    if end < 0:
        size = <int32_t> load32(base + at + AT_BATCH_LENGTH)
        if size < SMALLEST_MESSAGE:
            note(report, BATCH_LENGTH_BELOW_MINIMUM, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, record, -1, size,
                 SMALLEST_MESSAGE)
        else:
            note(report, BATCH_LENGTH_TOO_LARGE, F_BATCH_LENGTH, at + AT_BATCH_LENGTH, record, -1, size,
                 INNER_BYTES_MAX)
    return end


cdef bint get_wrapped(const uint8_t *base, int64_t n, const message_t *wrapper, rows_t *sink, report_t *report,
                      int32_t *count, int64_t *first) noexcept nogil:
    """Read the messages inside a wrapper. ``base`` is its decompressed value.

    False means refused, with a note, or out of memory, which ``sink`` then shows.

    As in ``AbstractLegacyRecordBatch.DeepRecordsIterator``, all messages are read before the first is judged. Relative
    offsets become absolute, and a LogAppendTime of the wrapper replaces the timestamps. ``first`` gets the offset of
    the first message. Notes about the wrapper itself have their place in the wrapper.
    """
    cdef bint log_append = wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME
    cdef message_t m
    cdef row_t *row
    cdef int64_t at = 0
    cdef int64_t end
    cdef int64_t last = 0
    cdef uint64_t base_offset = 0
    cdef int32_t i = 0
    cdef uint32_t actual
    count[0] = 0
    while True:
        end = next_inner(base, at, n, i, &m, report)
        if end < 0:
            return False
        if end == 0:
            break
        if sink != NULL and sink.most and sink.count >= sink.most:
            sink.is_full = True
        elif sink != NULL:
            row = next_row(sink)
            if row == NULL:
                return False  # unreachable: only if memory runs out
            to_row(&m, at, end, row)
            sink.count += 1
        last = m.offset
        at = end
        i += 1
    if at != n:
        note(report, INNER_PARTIAL_TAIL, F_VALUE, at, i, -1, n - at, 0)
    if i == 0:
        note(report, WRAPPER_EMPTY, F_VALUE, wrapper.value_at, -1, -1, wrapper.value_length, 0)
        return False
    count[0] = i
    # Some producers left the wrapper's offset at 0. The inner offsets are then absolute.
    if wrapper.magic == 1 and wrapper.offset != 0:
        if wrapper.offset < last:
            note(report, WRAPPER_OFFSET_TOO_LOW, F_BASE_OFFSET, AT_BASE_OFFSET, -1, -1, wrapper.offset, last)
            return False
        base_offset = <uint64_t> wrapper.offset - <uint64_t> last
    first[0] = <int64_t> (base_offset + load64(base))
    at = 0
    for i in range(count[0]):
        end = inner_end(base, at, n)
        actual = base[at + MESSAGE_AT_ATTRIBUTES] & CODEC_MASK
        if unlikely(actual):
            note(report, WRAPPER_NESTED, F_ATTRIBUTES, at + MESSAGE_AT_ATTRIBUTES, i, -1, actual, 0)
            return False
        actual = crc32_of(base + at + AT_MAGIC, end - at - AT_MAGIC)
        if unlikely(actual != load32(base + at + MESSAGE_AT_CRC)):
            note(report, CRC_MISMATCH, F_CRC, at + MESSAGE_AT_CRC, i, -1, load32(base + at + MESSAGE_AT_CRC), actual)
            return False
        if unlikely(base[at + AT_MAGIC] != wrapper.magic):
            note(report, INNER_MAGIC_MISMATCH, F_MAGIC, at + AT_MAGIC, i, -1, base[at + AT_MAGIC], wrapper.magic)
        if sink != NULL and i < sink.count:
            row = &sink.rows[i]
            # The sum wraps around, as in Java.
            row.offset_delta = <int64_t> (base_offset + <uint64_t> row.offset_delta)
            if log_append and base[at + AT_MAGIC] == 1:
                row.timestamp_delta = wrapper.timestamp
        at = end
    return True


cdef int64_t more_wrapped(const uint8_t *base, int64_t n, int64_t at, const message_t *wrapper, int64_t first,
                          rows_t *sink) noexcept nogil:
    """Fill the rows of the messages from byte ``at`` on, in a wrapper that ``get_wrapped`` has read: ``sink.most`` of
    them at most. Returns where the next one begins. ``first`` is the offset of the wrapper's first message.
    """
    cdef bint log_append = wrapper.magic == 1 and wrapper.attributes & LOG_APPEND_TIME
    cdef uint64_t base_offset = <uint64_t> first - load64(base)
    cdef message_t m
    cdef row_t *row
    cdef int64_t end
    cdef report_t report
    clear(&report)
    while sink.count < sink.most:
        end = next_inner(base, at, n, 0, &m, &report)
        row = next_row(sink)
        if end <= 0 or row == NULL:
            break
        m.offset = <int64_t> (base_offset + <uint64_t> m.offset)
        if log_append and m.magic == 1:
            m.timestamp = wrapper.timestamp
        to_row(&m, at, end, row)
        sink.count += 1
        at = end
    return at


cdef object span(const uint8_t *base, int64_t at, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *> base + at, length)


Message = namedtuple("Message", "offset magic attributes timestamp key value extent")


cdef object to_message(const uint8_t *base, int64_t start, int64_t end, const message_t *m):
    return Message(
        m.offset, m.magic, m.attributes, m.timestamp, span(base, m.key_at, m.key_length),
        (m.value_at, m.value_length), (start, end),
    )


def parse_message(data not None, int64_t at, int64_t size):
    cdef report_t report
    cdef message_t m
    cdef HeldBuffer held = hold(data)
    cdef int64_t n = held.n
    if at < 0 or size < LOG_OVERHEAD + SMALLEST_MESSAGE or size > n or at > n - size:
        raise IndexError(f"no message of {size} bytes at {at} in {n} bytes")
    clear(&report)
    if not get_message(held.p, at, at + size, -1, &m, &report):
        return None, to_notes(&report, 0)
    return to_message(held.p, at, at + size, &m), to_notes(&report, 0)


def parse_messages(payload not None, int64_t most=0):
    cdef HeldBuffer held = hold(payload)
    cdef int64_t at = 0
    cdef int64_t count = 0
    cdef int64_t end
    cdef report_t report
    cdef message_t m
    cdef list messages = []
    clear(&report)
    while True:
        end = next_inner(held.p, at, held.n, <int32_t> count, &m, &report)
        if end <= 0:
            return messages, count, at
        if most == 0 or count < most:
            messages.append(to_message(held.p, at, end, &m))
        count += 1
        at = end


def first_and_last(payload not None):
    cdef HeldBuffer held = hold(payload)
    cdef int64_t at = 0
    cdef int64_t last = 0
    cdef int64_t end
    while True:
        end = inner_end(held.p, at, held.n)
        if end <= 0:
            break
        last = at
        at = end
    if end < 0 or at == 0 or held.p[MESSAGE_AT_ATTRIBUTES] & CODEC_MASK:
        return None
    return <int64_t> load64(held.p), <int64_t> load64(held.p + last)


# ------------------------------------------------------------------------------------------------- writing

cdef int put_message(out_t *out, int magic, int64_t offset, int attributes, int64_t timestamp, const span_t *key,
                     const span_t *value) except -1:
    """Append a whole message, preceded by its offset and size."""
    cdef int64_t size = KEY_AT_V0 if magic == 0 else KEY_AT_V1
    cdef uint8_t *start
    cdef uint8_t *p
    size += LENGTHS_BYTES + max(key.n, 0) + max(value.n, 0)
    if size > INT32_MAX:
        raise EncodeError(f"the message takes {size} bytes; its size is an int32")  # unreachable: takes 2 GiB
    reserve(out, size)
    start = out.p
    p = put_int64(start, offset)
    p = put_int32(p, <int32_t> (size - LOG_OVERHEAD))
    p = put_int32(p, 0)
    p = put_int8(p, magic)
    p = put_int8(p, attributes)
    if magic == 1:
        p = put_int64(p, timestamp)
    p = put_int32(p, <int32_t> key.n)
    if key.n > 0:
        p = put_bytes(p, key.p, key.n)
    p = put_int32(p, <int32_t> value.n)
    if value.n > 0:
        p = put_bytes(p, value.p, value.n)
    put_int32(start + MESSAGE_AT_CRC, <int32_t> crc32_of(start + AT_MAGIC, size - AT_MAGIC))
    out.p = p
    return 0


def encode_messages(list records not None, int magic, int64_t base_offset, int attributes, stamp=None):
    cdef Scratch made = Scratch.__new__(Scratch)
    put_messages(&made.out, records, magic, base_offset, attributes, stamp)
    return made


cdef int put_messages(out_t *out, list records, int magic, int64_t base_offset, int attributes, object stamp) except -1:
    cdef int64_t one_stamp = 0 if stamp is None else stamp
    cdef Record record
    cdef fields_t fields
    cdef Py_ssize_t i = 0
    # Copying an unusual value may run code that changes the list, so its length is read in each iteration.
    while i < len(records):
        record = take_record(records[i], i, &fields)
        # The difference wraps around, as in Java.
        put_message(out, magic, <int64_t> (<uint64_t> record.c_offset - <uint64_t> base_offset), attributes,
                    record.c_timestamp if stamp is None else one_stamp, &fields.key, &fields.value)
        i += 1
    return 0


def encode_message(int magic, int64_t offset, int attributes, int64_t timestamp, key, value):
    cdef Scratch made = Scratch.__new__(Scratch)
    cdef span_t key_span
    cdef span_t value_span
    cdef HeldBuffer held_key = None
    cdef HeldBuffer held_value = None
    key_span.n = value_span.n = -1
    if key is not None:
        held_key = hold(key)
        key_span = span_t(held_key.p, held_key.n)
    if value is not None:
        held_value = hold(value)
        value_span = span_t(held_value.p, held_value.n)
    put_message(&made.out, magic, offset, attributes, timestamp, &key_span, &value_span)
    return PyBytes_FromStringAndSize(<const char *> made.out.start, made.out.p - made.out.start)
