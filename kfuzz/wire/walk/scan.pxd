# Reads a buffer's batches one after the other; scan.pyi describes it.
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.columns.reader cimport Columns
from kfuzz.wire.io.buffer cimport HeldBuffer
from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.io.unpack cimport decompressor_t
from kfuzz.wire.records.message_set cimport message_t
from kfuzz.wire.records.record cimport Record
from kfuzz.wire.records.record_batch cimport header_t, rows_t
from kfuzz.wire.walk.policy cimport Policy

# The reasons for which the scan stops.
cdef enum:
    AT_END
    AT_REFUSAL
    AT_BATCH
    AT_PAYLOAD

cdef class Scan:
    cdef HeldBuffer held
    cdef object data
    cdef const uint8_t *base
    cdef int64_t n
    # The header of the current batch. A message of magic 0 or 1 sets only the fields that its rows need; its own fields
    # are in `message`.
    cdef header_t h
    cdef message_t message
    # Allocated separately: it has several KiB, and Cython would clear them in every new scan.
    cdef report_t *report
    # The role's additional rules; a consumer has none.
    cdef readonly Policy policy
    cdef bint has_policy
    cdef rows_t rows
    cdef bint with_rows
    cdef bint each
    cdef bint unfinished
    cdef Columns columns
    cdef bint has_columns
    # Buffer number `window` of the columns is the part of `data` that begins at `window_at`. Payloads add buffers too.
    cdef int64_t window_at
    cdef int window
    # Offsets in the rows count from `rows_base`; `rows_source` is the object that holds those bytes.
    cdef const uint8_t *rows_base
    # How many bytes a decompressed payload has; the rows' bytes begin with it.
    cdef int64_t payload_bytes
    cdef object rows_source
    # The largest size, in bytes, to which a payload is decompressed here; 0 leaves all payloads to Python.
    cdef int64_t limit
    cdef decompressor_t decompressor
    # Whether the rows refer to the buffer in `decompressor`, which the next payload overwrites.
    cdef bint in_decompressor
    # Whether the wrapper of this stop has been read; if so, the offset of its first message.
    cdef bint is_opened
    cdef int64_t first_offset
    # The number of stops so far. Rows are valid for one stop only.
    cdef int64_t stops
    # Whether a thread is in a loop that runs without the GIL.
    cdef bint running
    # Whether the scan has reached the end with a partial tail left.
    cdef bint is_cut
    cdef readonly int magic
    cdef readonly int64_t at
    cdef readonly int64_t size
    cdef readonly int64_t batch_count
    cdef readonly int64_t record_count
    cdef readonly int64_t found

    cdef int open(self, object data, bint with_rows, Policy policy, int64_t limit) except -1
    cdef void begin_at(self, const uint8_t *p, int64_t n, bint with_rows, int64_t limit) noexcept
    cdef int begin(self) except -1
    cdef int next_stop(self) except -1
    cdef int require_memory(self) except -1
    cdef int advance(self) noexcept nogil
    cdef int one_batch(self) noexcept nogil
    cdef void forget_rows(self) noexcept nogil
    cdef int end(self) noexcept nogil
    cdef bint judge(self, bint unreadable) noexcept nogil
    cdef int record_batch(self) noexcept nogil
    cdef int one_message(self) noexcept nogil
    cdef int plain_payload(self) noexcept nogil
    cdef bint read_payload(self, const uint8_t *base, int64_t n, bint skim) noexcept nogil
    cdef int open_window(self, int64_t at) except -1
    cdef bint put_columns(self) noexcept nogil
    cdef int put_payload(self, bytes payload) except -1
    cdef list all_records(self)
    cdef int keep_rows(self) except -1

cdef class EachRecord:
    cdef Scan scan
    cdef object handle_stop
    cdef int state
    # The rows of stop number `stops`: `i` of `count` have been returned.
    cdef int64_t stops
    cdef int64_t i
    cdef int64_t count
    # The last two records that were returned.
    cdef Record last
    cdef Record before

    cdef void open(self, Scan scan, object handle_stop) noexcept
    cdef void begin(self) noexcept
    cdef object next_record(self)
    cdef Record dropped(self)
    cdef int next_batch(self) except -1

cdef EachRecord each_record(Scan scan, object handle_stop)
cdef Scan open_scan(object data, bint with_rows, Policy policy, int64_t limit)
