"""One pass over records before they are built into a batch; record_list.pyi describes the interface."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.cursor cimport valid_utf8
from kfuzz.wire.records.batch_writer cimport as_record
from kfuzz.wire.records.record cimport Record
from kfuzz.wire.walk.transactions cimport hands_out

cdef enum:
    IS_FALLING = 1
    IS_LOW
    IS_WITH_HEADERS
    IS_FAR

FALLS, TIMESTAMP_LOW, HAS_HEADERS, FAR = IS_FALLING, IS_LOW, IS_WITH_HEADERS, IS_FAR


@cython.final
cdef class Survey:
    cdef readonly int64_t refused_at
    cdef readonly int why
    cdef readonly int64_t largest_offset
    cdef readonly int64_t largest_timestamp
    cdef readonly int64_t largest_timestamp_at
    cdef readonly int64_t headers
    cdef readonly int64_t attributes
    cdef readonly int64_t timestamps
    cdef readonly int64_t tombstones
    cdef readonly bint is_plain


cdef bint has_plain_keys(object headers):
    """Whether these are ordinary pairs with keys in UTF-8. Anything unusual is left to the slower Python code."""
    if type(headers) is not tuple:
        return False
    for pair in <tuple> headers:
        if type(pair) is not tuple or len(<tuple> pair) != 2:
            return False
        key = (<tuple> pair)[0]
        if type(key) is not bytes:
            return False
        if not valid_utf8(<const uint8_t *> PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)):
            return False
    return True


def survey(list records not None, int64_t base_offset=0, bint with_headers=True):
    cdef Survey found = Survey.__new__(Survey)
    cdef Record record
    cdef int64_t delta
    cdef int64_t before = 0
    cdef int64_t count
    cdef int why
    cdef Py_ssize_t i = 0
    found.refused_at = -1
    found.largest_offset = found.largest_timestamp = INT64_MIN
    found.is_plain = True
    # The ``len`` of headers may run code that changes the list, so its length is read in each iteration.
    while i < len(records):
        record = as_record(records[i], i)
        delta = <int64_t> (<uint64_t> record.c_offset - <uint64_t> base_offset)
        headers = record.get_headers()
        count = len(headers) if headers else 0
        found.headers += count
        found.attributes += record.c_attributes != 0
        found.timestamps += record.has_timestamp and record.c_timestamp != -1
        found.tombstones += record.value_unread == 0 and record.c_value is None
        found.largest_offset = max(found.largest_offset, record.c_offset)
        if record.c_timestamp > found.largest_timestamp:
            found.largest_timestamp = record.c_timestamp
            found.largest_timestamp_at = i
        if record.c_attributes or delta < INT32_MIN or count and not has_plain_keys(headers):
            found.is_plain = False
        why = 0
        if i and record.c_offset <= before:
            why = IS_FALLING
        elif record.c_timestamp < -1:
            why = IS_LOW
        elif count and not with_headers:
            why = IS_WITH_HEADERS
        elif delta > INT32_MAX:
            why = IS_FAR
        if why and found.refused_at < 0:
            found.refused_at = i
            found.why = why
        before = record.c_offset
        i += 1
    return found


def renumbered(list records not None, int64_t first_offset, bint keep_attributes):
    cdef list made = []
    cdef Record record
    cdef Record copy
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = as_record(records[i], i)
        copy = Record.__new__(Record)
        copy.c_offset = <int64_t> (<uint64_t> first_offset + <uint64_t> i)
        copy.c_timestamp = record.c_timestamp
        copy.has_timestamp = record.has_timestamp
        copy.c_attributes = record.c_attributes if keep_attributes else 0
        copy.source = record.source
        copy.base = record.base
        copy.key_at = record.key_at
        copy.key_unread = record.key_unread
        copy.value_at = record.value_at
        copy.value_unread = record.value_unread
        copy.headers_at = record.headers_at
        copy.headers_unread = record.headers_unread
        copy.c_key = record.c_key
        copy.c_value = record.c_value
        copy.c_headers = record.c_headers
        made.append(copy)
    return made


def in_order(list records not None, int64_t position):
    cdef list taken = []
    cdef Record record
    cdef Py_ssize_t i
    for i in range(len(records)):
        record = as_record(records[i], i)
        if hands_out(record.c_offset, &position):
            taken.append(record)
    return taken, position
