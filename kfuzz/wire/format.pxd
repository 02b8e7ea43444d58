# The constants of Kafka's format, in one place: field offsets, attribute bits, codecs, sizes and limits.
# ``kfuzz.wire.layout`` makes them available to Python. Constants that no compiled module needs are in ``kfuzz.kafka``.

# The start of every batch and message. A batch's length counts the bytes from LOG_OVERHEAD on.
cdef enum:
    AT_BASE_OFFSET = 0
    AT_BATCH_LENGTH = 8
    LOG_OVERHEAD = 12
    AT_MAGIC = 16
    HEADER_UP_TO_MAGIC = 17
    LAST_MAGIC = 2

# The header of a record batch (magic 2).
cdef enum:
    AT_PARTITION_LEADER_EPOCH = 12
    AT_CRC = 17
    AT_ATTRIBUTES = 21         # the CRC covers everything from here on
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_RECORD_COUNT = 57
    HEADER_SIZE = 61
    SMALLEST_BATCH = HEADER_SIZE - LOG_OVERHEAD

# A message of magic 0 or 1. Its CRC covers everything from the magic on. Key and value each follow their length.
cdef enum:
    MESSAGE_AT_CRC = 12
    MESSAGE_AT_ATTRIBUTES = 17
    MESSAGE_AT_TIMESTAMP = 18
    KEY_AT_V0 = 18
    KEY_AT_V1 = 26
    LENGTHS_BYTES = 8          # the lengths of key and value
    SMALLEST_MESSAGE = KEY_AT_V0 + LENGTHS_BYTES - LOG_OVERHEAD

# Attributes. A message of magic 1 has the codec and the timestamp type; a message of magic 0 has only the codec.
cdef enum:
    CODEC_MASK = 0x07
    LOG_APPEND_TIME = 0x08
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    DELETE_HORIZON = 0x40
    UNUSED_BITS = 0xff80
    LAST_CODEC = 4             # none, gzip, snappy, lz4, zstd
    # org.apache.kafka.common.record.ControlRecordType: abort, commit, leader change, snapshot header and footer, KRaft
    # version, voters.
    LAST_CONTROL_TYPE = 6

# The most bytes that a varint and a varlong take.
cdef enum:
    VARINT = 5
    VARLONG = 10

# Limits of Kafka's own code.
cdef enum:
    INNER_BYTES_MAX = 2147483639    # a message in a wrapper: the largest array that Java can allocate
    STRING_BYTES_MAX = 0x7fff
    ELEMENTS_MAX = 1000000          # elements of an array in a message, since Kafka 4.4
    TAGS_MAX = 10000                # tagged fields of a struct in a message, since Kafka 4.4
    UUID_BYTES = 16
