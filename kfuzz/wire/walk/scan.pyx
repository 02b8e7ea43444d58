"""Reads a buffer's batches of every magic, one after the other.

It runs without the GIL until the caller must act: at the end, at a finding, at a payload that Python must decompress,
or at each batch if the caller asks for that. A message of magic 0 or 1 is a batch of one record; with a codec its value
is the payload. Mirrors ``org.apache.kafka.common.record.MemoryRecords``.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kfuzz.wire.columns.reader cimport Columns, record_end
from kfuzz.wire.io.checksum cimport crc32c_of
from kfuzz.wire.io.cursor cimport cursor_t
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_CRC,
    AT_LAST_OFFSET_DELTA,
    AT_RECORD_COUNT,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LAST_CODEC,
    LAST_MAGIC,
    MESSAGE_AT_ATTRIBUTES,
    UNUSED_BITS,
)
from kfuzz.wire.io.buffer cimport HeldBuffer, hold
from kfuzz.wire.io.report cimport (
    ANYWHERE,
    ATTRIBUTES_UNUSED_BITS,
    BASE_OFFSET_NEGATIVE,
    CODEC_UNKNOWN,
    CRC_MISMATCH,
    F_ATTRIBUTES,
    F_BASE_OFFSET,
    F_CRC,
    F_LAST_OFFSET_DELTA,
    F_PAYLOAD,
    F_RECORD_COUNT,
    INSIDE,
    LAST_OFFSET_DELTA_NEGATIVE,
    OF_BATCH,
    PAYLOAD_WITHOUT_RECORDS,
    RECORD_COUNT_NEGATIVE,
    clear,
    note,
    report_t,
    to_notes,
)
from kfuzz.wire.io.unpack cimport LZ4, keep_decompressor, take_decompressor, unpack
from kfuzz.wire.records.framing cimport get_frame
from kfuzz.wire.records.message_set cimport get_wrapped, judge_message, message_t, more_wrapped, to_row
from kfuzz.wire.records.record cimport Record, drop_parts
from kfuzz.wire.records.record_batch cimport (
    fill_record,
    free_rows,
    get_records,
    header_t,
    judge_control,
    new_record,
    next_row,
    row_t,
    rows_t,
    take_header,
    to_places,
    to_records,
)
from kfuzz.wire.walk.policy cimport Policy, batch_t

cdef extern from "Python.h":
    # Declared without `except`, so that Cython does not raise the error itself.
    PyObject *PyObject_CallOneArg(object function, object argument)
    Py_ssize_t Py_REFCNT(PyObject *op)

cdef enum:
    # A scan without rows looks at the first records of a control batch, which should have one.
    CONTROL_ROWS = 4096

cdef enum:
    SMALL_BYTES = 4096
    SMALL_PAYLOAD_BYTES = 64 * 1024

# The results of ``Scan.next``.
END, REFUSED, BATCH, PAYLOAD = AT_END, AT_REFUSAL, AT_BATCH, AT_PAYLOAD
cdef str TWO_THREADS = "another thread is reading these batches; give each thread an iterator of its own"


# A report and room for rows that no scan uses now; taking one clears its slot. They save small reads the allocations.
cdef report_t *spare_report = NULL
cdef row_t *spare_rows = NULL
cdef enum:
    SPARE_ROWS = 64


cdef report_t *take_report() except NULL:
    global spare_report
    cdef report_t *report = spare_report
    spare_report = NULL
    if report == NULL:
        report = <report_t *> PyMem_Malloc(sizeof(report_t))
        if report == NULL:
            raise MemoryError  # unreachable: only if memory runs out
    clear(report)
    return report


cdef void give_report(report_t *report) noexcept:
    global spare_report
    if spare_report == NULL:
        spare_report = report
    else:
        PyMem_Free(report)


cdef Scan open_scan(object data, bint with_rows, Policy policy, int64_t limit):
    """A scan for compiled callers; calling the type takes twice as long."""
    cdef Scan scan = Scan.__new__(Scan)
    scan.open(data, with_rows, policy, limit)
    return scan


@cython.freelist(4)
cdef class Scan:
    """Reads the batches of ``data`` one after the other; the interface is described in scan.pyi."""

    def __cinit__(self):
        global spare_rows
        self.report = take_report()
        take_decompressor(&self.decompressor)
        if spare_rows != NULL:
            self.rows.rows = spare_rows
            self.rows.capacity = SPARE_ROWS
            spare_rows = NULL

    def __init__(self, data not None, bint with_rows, *, bint with_headers=False, bint each=False,
                 Columns columns=None, Policy policy=None, int64_t limit=0, int64_t rows_most=0):
        self.open(data, with_rows, policy, limit)
        self.rows.most = rows_most
        self.rows.with_headers = with_headers
        self.each = each or (with_rows and columns is None)
        self.columns = columns
        self.has_columns = columns is not None

    cdef int open(self, object data, bint with_rows, Policy policy, int64_t limit) except -1:
        self.data = data
        if type(data) is bytes:
            self.base = <const uint8_t *> PyBytes_AS_STRING(data)
            self.n = PyBytes_GET_SIZE(data)
        else:
            self.held = hold(data)
            self.base = self.held.p
            self.n = self.held.n
        self.policy = policy
        self.has_policy = policy is not None
        self.begin_at(self.base, self.n, with_rows, limit)
        return 0

    cdef void begin_at(self, const uint8_t *p, int64_t n, bint with_rows, int64_t limit) noexcept:
        """Begin, with the policy as it is. A compiled loop may begin again with bytes that it keeps; it cannot make
        records of rows in these bytes.
        """
        self.base = p
        self.n = n
        self.at = self.size = self.batch_count = self.record_count = self.found = 0
        self.unfinished = self.is_cut = False
        self.each = with_rows
        self.with_rows = with_rows or self.has_policy and self.policy.reads_rows
        self.rows.most = 0 if self.with_rows else CONTROL_ROWS
        # A broker reads less of a payload that it stores unchanged; Python decides how much.
        self.limit = 0 if self.has_policy and self.policy.skims else limit
        if n <= SMALL_BYTES:
            # The scan keeps the GIL for a small buffer. Payloads that grow large are left to Python, which releases it.
            self.limit = min(self.limit, SMALL_PAYLOAD_BYTES)
        self.window = -1

    def __dealloc__(self):
        global spare_rows
        give_report(self.report)
        keep_decompressor(&self.decompressor)
        if spare_rows == NULL and self.rows.capacity == SPARE_ROWS:
            spare_rows = self.rows.rows
            self.rows.rows = NULL
        free_rows(&self.rows)

    cdef int begin(self) except -1:
        """Every loop calls this first. It makes the rows of the last stop invalid, for other threads too."""
        if self.running:
            raise RuntimeError(TWO_THREADS)
        self.stops += 1
        self.running = True
        return 0

    def next(self):
        return self.next_stop()

    cdef int next_stop(self) except -1:
        cdef int state
        self.begin()
        # Releasing the GIL takes as long as reading a small buffer.
        if self.n <= SMALL_BYTES:
            state = self.advance()
        else:
            with nogil:
                state = self.advance()
        self.running = False
        self.require_memory()
        return state

    cdef int require_memory(self) except -1:
        if self.rows.no_memory or self.has_policy and self.policy.no_memory:
            raise MemoryError
        return 0

    cdef int advance(self) noexcept nogil:
        cdef int state
        while True:
            state = self.one_batch()
            if state == AT_PAYLOAD and self.limit and self.report.count == 0:
                state = self.plain_payload()
            elif state == AT_BATCH and self.has_columns and not self.rows.is_full and not self.put_columns():
                self.rows.no_memory = True
                return AT_REFUSAL
            if state == AT_BATCH and self.has_policy and not self.judge(False):
                return AT_BATCH
            if state != AT_BATCH or self.each or self.report.count:
                return state

    cdef int one_batch(self) noexcept nogil:
        """Move past the batch of the last stop and judge the next one as a consumer does."""
        cdef const uint8_t *p
        if self.unfinished:
            self.at += self.size
            self.batch_count += 1
            self.record_count += self.found
            self.unfinished = False
        clear(self.report)
        self.forget_rows()
        self.in_decompressor = self.is_opened = False
        p = self.base + self.at
        if self.has_policy:
            if self.at == 0 and not self.policy.data(p, self.n, self.report):
                return AT_REFUSAL
            if self.policy.is_end(p, self.n - self.at):
                return self.end()
        self.size = get_frame(p, 0, self.n - self.at, &self.magic, self.report)
        if self.size == 0:
            return self.end()
        if self.size < 0:
            return AT_REFUSAL
        self.unfinished = True
        if self.has_policy and not self.policy.frame(p, self.size, self.magic, self.report):
            return AT_REFUSAL
        return self.record_batch() if self.magic == LAST_MAGIC else self.one_message()

    cdef void forget_rows(self) noexcept nogil:
        self.rows.count = self.rows.header_count = 0
        self.rows.is_full = False

    cdef int end(self) noexcept nogil:
        self.size = 0
        self.is_cut = self.at < self.n
        if self.has_policy and not self.policy.end(self.at, self.report):
            return AT_REFUSAL
        return AT_END

    cdef bint judge(self, bint unreadable) noexcept nogil:
        """Let the policy judge the batch of this stop; False if Kafka stops there."""
        cdef batch_t b
        b.at = self.at
        b.size = self.size
        b.magic = self.magic
        b.codec = self.h.attributes & CODEC_MASK
        b.header = &self.h
        b.rows = &self.rows
        b.base = self.rows_base
        b.base_bytes = self.payload_bytes
        b.record_count = self.found
        b.unreadable = unreadable
        if self.magic == LAST_MAGIC:
            b.base_offset = self.h.base_offset
            b.last_offset = <int64_t> (<uint64_t> self.h.base_offset + <uint64_t> self.h.last_offset_delta)
            b.max_timestamp = self.h.max_timestamp
        else:
            b.base_offset = b.last_offset = self.message.offset
            b.max_timestamp = self.message.timestamp
        b.knows_first = self.magic == LAST_MAGIC or b.codec == 0 or self.is_opened
        b.first_offset = self.first_offset if self.is_opened else b.base_offset
        return self.policy.batch(&b, self.report)

    cdef int record_batch(self) noexcept nogil:
        cdef const uint8_t *p = self.base + self.at
        cdef header_t *h = &self.h
        cdef report_t *report = self.report
        cdef cursor_t c
        cdef rows_t *sink = NULL
        cdef uint32_t actual
        take_header(p, h)
        self.found = h.record_count
        actual = crc32c_of(p + AT_ATTRIBUTES, self.size - AT_ATTRIBUTES)
        if actual != h.crc:
            note(report, CRC_MISMATCH, F_CRC, AT_CRC, -1, -1, h.crc, actual)
            return AT_REFUSAL
        if self.has_policy and h.attributes & CODEC_MASK <= LAST_CODEC and not self.policy.header(h, report):
            return AT_REFUSAL
        if h.attributes & UNUSED_BITS:
            note(report, ATTRIBUTES_UNUSED_BITS, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, h.attributes & 0xffff,
                 UNUSED_BITS)
        if h.attributes & CODEC_MASK > LAST_CODEC:
            note(report, CODEC_UNKNOWN, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, h.attributes & CODEC_MASK, LAST_CODEC)
            return AT_REFUSAL
        if h.base_offset < 0:
            note(report, BASE_OFFSET_NEGATIVE, F_BASE_OFFSET, AT_BASE_OFFSET, -1, -1, h.base_offset, 0)
        if h.last_offset_delta < 0:
            note(report, LAST_OFFSET_DELTA_NEGATIVE, F_LAST_OFFSET_DELTA, AT_LAST_OFFSET_DELTA, -1, -1,
                 h.last_offset_delta, 0)
        if h.record_count < 0:
            note(report, RECORD_COUNT_NEGATIVE, F_RECORD_COUNT, AT_RECORD_COUNT, -1, -1, h.record_count, 0)
            return AT_REFUSAL
        if h.attributes & CODEC_MASK:
            return AT_PAYLOAD
        if h.record_count == 0:
            if self.size > HEADER_SIZE:
                note(report, PAYLOAD_WITHOUT_RECORDS, F_PAYLOAD, HEADER_SIZE, -1, -1, self.size - HEADER_SIZE, 0)
            if h.attributes & CONTROL:
                judge_control(p, &self.rows, 0, report)
            return AT_BATCH
        if self.with_rows or h.attributes & CONTROL:
            sink = &self.rows
        c = cursor_t(base=p, end=p + self.size, report=report, record=-1, header=-1)
        self.rows_base = p
        if not get_records(&c, p + HEADER_SIZE, h, sink, False):
            return AT_REFUSAL
        if h.attributes & CONTROL:
            judge_control(p, &self.rows, h.record_count, report)
        return AT_BATCH

    cdef int one_message(self) noexcept nogil:
        cdef message_t *m = &self.message
        cdef header_t *h = &self.h
        cdef const uint8_t *p = self.base + self.at
        cdef row_t *row
        cdef bint is_good = judge_message(p, self.size, m, self.report)
        self.found = 0
        h.attributes = p[MESSAGE_AT_ATTRIBUTES] & CODEC_MASK
        h.base_offset = h.base_timestamp = 0
        if not is_good:
            return AT_REFUSAL
        if h.attributes & CODEC_MASK:
            return AT_PAYLOAD
        self.found = 1
        self.rows_base = p
        if self.with_rows:
            row = next_row(&self.rows)
            if row == NULL:
                return AT_REFUSAL  # unreachable: only if memory runs out
            to_row(m, 0, self.size, row)
            self.rows.count = 1
        return AT_BATCH

    cdef int plain_payload(self) noexcept nogil:
        """Decompress and read an ordinary payload. AT_PAYLOAD leaves any other payload, and all findings, to Python."""
        cdef const uint8_t *p = self.base + self.at
        cdef int codec = self.h.attributes & CODEC_MASK
        cdef int64_t at = HEADER_SIZE
        cdef int64_t n = self.size - HEADER_SIZE
        cdef int64_t found = self.found
        if self.magic == LAST_MAGIC:
            if found == 0:
                return AT_PAYLOAD
        else:
            # Writers of magic 0 computed the checksum in the lz4 frame header differently.
            if self.magic == 0 and codec == LZ4:
                return AT_PAYLOAD
            at = self.message.value_at
            n = self.message.value_length
        if not unpack(&self.decompressor, codec, p + at, n, self.limit):
            return AT_PAYLOAD
        self.in_decompressor = True
        if self.read_payload(self.decompressor.out, self.decompressor.size, False) and self.report.count == 0:
            if self.has_columns and self.rows.count and not self.rows.is_full:
                with gil:
                    try:
                        self.keep_rows()
                        self.put_payload(self.rows_source)
                    except MemoryError:
                        self.rows.no_memory = True
            return AT_BATCH
        self.in_decompressor = self.is_opened = False
        self.found = found
        clear(self.report)
        self.forget_rows()
        return AT_PAYLOAD

    cdef bint read_payload(self, const uint8_t *base, int64_t n, bint skim) noexcept nogil:
        """Read the records in a decompressed payload; False if they are refused."""
        cdef rows_t *sink = &self.rows if self.with_rows or self.h.attributes & CONTROL else NULL
        cdef int32_t count = 0
        cdef bint ok
        cdef cursor_t c
        self.rows_base = base
        self.payload_bytes = n
        if self.magic == LAST_MAGIC:
            c = cursor_t(base=base, end=base + n, report=self.report, record=-1, header=-1)
            ok = get_records(&c, base, &self.h, sink, skim)
            if ok and self.h.attributes & CONTROL:
                judge_control(base, &self.rows, self.h.record_count, self.report)
        else:
            ok = get_wrapped(base, n, &self.message, sink, self.report, &count, &self.first_offset)
            self.found = count
            self.is_opened = ok
        return ok

    cdef int open_window(self, int64_t at) except -1:
        """Let views refer to ``data`` from ``at`` on. A window is needed because offsets in views have 31 bits."""
        cdef bint whole = self.n <= INT32_MAX
        if whole:
            at = 0
        self.columns.add_buffer(self.data if whole else memoryview(self.data).cast("B")[at:at + INT32_MAX])
        self.window_at = at
        self.window = self.columns.buffer
        return 0

    cdef bint put_columns(self) noexcept nogil:
        """Add this batch's rows, whose bytes are in ``data``, to the columns. False if there is no memory."""
        cdef const uint8_t *p = self.base + self.at
        if self.window < 0 or self.window != self.columns.buffer or self.at + self.size - self.window_at > INT32_MAX:
            with gil:
                try:
                    self.open_window(self.at)
                except MemoryError:
                    return False
        return self.columns.take(&self.h, &self.rows, self.batch_count, p, p + self.size, self.at - self.window_at,
                                 self.size)

    def parse(self, bytes payload not None, bint skim=False):
        """Parse the decompressed payload of the batch; False if it is refused. Offsets then count from its start."""
        cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(payload)
        cdef int64_t n = PyBytes_GET_SIZE(payload)
        cdef bint ok
        if n >= INT32_MAX:
            raise ValueError(f"a payload of {n} bytes; the limit is {INT32_MAX - 1}")  # unreachable: takes 2 GiB
        self.begin()
        clear(self.report)
        # A payload may be parsed twice: first skimmed, then in full.
        self.forget_rows()
        self.rows_source = payload
        with nogil:
            ok = self.read_payload(base, n, skim)
        self.running = False
        self.require_memory()
        if ok and self.has_columns and self.rows.count and not self.rows.is_full:
            self.put_payload(payload)
        return ok

    cdef int put_payload(self, bytes payload) except -1:
        """Add this batch's rows, whose bytes are in its payload, to the columns."""
        cdef const uint8_t *base = <const uint8_t *> PyBytes_AS_STRING(payload)
        self.columns.add_buffer(payload)
        if not self.columns.take(&self.h, &self.rows, self.batch_count, base, base + PyBytes_GET_SIZE(payload), 0,
                                 self.size):
            raise MemoryError
        return 0

    @property
    def is_full(self):
        return self.rows.is_full

    def records_source(self):
        if self.h.attributes & CODEC_MASK == 0:
            return memoryview(self.data).cast("B")[self.at:self.at + self.size], HEADER_SIZE
        self.keep_rows()
        return self.rows_source, 0

    def add_rows(self, Columns columns not None, source not None, int64_t at, int64_t record):
        cdef HeldBuffer held = hold(source)
        cdef header_t h = self.h
        cdef report_t report
        cdef cursor_t c
        cdef row_t *row
        if at < 0 or at > held.n or not self.rows.is_full:
            raise IndexError(f"no records at {at} in {held.n} bytes")
        self.begin()
        self.forget_rows()
        with nogil:
            if self.magic == LAST_MAGIC:
                clear(&report)
                c = cursor_t(base=held.p, end=held.p + held.n, report=&report, record=-1, header=-1)
                h.record_count = <int32_t> min(h.record_count - record, self.rows.most)
                # It was judged before. Here a record is the last one although others follow.
                get_records(&c, held.p + at, &h, &self.rows, False)
                row = &self.rows.rows[self.rows.count - 1]
                if self.rows.count:
                    at = record_end(held.p, row)
            else:
                at = more_wrapped(held.p, held.n, at, &self.message, self.first_offset, &self.rows)
        self.running = False
        self.rows.is_full = True
        self.require_memory()
        columns.add_buffer(source)
        if not columns.take(&self.h, &self.rows, 0, held.p, held.p + held.n, 0, held.n):
            raise MemoryError
        return at, record + self.rows.count

    def apply_policy(self, bint unreadable=False):
        """Let the policy judge the batch of this stop, after it was decompressed or a consumer refused it."""
        clear(self.report)
        if unreadable:
            self.found = 0
        self.judge(unreadable)
        self.require_memory()

    def notes(self, bint inside=False):
        """The findings since the last stop. Offsets count from the start of ``data``; with ``inside``, of the payload.
        """
        if self.report.count == 0:
            return []
        return to_notes(self.report, 0 if inside else self.at, INSIDE if inside else ANYWHERE)

    @property
    def codec(self):
        return self.h.attributes & CODEC_MASK

    def message_fields(self):
        return self.message.offset, self.message.timestamp, self.message.attributes

    @property
    def payload(self):
        if self.magic == 2:
            return self.at + HEADER_SIZE, self.size - HEADER_SIZE
        if self.message.value_at < 0:
            return -1, -1
        return self.at + self.message.value_at, self.message.value_length

    def notes_of_batch(self):
        return to_notes(self.report, self.at, OF_BATCH)

    cdef list all_records(self):
        if self.rows.count == 0:
            return []
        self.keep_rows()
        return to_records(self.rows_base, self.rows_source, &self.h, &self.rows)

    cdef int keep_rows(self) except -1:
        """Make the rows refer to bytes that cannot change: the payload, ``data`` itself, or a copy of the batch."""
        if self.in_decompressor:
            self.rows_source = PyBytes_FromStringAndSize(<const char *> self.decompressor.out,
                                                         <Py_ssize_t> self.decompressor.size)
            self.in_decompressor = False
        elif self.h.attributes & CODEC_MASK:
            return 0
        elif type(self.data) is bytes:
            self.rows_source = self.data
            return 0
        else:
            self.rows_source = PyBytes_FromStringAndSize(<const char *> self.base + self.at, self.size)
        self.rows_base = <const uint8_t *> PyBytes_AS_STRING(self.rows_source)
        return 0

    def places(self):
        """The rows as ``Place``; offsets count from the start of the batch or of the decompressed payload."""
        return to_places(&self.rows)


cdef enum:
    READING
    LOOKING
    FINISHED

cdef enum:
    # In a smaller batch, keeping records for their memory takes longer than it saves.
    FEW_RECORDS = 8


@cython.final
@cython.freelist(4)
cdef class EachRecord:
    """Iterates over the records of all batches; the interface is described in scan.pyi."""

    def __init__(self, Scan scan not None, handle_stop not None):
        self.open(scan, handle_stop)

    cdef void open(self, Scan scan, object handle_stop) noexcept:
        self.scan = scan
        self.handle_stop = handle_stop
        self.begin()

    def __iter__(self):
        return self

    def __next__(self):
        cdef object record
        while True:
            record = self.next_record()
            if record is not None:
                return record
            if self.state != READING:
                if self.state == FINISHED:
                    raise StopIteration
                raise RuntimeError(TWO_THREADS)  # unreachable: only if two threads meet here
            if not self.next_batch():
                raise StopIteration
            if self.scan.rows.count:
                self.scan.keep_rows()
            self.begin()

    cdef void begin(self) noexcept:
        """Start with the rows of the scan's last stop."""
        self.stops = self.scan.stops
        self.count = self.scan.rows.count
        self.i = 0

    cdef object next_record(self):
        """The next record of this stop, or None."""
        cdef Scan scan = self.scan
        cdef const row_t *row
        cdef Record record = self.dropped() if self.count > FEW_RECORDS else None
        if self.i >= self.count:
            return None
        if self.stops != scan.stops:
            raise RuntimeError("the scan has moved on to another batch; the records of this one are no longer there")
        row = &scan.rows.rows[self.i]
        self.i += 1
        if record is None:
            record = new_record(scan.rows_base, scan.rows_source, &scan.h, row)
        else:
            fill_record(record, scan.rows_base, scan.rows_source, &scan.h, row)
        if self.count > FEW_RECORDS:
            self.before = self.last
            self.last = record
        return record

    cdef Record dropped(self):
        """The record before the last one, for another row, if only this iterator still holds it; otherwise None.

        Its parts are dropped. The last record does not serve, because a loop's variable still holds that one. Using a
        record again takes a fifth less time than freeing it and making another.
        """
        cdef Record record = self.before
        self.before = None
        if record is None or Py_REFCNT(<PyObject *> record) > 1:
            return None
        # This may run `__del__` of an object that was set in the record, and so code that uses this iterator.
        drop_parts(record)
        return record

    cdef int next_batch(self) except -1:
        """Continue to the next batch that has records to return; 0 if there is none."""
        cdef int stop = self.scan.next_stop()
        cdef PyObject *going
        if stop == AT_BATCH and self.scan.report.count == 0:
            return 1
        if stop == AT_END:
            self.state = FINISHED
            return 0
        self.state = LOOKING
        # The exception goes to the caller uncaught: catching it needs memory, and there may be none.
        going = PyObject_CallOneArg(self.handle_stop, stop)
        if going == NULL:
            self.state = FINISHED
            return -1
        self.state = READING if <object> going is True else FINISHED
        Py_DECREF(<object> going)
        return self.state == READING


cdef EachRecord each_record(Scan scan, object handle_stop):
    """An iterator for compiled callers; calling the type takes three times as long."""
    cdef EachRecord records = EachRecord.__new__(EachRecord)
    records.open(scan, handle_stop)
    return records
