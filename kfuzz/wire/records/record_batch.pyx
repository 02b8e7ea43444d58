"""Magic 2, the record batch: one parse loop that can also fill rows. The writer is ``batch_writer``.

Mirrors ``org.apache.kafka.common.record.DefaultRecordBatch`` and ``DefaultRecord``.
"""

from collections import namedtuple

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.mem cimport PyMem_RawFree as free
from cpython.ref cimport Py_INCREF
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr

from kfuzz.wire.io.arrays cimport resize
from kfuzz.wire.io.cursor cimport (
    cursor_t,
    get_mixed_zigzag,
    get_zigzag,
    load16,
    load32,
    load64,
    unlikely,
    valid_utf8,
)
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_BASE_SEQUENCE,
    AT_BASE_TIMESTAMP,
    AT_BATCH_LENGTH,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_MAX_TIMESTAMP,
    AT_PARTITION_LEADER_EPOCH,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    HEADER_SIZE,
    LAST_CONTROL_TYPE,
    LAST_MAGIC,
    LOG_APPEND_TIME,
    VARINT,
    VARLONG,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport (
    CONTROL_KEY_INVALID,
    CONTROL_RECORD_COUNT,
    F_ATTRIBUTES,
    F_HEADER_COUNT,
    F_HEADER_KEY,
    F_HEADER_KEY_LENGTH,
    F_HEADER_VALUE_LENGTH,
    F_KEY,
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
from kfuzz.wire.records.record cimport Record

cdef extern from "ordinary.h":
    ctypedef struct run_t "kfuzz_run":
        int64_t offset_before
        int64_t offset_most
        int64_t timestamp_most
        int64_t turn_records
    int64_t KFUZZ_TURN_RECORDS
    int64_t kfuzz_run_counted(const uint8_t **at, const uint8_t *base, const uint8_t *end, run_t *run,
                              int64_t most) nogil
    int64_t kfuzz_run_filled(const uint8_t **at, const uint8_t *base, const uint8_t *end, run_t *run, int64_t most,
                             rows_t *sink) nogil

cdef extern from "ascii.h":
    bint kfuzz_is_ascii(const uint8_t *p, int32_t n) nogil

Header = namedtuple("Header", (
    "base_offset", "batch_length", "partition_leader_epoch", "magic", "crc", "attributes", "last_offset_delta",
    "base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "record_count",
))
Place = namedtuple("Place", "at length attributes timestamp_delta offset_delta key value headers")

# A payload must be smaller than this, because offsets in it are 32-bit numbers.
LIMIT_BYTES = INT32_MAX


cdef bint one_more(void **rows, int64_t *capacity, size_t size) noexcept nogil:
    """Double the room for rows, or make the first room. False if there is no memory."""
    cdef int64_t more = capacity[0] * 2 if capacity[0] else 64
    if not resize(rows, more, size):
        return False
    capacity[0] = more
    return True


cdef void judge_control(const uint8_t *base, const rows_t *rows, int64_t count, report_t *report) noexcept nogil:
    """Check a control batch's records: it must have one, and its key must hold a version and a known type.

    ``count`` is the number of records, of which ``rows`` may have the first ones.
    """
    cdef const row_t *row
    cdef const uint8_t *key
    cdef int64_t i
    if count != 1:
        note(report, CONTROL_RECORD_COUNT, F_RECORD_COUNT, AT_RECORD_COUNT, -1, -1, count, 1)
    for i in range(rows.count):
        row = &rows.rows[i]
        key = base + row.key_at
        if row.key_length < 4 or key[0] & 0x80 or load16(key + 2) > LAST_CONTROL_TYPE:
            note(report, CONTROL_KEY_INVALID, F_KEY, row.key_at if row.key_length >= 0 else row.at, i, -1, 0, 0)


cdef row_t *next_row(rows_t *rows) noexcept nogil:
    """Returns room for one more row, or NULL if there is no memory. The caller fills the row and raises the count."""
    if unlikely(rows.count == rows.capacity):
        if not one_more(<void **> &rows.rows, &rows.capacity, sizeof(row_t)):
            rows.no_memory = True
            return NULL
    return &rows.rows[rows.count]


cdef inline const uint8_t *get_span(cursor_t *c, const uint8_t *p, const uint8_t *wall, int field, int64_t found,
                                    const uint8_t *start, int32_t *at, int32_t *length) noexcept nogil:
    """Find the bytes after a length. Kafka takes every negative length as null; its documentation allows only -1."""
    cdef int32_t n = <int32_t> found
    # No branch on null: in most streams it is unpredictable.
    cdef int64_t size = n & ~(n >> 31)
    if unlikely(n < -1):
        note(c.report, LENGTH_BELOW_MINUS_ONE, field, start - c.base, c.record, c.header, n, -1)
        n = -1
    if unlikely(size > wall - p):
        note(c.report, LENGTH_EXCEEDS_RECORD, field, start - c.base, c.record, c.header, n, wall - p)
        return NULL
    length[0] = n
    at[0] = <int32_t> (p - c.base)
    return p + size


cdef const uint8_t *get_headers(cursor_t *c, const uint8_t *p, const uint8_t *wall, int32_t count,
                                rows_t *sink) noexcept nogil:
    cdef const uint8_t *start
    cdef int64_t n
    cdef int32_t i
    cdef header_row_t scratch
    cdef header_row_t *row = &scratch
    for i in range(count):
        c.header = i
        if sink != NULL and unlikely(sink.headers_most and i == sink.headers_most):
            sink, row = NULL, &scratch
        if sink != NULL:
            if sink.header_count == sink.header_capacity:
                if not one_more(<void **> &sink.headers, &sink.header_capacity, sizeof(header_row_t)):
                    sink.no_memory = True
                    return NULL
            row = &sink.headers[sink.header_count]
            sink.header_count += 1
        start = p
        p = get_zigzag(c, p, wall, F_HEADER_KEY_LENGTH, VARINT, &n)
        if unlikely(p == NULL):
            return NULL
        n = <int32_t> n
        if unlikely(n < 0):
            note(c.report, HEADER_KEY_NULL, F_HEADER_KEY_LENGTH, start - c.base, c.record, i, n, 0)
            return NULL
        if unlikely(n > wall - p):
            note(c.report, LENGTH_EXCEEDS_RECORD, F_HEADER_KEY_LENGTH, start - c.base, c.record, i, n, wall - p)
            return NULL
        if unlikely(n > 16 or c.end - p < 16 or not kfuzz_is_ascii(p, <int32_t> n)):
            if not valid_utf8(p, n):
                note(c.report, HEADER_KEY_NOT_UTF8, F_HEADER_KEY, p - c.base, c.record, i, n, 0)
            if memchr(p, 0, <size_t> n) != NULL:
                note(c.report, HEADER_KEY_NULL_CHARACTER, F_HEADER_KEY, p - c.base, c.record, i, n, 0)
        row.key_at = <int32_t> (p - c.base)
        row.key_length = <int32_t> n
        p += n
        start = p
        p = get_zigzag(c, p, wall, F_HEADER_VALUE_LENGTH, VARINT, &n)
        if unlikely(p == NULL):
            return NULL
        p = get_span(c, p, wall, F_HEADER_VALUE_LENGTH, n, start, &row.value_at, &row.value_length)
        if unlikely(p == NULL):
            return NULL
    c.header = -1
    return p


cdef const uint8_t *get_fields(cursor_t *c, const uint8_t *p, row_t *row, bint skim, const uint8_t **start,
                               const uint8_t **end) noexcept nogil:
    """Read a record of any kind up to its header count. Its length counts the bytes from ``start`` to ``end``.

    With ``skim``, ``end`` is the end of the payload. NULL means refused, with a finding noted.
    """
    cdef const uint8_t *first = p
    cdef const uint8_t *wall
    cdef int64_t n
    cdef int32_t length
    p = get_mixed_zigzag(c, p, c.end, F_LENGTH, VARINT, &n)
    if unlikely(p == NULL):
        return NULL
    length = <int32_t> n
    row.at = <int32_t> (first - c.base)
    row.length = length
    # The record's length sets the wall. A skimming reader does not stop there: it only compares the length afterwards.
    wall = c.end
    if unlikely(length < 0):
        note(c.report, RECORD_LENGTH_NEGATIVE, F_LENGTH, first - c.base, c.record, -1, length, 0)
        return NULL
    elif unlikely(length > c.end - p):
        note(c.report, RECORD_LENGTH_EXCEEDS_PAYLOAD, F_LENGTH, first - c.base, c.record, -1, length, c.end - p)
        if not skim:
            return NULL
    elif not skim:
        wall = p + length
    start[0] = p
    end[0] = wall
    if unlikely(p >= wall):
        note(c.report, RECORD_TRUNCATED, F_ATTRIBUTES, p - c.base, c.record, -1, 0, 1)
        return NULL
    row.attributes = p[0]
    if unlikely(p[0] != 0):
        note(c.report, RECORD_ATTRIBUTES_NONZERO, F_ATTRIBUTES, p - c.base, c.record, -1, p[0], 0)
    p += 1
    p = get_mixed_zigzag(c, p, wall, F_TIMESTAMP_DELTA, VARLONG, &row.timestamp_delta)
    if unlikely(p == NULL):
        return NULL
    p = get_zigzag(c, p, wall, F_OFFSET_DELTA, VARINT, &n)
    if unlikely(p == NULL):
        return NULL
    row.offset_delta = <int32_t> n
    row.key_at = <int32_t> (p - c.base)
    p = get_zigzag(c, p, wall, F_KEY_LENGTH, VARINT, &n)
    if unlikely(p == NULL):
        return NULL
    p = get_span(c, p, wall, F_KEY_LENGTH, n, c.base + row.key_at, &row.key_at, &row.key_length)
    if unlikely(p == NULL):
        return NULL
    row.value_at = <int32_t> (p - c.base)
    p = get_mixed_zigzag(c, p, wall, F_VALUE_LENGTH, VARINT, &n)
    if unlikely(p == NULL):
        return NULL
    p = get_span(c, p, wall, F_VALUE_LENGTH, n, c.base + row.value_at, &row.value_at, &row.value_length)
    if unlikely(p == NULL):
        return NULL
    return p


cdef const uint8_t *get_record(cursor_t *c, const uint8_t *p, row_t *row, rows_t *sink, bint skim) noexcept nogil:
    """Read a record of any kind into ``row``, and its headers into ``sink`` if there is one.

    NULL means refused, with a finding noted.
    """
    cdef const uint8_t *first = p
    cdef const uint8_t *start
    cdef const uint8_t *wall
    cdef int64_t n
    row.first_header = 0
    row.untimed = False
    p = get_fields(c, p, row, skim, &start, &wall)
    if unlikely(p == NULL):
        return NULL
    row.headers_at = <int32_t> (p - c.base)
    p = get_zigzag(c, p, wall, F_HEADER_COUNT, VARINT, &n)
    if unlikely(p == NULL):
        return NULL
    row.header_count = <int32_t> n
    if row.header_count != 0:
        if unlikely(row.header_count < 0):
            note(c.report, HEADER_COUNT_NEGATIVE, F_HEADER_COUNT, row.headers_at, c.record, -1, row.header_count, 0)
            return NULL
        # A header takes at least two bytes, so a count that exceeds the record is refused before any work is done.
        if unlikely(row.header_count > (wall - p) / 2):
            note(c.report, HEADER_COUNT_EXCEEDS_RECORD, F_HEADER_COUNT, row.headers_at, c.record, -1,
                 row.header_count, (wall - p) / 2)
            return NULL
        row.headers_at = <int32_t> (p - c.base)
        if sink != NULL and sink.with_headers:
            row.first_header = <int32_t> sink.header_count
            p = get_headers(c, p, wall, row.header_count, sink)
        else:
            p = get_headers(c, p, wall, row.header_count, NULL)
        if unlikely(p == NULL):
            return NULL
    if unlikely(p - start != row.length):
        note(c.report, RECORD_LENGTH_MISMATCH, F_LENGTH, first - c.base, c.record, -1, row.length, p - start)
        if not skim:
            return NULL
    return p


cdef inline bint is_far(int64_t timestamp) noexcept nogil:
    """Whether sums and differences with this timestamp may overflow."""
    return timestamp > INT64_MAX // 4 or timestamp < -INT64_MAX // 4


cdef void begin_run(run_t *run, const header_t *h, int64_t room) noexcept nogil:
    """Set the bounds for this batch's ordinary records; ``room`` is the largest delta that does not overflow."""
    run.offset_before = -1
    run.turn_records = KFUZZ_TURN_RECORDS
    run.offset_most = min(<int64_t> h.last_offset_delta, room)
    run.timestamp_most = INT64_MAX // 4
    if not h.attributes & LOG_APPEND_TIME:
        if is_far(h.base_timestamp) or is_far(h.max_timestamp):
            # Sums with these timestamps may wrap. The general loop treats them as Kafka does.
            run.offset_most = -1
        else:
            run.timestamp_most = h.max_timestamp - h.base_timestamp


cdef bint get_records(cursor_t *c, const uint8_t *p, const header_t *h, rows_t *sink, bint skim) noexcept nogil:
    """The parse loop of magic 2, from ``p`` to ``c.end``: it reads ordinary records in runs, the others one by one.

    False means refused, with a finding noted, or out of memory (``sink.no_memory``). ``skim`` reads like a broker that
    stores a compressed payload unchanged: ``DefaultRecord.readPartiallyFrom``.
    """
    cdef const uint8_t *start
    cdef row_t scratch
    cdef row_t *row = &scratch
    cdef run_t run
    cdef int64_t timestamp
    # The largest delta whose offset does not overflow. From a base offset of 0 or more, no negative delta overflows.
    cdef int64_t room = INT64_MAX - h.base_offset if h.base_offset > 0 else INT64_MAX
    cdef int64_t largest = h.max_timestamp
    cdef int64_t largest_at = 0
    cdef int64_t largest_record = -1
    cdef int64_t most
    cdef rows_t *filled = sink
    cdef bint create_time = not h.attributes & LOG_APPEND_TIME
    cdef int64_t i = 0
    c.header = -1
    begin_run(&run, h, room)
    while i < h.record_count:
        if sink != NULL:
            if next_row(sink) == NULL:
                return False
            if not skim:
                most = h.record_count - i
                if sink.most:
                    most = min(most, sink.most - sink.count)
                i += kfuzz_run_filled(&p, c.base, c.end, &run, most, sink)
            if unlikely(sink.most and sink.count >= sink.most and i < h.record_count):
                # The records that follow are judged only.
                sink.is_full = True
                sink, row = NULL, &scratch
                continue
        elif not skim:
            i += kfuzz_run_counted(&p, c.base, c.end, &run, h.record_count - i)
        if i == h.record_count:
            break
        start = p
        c.record = i
        if filled != NULL:
            filled.stopped = p - c.base
        if unlikely(p == c.end):
            note(c.report, RECORD_COUNT_TOO_HIGH, F_RECORD_COUNT, p - c.base, -1, -1, h.record_count, i)
            return False
        if sink != NULL:
            # The run may have filled the last free row.
            row = next_row(sink)
            if row == NULL:
                return False
        p = get_record(c, p, row, sink, skim)
        if unlikely(p == NULL):
            return False
        if sink != NULL:
            sink.count += 1
        if row.offset_delta <= run.offset_before:
            if row.offset_delta < 0:
                note(c.report, OFFSET_DELTA_NEGATIVE, F_OFFSET_DELTA, start - c.base, i, -1, row.offset_delta, 0)
            if i > 0:
                note(c.report, OFFSET_DELTA_NOT_INCREASING, F_OFFSET_DELTA, start - c.base, i, -1,
                     row.offset_delta, run.offset_before + 1)
        elif row.offset_delta > h.last_offset_delta:
            note(c.report, OFFSET_DELTA_BEYOND_LAST, F_OFFSET_DELTA, start - c.base, i, -1,
                 row.offset_delta, h.last_offset_delta)
        if row.offset_delta > room:
            note(c.report, OFFSET_OVERFLOW, F_OFFSET_DELTA, start - c.base, i, -1, row.offset_delta, h.base_offset)
        run.offset_before = row.offset_delta
        if create_time:
            # The sum wraps as in Java, and so does Kafka's timestamp.
            timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
            if (timestamp < h.base_timestamp) != (row.timestamp_delta < 0):
                note(c.report, TIMESTAMP_OVERFLOW, F_TIMESTAMP_DELTA, start - c.base, i, -1,
                     row.timestamp_delta, h.base_timestamp)
            if timestamp > largest:
                largest = timestamp
                largest_at = start - c.base
                largest_record = i
                # From here on only a larger timestamp is of interest.
                if not is_far(largest):
                    run.timestamp_most = largest - h.base_timestamp
        i += 1
    c.record = -1
    if filled != NULL:
        filled.stopped = p - c.base
    if h.record_count > 0 and p != c.end:
        note(c.report, RECORD_COUNT_TOO_LOW, F_RECORD_COUNT, p - c.base, -1, -1, h.record_count, c.end - p)
        return False
    if largest_record >= 0:
        note(c.report, MAX_TIMESTAMP_BELOW_RECORDS, F_MAX_TIMESTAMP, largest_at, largest_record, -1,
             h.max_timestamp, largest)
    return True


cdef void free_rows(rows_t *rows) noexcept nogil:
    free(rows.rows)
    free(rows.headers)


cdef list to_records(const uint8_t *base, object source, const header_t *h, const rows_t *rows):
    """The rows as ``Record`` objects."""
    cdef list out = PyList_New(rows.count)
    cdef Record record
    cdef int64_t i
    for i in range(rows.count):
        record = new_record(base, source, h, &rows.rows[i])
        Py_INCREF(record)
        PyList_SET_ITEM(out, i, record)
    return out


cdef list to_places(const rows_t *rows):
    """The rows as ``Place``, which has spans instead of contents."""
    cdef const row_t *row
    cdef const header_row_t *header
    cdef int64_t i
    cdef int32_t k
    cdef list out = []
    for i in range(rows.count):
        row = &rows.rows[i]
        headers = []
        # Without ``with_headers`` there are no header rows, and ``headers_most`` may leave some out.
        for k in range(min(<int64_t> row.header_count, rows.header_count - row.first_header)
                       if rows.with_headers else 0):
            if rows.headers_most and k == rows.headers_most:
                break
            header = &rows.headers[row.first_header + k]
            headers.append(((header.key_at, header.key_length), (header.value_at, header.value_length)))
        out.append(Place(row.at, row.length, row.attributes, row.timestamp_delta, row.offset_delta,
                         (row.key_at, row.key_length), (row.value_at, row.value_length), tuple(headers)))
    return out


cdef void take_header(const uint8_t *p, header_t *h) noexcept nogil:
    """Read the header at ``p``, 61 bytes."""
    h.base_offset = <int64_t> load64(p + AT_BASE_OFFSET)
    h.batch_length = <int32_t> load32(p + AT_BATCH_LENGTH)
    h.partition_leader_epoch = <int32_t> load32(p + AT_PARTITION_LEADER_EPOCH)
    h.crc = load32(p + AT_CRC)
    h.attributes = <int16_t> load16(p + AT_ATTRIBUTES)
    h.last_offset_delta = <int32_t> load32(p + AT_LAST_OFFSET_DELTA)
    h.base_timestamp = <int64_t> load64(p + AT_BASE_TIMESTAMP)
    h.max_timestamp = <int64_t> load64(p + AT_MAX_TIMESTAMP)
    h.producer_id = <int64_t> load64(p + AT_PRODUCER_ID)
    h.producer_epoch = <int16_t> load16(p + AT_PRODUCER_EPOCH)
    h.base_sequence = <int32_t> load32(p + AT_BASE_SEQUENCE)
    h.record_count = <int32_t> load32(p + AT_RECORD_COUNT)


def parse_header(data not None, int64_t at):
    cdef HeldBuffer held = hold(data)
    cdef header_t h
    if at < 0 or held.n < HEADER_SIZE or at > held.n - HEADER_SIZE:
        raise IndexError(f"no header of {HEADER_SIZE} bytes at {at} in {held.n} bytes")
    take_header(held.p + at, &h)
    return Header(h.base_offset, h.batch_length, h.partition_leader_epoch, LAST_MAGIC, h.crc, h.attributes,
                  h.last_offset_delta, h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch,
                  h.base_sequence, h.record_count)


def parse_places(payload not None, int64_t at, header not None, bint skim=False):
    ok, places, notes, _, _ = places_in(payload, at, header, skim, 0, 0)
    return ok, places, notes


def first_places(payload not None, int64_t at, header not None, int64_t records, int64_t headers):
    _, places, _, count, end = places_in(payload, at, header, False, records, headers)
    return places, count, end


cdef tuple places_in(payload, int64_t at, header, bint skim, int64_t records, int64_t headers):
    """The result of ``parse_places``, how many records there are, and where they end."""
    cdef HeldBuffer held = hold(payload)
    cdef int64_t n = held.n
    cdef const uint8_t *data = held.p
    cdef report_t report
    cdef cursor_t c
    cdef header_t h
    cdef rows_t rows
    cdef bint ok
    if n >= INT32_MAX:
        raise ValueError(f"a payload of {n} bytes; the limit is {INT32_MAX - 1}")  # unreachable: takes 2 GiB
    if at < 0 or at > n:
        raise IndexError(f"no records can begin at {at} in {n} bytes")
    (h.base_offset, _, _, _, _, h.attributes, h.last_offset_delta, h.base_timestamp, h.max_timestamp, _, _, _,
     h.record_count) = header
    clear(&report)
    c = cursor_t(base=data, end=data + n, report=&report, record=-1, header=-1)
    rows = rows_t(rows=NULL, headers=NULL, count=0, capacity=0, header_count=0, header_capacity=0, with_headers=True,
                  no_memory=False, most=records, headers_most=headers, is_full=False, stopped=at)
    try:
        with nogil:
            ok = get_records(&c, data + at, &h, &rows, skim)
        if rows.no_memory:
            raise MemoryError  # unreachable: only if memory runs out
        return (ok, to_places(&rows), to_notes(&report, 0), c.record if c.record >= 0 else max(h.record_count, 0),
                rows.stopped)
    finally:
        free_rows(&rows)
