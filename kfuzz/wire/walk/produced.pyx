"""The rules of a broker for a Produce request; produced.pyi describes the interface.

Mirrors ``org.apache.kafka.common.requests.ProduceRequest.validateRecords``, then the checks of ``UnifiedLog``, then
``LogValidator``.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t

from kfuzz.wire.io.cursor cimport load64
from kfuzz.wire.io.format cimport (
    AT_ATTRIBUTES,
    AT_BASE_OFFSET,
    AT_BASE_SEQUENCE,
    AT_BATCH_LENGTH,
    AT_LAST_OFFSET_DELTA,
    AT_MAGIC,
    AT_PRODUCER_EPOCH,
    AT_PRODUCER_ID,
    AT_RECORD_COUNT,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LAST_MAGIC,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
)
from kfuzz.wire.io.report cimport (
    BASE_OFFSET_NOT_ZERO,
    BASE_SEQUENCE_NEGATIVE,
    BATCH_COUNT_NOT_ONE,
    BATCH_TOO_LARGE,
    COMPRESSED_OFFSET_DELTA_NOT_INDEX,
    CONTROL_BATCH_PRODUCED,
    DELETE_HORIZON_PRODUCED,
    F_ATTRIBUTES,
    F_BASE_OFFSET,
    F_BASE_SEQUENCE,
    F_BATCH_LENGTH,
    F_KEY,
    F_LAST_OFFSET_DELTA,
    F_LENGTH,
    F_MAGIC,
    F_NONE,
    F_OFFSET_DELTA,
    F_PRODUCER_EPOCH,
    F_PRODUCER_ID,
    F_RECORD_COUNT,
    F_TIMESTAMP_DELTA,
    KEY_MISSING,
    LAST_OFFSET_DELTA_NOT_COUNT,
    LOG_APPEND_TIME_PRODUCED,
    MAGIC_NOT_PRODUCED,
    MAX_TIMESTAMP_NOT_MAXIMUM,
    OFFSET_DELTA_NOT_INDEX,
    PRODUCER_FIELDS_WITHOUT_ID,
    RECORD_COUNT_ZERO,
    RECORD_TOO_LARGE,
    REQUEST_TOO_LARGE,
    TIMESTAMP_OUT_OF_RANGE,
    TIMESTAMP_TYPE_NOT_CREATE,
    TRANSACTIONAL_WITHOUT_ID,
    note,
    report_t,
)
from kfuzz.wire.records.framing cimport get_frame
from kfuzz.wire.records.record_batch cimport header_t, row_t
from kfuzz.wire.walk.policy cimport Policy, batch_t


cdef inline int64_t minus(int64_t a, int64_t b) noexcept nogil:
    """``a - b``, which wraps around as in Java."""
    return <int64_t> (<uint64_t> a - <uint64_t> b)


@cython.final
cdef class ProduceRules(Policy):
    def __init__(self, *, int64_t now, int64_t timestamp_before_max_ms, int64_t timestamp_after_max_ms,
                 int64_t max_message_bytes, int64_t max_request_bytes, int64_t max_record_bytes, bint compacted,
                 bint create_time, int kept_codec):
        self.reads_rows = self.skims = True
        self.topic = topic_t(now, timestamp_before_max_ms, timestamp_after_max_ms, max_message_bytes, max_request_bytes,
                             max_record_bytes, compacted, create_time, kept_codec)

    cdef bint keeps(self, int codec) noexcept nogil:
        """Whether a payload of this codec is stored unchanged. Its records are then only skimmed."""
        return self.topic.kept_codec < 0 or codec == self.topic.kept_codec

    def keeps_codec(self, int codec):
        return self.keeps(codec)

    cdef bint data(self, const uint8_t *p, int64_t n, report_t *report) noexcept nogil:
        cdef int64_t at = 0
        cdef int64_t size
        cdef int64_t batches = 0
        cdef int magic
        while True:
            size = get_frame(p, at, n, &magic, report)
            if size <= 0:
                break
            at += size
            batches += 1
        if size < 0:
            return False
        if n > self.topic.max_request_bytes:
            note(report, REQUEST_TOO_LARGE, F_NONE, 0, -1, -1, n, self.topic.max_request_bytes)
        if batches != 1:
            note(report, BATCH_COUNT_NOT_ONE, F_NONE, 0, -1, -1, batches, 0)
        return report.count == 0

    cdef bint frame(self, const uint8_t *p, int64_t size, int magic, report_t *report) noexcept nogil:
        cdef int64_t base_offset = <int64_t> load64(p + AT_BASE_OFFSET)
        if magic != LAST_MAGIC:
            note(report, MAGIC_NOT_PRODUCED, F_MAGIC, AT_MAGIC, -1, -1, magic, LAST_MAGIC)
            return False
        if base_offset != 0:
            note(report, BASE_OFFSET_NOT_ZERO, F_BASE_OFFSET, AT_BASE_OFFSET, -1, -1, base_offset, 0)
        if size > self.topic.max_message_bytes:
            note(report, BATCH_TOO_LARGE, F_BATCH_LENGTH, AT_BATCH_LENGTH, -1, -1, size, self.topic.max_message_bytes)
        return report.count == 0

    cdef bint header(self, const header_t *h, report_t *report) noexcept nogil:
        cdef int32_t count = h.record_count
        cdef bint is_good
        if count == 0:
            note(report, RECORD_COUNT_ZERO, F_RECORD_COUNT, AT_RECORD_COUNT, -1, -1, count, 0)
        elif count > 0 and h.last_offset_delta != count - 1:
            note(report, LAST_OFFSET_DELTA_NOT_COUNT, F_LAST_OFFSET_DELTA, AT_LAST_OFFSET_DELTA, -1, -1,
                 h.last_offset_delta, count - 1)
        if h.attributes & CONTROL:
            note(report, CONTROL_BATCH_PRODUCED, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, h.attributes & 0xffff, 0)
        if h.producer_id >= 0 and h.base_sequence < 0:
            note(report, BASE_SEQUENCE_NEGATIVE, F_BASE_SEQUENCE, AT_BASE_SEQUENCE, -1, -1, h.base_sequence,
                 h.producer_id)
        is_good = report.count == 0
        self.documented(h, report)
        return is_good

    cdef void documented(self, const header_t *h, report_t *report) noexcept nogil:
        """Rules of the documents for a producer that Kafka's broker does not check."""
        if h.attributes & LOG_APPEND_TIME:
            note(report, TIMESTAMP_TYPE_NOT_CREATE, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, h.attributes & 0xffff, 0)
        if h.attributes & DELETE_HORIZON:
            note(report, DELETE_HORIZON_PRODUCED, F_ATTRIBUTES, AT_ATTRIBUTES, -1, -1, h.attributes & 0xffff, 0)
        if h.producer_id >= 0:
            return
        if h.attributes & TRANSACTIONAL:
            note(report, TRANSACTIONAL_WITHOUT_ID, F_PRODUCER_ID, AT_PRODUCER_ID, -1, -1, h.producer_id, 0)
        if h.producer_id != -1:
            note(report, PRODUCER_FIELDS_WITHOUT_ID, F_PRODUCER_ID, AT_PRODUCER_ID, -1, -1, h.producer_id, -1)
        elif h.producer_epoch != -1:
            note(report, PRODUCER_FIELDS_WITHOUT_ID, F_PRODUCER_EPOCH, AT_PRODUCER_EPOCH, -1, -1, h.producer_epoch, -1)
        elif h.base_sequence != -1:
            note(report, PRODUCER_FIELDS_WITHOUT_ID, F_BASE_SEQUENCE, AT_BASE_SEQUENCE, -1, -1, h.base_sequence, -1)

    cdef bint batch(self, const batch_t *b, report_t *report) noexcept nogil:
        """Check the records. All notes have the place of the first record."""
        cdef const header_t *h = b.header
        cdef const row_t *row
        cdef bint log_append = h.attributes & LOG_APPEND_TIME
        cdef int64_t at = 0 if b.codec else HEADER_SIZE
        cdef int64_t timestamp = h.max_timestamp
        cdef int64_t largest = INT64_MIN
        cdef int64_t i
        cdef int of_offset = OFFSET_DELTA_NOT_INDEX
        if b.codec and self.keeps(b.codec):
            of_offset = COMPRESSED_OFFSET_DELTA_NOT_INDEX
        for i in range(b.rows.count):
            row = &b.rows.rows[i]
            if not log_append:
                timestamp = <int64_t> (<uint64_t> h.base_timestamp + <uint64_t> row.timestamp_delta)
            largest = max(largest, timestamp)
            # A broker does not check the record size of uncompressed batches.
            if b.codec and row.length > self.topic.max_record_bytes:
                note(report, RECORD_TOO_LARGE, F_LENGTH, at, i, -1, row.length, self.topic.max_record_bytes)
            if self.topic.compacted and row.key_length < 0:
                note(report, KEY_MISSING, F_KEY, at, i, -1, 0, 0)
            elif self.topic.create_time and timestamp != -1:
                self.timestamp(timestamp, at, i, report)
            elif log_append:
                note(report, LOG_APPEND_TIME_PRODUCED, F_TIMESTAMP_DELTA, at, i, -1, timestamp, 0)
            if row.offset_delta != i:
                note(report, of_offset, F_OFFSET_DELTA, at, i, -1,
                     <int64_t> (<uint64_t> h.base_offset + <uint64_t> row.offset_delta), i)
        if b.rows.count:
            self.largest_timestamp = largest
            if not log_append and h.max_timestamp != largest:
                # The field is in the header, but the place of this note is not, so it names no field.
                note(report, MAX_TIMESTAMP_NOT_MAXIMUM, F_NONE, at, -1, -1, h.max_timestamp, largest)
        return True

    cdef void timestamp(self, int64_t timestamp, int64_t at, int64_t i, report_t *report) noexcept nogil:
        """Note a timestamp that is too far from the broker's clock."""
        cdef int64_t limit
        cdef int64_t age = minus(self.topic.now, timestamp)
        if age > self.topic.before_max_ms or minus(0, age) > self.topic.after_max_ms:
            if timestamp < self.topic.now:
                limit = minus(self.topic.now, self.topic.before_max_ms)
            else:
                limit = <int64_t> (<uint64_t> self.topic.now + <uint64_t> self.topic.after_max_ms)
            note(report, TIMESTAMP_OUT_OF_RANGE, F_TIMESTAMP_DELTA, at, i, -1, timestamp, limit)


cdef ProduceRules rules_like(ProduceRules rules):
    """The same rules for another walk. Calling the class would take ten times as long."""
    cdef ProduceRules made = ProduceRules.__new__(ProduceRules)
    made.reads_rows = made.skims = True
    made.topic = rules.topic
    return made
