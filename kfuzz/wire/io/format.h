/* The constants of Kafka's format, in one place: field offsets, attribute bits, codecs, sizes and limits.
 * ``kfuzz.wire.io.format`` names them for compiled modules, ``kfuzz.wire.io.layout`` for Python. */
#ifndef KFUZZ_FORMAT_H
#define KFUZZ_FORMAT_H

/* The start of every batch and message. A batch's length counts the bytes from LOG_OVERHEAD on. */
enum {
    KFUZZ_AT_BASE_OFFSET = 0,
    KFUZZ_AT_BATCH_LENGTH = 8,
    KFUZZ_LOG_OVERHEAD = 12,
    KFUZZ_AT_MAGIC = 16,
    KFUZZ_HEADER_UP_TO_MAGIC = 17,
    KFUZZ_LAST_MAGIC = 2,
};

/* The header of a record batch (magic 2). */
enum {
    KFUZZ_AT_PARTITION_LEADER_EPOCH = 12,
    KFUZZ_AT_CRC = 17,
    KFUZZ_AT_ATTRIBUTES = 21, /* the CRC covers everything from here on */
    KFUZZ_AT_LAST_OFFSET_DELTA = 23,
    KFUZZ_AT_BASE_TIMESTAMP = 27,
    KFUZZ_AT_MAX_TIMESTAMP = 35,
    KFUZZ_AT_PRODUCER_ID = 43,
    KFUZZ_AT_PRODUCER_EPOCH = 51,
    KFUZZ_AT_BASE_SEQUENCE = 53,
    KFUZZ_AT_RECORD_COUNT = 57,
    KFUZZ_HEADER_SIZE = 61,
    KFUZZ_SMALLEST_BATCH = KFUZZ_HEADER_SIZE - KFUZZ_LOG_OVERHEAD,
};

/* A message of magic 0 or 1. Its CRC covers everything from the magic on. Key and value each follow their length. */
enum {
    KFUZZ_MESSAGE_AT_CRC = 12,
    KFUZZ_MESSAGE_AT_ATTRIBUTES = 17,
    KFUZZ_MESSAGE_AT_TIMESTAMP = 18,
    KFUZZ_KEY_AT_V0 = 18,
    KFUZZ_KEY_AT_V1 = 26,
    KFUZZ_LENGTHS_BYTES = 8, /* the lengths of key and value */
    KFUZZ_SMALLEST_MESSAGE = KFUZZ_KEY_AT_V0 + KFUZZ_LENGTHS_BYTES - KFUZZ_LOG_OVERHEAD,
};

/* Attributes. A message of magic 1 has the codec and the timestamp type; a message of magic 0 has only the codec. */
enum {
    KFUZZ_CODEC_MASK = 0x07,
    KFUZZ_LOG_APPEND_TIME = 0x08,
    KFUZZ_TRANSACTIONAL = 0x10,
    KFUZZ_CONTROL = 0x20,
    KFUZZ_DELETE_HORIZON = 0x40,
    KFUZZ_UNUSED_BITS = 0xff80,
    /* org.apache.kafka.common.record.ControlRecordType: abort, commit, leader change, snapshot header and footer, KRaft
     * version, voters. */
    KFUZZ_LAST_CONTROL_TYPE = 6,
};

/* The codecs; kfuzz.kafka has their names. */
enum {
    KFUZZ_GZIP = 1,
    KFUZZ_SNAPPY = 2,
    KFUZZ_LZ4 = 3,
    KFUZZ_ZSTD = 4,
    KFUZZ_LAST_CODEC = KFUZZ_ZSTD,
    KFUZZ_LAST_MESSAGE_CODEC = KFUZZ_LZ4, /* messages of magic 0 and 1 know no later one */
};

/* The most bytes that a varint and a varlong take. */
enum {
    KFUZZ_VARINT = 5,
    KFUZZ_VARLONG = 10,
};

/* Limits of Kafka's own code. */
enum {
    KFUZZ_INNER_BYTES_MAX = 2147483639, /* a message in a wrapper: the largest array that Java can allocate */
    KFUZZ_STRING_BYTES_MAX = 0x7fff,
    KFUZZ_ELEMENTS_MAX = 1000000, /* elements of an array in a message, since Kafka 4.4 */
    KFUZZ_TAGS_MAX = 10000, /* tagged fields of a struct in a message, since Kafka 4.4 */
    KFUZZ_UUID_BYTES = 16,
};

#endif
