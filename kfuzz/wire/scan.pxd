# The walk over a buffer's batches; scan.pyi describes it.
from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.columns cimport Columns
from kfuzz.wire.held cimport Held
from kfuzz.wire.message_set cimport message_t
from kfuzz.wire.policy cimport Policy
from kfuzz.wire.record_batch cimport header_t, row_t, rows_t, spares_t
from kfuzz.wire.report cimport report_t
from kfuzz.wire.unpack cimport tools_t

# What the scan stops at.
cdef enum:
    AT_END
    AT_REFUSAL
    AT_BATCH
    AT_PAYLOAD

# A record that was given, and what it may be made of again. References are our own, counted by hand.
cdef struct turn_t:
    PyObject *record
    bint lazy
    spares_t spares

cdef class Scan:
    cdef Held held
    cdef object data
    cdef const uint8_t *base
    cdef int64_t n
    # A message sets those fields of the header that its rows are read by; its own fields stand in `message`.
    cdef header_t h
    cdef message_t message
    # Apart from the scan, for it has several KiB, which every new object would have to clear.
    cdef report_t *report
    # What a role asks besides; a consumer asks nothing.
    cdef readonly Policy policy
    cdef bint has_policy
    cdef rows_t rows
    cdef bint with_rows
    cdef bint each
    cdef bint unfinished
    cdef Columns columns
    cdef bint has_columns
    # Where the part of `data` begins that buffer number `window` of the columns is. Others add buffers too.
    cdef int64_t window_at
    cdef int window
    # Where the rows of the batch stand: their bytes, and who keeps them.
    cdef const uint8_t *rows_base
    cdef object rows_source
    # The most that a payload which is decompressed here may grow to, in bytes; 0 leaves all payloads to Python.
    cdef int64_t limit
    cdef tools_t tools
    # Whether the rows stand in `tools`, where the next payload comes to stand.
    cdef bint in_tools
    # Whether the wrapper of this stop has been read, and where it begins then.
    cdef bint is_opened
    cdef int64_t first_offset
    # How often it stopped: rows are those of one stop.
    cdef int64_t stops
    # Whether a thread is in a loop that runs without the interpreter's lock.
    cdef bint running
    # Records that loops are given by turns, what those ask them for, and for how many more that is believed. Then one
    # is lazy, and is looked at when its turn comes again: it had a key and a value to ask for, and headers, or not.
    cdef turn_t turns[2]
    cdef int turn
    cdef bint reads_both
    cdef bint reads_headers
    cdef int believed
    cdef bint had_both
    cdef bint had_headers
    # Whether the end was seen, and bytes are left there.
    cdef bint is_cut
    cdef readonly int magic
    cdef readonly int64_t at
    cdef readonly int64_t size
    cdef readonly int64_t batch_count
    cdef readonly int64_t record_count
    cdef readonly int64_t found

    cdef int open(self, object data, bint with_rows, Policy policy, int64_t limit) except -1
    cdef int begin(self) except -1
    cdef int go_on(self) except -1
    cdef int require_memory(self) except -1
    cdef int advance(self) noexcept nogil
    cdef int one_batch(self) noexcept nogil
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
    cdef void learn(self, const turn_t *turn) noexcept

cdef class EachRecord:
    cdef Scan scan
    cdef object look
    cdef int state
    # The rows of one stop, as far as they are given.
    cdef int64_t stops
    cdef int64_t i
    cdef int64_t count

    cdef void open(self, Scan scan, object look) noexcept
    cdef void begin(self) noexcept
    cdef object give(self)
    cdef object give_other(self, turn_t *turn, const row_t *row, bint lazy)
    cdef int next_batch(self) except -1

cdef EachRecord each_record(Scan scan, object look)
cdef Scan open_scan(object data, bint with_rows, Policy policy, int64_t limit)
