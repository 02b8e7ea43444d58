# Magic 2: the header's struct and inline writers for compiled callers. Also the rows that a parse of any magic fills.
from cpython.object cimport PyObject
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.wire.io.cursor cimport cursor_t
from kfuzz.wire.io.format cimport LOG_APPEND_TIME
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.io.sink cimport put_int8, put_int16, put_int32, put_int64
from kfuzz.wire.records.record cimport Record

cdef struct header_t:
    int64_t base_offset
    int32_t batch_length
    int32_t partition_leader_epoch
    uint32_t crc
    int16_t attributes
    int32_t last_offset_delta
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int16_t producer_epoch
    int32_t base_sequence
    int32_t record_count

# The offsets of a record's and of a header's parts in the payload; ordinary.h explains the fields.
cdef extern from "ordinary.h":
    ctypedef struct row_t "kfuzz_row":
        int64_t timestamp_delta
        int64_t offset_delta
        int32_t at
        int32_t length
        int32_t key_at
        int32_t key_length
        int32_t value_at
        int32_t value_length
        int32_t headers_at
        int32_t header_count
        int32_t first_header
        int16_t attributes
        int16_t untimed

    ctypedef struct header_row_t "kfuzz_header_row":
        int32_t key_at
        int32_t key_length
        int32_t value_at
        int32_t value_length

    ctypedef struct rows_t "kfuzz_rows":
        row_t *rows
        int64_t count
        int64_t capacity
        header_row_t *headers
        int64_t header_count
        int64_t header_capacity
        bint with_headers
        bint no_memory
        int64_t most
        int64_t headers_most
        bint is_full
        int64_t stopped

cdef inline uint8_t *put_header(uint8_t *p, const header_t *h) noexcept nogil:
    """Write the 61 bytes of a header without changing any field; the caller sets length and CRC."""
    p = put_int64(p, h.base_offset)
    p = put_int32(p, h.batch_length)
    p = put_int32(p, h.partition_leader_epoch)
    p = put_int8(p, 2)
    p = put_int32(p, <int32_t> h.crc)
    p = put_int16(p, h.attributes)
    p = put_int32(p, h.last_offset_delta)
    p = put_int64(p, h.base_timestamp)
    p = put_int64(p, h.max_timestamp)
    p = put_int64(p, h.producer_id)
    p = put_int16(p, h.producer_epoch)
    p = put_int32(p, h.base_sequence)
    return put_int32(p, h.record_count)

# The most bytes that a record's fixed fields take: five varints, a varlong, the attributes, and the one byte that
# put_mixed_varlong may write beyond its end.
cdef enum:
    FIXED_BYTES = 5 + 1 + 10 + 5 + 5 + 5 + 5 + 1

cdef void take_header(const uint8_t *p, header_t *h) noexcept nogil
cdef bint get_records(cursor_t *c, const uint8_t *p, const header_t *h, rows_t *sink, bint skim) noexcept nogil
cdef void judge_control(const uint8_t *base, const rows_t *rows, int64_t count, report_t *report) noexcept nogil
cdef row_t *next_row(rows_t *rows) noexcept nogil
cdef void free_rows(rows_t *rows) noexcept nogil
cdef list to_records(const uint8_t *base, object source, const header_t *h, const rows_t *rows)
cdef list to_places(const rows_t *rows)

cdef inline void fill_fixed(Record record, const header_t *h, const row_t *row) noexcept:
    """Set offset, timestamp and attributes. Sums wrap as in Java."""
    record.c_offset = <int64_t> (<uint64_t> h.base_offset + <uint64_t> row.offset_delta)
    record.c_timestamp = h.max_timestamp
    if not h.attributes & LOG_APPEND_TIME:
        record.c_timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
    record.has_timestamp = not row.untimed
    record.c_attributes = row.attributes

cdef inline void fill_record(Record record, const uint8_t *base, object source, const header_t *h,
                             const row_t *row) noexcept:
    """Let a record without objects of its own be that of a row. This runs no Python code."""
    fill_fixed(record, h, row)
    if record.source is not source:
        record.source = source
    record.base = base
    record.key_at = row.key_at
    record.key_unread = row.key_length + 1
    record.value_at = row.value_at
    record.value_unread = row.value_length + 1
    record.headers_at = row.headers_at
    record.headers_unread = row.header_count

cdef inline Record new_record(const uint8_t *base, object source, const header_t *h, const row_t *row):
    """A record of a row; its bytes stay in ``source``, where offsets count from ``base``. This runs no Python code."""
    cdef Record record = Record.__new__(Record)
    fill_record(record, base, source, h, row)
    return record
