"""Names of the finding codes and fields, and the way from a C report to Python tuples."""

if CODE_COUNT > 64:
    raise AssertionError("report_t.seen has one bit per code")

cdef extern from "limits.h":
    int INT_MAX

# code_t → the stable kebab-case code. What a code means, and for whom it is fatal, stands in kfuzz/findings/records.py.
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
}

cdef void clear(report_t *report) noexcept nogil:
    report.seen = 0


cdef void note(report_t *report, int code, int field, int64_t at, int64_t record, int64_t header,
               int64_t found, int64_t allowed) noexcept nogil:
    cdef note_t *first = &report.first[code]
    cdef uint64_t bit = (<uint64_t> 1) << code
    if report.seen & bit:
        if first.count < INT_MAX:
            first.count += 1
        return
    report.seen |= bit
    first.at = at
    first.record = record
    first.header = header
    first.found = found
    first.allowed = allowed
    first.field = field
    first.count = 1


cdef list to_notes(const report_t *report, int64_t shift, uint64_t among=<uint64_t> -1):
    """The report as tuples ``(code, field, at, record, header, found, allowed, count)``, in the order of the bytes;
    ``shift`` is added to each ``at``; ``among`` has a bit for each code that is asked for.
    """
    cdef int code
    cdef list notes = []
    for code in range(1, <int> CODE_COUNT):
        if (report.seen & among) >> code & 1:
            first = report.first[code]
            notes.append((CODES[code], FIELDS[first.field], first.at + shift, first.record, first.header,
                          first.found, first.allowed, first.count))
    notes.sort(key=_place)
    return notes


def _place(entry):
    return entry[2], entry[0]
