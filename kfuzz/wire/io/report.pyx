"""The names of finding codes and fields, and the conversion of a C report to Python tuples."""

cdef extern from "limits.h":
    int INT_MAX

# code_t → the stable kebab-case code. kfuzz/findings/records.py says what a code means and for whom it is fatal.
CODES = {
    BATCH_LENGTH_BELOW_MINIMUM: "batch-length-below-minimum",
    BATCH_LENGTH_TOO_LARGE: "batch-length-too-large",
    MAGIC_UNKNOWN: "magic-unknown",
    CRC_MISMATCH: "crc-mismatch",
    ATTRIBUTES_UNUSED_BITS: "attributes-unused-bits",
    CODEC_UNKNOWN: "codec-unknown",
    BASE_OFFSET_NEGATIVE: "base-offset-negative",
    LAST_OFFSET_DELTA_NEGATIVE: "last-offset-delta-negative",
    MAX_TIMESTAMP_BELOW_RECORDS: "max-timestamp-below-records",
    RECORD_COUNT_NEGATIVE: "record-count-negative",
    RECORD_COUNT_TOO_HIGH: "record-count-too-high",
    RECORD_COUNT_TOO_LOW: "record-count-too-low",
    PAYLOAD_WITHOUT_RECORDS: "payload-without-records",
    DECOMPRESSION_FAILED: "decompression-failed",
    DECOMPRESSED_SIZE_EXCEEDED: "decompressed-size-exceeded",
    BYTES_AFTER_COMPRESSED_STREAM: "bytes-after-compressed-stream",
    COMPRESSED_CONTENT_MISMATCH: "compressed-content-mismatch",
    VARINT_TOO_LONG: "varint-too-long",
    VARINT_OVERLONG: "varint-overlong",
    VARINT_EXCESS_BITS: "varint-excess-bits",
    RECORD_LENGTH_NEGATIVE: "record-length-negative",
    RECORD_LENGTH_EXCEEDS_PAYLOAD: "record-length-exceeds-payload",
    RECORD_LENGTH_MISMATCH: "record-length-mismatch",
    RECORD_TRUNCATED: "record-truncated",
    RECORD_ATTRIBUTES_NONZERO: "record-attributes-nonzero",
    TIMESTAMP_OVERFLOW: "timestamp-overflow",
    OFFSET_OVERFLOW: "offset-overflow",
    OFFSET_DELTA_NEGATIVE: "offset-delta-negative",
    OFFSET_DELTA_NOT_INCREASING: "offset-delta-not-increasing",
    OFFSET_DELTA_BEYOND_LAST: "offset-delta-beyond-last",
    LENGTH_BELOW_MINUS_ONE: "length-below-minus-one",
    LENGTH_EXCEEDS_RECORD: "length-exceeds-record",
    HEADER_COUNT_NEGATIVE: "header-count-negative",
    HEADER_COUNT_EXCEEDS_RECORD: "header-count-exceeds-record",
    HEADER_KEY_NULL: "header-key-null",
    HEADER_KEY_NOT_UTF8: "header-key-not-utf8",
    HEADER_KEY_NULL_CHARACTER: "header-key-null-character",
    CONTROL_RECORD_COUNT: "control-record-count",
    CONTROL_KEY_INVALID: "control-key-invalid",
    MESSAGE_TRUNCATED: "message-truncated",
    BYTES_AFTER_MESSAGE: "bytes-after-message",
    CODEC_NOT_ALLOWED: "codec-not-allowed",
    WRAPPER_CRC_MISMATCH: "wrapper-crc-mismatch",
    WRAPPER_VALUE_NULL: "wrapper-value-null",
    WRAPPER_EMPTY: "wrapper-empty",
    WRAPPER_NESTED: "wrapper-nested",
    WRAPPER_OFFSET_TOO_LOW: "wrapper-offset-too-low",
    INNER_MAGIC_MISMATCH: "inner-magic-mismatch",
    INNER_PARTIAL_TAIL: "inner-partial-tail",
    REQUEST_TOO_LARGE: "request-too-large",
    BATCH_COUNT_NOT_ONE: "batch-count-not-one",
    MAGIC_NOT_PRODUCED: "magic-not-produced",
    BASE_OFFSET_NOT_ZERO: "base-offset-not-zero",
    BATCH_TOO_LARGE: "batch-too-large",
    RECORD_COUNT_ZERO: "record-count-zero",
    LAST_OFFSET_DELTA_NOT_COUNT: "last-offset-delta-not-count",
    CONTROL_BATCH_PRODUCED: "control-batch-produced",
    BASE_SEQUENCE_NEGATIVE: "base-sequence-negative",
    TIMESTAMP_TYPE_NOT_CREATE: "timestamp-type-not-create",
    DELETE_HORIZON_PRODUCED: "delete-horizon-produced",
    TRANSACTIONAL_WITHOUT_ID: "transactional-without-id",
    PRODUCER_FIELDS_WITHOUT_ID: "producer-fields-without-id",
    RECORD_TOO_LARGE: "record-too-large",
    KEY_MISSING: "key-missing",
    TIMESTAMP_OUT_OF_RANGE: "timestamp-out-of-range",
    LOG_APPEND_TIME_PRODUCED: "log-append-time-produced",
    OFFSET_DELTA_NOT_INDEX: "offset-delta-not-index",
    COMPRESSED_OFFSET_DELTA_NOT_INDEX: "compressed-offset-delta-not-index",
    MAX_TIMESTAMP_NOT_MAXIMUM: "max-timestamp-not-maximum",
    OFFSET_OUTSIDE_SEGMENT: "offset-outside-segment",
    OFFSET_NOT_INCREASING: "offset-not-increasing",
    INDEXED_OFFSET_NOT_INCREASING: "indexed-offset-not-increasing",
    LOG_END_OVERFLOW: "log-end-overflow",
    WRAPPER_START_UNKNOWN: "wrapper-start-unknown",
    LEADER_EPOCH_OFFSET_NEGATIVE: "leader-epoch-offset-negative",
    TRANSACTION_NOT_ENDED: "transaction-not-ended",
    END_MARKER_INVALID: "end-marker-invalid",
}

# field_t → the field's name in a path.
FIELDS = {
    F_NONE: "",
    F_LENGTH: "length",
    F_ATTRIBUTES: "attributes",
    F_TIMESTAMP_DELTA: "timestamp_delta",
    F_OFFSET_DELTA: "offset_delta",
    F_KEY_LENGTH: "key_length",
    F_VALUE_LENGTH: "value_length",
    F_HEADER_COUNT: "header_count",
    F_HEADER_KEY_LENGTH: "key_length",
    F_HEADER_KEY: "key",
    F_HEADER_VALUE_LENGTH: "value_length",
    F_BATCH_LENGTH: "batch_length",
    F_MAGIC: "magic",
    F_MAX_TIMESTAMP: "max_timestamp",
    F_RECORD_COUNT: "record_count",
    F_VALUE: "value",
    F_CRC: "crc",
    F_BASE_OFFSET: "base_offset",
    F_LAST_OFFSET_DELTA: "last_offset_delta",
    F_PAYLOAD: "payload",
    F_PRODUCER_ID: "producer_id",
    F_PRODUCER_EPOCH: "producer_epoch",
    F_BASE_SEQUENCE: "base_sequence",
    F_KEY: "key",
    F_FIRST_RECORD: "records[0]",
    F_FIRST_RECORD_KEY: "records[0].key",
}

cdef void clear(report_t *report) noexcept nogil:
    report.count = 0


cdef void note(report_t *report, int code, int field, int64_t at, int64_t record, int64_t header,
               int64_t found, int64_t allowed) noexcept nogil:
    cdef note_t *entry
    cdef int32_t i
    for i in range(report.count):
        entry = &report.notes[i]
        if entry.code == code:
            if entry.count < INT_MAX:
                entry.count += 1
            return
    report.notes[report.count] = note_t(at, record, header, found, allowed, code, field, 1)
    report.count += 1


cdef list to_notes(const report_t *report, int64_t shift, place_t place=ANYWHERE):
    """The report as tuples ``(code, field, at, record, header, found, allowed, count)``.

    ``shift`` is added to each ``at``; ``place`` selects which findings to return. They are sorted by offset. A role's
    findings follow, in the order of Kafka's own checks.
    """
    cdef list notes = []
    cdef list of_role = []
    cdef tuple told
    cdef const note_t *entry
    cdef int32_t i
    cdef bint of_batch
    for i in range(report.count):
        entry = &report.notes[i]
        of_batch = entry.code in (WRAPPER_EMPTY, WRAPPER_OFFSET_TOO_LOW, CONTROL_RECORD_COUNT)
        if place == ANYWHERE or (place == OF_BATCH) == of_batch:
            told = (CODES[entry.code], FIELDS[entry.field], entry.at + shift, entry.record, entry.header, entry.found,
                    entry.allowed, entry.count)
            (of_role if entry.code >= FIRST_OF_ROLE else notes).append(told)
    notes.sort(key=_place)
    return notes + of_role


def _place(entry):
    return entry[2], entry[0]
