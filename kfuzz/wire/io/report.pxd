# Findings as plain C structs: only the first occurrence per code, so that a report never grows with the input.
from libc.stdint cimport int32_t, int64_t

cdef enum code_t:
    OK = 0
    # framing
    BATCH_LENGTH_BELOW_MINIMUM
    BATCH_LENGTH_TOO_LARGE
    MAGIC_UNKNOWN
    CRC_MISMATCH
    # batch header
    ATTRIBUTES_UNUSED_BITS
    CODEC_UNKNOWN
    BASE_OFFSET_NEGATIVE
    LAST_OFFSET_DELTA_NEGATIVE
    MAX_TIMESTAMP_BELOW_RECORDS
    RECORD_COUNT_NEGATIVE
    RECORD_COUNT_TOO_HIGH
    RECORD_COUNT_TOO_LOW
    PAYLOAD_WITHOUT_RECORDS
    # payload
    DECOMPRESSION_FAILED
    DECOMPRESSED_SIZE_EXCEEDED
    BYTES_AFTER_COMPRESSED_STREAM
    COMPRESSED_CONTENT_MISMATCH
    # records
    VARINT_TOO_LONG
    VARINT_OVERLONG
    VARINT_EXCESS_BITS
    RECORD_LENGTH_NEGATIVE
    RECORD_LENGTH_EXCEEDS_PAYLOAD
    RECORD_LENGTH_MISMATCH
    RECORD_TRUNCATED
    RECORD_ATTRIBUTES_NONZERO
    TIMESTAMP_OVERFLOW
    OFFSET_OVERFLOW
    OFFSET_DELTA_NEGATIVE
    OFFSET_DELTA_NOT_INCREASING
    OFFSET_DELTA_BEYOND_LAST
    LENGTH_BELOW_MINUS_ONE
    LENGTH_EXCEEDS_RECORD
    HEADER_COUNT_NEGATIVE
    HEADER_COUNT_EXCEEDS_RECORD
    HEADER_KEY_NULL
    HEADER_KEY_NOT_UTF8
    HEADER_KEY_NULL_CHARACTER
    # control batches
    CONTROL_RECORD_COUNT
    CONTROL_KEY_INVALID
    # magic 0 and 1
    MESSAGE_TRUNCATED
    BYTES_AFTER_MESSAGE
    CODEC_NOT_ALLOWED
    WRAPPER_CRC_MISMATCH
    WRAPPER_VALUE_NULL
    WRAPPER_EMPTY
    WRAPPER_NESTED
    WRAPPER_OFFSET_TOO_LOW
    INNER_MAGIC_MISMATCH
    INNER_PARTIAL_TAIL
    # a broker's rules for a Produce request
    FIRST_OF_ROLE
    REQUEST_TOO_LARGE = FIRST_OF_ROLE
    BATCH_COUNT_NOT_ONE
    MAGIC_NOT_PRODUCED
    BASE_OFFSET_NOT_ZERO
    BATCH_TOO_LARGE
    RECORD_COUNT_ZERO
    LAST_OFFSET_DELTA_NOT_COUNT
    CONTROL_BATCH_PRODUCED
    BASE_SEQUENCE_NEGATIVE
    TIMESTAMP_TYPE_NOT_CREATE
    DELETE_HORIZON_PRODUCED
    TRANSACTIONAL_WITHOUT_ID
    PRODUCER_FIELDS_WITHOUT_ID
    RECORD_TOO_LARGE
    KEY_MISSING
    TIMESTAMP_OUT_OF_RANGE
    LOG_APPEND_TIME_PRODUCED
    OFFSET_DELTA_NOT_INDEX
    COMPRESSED_OFFSET_DELTA_NOT_INDEX
    MAX_TIMESTAMP_NOT_MAXIMUM
    # a broker's rules for a log segment
    OFFSET_OUTSIDE_SEGMENT
    OFFSET_NOT_INCREASING
    INDEXED_OFFSET_NOT_INCREASING
    LOG_END_OVERFLOW
    WRAPPER_START_UNKNOWN
    LEADER_EPOCH_OFFSET_NEGATIVE
    TRANSACTION_NOT_ENDED
    END_MARKER_INVALID
    CODE_COUNT

cdef enum field_t:
    F_NONE = 0
    F_LENGTH
    F_ATTRIBUTES
    F_TIMESTAMP_DELTA
    F_OFFSET_DELTA
    F_KEY_LENGTH
    F_VALUE_LENGTH
    F_HEADER_COUNT
    F_HEADER_KEY_LENGTH
    F_HEADER_KEY
    F_HEADER_VALUE_LENGTH
    F_BATCH_LENGTH
    F_MAGIC
    F_MAX_TIMESTAMP
    F_RECORD_COUNT
    F_VALUE
    F_CRC
    F_BASE_OFFSET
    F_LAST_OFFSET_DELTA
    F_PAYLOAD
    F_PRODUCER_ID
    F_PRODUCER_EPOCH
    F_BASE_SEQUENCE
    F_KEY
    F_FIRST_RECORD
    F_FIRST_RECORD_KEY
    FIELD_COUNT

cdef struct note_t:
    int64_t at        # byte offset, from the start of the parsed bytes
    int64_t record    # index, or -1
    int64_t header    # index within the record, or -1
    int64_t found     # the value found; its meaning depends on the code
    int64_t allowed   # the bound that it violates, if there is one
    int32_t code      # code_t
    int32_t field     # field_t
    int32_t count     # occurrences; stops counting at INT32_MAX

cdef struct report_t:
    int32_t count
    note_t notes[<int> CODE_COUNT]     # one per code, in the order of their first occurrence

cdef enum place_t:
    ANYWHERE
    INSIDE            # findings inside a payload; offsets count from the payload
    OF_BATCH          # findings about the batch around a payload; offsets count from the batch

cdef void clear(report_t *report) noexcept nogil
cdef void note(report_t *report, int code, int field, int64_t at, int64_t record, int64_t header,
               int64_t found, int64_t allowed) noexcept nogil
cdef list to_notes(const report_t *report, int64_t shift, place_t place=*)
