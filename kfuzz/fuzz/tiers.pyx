"""The first tier of a campaign; tiers.pyi describes the interface.

All of it is compiled: it compares the compiled loops with each other, and calls no Python code unless they differ.
"""

import ctypes
import sys

from cpython.buffer cimport PyBUF_READ
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.ref cimport Py_INCREF
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcmp, memcpy, memset

from kfuzz.errors import EncodeError
from kfuzz.fuzz.messages import NOT_ODD, SELECTOR_SIZE
from kfuzz.fuzz.oracle import MemoryRefused, OracleFailure

from kfuzz.wire.columns.reader cimport HEADER_KEYS, HEADER_VALUES, KEYS, VALUES, Columns, views_t
from kfuzz.wire.columns.writer cimport KFUZZ_INLINE_BYTES, KFUZZ_VIEWS, ColumnWriter, column_t, fault_t
from kfuzz.wire.io.checksum cimport crc32_of, crc32c_of, plain_crc32_of, plain_crc32c_of
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_MAGIC,
    CODEC_MASK,
    HEADER_SIZE,
    LAST_MAGIC,
    LOG_APPEND_TIME,
)
from kfuzz.wire.io.report cimport note_t, report_t
from kfuzz.wire.records.batch_writer cimport seal
from kfuzz.wire.records.record_batch cimport header_row_t, header_t, row_t, rows_t
from kfuzz.wire.walk.policy cimport Policy
from kfuzz.wire.walk.produced cimport ProduceRules, rules_like
from kfuzz.wire.walk.scan cimport AT_BATCH, AT_END, AT_PAYLOAD, Scan, open_scan

from kfuzz.kafka import INDEX_INTERVAL_BYTES
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.wire.columns.writer import WIDE
from kfuzz.wire.walk.segment import SegmentRules

cdef Py_ssize_t SELECTOR_BYTES = SELECTOR_SIZE
# The broker's rules; reading what they say of a topic takes longer than a small batch.
cdef ProduceRules PRODUCED = DEFAULT_TOPIC.rules()

cdef extern from "coverage.h":
    ctypedef struct region_t "kfuzz_region":
        const uint8_t *counters
        int64_t n
        uint8_t *seen
    ctypedef struct tally_t "kfuzz_tally":
        int64_t inputs
        int64_t twice
    bint is_new_coverage "kfuzz_is_new"(const region_t *regions, int64_t count)
    int kfuzz_tell_at_exit(const tally_t *tally)

cdef extern from "allocations.h":
    void kfuzz_refuse_above(size_t size)
    size_t kfuzz_refused()

cdef bint HAS_WIDE = WIDE

cdef enum:
    # A payload that grows larger is left to the second tier.
    PAYLOAD_BYTES_MAX = 64 * 1024
    BUFFERS_MAX = 64
    # The weights of inputs, and their sum between two that meet the second tier. UNJUDGED: the first tier
    # cannot judge it to its end. DOUBTFUL: only the second tier can decide whether it shows a fault.
    JUDGED = 1
    UNJUDGED = 2
    DOUBTFUL = 16
    TURN = 128
    # One in so many inputs is a sample. Another reader then takes about as long as the fuzzer.
    SAMPLED_EACH = 16

SAMPLED = SAMPLED_EACH


# --- the coverage so far --------------------------------------------------------------------------------------------


# The rooms that read and write records.
WATCHED = ("kfuzz.wire.io", "kfuzz.wire.records", "kfuzz.wire.columns", "kfuzz.wire.walk")


cdef class Coverage:
    """The coverage of the inputs so far in the compiled modules. Without native coverage nothing is ever new."""

    cdef region_t *regions
    cdef int64_t count

    def __init__(self, *folders):
        """``folders``: the packages whose modules are watched, without their packages."""
        cdef int64_t i = 0
        modules = [module for name, module in sys.modules.items() if name.rpartition(".")[0] in folders]
        found = [region for module in modules if (region := counters_of(module)) is not None]
        self.regions = <region_t *> PyMem_Malloc(<size_t> (len(found) + 1) * sizeof(region_t))
        if self.regions == NULL:
            raise MemoryError
        for first, last in found:
            self.regions[i].counters = <const uint8_t *> <uintptr_t> first
            self.regions[i].n = last - first
            self.regions[i].seen = <uint8_t *> PyMem_Malloc(<size_t> (last - first))
            if self.regions[i].seen == NULL:
                raise MemoryError
            memset(self.regions[i].seen, 0, <size_t> (last - first))
            i += 1
            self.count = i

    def __dealloc__(self):
        cdef int64_t i
        for i in range(self.count):
            PyMem_Free(self.regions[i].seen)
        PyMem_Free(self.regions)

    cdef bint is_new(self) noexcept:
        """Whether this input has reached something for the first time."""
        return is_new_coverage(self.regions, self.count)


def counters_of(module):
    """The addresses of the module's first counter and after its last one. None if it has no counters."""
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.endswith(".so"):
        return None
    try:
        first, last = (ctypes.c_void_p * 2).in_dll(ctypes.PyDLL(path), "kfuzz_counters")
    except ValueError:
        return None
    return (first, last) if first and last and first < last else None


# --- the first tier of each target ----------------------------------------------------------------------------------


cdef class First:
    """A first tier that cannot judge anything. ``weigh`` checks an input and returns its weight."""

    # The packages in which the first tier reads and writes: their coverage is what decides.
    cdef tuple folders

    def __cinit__(self):
        self.folders = WATCHED

    cdef int weigh(self, bytes data) except -1:
        return UNJUDGED


cdef str said(int stop, Scan scan):
    return f"stop {stop} with {scan.size} bytes and {scan.found} records, findings {scan.notes()}"


cdef bint same_notes(const report_t *one, const report_t *other) noexcept nogil:
    cdef const note_t *a
    cdef const note_t *b
    cdef int32_t i
    if one.count != other.count:
        return False
    for i in range(one.count):
        a = &one.notes[i]
        b = &other.notes[i]
        if (a.code != b.code or a.field != b.field or a.at != b.at or a.record != b.record or a.header != b.header
                or a.found != b.found or a.allowed != b.allowed or a.count != b.count):
            return False
    return True


cdef int compare(str what, int state, Scan scan, int expected, Scan rows) except -1:
    """Both scans stop in the same way at a batch of the same size, with the same findings."""
    if (state != expected or scan.size != rows.size or scan.magic != rows.magic or scan.found != rows.found
            or not same_notes(scan.report, rows.report)):
        raise OracleFailure(f"{what} differs from the rows, at byte {rows.at}: {said(state, scan)}; "
                            f"{said(expected, rows)}")
    return 0


cdef int compare_verdict(str what, Scan whole, int expected, Scan rows) except -1:
    """The verdict alone continues to where the rows have stopped, and has counted the same."""
    cdef int state = whole.advance()
    whole.require_memory()
    compare(what, state, whole, expected, rows)
    if whole.at != rows.at or whole.batch_count != rows.batch_count or whole.record_count != rows.record_count:
        raise OracleFailure(f"{what} counts {whole.batch_count} batches with {whole.record_count} records up to byte "
                            f"{whole.at}; with rows {rows.batch_count}, {rows.record_count}, {rows.at}")
    return 0


cdef uint8_t *copy_of(const uint8_t *p, int64_t n) except NULL:
    """The bytes in memory of exactly their size, so that a sanitizer sees an over-read by one byte."""
    cdef uint8_t *copy = <uint8_t *> PyMem_Malloc(<size_t> n)
    if copy == NULL:
        raise MemoryError
    memcpy(copy, p, <size_t> n)
    return copy


cdef bint same_rows(const rows_t *one, const rows_t *other) noexcept nogil:
    if one.count != other.count or one.header_count != other.header_count:
        return False
    if one.count and memcmp(one.rows, other.rows, <size_t> one.count * sizeof(row_t)):
        return False
    return not one.header_count or not memcmp(one.headers, other.headers,
                                              <size_t> one.header_count * sizeof(header_row_t))


cdef inline bint is_inside(int64_t at, int64_t length, int64_t n) noexcept nogil:
    return length < 0 or 0 <= at and length <= n - at


cdef bint rows_are_inside(const rows_t *rows, int64_t n) noexcept nogil:
    """Whether all keys, values and headers lie in the ``n`` bytes that the rows are of."""
    cdef const row_t *row
    cdef const header_row_t *header
    cdef int64_t i
    for i in range(rows.count):
        row = &rows.rows[i]
        if not (is_inside(row.key_at, row.key_length, n) and is_inside(row.value_at, row.value_length, n)):
            return False
    for i in range(rows.header_count):
        header = &rows.headers[i]
        if not (is_inside(header.key_at, header.key_length, n) and is_inside(header.value_at, header.value_length, n)):
            return False
    return True


cdef class Records(First):
    """The promises for record batches, also as a broker or a log reads them if ``role`` says so.

    Verdict, rows and columns stop at the same bytes with the same findings and count the same records. A batch by
    itself gives the same rows. The loops for wide registers and the portable ones write the same bytes and CRCs.
    Columns of a sound uncompressed batch are written as the bytes that they were read from.
    """

    cdef Scan whole
    cdef Scan rows
    cdef Scan tabled
    cdef Scan alone
    cdef Columns table
    cdef ColumnWriter writer
    cdef str role
    cdef str verdict_alone
    # The memory of the last written batch.
    cdef uint8_t *made
    cdef int64_t capacity
    cdef const uint8_t *starts[BUFFERS_MAX]
    cdef int64_t sizes[BUFFERS_MAX]

    def __init__(self, str role="consumer"):
        self.role = role
        self.verdict_alone = f"as {role} the verdict alone"
        self.table = Columns(0)
        self.writer = ColumnWriter.__new__(ColumnWriter)
        self.whole = Scan(b"", False)
        self.rows = Scan(b"", True, with_headers=True)
        self.alone = Scan(b"", True, with_headers=True)
        self.tabled = Scan(b"", True, with_headers=True, columns=self.table)

    def __dealloc__(self):
        PyMem_Free(self.made)

    cdef int weigh(self, bytes data) except -1:
        cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(data)
        cdef int64_t n = PyBytes_GET_SIZE(data)
        cdef bint is_judged = self.consumer_passes(p, n)
        if self.role != "consumer":
            is_judged = self.role_passes(data) and is_judged
        return JUDGED if is_judged else UNJUDGED

    cdef bint consumer_passes(self, const uint8_t *p, int64_t n) except -1:
        cdef Scan rows = self.rows
        cdef Scan whole = self.whole
        cdef int state
        self.table.clear()
        whole.begin_at(p, n, False, PAYLOAD_BYTES_MAX)
        rows.begin_at(p, n, True, PAYLOAD_BYTES_MAX)
        self.tabled.begin_at(p, n, True, PAYLOAD_BYTES_MAX)
        while True:
            state = rows.advance()
            rows.require_memory()
            if state != AT_END and rows.size > 0:
                self.check_crc(p + rows.at, rows.size, rows.magic)
                self.check_alone(p, state)
            self.check_columns(p, n, state)
            # The verdict alone stops only where there is something to say.
            if state != AT_BATCH or rows.report.count:
                compare_verdict(self.verdict_alone, whole, state, rows)
            if state != AT_BATCH:
                return state != AT_PAYLOAD

    cdef int check_crc(self, const uint8_t *p, int64_t size, int magic) except -1:
        cdef int64_t at = AT_ATTRIBUTES if magic == LAST_MAGIC else AT_MAGIC
        cdef bint same
        p += at
        size -= at
        if magic == LAST_MAGIC:
            same = crc32c_of(p, size) == plain_crc32c_of(p, size)
        else:
            same = crc32_of(p, size) == plain_crc32_of(p, size)
        if not same:
            raise OracleFailure(f"the fast CRC of a batch of magic {magic} differs from the portable one")
        return 0

    cdef int check_alone(self, const uint8_t *p, int state) except -1:
        """Read the batch from memory of its own."""
        cdef Scan rows = self.rows
        cdef Scan alone = self.alone
        cdef uint8_t *copy = copy_of(p + rows.at, rows.size)
        cdef int other
        alone.begin_at(copy, rows.size, True, PAYLOAD_BYTES_MAX)
        try:
            other = alone.advance()
            alone.require_memory()
            compare("the batch by itself", other, alone, state, rows)
            if state == AT_BATCH:
                if not same_rows(&alone.rows, &rows.rows):
                    raise OracleFailure(f"the batch at byte {rows.at} has other rows by itself")
                if not rows_are_inside(&rows.rows, rows.decompressor.size if rows.in_decompressor else rows.size):
                    raise OracleFailure(f"a row of the batch at byte {rows.at} lies outside its bytes")
        finally:
            PyMem_Free(copy)
        return 0

    cdef int check_columns(self, const uint8_t *p, int64_t n, int state) except -1:
        cdef Scan tabled = self.tabled
        cdef Scan rows = self.rows
        cdef int64_t before = self.table.count
        cdef int64_t shift
        cdef int other = tabled.advance()
        tabled.require_memory()
        compare("columns", other, tabled, state, rows)
        if state != AT_BATCH or rows.rows.count == 0:
            return 0
        if not same_rows(&tabled.rows, &rows.rows):
            raise OracleFailure(f"the batch at byte {rows.at} has other rows for columns")
        shift = 0 if rows.in_decompressor else rows.at
        if not self.has_rows(before, shift):
            raise OracleFailure(f"the columns of the batch at byte {rows.at} differ from its rows")
        if (rows.magic == LAST_MAGIC and not rows.in_decompressor and rows.report.count == 0
                and not rows.h.attributes & (LOG_APPEND_TIME | CODEC_MASK) and self.table.buffer < BUFFERS_MAX):
            self.starts[self.table.buffer], self.sizes[self.table.buffer] = p, n
            self.check_written(p, before)
        return 0

    cdef bint has_rows(self, int64_t before, int64_t shift) noexcept:
        """Whether the columns, from row ``before`` on, have the rows of this batch."""
        cdef Columns table = self.table
        cdef Scan scan = self.tabled
        cdef const rows_t *rows = &scan.rows
        cdef const row_t *row
        cdef int64_t timestamp
        cdef int64_t i
        cdef int64_t k = table.views[HEADER_KEYS].count - rows.header_count
        cdef int64_t first_header = k
        if table.count != before + rows.count or k < 0:
            return False
        for i in range(rows.count):
            row = &rows.rows[i]
            timestamp = scan.h.max_timestamp
            if not scan.h.attributes & LOG_APPEND_TIME:
                timestamp = <int64_t> (<uint64_t> scan.h.base_timestamp + <uint64_t> row.timestamp_delta)
            k += row.header_count
            if (table.offsets[before + i] != <int64_t> (<uint64_t> scan.h.base_offset + <uint64_t> row.offset_delta)
                    or table.timestamps[before + i] != timestamp or table.batches[before + i] != scan.batch_count
                    or table.header_ends[before + i + 1] != k
                    or not self.has_view(KEYS, before + i, row.key_at, row.key_length, shift)
                    or not self.has_view(VALUES, before + i, row.value_at, row.value_length, shift)):
                return False
        for i in range(rows.header_count):
            if (not self.has_view(HEADER_KEYS, first_header + i, rows.headers[i].key_at, rows.headers[i].key_length,
                                  shift)
                    or not self.has_view(HEADER_VALUES, first_header + i, rows.headers[i].value_at,
                                         rows.headers[i].value_length, shift)):
                return False
        return True

    cdef bint has_view(self, int which, int64_t i, int32_t at, int32_t length, int64_t shift) noexcept:
        """Whether entry ``i`` of a column has these bytes of the batch, or null if their length is negative."""
        cdef const views_t *views = &self.table.views[which]
        cdef const uint8_t *view = <const uint8_t *> (views.views + 2 * i)
        cdef const uint8_t *p = self.tabled.rows_base + at
        cdef int64_t n = max(length, 0)
        if (<bint> (views.bits[i >> 6] >> (i & 63) & 1) != (length >= 0)
                or (<const uint32_t *> view)[0] != <uint64_t> n):
            return False
        if n <= KFUZZ_INLINE_BYTES:
            return not n or not memcmp(view + 4, p, <size_t> n)
        return (not memcmp(view + 4, p, 4) and (<const uint32_t *> view)[2] == <uint32_t> self.table.buffer
                and (<const uint32_t *> view)[3] == <uint32_t> (shift + at))

    cdef int check_written(self, const uint8_t *p, int64_t before) except -1:
        """Write the batch's columns again, by both loops: they have no findings, so the bytes must be the same."""
        cdef ColumnWriter writer = self.writer
        cdef Scan rows = self.rows
        cdef Columns table = self.table
        cdef header_t h
        cdef fault_t fault
        cdef int64_t largest
        cdef int64_t room
        cdef bint wide
        cdef uint8_t *end
        self.column(&writer.table.keys, KEYS)
        self.column(&writer.table.values, VALUES)
        self.column(&writer.table.header_keys, HEADER_KEYS)
        self.column(&writer.table.header_values, HEADER_VALUES)
        writer.table.timestamps = <const uint8_t *> table.timestamps
        writer.table.offsets = <const uint8_t *> table.offsets
        writer.table.header_ends = <const uint8_t *> table.header_ends
        writer.length = table.count
        room = HEADER_SIZE + writer.room(before, table.count)
        if room > self.capacity:
            PyMem_Free(self.made)
            self.capacity = 0
            self.made = <uint8_t *> PyMem_Malloc(<size_t> room)
            if self.made == NULL:
                raise MemoryError
            self.capacity = room
        for wide in (True, False):
            writer.wide = wide and HAS_WIDE
            h = rows.h
            end = writer.put_batch(self.made + HEADER_SIZE, self.made + room, before, table.count, h.base_offset,
                                   h.base_timestamp, &largest, &fault)
            if end != NULL:
                seal(self.made, end - self.made, &h)
            if end == NULL or end - self.made != rows.size or memcmp(self.made, p + rows.at, <size_t> rows.size):
                written = "" if end == NULL else self.made[:end - self.made].hex()
                raise OracleFailure(f"canonical bytes change: {(p + rows.at)[:rows.size].hex()} becomes {written!r}")
        return 0

    cdef void column(self, column_t *column, int which) noexcept:
        """Describe a column of the table to its writer."""
        cdef const views_t *views = &self.table.views[which]
        column.kind = KFUZZ_VIEWS
        column.valid = <const uint8_t *> views.bits if views.nulls else NULL
        column.first_bit = 0
        column.places = <const uint8_t *> views.views
        column.rows = views.count
        column.data = self.starts
        column.sizes = self.sizes
        column.data_count = self.table.buffer + 1

    cdef bint role_passes(self, bytes data) except -1:
        """A broker's or a log's rules, up to the first batch with a finding: the verdict alone and the rows stop at the
        same byte with the same findings.
        """
        cdef Scan whole = open_scan(data, False, self.rules(), PAYLOAD_BYTES_MAX)
        cdef Scan rows = open_scan(data, True, self.rules(), PAYLOAD_BYTES_MAX)
        cdef int state = AT_BATCH
        while state == AT_BATCH and rows.report.count == 0:
            state = rows.advance()
            rows.require_memory()
        compare_verdict(self.verdict_alone, whole, state, rows)
        return state != AT_PAYLOAD

    cdef Policy rules(self):
        if self.role == "broker":
            return rules_like(PRODUCED)
        return SegmentRules(INDEX_INTERVAL_BYTES)


cdef class Packed(Records):
    """The same for a batch that ``pack`` compresses first. ``pack`` returns None if the input cannot be compressed."""

    cdef object pack

    def __init__(self, pack):
        Records.__init__(self)
        self.pack = pack

    cdef int weigh(self, bytes data) except -1:
        cdef bytes packed = self.pack(data)
        return JUDGED if packed is None else Records.weigh(self, packed)


cdef class Messages(First):
    """The promises for messages: check and the reader end at the same byte with the same notes, and a message without
    notes (but of unknown tags) is written as the bytes that it was read from.

    ``schema_of`` returns the schema of the message that an input selects, or None.
    """

    cdef object schema_of

    def __init__(self, schema_of):
        self.schema_of = schema_of
        self.folders = ("kfuzz.wire.messages",)

    cdef int weigh(self, bytes data) except -1:
        cdef object schema = self.schema_of(data)
        cdef bytes body
        cdef int64_t n
        cdef uint8_t *copy
        cdef int doubt
        if schema is None:
            return JUDGED
        body = data[SELECTOR_BYTES:]
        n = len(body)
        copy = copy_of(<const uint8_t *> PyBytes_AS_STRING(body), n)
        try:
            checked = schema.check(PyMemoryView_FromMemory(<char *> copy, n, PyBUF_READ))
        finally:
            PyMem_Free(copy)
        end, notes, values = schema.decode(body)
        if checked != (end, notes):
            raise OracleFailure(f"check says {checked!r}, decode {(end, notes)!r}")
        if values is None:
            return JUDGED
        for note in notes:
            if note[0] not in NOT_ODD:
                return JUDGED
        # Tagged fields with their default value are not written; the second tier counts them. Unknown tags are common
        # in mutants, and the second tier takes a thousand times as long.
        doubt = UNJUDGED if notes else DOUBTFUL
        try:
            written = schema.encode(values)
        except EncodeError:
            return doubt
        if written == body[:end]:
            return JUDGED
        # The written bytes are read and written again unchanged.
        again, _, values = schema.decode(written)
        if again != len(written) or values is None or schema.encode(values) != written:
            raise OracleFailure(f"a message is written as {written.hex()}, which reads and writes as another")
        return doubt


# --- both tiers -----------------------------------------------------------------------------------------------------


cdef class Tiers:
    """Both tiers of a target, as the function that a fuzzer calls; tiers.pyi describes it."""

    cdef First first
    cdef Coverage coverage
    cdef object second
    cdef object report
    cdef object sample
    cdef bint all_twice
    # The second tier's next turn comes when this reaches TURN.
    cdef int64_t waited
    cdef tally_t tally

    def __init__(self, First first not None, second, bint all_twice=False, report=None, sample=None):
        self.first = first
        self.second = second
        self.report = report
        self.sample = sample
        self.all_twice = all_twice
        self.coverage = Coverage(*first.folders)

    def __call__(self, bytes data not None):
        if self.report is None:
            self._judge(data)
            return
        try:
            self._judge(data)
        except Exception as error:
            self.report(data, error)

    cdef int _judge(self, bytes data) except -1:
        cdef bint is_due = self.all_twice
        cdef size_t refused
        self.waited += self.first.weigh(data)
        self.tally.inputs += 1
        if self.waited >= TURN:
            self.waited = 0
            is_due = True
        if self.coverage.is_new() or is_due:
            self.tally.twice += 1
            self.second(data)
        refused = kfuzz_refused()
        if refused:
            raise MemoryRefused(f"asked for {refused} bytes at once, for an input of {len(data)}")
        if self.sample is not None and self.tally.inputs % SAMPLED_EACH == 0:
            self.sample(data)
        return 0

    @property
    def inputs(self):
        return self.tally.inputs

    @property
    def inputs_twice(self):
        return self.tally.twice

    def tell_at_exit(self):
        # The tally must stay where it is.
        Py_INCREF(self)
        kfuzz_tell_at_exit(&self.tally)


def refuse_allocations_above(size_t size_bytes):
    kfuzz_refuse_above(size_bytes)
