# What a role asks of a batch, beside what every reader asks: the questions that ``Scan`` puts as it goes.
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.record_batch cimport header_t, rows_t
from kfuzz.wire.report cimport report_t

# A batch that has been read, of any magic; places in `rows` count from `base`.
cdef struct batch_t:
    int64_t at                 # in the whole data
    int64_t size
    int64_t base_offset
    int64_t last_offset
    int64_t first_offset       # where it begins
    bint knows_first           # False for a wrapper that was not read
    int64_t max_timestamp      # -1 for none
    int magic
    int codec                  # 0 for none; with one the rows stand in the payload
    const header_t *header     # of magic 2
    const rows_t *rows
    const uint8_t *base
    bint unreadable            # whether a consumer refuses its records

# Each notes what it finds; False where Kafka goes no further. This one asks nothing, as a consumer does.
cdef class Policy:
    cdef bint reads_rows
    # Whether payloads are left to Python, which decides how much of each is read.
    cdef bint skims
    cdef bint no_memory
    cdef int64_t largest_timestamp

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil
    cdef bint is_end(self, const uint8_t *p, int64_t left) noexcept nogil
    cdef bint frame(self, const uint8_t *p, int64_t size, int magic, report_t *report) noexcept nogil
    cdef bint header(self, const header_t *h, report_t *report) noexcept nogil
    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil
    cdef bint end(self, int64_t at, report_t *report) noexcept nogil

# What a choice says of the last batch that it was asked about.
cdef enum:
    PASSED
    PICKED
    REFUSED
    ENDED                      # nothing is read from here on

# A policy that notes nothing: it picks batches, and lets the scan go by the others.
cdef class Choice(Policy):
    cdef int said
