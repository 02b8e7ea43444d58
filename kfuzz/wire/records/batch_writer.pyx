"""The writer of record batches (magic 2), from records and header fields.

Mirrors ``org.apache.kafka.common.record.DefaultRecordBatch`` and ``DefaultRecord``.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.errors import EncodeError

from kfuzz.wire.io.checksum cimport crc32c_of
from kfuzz.wire.io.format cimport AT_ATTRIBUTES, AT_CRC, HEADER_SIZE, LOG_OVERHEAD
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.scratch cimport Scratch, out_t, reserve
from kfuzz.wire.io.sink cimport (
    put_bytes,
    put_int8,
    put_int32,
    put_mixed_varlong,
    put_span,
    put_varlong,
    size_of_bytes,
    size_of_varlong,
    span_t,
)
from kfuzz.wire.records.record cimport Record, is_record
from kfuzz.wire.records.record_batch cimport FIXED_BYTES, header_t, put_header

cdef extern from "Python.h":
    PyObject *PyList_GET_ITEM(object items, Py_ssize_t i)

cdef extern from *:
    """
    #define kfuzz_prefetch(p) __builtin_prefetch(p)
    """
    void kfuzz_prefetch(const void *p) nogil


cdef object checked_bytes(object value, str what, Py_ssize_t index, bint nullable):
    """Return bytes unchanged and other buffers as a copy; refuse other types before any byte is written."""
    if type(value) is bytes or (value is None and nullable):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    allowed = "bytes or None" if nullable else "bytes"
    raise EncodeError(f"records[{index}].{what} is {type(value).__name__}; it must be {allowed}")


cdef inline bint take_span(object value, span_t *span):
    """Point ``span`` at ``value``. False if ``value`` is neither None nor exactly of type bytes."""
    span.n = -1
    if value is None:
        return True
    if type(value) is not bytes:
        return False
    span.p = <const uint8_t *> PyBytes_AS_STRING(value)
    span.n = PyBytes_GET_SIZE(value)
    return True


cdef bint take_fields(Record record, fields_t *fields):
    """Find the record's bytes without running Python code. False if a field is not exactly bytes, a tuple or None."""
    cdef span_t key
    # Initialised because GCC cannot always see that it is set later.
    cdef span_t value = span_t(NULL, 0)
    # Making the headers may run the garbage collector, and so code that changes the record. Do it first.
    headers = record.get_headers()
    if record.key_unread:
        fields.key = span_t(record.base + record.key_at, record.key_unread - 1)
    elif not take_span(record.c_key, &fields.key):
        return False
    if record.value_unread:
        fields.value = span_t(record.base + record.value_at, record.value_unread - 1)
    elif not take_span(record.c_value, &fields.value):
        return False
    fields.headers_size = 1
    if record.headers_unread == 0 and record.c_headers is None:
        return True
    if type(headers) is not tuple:
        return False
    fields.headers_size = size_of_varlong(len(<tuple> headers))
    for pair in <tuple> headers:
        if type(pair) is not tuple or len(<tuple> pair) != 2:
            return False
        if not take_span((<tuple> pair)[0], &key) or key.n < 0 or not take_span((<tuple> pair)[1], &value):
            return False
        fields.headers_size += size_of_bytes(key.n) + size_of_bytes(value.n)
    return True


cdef Record plain(object record, Py_ssize_t index):
    """Copy a record, with its fields converted to exactly the types that the writer takes, or raise ``EncodeError``."""
    cdef Record source = record
    cdef Record copy = Record.__new__(Record)
    copy.c_offset = source.c_offset
    copy.c_timestamp = source.c_timestamp
    copy.has_timestamp = source.has_timestamp
    copy.c_attributes = source.c_attributes
    copy.c_key = checked_bytes(source.get_key(), "key", index, True)
    copy.c_value = checked_bytes(source.get_value(), "value", index, True)
    try:
        pairs = [(key, value) for key, value in source.get_headers()]
    except (TypeError, ValueError) as error:
        raise EncodeError(f"records[{index}].headers are not pairs of key and value: {error}") from None
    copy.c_headers = tuple([
        (checked_bytes(key, "headers key", index, False), checked_bytes(value, "headers value", index, True))
        for key, value in pairs
    ])
    return copy


cdef Record as_record(object given, Py_ssize_t index):
    if not is_record(given):
        raise EncodeError(f"records[{index}] is {type(given).__name__}; it must be a Record")
    return given


cdef Record take_record(object given, Py_ssize_t index, fields_t *fields):
    """Fill ``fields`` and return the record they point into: ``given`` or a plain copy. ``EncodeError`` otherwise."""
    cdef Record record = as_record(given, index)
    if not take_fields(record, fields):
        record = plain(record, index)
        take_fields(record, fields)
    return record


cdef uint8_t *put_headers(uint8_t *p, object headers):
    cdef span_t span
    if headers is None:
        return put_varlong(p, 0)
    p = put_varlong(p, len(<tuple> headers))
    for pair in <tuple> headers:
        take_span((<tuple> pair)[0], &span)
        p = put_span(p, &span)
        take_span((<tuple> pair)[1], &span)
        p = put_span(p, &span)
    return p


cdef int put_record(out_t *out, object given, Py_ssize_t index, int64_t base_offset,
                    int64_t base_timestamp) except -1:
    """Append one record. It cannot change between measuring and writing: neither step runs Python code."""
    cdef Record record
    cdef fields_t fields
    # Differences wrap as in Java, so that every record that can be read can also be written.
    cdef int64_t offset_delta
    cdef int64_t timestamp_delta
    cdef int64_t body
    cdef uint8_t *p
    record = take_record(given, index, &fields)
    offset_delta = <int64_t> (<uint64_t> record.c_offset - <uint64_t> base_offset)
    if offset_delta < INT32_MIN or offset_delta > INT32_MAX:
        raise EncodeError(f"records[{index}].offset is {record.c_offset}, {offset_delta} from the base offset "
                          f"{base_offset}; the delta is an int32")
    timestamp_delta = <int64_t> (<uint64_t> record.c_timestamp - <uint64_t> base_timestamp)
    body = 1 + size_of_varlong(timestamp_delta) + size_of_varlong(offset_delta)
    body += size_of_bytes(fields.key.n) + size_of_bytes(fields.value.n) + fields.headers_size
    if body > INT32_MAX:
        raise EncodeError(f"records[{index}] takes {body} bytes; its length is an int32")  # unreachable: takes 2 GiB
    reserve(out, body + FIXED_BYTES)
    p = put_mixed_varlong(out.p, body)
    p = put_int8(p, record.c_attributes)
    p = put_mixed_varlong(p, timestamp_delta)
    p = put_varlong(p, offset_delta)
    p = put_span(p, &fields.key)
    p = put_span(p, &fields.value)
    out.p = put_headers(p, record.c_headers)
    return 0


cdef inline void send_for_lines(const void *thing, int lines) noexcept nogil:
    cdef int i
    for i in range(lines):
        kfuzz_prefetch(<const uint8_t *> thing + 64 * i)


cdef inline void send_for(list records, Py_ssize_t i) noexcept:
    """Prefetch the next records and their bytes, which are scattered in memory; many span two cache lines.

    An object must be in the cache before the objects it points to can be prefetched, so headers take three steps.
    """
    cdef Py_ssize_t k
    if i + 8 >= PyList_GET_SIZE(records):
        return
    send_for_lines(PyList_GET_ITEM(records, i + 8), 2)
    soon = <object> PyList_GET_ITEM(records, i + 6)
    if is_record(soon):
        send_for_lines(<PyObject *> (<Record> soon).c_headers, 1)
    soon = <object> PyList_GET_ITEM(records, i + 4)
    if is_record(soon):
        send_for_lines(<PyObject *> (<Record> soon).c_key, 2)
        send_for_lines(<PyObject *> (<Record> soon).c_value, 3)
        pairs = (<Record> soon).c_headers
        if type(pairs) is tuple:
            for k in range(PyTuple_GET_SIZE(pairs)):
                send_for_lines(PyTuple_GET_ITEM(pairs, k), 1)
    soon = <object> PyList_GET_ITEM(records, i + 2)
    if is_record(soon):
        pairs = (<Record> soon).c_headers
        if type(pairs) is tuple:
            for k in range(PyTuple_GET_SIZE(pairs)):
                pair = <object> PyTuple_GET_ITEM(pairs, k)
                if type(pair) is tuple and PyTuple_GET_SIZE(pair) == 2:
                    send_for_lines(PyTuple_GET_ITEM(pair, 0), 2)
                    send_for_lines(PyTuple_GET_ITEM(pair, 1), 2)


cdef int put_records(out_t *out, list records, int64_t base_offset, object base_timestamp, int64_t *base,
                     int64_t *largest) except -1:
    """Append the records' bytes; ``base`` and ``largest`` receive the timestamps, in ms."""
    cdef int64_t start = out.p - out.start
    cdef int64_t timestamp
    cdef Py_ssize_t i = 0
    base[0] = largest[0] = -1
    if base_timestamp is not None:
        base[0] = base_timestamp
    # Copying an unusual value may run code that changes the list, so read its length in each iteration.
    while i < len(records):
        send_for(records, i)
        record = records[i]
        if is_record(record):
            timestamp = (<Record> record).c_timestamp
            if i == 0:
                largest[0] = timestamp
                if base_timestamp is None:
                    base[0] = timestamp
            elif timestamp > largest[0]:
                largest[0] = timestamp
        put_record(out, record, i, base_offset, base[0])
        if out.p - out.start - start > INT32_MAX - HEADER_SIZE:
            raise EncodeError("a batch's length is an int32, and its records take more")  # unreachable: takes 2 GiB
        i += 1
    if i != len(records):
        raise EncodeError(f"records has {len(records)} entries, {i} were written: the list changed during the call")
    return 0


def encode_records(list records not None, int64_t base_offset, base_timestamp):
    cdef Scratch payload = Scratch.__new__(Scratch)
    cdef int64_t base
    cdef int64_t largest
    put_records(&payload.out, records, base_offset, base_timestamp, &base, &largest)
    return payload, base, largest


cdef header_t to_header(tuple fields) except *:
    cdef header_t h
    (h.base_offset, h.batch_length, h.partition_leader_epoch, _, h.crc, h.attributes, h.last_offset_delta,
     h.base_timestamp, h.max_timestamp, h.producer_id, h.producer_epoch, h.base_sequence, h.record_count) = fields
    return h


cdef void seal(uint8_t *batch, int64_t size, header_t *h) noexcept nogil:
    """Write the header before the payload, which is already in place, with the right length and CRC."""
    h.batch_length = <int32_t> (size - LOG_OVERHEAD)
    put_header(batch, h)
    h.crc = crc32c_of(batch + AT_ATTRIBUTES, size - AT_ATTRIBUTES)
    put_int32(batch + AT_CRC, <int32_t> h.crc)


cdef int put_batch(out_t *out, list records, header_t *h, object base_timestamp, bint has_max) except -1:
    """Append a whole uncompressed batch; its length, CRC and record count are computed.

    With ``base_timestamp`` None, the base is the first record's timestamp. Without ``has_max``, the max timestamp is
    the largest of the records'.
    """
    cdef int64_t at = out.p - out.start
    cdef int64_t largest
    reserve(out, HEADER_SIZE)
    out.p += HEADER_SIZE
    put_records(out, records, h.base_offset, base_timestamp, &h.base_timestamp, &largest)
    if not has_max:
        h.max_timestamp = largest
    h.record_count = <int32_t> len(records)
    seal(out.start + at, out.p - out.start - at, h)
    return 0


def encode_payload(tuple fields not None, list parts not None):
    cdef header_t h = to_header(fields)
    return put_payload(&h, parts)


cdef bytes put_payload(header_t *h, list parts):
    cdef int64_t size = HEADER_SIZE
    cdef uint8_t *p
    cdef HeldBuffer part
    # HeldBuffer until the end, so that no buffer can be resized between the sum and the copy.
    cdef list held = [hold(one) for one in parts]
    for part in held:
        size += part.n
    if size > INT32_MAX:
        raise EncodeError(f"a payload of {size - HEADER_SIZE} bytes; a length is an int32")  # unreachable: takes 2 GiB
    made = PyBytes_FromStringAndSize(NULL, <Py_ssize_t> size)
    p = <uint8_t *> PyBytes_AS_STRING(made) + HEADER_SIZE
    for part in held:
        p = put_bytes(p, part.p, part.n)
    seal(<uint8_t *> PyBytes_AS_STRING(made), size, h)
    return made
