"""Follows transactions through a log by the headers of its batches; transaction_walk.pyi describes the interface.

Of most batches it touches the header alone, so it costs a small part of what reading costs.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int64_t, uint8_t
from libc.string cimport memset

from kfuzz.wire.io.checksum cimport crc32c_of
from kfuzz.wire.io.cursor cimport cursor_t
from kfuzz.wire.io.format cimport AT_ATTRIBUTES, CODEC_MASK, CONTROL, HEADER_SIZE, LAST_MAGIC
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.int64_map cimport find, free_map, map_t, put
from kfuzz.wire.io.report cimport clear, report_t
from kfuzz.wire.records.framing cimport get_frame
from kfuzz.wire.records.record_batch cimport free_rows, get_records, header_t, rows_t, take_header
from kfuzz.wire.walk.policy cimport batch_t
from kfuzz.wire.walk.transactions cimport ABORTS, COMMITS, NO_MEMORY, follow


@cython.final
cdef class TransactionWalk:
    cdef map_t began
    cdef rows_t rows
    cdef list found

    def __cinit__(self):
        self.found = []

    def __dealloc__(self):
        free_map(&self.began)
        free_rows(&self.rows)

    def begin(self, int64_t producer_id, int64_t first_offset):
        if find(&self.began, producer_id) == NULL and not put(&self.began, producer_id, first_offset):
            raise MemoryError

    def walk(self, data not None, int64_t at=0):
        cdef HeldBuffer held = hold(data)
        cdef int64_t size = 0
        cdef int magic
        cdef int became = 0
        cdef report_t report
        cdef header_t h
        if at < 0 or at > held.n:
            raise IndexError(f"no frame can begin at {at} in {held.n} bytes")
        clear(&report)
        while at < held.n:
            with nogil:
                became = -1
                while became != ABORTS and became != COMMITS and became != NO_MEMORY:
                    size = get_frame(held.p, at, held.n, &magic, &report)
                    if size <= 0:
                        break
                    if magic == LAST_MAGIC:
                        take_header(held.p + at, &h)
                        if h.producer_id >= 0:
                            became = self.batch(held.p + at, size, &h, &report)
                    at += size
            if became == NO_MEMORY:
                raise MemoryError
            if became == ABORTS or became == COMMITS:
                self.found.append((h.producer_id, h.base_offset, became == ABORTS))
            elif size <= 0:
                break
        return at

    cdef int batch(self, const uint8_t *p, int64_t size, const header_t *h, report_t *report) noexcept nogil:
        cdef cursor_t c
        cdef batch_t b
        cdef int64_t first_offset
        cdef bint is_readable = True
        self.rows.count = self.rows.header_count = 0
        if h.attributes & CONTROL:
            # Kafka never compresses a marker. One with a wrong CRC may say anything.
            is_readable = not h.attributes & CODEC_MASK and h.record_count >= 0
            is_readable &= crc32c_of(p + AT_ATTRIBUTES, size - AT_ATTRIBUTES) == h.crc
            if is_readable:
                c = cursor_t(base=p, end=p + size, report=report, record=-1, header=-1)
                is_readable = get_records(&c, p + HEADER_SIZE, h, &self.rows, False)
            if self.rows.no_memory:
                return NO_MEMORY
        memset(&b, 0, sizeof(batch_t))
        b.header, b.rows, b.base = h, &self.rows, p
        b.unreadable = not is_readable
        return follow(&self.began, &b, &first_offset)

    def ends(self):
        found, self.found = self.found, []
        return found

    @property
    def first_open(self):
        cdef int64_t least = INT64_MAX
        cdef int64_t i
        if self.began.count == 0:
            return None
        for i in range(self.began.capacity):
            if self.began.entries[i].used:
                least = min(least, self.began.entries[i].value)
        return least
