# The additional rules of a role. ``Scan`` calls a policy's methods while it reads.
from libc.stdint cimport int64_t, uint8_t

from kfuzz.wire.io.report cimport report_t
from kfuzz.wire.records.record_batch cimport header_t, rows_t

# A batch of any magic that has been read. Offsets in `rows` count from `base`.
cdef struct batch_t:
    int64_t at                 # offset in the whole data
    int64_t size
    int64_t base_offset
    int64_t last_offset
    int64_t first_offset       # the offset of its first record
    bint knows_first           # whether first_offset is known; False for a wrapper that was not read
    int64_t max_timestamp      # -1 for none
    int magic
    int codec                  # 0 for none; with a codec, `rows` refer to the decompressed payload
    const header_t *header     # valid for magic 2 only
    const rows_t *rows
    const uint8_t *base
    int64_t base_bytes         # how many there are at `base`, if `codec` is not 0: the decompressed payload
    int64_t record_count
    bint unreadable            # whether a consumer refuses its records

# Each method notes its findings and returns False if Kafka stops there. This base class has no rules: a consumer.
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

# The answer of a choice about the last batch that it was asked about.
cdef enum:
    PASSED
    PICKED
    REFUSED
    ENDED                      # nothing is read from here on

# A policy that notes nothing: it picks batches, and lets the scan go by the others.
cdef class Choice(Policy):
    cdef int said
