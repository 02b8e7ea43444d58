from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.io.scratch cimport out_t
from kfuzz.wire.io.sink cimport span_t
from kfuzz.wire.records.record cimport Record
from kfuzz.wire.records.record_batch cimport header_t

# A record's key and value, and the bytes that its headers take with their count.
cdef struct fields_t:
    span_t key
    span_t value
    int64_t headers_size

cdef Record as_record(object given, Py_ssize_t index)
cdef Record take_record(object given, Py_ssize_t index, fields_t *fields)
cdef int put_records(out_t *out, list records, int64_t base_offset, object base_timestamp, int64_t *base,
                     int64_t *largest) except -1
cdef int put_batch(out_t *out, list records, header_t *h, object base_timestamp, bint has_max) except -1
cdef header_t to_header(tuple fields) except *
cdef bytes put_payload(header_t *h, list parts)
cdef void seal(uint8_t *batch, int64_t size, header_t *h) noexcept nogil
