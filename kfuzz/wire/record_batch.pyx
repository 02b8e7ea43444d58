"""Magic 2, the record batch: one parse loop with an optional sink of rows, and the writer.

Mirrors ``org.apache.kafka.common.record.DefaultRecordBatch`` and ``DefaultRecord``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr

from kfuzz.errors import EncodeError

from kfuzz.wire.cursor cimport cursor_t, get_varint, get_varlong, left, load16, load32, load64, position
from kfuzz.wire.record cimport Record
from kfuzz.wire.report cimport (
    F_ATTRIBUTES,
    F_HEADER_COUNT,
    F_HEADER_KEY,
    F_HEADER_KEY_LENGTH,
    F_HEADER_VALUE_LENGTH,
    F_KEY_LENGTH,
    F_LENGTH,
    F_MAX_TIMESTAMP,
    F_OFFSET_DELTA,
    F_RECORD_COUNT,
    F_TIMESTAMP_DELTA,
    F_VALUE_LENGTH,
    HEADER_COUNT_EXCEEDS_RECORD,
    HEADER_COUNT_NEGATIVE,
    HEADER_KEY_NOT_UTF8,
    HEADER_KEY_NULL,
    HEADER_KEY_NULL_CHARACTER,
    LENGTH_BELOW_MINUS_ONE,
    LENGTH_EXCEEDS_RECORD,
    MAX_TIMESTAMP_BELOW_RECORDS,
    OFFSET_DELTA_BEYOND_LAST,
    OFFSET_DELTA_NEGATIVE,
    OFFSET_DELTA_NOT_INCREASING,
    OFFSET_OVERFLOW,
    RECORD_ATTRIBUTES_NONZERO,
    RECORD_COUNT_TOO_HIGH,
    RECORD_COUNT_TOO_LOW,
    RECORD_LENGTH_EXCEEDS_PAYLOAD,
    RECORD_LENGTH_MISMATCH,
    RECORD_LENGTH_NEGATIVE,
    RECORD_TRUNCATED,
    TIMESTAMP_OVERFLOW,
    clear,
    note,
    report_t,
    to_notes,
)
from kfuzz.wire.sink cimport put_bytes, put_int8, put_varlong, size_of_varlong

# The one layout table of the header: (field, offset, width in bytes), all big-endian.
HEADER_LAYOUT = (
    ("base_offset", AT_BASE_OFFSET, 8),
    ("batch_length", AT_BATCH_LENGTH, 4),
    ("partition_leader_epoch", AT_PARTITION_LEADER_EPOCH, 4),
    ("magic", AT_MAGIC, 1),
    ("crc", AT_CRC, 4),
    ("attributes", AT_ATTRIBUTES, 2),
    ("last_offset_delta", AT_LAST_OFFSET_DELTA, 4),
    ("base_timestamp", AT_BASE_TIMESTAMP, 8),
    ("max_timestamp", AT_MAX_TIMESTAMP, 8),
    ("producer_id", AT_PRODUCER_ID, 8),
    ("producer_epoch", AT_PRODUCER_EPOCH, 2),
    ("base_sequence", AT_BASE_SEQUENCE, 4),
    ("record_count", AT_RECORD_COUNT, 4),
)
BATCH_HEADER_SIZE = HEADER_SIZE

# No payload of this size or more is parsed: places in it are 32-bit numbers.
LIMIT_BYTES = INT32_MAX


# ------------------------------------------------------------------------------------------------- reading

def parse_header(const uint8_t[::1] data not None, int64_t at):
    """The header's fields in the order of ``HEADER_LAYOUT``; ``next_frame`` has found the frame at ``at`` whole."""
    if at < 0 or data.shape[0] < HEADER_SIZE or at > data.shape[0] - HEADER_SIZE:
        raise IndexError(f"no header of {HEADER_SIZE} bytes at {at} in {data.shape[0]} bytes")
    cdef const uint8_t *p = &data[at]
    return (
        <int64_t> load64(p + AT_BASE_OFFSET),
        <int32_t> load32(p + AT_BATCH_LENGTH),
        <int32_t> load32(p + AT_PARTITION_LEADER_EPOCH),
        <int8_t> p[AT_MAGIC],
        load32(p + AT_CRC),
        <int16_t> load16(p + AT_ATTRIBUTES),
        <int32_t> load32(p + AT_LAST_OFFSET_DELTA),
        <int64_t> load64(p + AT_BASE_TIMESTAMP),
        <int64_t> load64(p + AT_MAX_TIMESTAMP),
        <int64_t> load64(p + AT_PRODUCER_ID),
        <int16_t> load16(p + AT_PRODUCER_EPOCH),
        <int32_t> load32(p + AT_BASE_SEQUENCE),
        <int32_t> load32(p + AT_RECORD_COUNT),
    )


cdef bint valid_utf8(const uint8_t *p, int64_t n) noexcept nogil:
    """Whether these bytes are UTF-8 as Unicode defines it: no overlong forms, no surrogates, nothing above U+10FFFF."""
    cdef const uint8_t *end = p + n
    cdef uint32_t b
    cdef uint32_t low
    cdef uint32_t high
    cdef int more
    while p < end:
        b = p[0]
        p += 1
        if b < 0x80:
            continue
        low = 0x80
        high = 0xbf
        if 0xc2 <= b <= 0xdf:
            more = 1
        elif 0xe0 <= b <= 0xef:
            more = 2
            if b == 0xe0:
                low = 0xa0
            elif b == 0xed:
                high = 0x9f
        elif 0xf0 <= b <= 0xf4:
            more = 3
            if b == 0xf0:
                low = 0x90
            elif b == 0xf4:
                high = 0x8f
        else:
            return False
        if end - p < more:
            return False
        while more:
            if p[0] < low or p[0] > high:
                return False
            low = 0x80
            high = 0xbf
            p += 1
            more -= 1
    return True


cdef bint grow_rows(rows_t *sink) noexcept nogil:
    cdef int64_t capacity = sink.capacity * 2 if sink.capacity else 16
    cdef void *rows = realloc(sink.rows, <size_t> capacity * sizeof(row_t))
    if rows == NULL:
        return False
    sink.rows = <row_t *> rows
    sink.capacity = capacity
    return True


cdef bint grow_headers(rows_t *sink) noexcept nogil:
    cdef int64_t capacity = sink.header_capacity * 2 if sink.header_capacity else 16
    cdef void *rows = realloc(sink.headers, <size_t> capacity * sizeof(header_row_t))
    if rows == NULL:
        return False
    sink.headers = <header_row_t *> rows
    sink.header_capacity = capacity
    return True


cdef inline bint get_span(cursor_t *c, int field, int32_t *length, int64_t *at) noexcept nogil:
    """A length and that many bytes. Any negative length is null to Kafka; only -1 is so by the documents."""
    cdef int64_t start = position(c)
    cdef int32_t n
    if not get_varint(c, field, &n):
        return False
    if n < 0:
        if n != -1:
            note(c.report, LENGTH_BELOW_MINUS_ONE, field, start, c.record, c.header, n, -1)
        length[0] = -1
        at[0] = position(c)
        return True
    if n > left(c):
        note(c.report, LENGTH_EXCEEDS_RECORD, field, start, c.record, c.header, n, left(c))
        return False
    length[0] = n
    at[0] = position(c)
    c.p += n
    return True


cdef bint get_headers(cursor_t *c, int32_t count, rows_t *sink) noexcept nogil:
    cdef int64_t start
    cdef int64_t key_at
    cdef int64_t value_at
    cdef int32_t key_length
    cdef int32_t value_length
    cdef int32_t i
    cdef header_row_t *row
    for i in range(count):
        c.header = i
        start = position(c)
        if not get_varint(c, F_HEADER_KEY_LENGTH, &key_length):
            return False
        if key_length < 0:
            note(c.report, HEADER_KEY_NULL, F_HEADER_KEY_LENGTH, start, c.record, i, key_length, 0)
            return False
        if key_length > left(c):
            note(c.report, LENGTH_EXCEEDS_RECORD, F_HEADER_KEY_LENGTH, start, c.record, i, key_length, left(c))
            return False
        key_at = position(c)
        if not valid_utf8(c.p, key_length):
            note(c.report, HEADER_KEY_NOT_UTF8, F_HEADER_KEY, key_at, c.record, i, key_length, 0)
        if memchr(c.p, 0, <size_t> key_length) != NULL:
            note(c.report, HEADER_KEY_NULL_CHARACTER, F_HEADER_KEY, key_at, c.record, i, key_length, 0)
        c.p += key_length
        if not get_span(c, F_HEADER_VALUE_LENGTH, &value_length, &value_at):
            return False
        if sink != NULL:
            if sink.header_count == sink.header_capacity and not grow_headers(sink):
                return False
            row = &sink.headers[sink.header_count]
            row.key_at = <int32_t> key_at
            row.key_length = key_length
            row.value_at = <int32_t> value_at
            row.value_length = value_length
            sink.header_count += 1
    c.header = -1
    return True


cdef bint get_record(cursor_t *c, const uint8_t *payload_end, row_t *row, rows_t *sink) noexcept nogil:
    """One record into ``row``, its headers into ``sink`` if there is one. False means refused, with a finding noted."""
    cdef int64_t start = position(c)
    cdef int64_t at
    cdef int32_t length
    c.end = payload_end
    if not get_varint(c, F_LENGTH, &length):
        return False
    if length < 0:
        note(c.report, RECORD_LENGTH_NEGATIVE, F_LENGTH, start, c.record, -1, length, 0)
        return False
    if length > left(c):
        note(c.report, RECORD_LENGTH_EXCEEDS_PAYLOAD, F_LENGTH, start, c.record, -1, length, left(c))
        return False
    row.at = <int32_t> start
    row.length = length
    # From here the record's own length is the wall.
    c.end = c.p + length
    if length == 0:
        note(c.report, RECORD_TRUNCATED, F_ATTRIBUTES, position(c), c.record, -1, 0, 1)
        return False
    row.attributes = c.p[0]
    if c.p[0] != 0:
        note(c.report, RECORD_ATTRIBUTES_NONZERO, F_ATTRIBUTES, position(c), c.record, -1, c.p[0], 0)
    c.p += 1
    if not get_varlong(c, F_TIMESTAMP_DELTA, &row.timestamp_delta):
        return False
    if not get_varint(c, F_OFFSET_DELTA, &row.offset_delta):
        return False
    if not get_span(c, F_KEY_LENGTH, &row.key_length, &at):
        return False
    row.key_at = <int32_t> at
    if not get_span(c, F_VALUE_LENGTH, &row.value_length, &at):
        return False
    row.value_at = <int32_t> at
    at = position(c)
    if not get_varint(c, F_HEADER_COUNT, &row.header_count):
        return False
    if row.header_count != 0:
        if row.header_count < 0:
            note(c.report, HEADER_COUNT_NEGATIVE, F_HEADER_COUNT, at, c.record, -1, row.header_count, 0)
            return False
        # A header is two bytes at least, so a count above that can be refused before any work is done for it.
        if row.header_count > left(c) // 2:
            note(c.report, HEADER_COUNT_EXCEEDS_RECORD, F_HEADER_COUNT, at, c.record, -1,
                 row.header_count, left(c) // 2)
            return False
        if sink != NULL:
            row.first_header = <int32_t> sink.header_count
        if not get_headers(c, row.header_count, sink):
            return False
    if c.p != c.end:
        note(c.report, RECORD_LENGTH_MISMATCH, F_LENGTH, start, c.record, -1, length, length - left(c))
        return False
    return True


cdef bint get_records(cursor_t *c, const header_t *h, rows_t *sink) noexcept nogil:
    """The parse loop of magic 2. False means refused, with a finding noted, or out of memory, without one."""
    cdef const uint8_t *payload_end = c.end
    cdef row_t scratch
    cdef row_t *row = &scratch
    cdef int64_t start
    cdef int64_t timestamp
    cdef int64_t before = -1
    # How far a delta may go before the offset overflows; a negative one cannot, from a base offset of 0 or more.
    cdef int64_t room = INT64_MAX - h.base_offset if h.base_offset > 0 else INT64_MAX
    cdef int64_t largest = h.max_timestamp
    cdef int64_t largest_at = 0
    cdef int64_t largest_record = -1
    cdef bint create_time = not h.attributes & LOG_APPEND_TIME
    cdef int32_t i
    c.header = -1
    for i in range(h.record_count):
        start = position(c)
        c.record = i
        if c.p == payload_end:
            note(c.report, RECORD_COUNT_TOO_HIGH, F_RECORD_COUNT, start, -1, -1, h.record_count, i)
            return False
        if sink != NULL:
            if sink.count == sink.capacity and not grow_rows(sink):
                return False
            row = &sink.rows[sink.count]
        row.first_header = 0
        if not get_record(c, payload_end, row, sink):
            return False
        if sink != NULL:
            sink.count += 1
        if row.offset_delta <= before:
            if row.offset_delta < 0:
                note(c.report, OFFSET_DELTA_NEGATIVE, F_OFFSET_DELTA, start, i, -1, row.offset_delta, 0)
            if i > 0:
                note(c.report, OFFSET_DELTA_NOT_INCREASING, F_OFFSET_DELTA, start, i, -1, row.offset_delta, before + 1)
        elif row.offset_delta > h.last_offset_delta:
            note(c.report, OFFSET_DELTA_BEYOND_LAST, F_OFFSET_DELTA, start, i, -1,
                 row.offset_delta, h.last_offset_delta)
        if row.offset_delta > room:
            note(c.report, OFFSET_OVERFLOW, F_OFFSET_DELTA, start, i, -1, row.offset_delta, h.base_offset)
        before = row.offset_delta
        if create_time:
            # Java's sum wraps, and so does Kafka's timestamp.
            timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
            if (timestamp < h.base_timestamp) != (row.timestamp_delta < 0):
                note(c.report, TIMESTAMP_OVERFLOW, F_TIMESTAMP_DELTA, start, i, -1,
                     row.timestamp_delta, h.base_timestamp)
            if timestamp > largest:
                largest = timestamp
                largest_at = start
                largest_record = i
    c.record = -1
    c.end = payload_end
    if h.record_count > 0 and c.p != payload_end:
        note(c.report, RECORD_COUNT_TOO_LOW, F_RECORD_COUNT, position(c), -1, -1, h.record_count, left(c))
        return False
    if largest_record >= 0:
        note(c.report, MAX_TIMESTAMP_BELOW_RECORDS, F_MAX_TIMESTAMP, largest_at, largest_record, -1,
             h.max_timestamp, largest)
    return True


cdef object span(const uint8_t *base, int32_t at, int32_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *> base + at, length)


cdef tuple to_headers(const uint8_t *base, const header_row_t *rows, int32_t count):
    cdef list pairs = []
    cdef int32_t k
    for k in range(count):
        key = span(base, rows[k].key_at, rows[k].key_length)
        pairs.append((key, span(base, rows[k].value_at, rows[k].value_length)))
    return tuple(pairs)


cdef list to_records(const uint8_t *base, const header_t *h, const rows_t *rows):
    """The rows as ``Record`` objects; sums wrap as Java's do."""
    cdef list out = []
    cdef const row_t *row
    cdef Record record
    cdef int64_t i
    cdef bint log_append = h.attributes & LOG_APPEND_TIME
    for i in range(rows.count):
        row = &rows.rows[i]
        record = Record.__new__(Record)
        record.c_offset = <int64_t> (<uint64_t> h.base_offset + <uint64_t> <int64_t> row.offset_delta)
        record.c_timestamp = h.max_timestamp
        if not log_append:
            record.c_timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
        record.has_timestamp = True
        record.c_attributes = row.attributes
        record.key = span(base, row.key_at, row.key_length)
        record.value = span(base, row.value_at, row.value_length)
        record.headers = ()
        if row.header_count:
            record.headers = to_headers(base, &rows.headers[row.first_header], row.header_count)
        out.append(record)
    return out


cdef list to_places(const rows_t *rows):
    """The rows as ``PlaceTuple``: spans instead of contents."""
    cdef const row_t *row
    cdef const header_row_t *header
    cdef int64_t i
    cdef int32_t k
    cdef list out = []
    for i in range(rows.count):
        row = &rows.rows[i]
        headers = []
        for k in range(row.header_count):
            header = &rows.headers[row.first_header + k]
            headers.append(((header.key_at, header.key_length), (header.value_at, header.value_length)))
        out.append((row.at, row.length, row.attributes, row.timestamp_delta, row.offset_delta,
                    (row.key_at, row.key_length), (row.value_at, row.value_length), tuple(headers)))
    return out


def parse_records(const uint8_t[::1] payload not None, int64_t at, tuple header not None, str want not None):
    """Parse the records of ``header`` from byte ``at`` of an uncompressed payload to its end: ``(ok, records, notes)``.

    ``want`` says what to make of them, by the same loop: "verdict" nothing, "records" their contents, "places" where
    they stand. Offsets in notes and places count from the start of ``payload``.
    """
    cdef int64_t n = payload.shape[0]
    cdef const uint8_t *data = &payload[0] if n else <const uint8_t *> b""
    cdef report_t report
    cdef cursor_t c
    cdef header_t h
    cdef rows_t rows
    cdef rows_t *sink = NULL if want == "verdict" else &rows
    cdef bint ok
    if want not in ("verdict", "records", "places"):
        raise ValueError(f"want is {want!r}; it must be verdict, records or places")
    if n >= INT32_MAX:
        raise ValueError(f"a payload of {n} bytes; the limit is {INT32_MAX - 1}")
    if at < 0 or at > n:
        raise IndexError(f"no records can begin at {at} in {n} bytes")
    rows.rows = NULL
    rows.headers = NULL
    rows.count = rows.capacity = rows.header_count = rows.header_capacity = 0
    (h.base_offset, _, _, _, _, h.attributes, h.last_offset_delta, h.base_timestamp, h.max_timestamp, _, _, _,
     h.record_count) = header
    clear(&report)
    c.base = data
    c.p = data + at
    c.end = data + n
    c.report = &report
    c.record = c.header = -1
    try:
        with nogil:
            ok = get_records(&c, &h, sink)
        if not ok and report.seen == 0:
            raise MemoryError
        made = None
        if want == "records":
            made = to_records(data, &h, &rows)
        elif want == "places":
            made = to_places(&rows)
        return ok, made, to_notes(&report)
    finally:
        free(rows.rows)
        free(rows.headers)


# ------------------------------------------------------------------------------------------------- writing

cdef int64_t span_size(object value) except -1:
    """Bytes that a nullable span takes with its length."""
    if value is None:
        return 1
    return size_of_varlong(PyBytes_GET_SIZE(value)) + PyBytes_GET_SIZE(value)


cdef uint8_t *put_span(uint8_t *p, object value):
    if value is None:
        return put_varlong(p, -1)
    p = put_varlong(p, PyBytes_GET_SIZE(value))
    return put_bytes(p, <const uint8_t *> PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))


cdef object checked_bytes(object value, str what, Py_ssize_t index, bint nullable):
    """Bytes as they are; other buffers copied once; anything else is refused before a byte is written."""
    if type(value) is bytes or (value is None and nullable):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    allowed = "bytes or None" if nullable else "bytes"
    raise EncodeError(f"records[{index}].{what} is {type(value).__name__}; it must be {allowed}")


cdef bint is_plain(Record record):
    """Whether all of the record is of the very types that the writer takes, so that writing it runs no Python code."""
    if not (record.key is None or type(record.key) is bytes):
        return False
    if not (record.value is None or type(record.value) is bytes):
        return False
    if type(record.headers) is not tuple:
        return False
    for pair in <tuple> record.headers:
        if type(pair) is not tuple or len(<tuple> pair) != 2 or type((<tuple> pair)[0]) is not bytes:
            return False
        if not ((<tuple> pair)[1] is None or type((<tuple> pair)[1]) is bytes):
            return False
    return True


cdef Record plain(object record, Py_ssize_t index):
    """The record itself if it is plain, else a plain copy; ``EncodeError`` where that cannot be made."""
    if type(record) is not Record:
        raise EncodeError(f"records[{index}] is {type(record).__name__}; it must be a Record")
    if is_plain(record):
        return record
    cdef Record source = record
    cdef Record copy = Record.__new__(Record)
    copy.c_offset = source.c_offset
    copy.c_timestamp = source.c_timestamp
    copy.has_timestamp = source.has_timestamp
    copy.c_attributes = source.c_attributes
    copy.key = checked_bytes(source.key, "key", index, True)
    copy.value = checked_bytes(source.value, "value", index, True)
    try:
        pairs = [(key, value) for key, value in source.headers]
    except (TypeError, ValueError) as error:
        raise EncodeError(f"records[{index}].headers are not pairs of key and value: {error}") from None
    copy.headers = tuple([
        (checked_bytes(key, "headers key", index, False), checked_bytes(value, "headers value", index, True))
        for key, value in pairs
    ])
    return copy


cdef list plain_records(list records):
    """Plain records in place of all; none of them can change before they are written."""
    cdef list ready = []
    cdef bint copied = False
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = plain(records[i], i)
        copied = copied or record is not records[i]
        ready.append(record)
    if copied:
        # Making copies ran code that is not ours, and that may have held on to a record that was plain before.
        for i in range(len(ready)):
            if not is_plain(<Record> ready[i]):
                raise EncodeError(f"records[{i}] changed while it was written")
    return ready


def timestamp_range(list records not None):
    """The first and the largest timestamp, (-1, -1) without records; a missing one counts as -1."""
    cdef int64_t first = -1
    cdef int64_t largest = -1
    cdef int64_t timestamp
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = records[i]
        if type(record) is not Record:
            raise EncodeError(f"records[{i}] is {type(record).__name__}; it must be a Record")
        timestamp = (<Record> record).c_timestamp
        if i == 0:
            first = largest = timestamp
        elif timestamp > largest:
            largest = timestamp
    return first, largest


cdef struct sizes_t:
    int64_t body
    int64_t timestamp_delta
    int32_t offset_delta


cdef int64_t measure(Record record, Py_ssize_t index, int64_t base_offset, int64_t base_timestamp,
                     sizes_t *sizes) except -1:
    """Fill ``sizes`` and return the bytes that the record takes with its length."""
    # Differences wrap as Java's do, so that whatever could be read can be written again.
    cdef int64_t delta = <int64_t> (<uint64_t> record.c_offset - <uint64_t> base_offset)
    cdef int64_t body
    if delta < INT32_MIN or delta > INT32_MAX:
        raise EncodeError(f"records[{index}].offset is {record.c_offset}, {delta} from the base offset {base_offset}; "
                          "the delta is an int32")
    sizes.offset_delta = <int32_t> delta
    sizes.timestamp_delta = <int64_t> (<uint64_t> record.c_timestamp - <uint64_t> base_timestamp)
    body = 1 + size_of_varlong(sizes.timestamp_delta) + size_of_varlong(delta)
    body += span_size(record.key) + span_size(record.value) + size_of_varlong(len(<tuple> record.headers))
    for pair in <tuple> record.headers:
        body += span_size((<tuple> pair)[0]) + span_size((<tuple> pair)[1])
    if body > INT32_MAX:
        raise EncodeError(f"records[{index}] takes {body} bytes; a record's length is an int32")
    sizes.body = body
    return body + size_of_varlong(body)


cdef uint8_t *put_record(uint8_t *p, Record record, const sizes_t *sizes):
    p = put_varlong(p, sizes.body)
    p = put_int8(p, record.c_attributes)
    p = put_varlong(p, sizes.timestamp_delta)
    p = put_varlong(p, sizes.offset_delta)
    p = put_span(p, record.key)
    p = put_span(p, record.value)
    p = put_varlong(p, len(<tuple> record.headers))
    for pair in <tuple> record.headers:
        p = put_span(p, (<tuple> pair)[0])
        p = put_span(p, (<tuple> pair)[1])
    return p


def encode_records(list records not None, int64_t base_offset, int64_t base_timestamp):
    """The uncompressed payload of ``records``; a record without a timestamp is written as -1.

    Sizes are summed first, so that the result is allocated once; between the two passes no Python code runs that could
    change a record. ``EncodeError`` where a value does not fit its field.
    """
    cdef Py_ssize_t n = len(records)
    cdef Py_ssize_t i
    cdef int64_t total = 0
    cdef uint8_t *p
    cdef list ready = plain_records(records)
    cdef sizes_t *sizes = <sizes_t *> malloc(<size_t> (n or 1) * sizeof(sizes_t))
    if sizes == NULL:
        raise MemoryError
    try:
        for i in range(n):
            total += measure(<Record> ready[i], i, base_offset, base_timestamp, &sizes[i])
        if total > INT32_MAX:
            raise EncodeError(f"the records take {total} bytes; a batch's length is an int32")
        out = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> total)
        p = <uint8_t *> PyBytes_AS_STRING(out)
        for i in range(n):
            p = put_record(p, <Record> ready[i], &sizes[i])
        return out
    finally:
        free(sizes)


def encode_header(int64_t base_offset, int32_t batch_length, int32_t partition_leader_epoch, uint32_t crc,
                  int16_t attributes, int32_t last_offset_delta, int64_t base_timestamp, int64_t max_timestamp,
                  int64_t producer_id, int16_t producer_epoch, int32_t base_sequence, int32_t record_count):
    """The 61 bytes of a header with these very values. ``OverflowError`` where a value does not fit its field."""
    cdef header_t h
    cdef uint8_t out[HEADER_SIZE]
    h.base_offset = base_offset
    h.batch_length = batch_length
    h.partition_leader_epoch = partition_leader_epoch
    h.crc = crc
    h.attributes = attributes
    h.last_offset_delta = last_offset_delta
    h.base_timestamp = base_timestamp
    h.max_timestamp = max_timestamp
    h.producer_id = producer_id
    h.producer_epoch = producer_epoch
    h.base_sequence = base_sequence
    h.record_count = record_count
    put_header(out, &h)
    return PyBytes_FromStringAndSize(<const char *> out, HEADER_SIZE)
