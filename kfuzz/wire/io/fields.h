/* The fixed fields of a record batch's header and of a message: their names, offsets and widths in bytes, big-endian. */
#ifndef KFUZZ_FIELDS_H
#define KFUZZ_FIELDS_H

#include "format.h"

typedef struct {
    const char *name;
    int at;
    int width;
} kfuzz_field;

#define KFUZZ_FRAME_FIELDS {"base_offset", KFUZZ_AT_BASE_OFFSET, 8}, {"batch_length", KFUZZ_AT_BATCH_LENGTH, 4}
#define KFUZZ_MESSAGE_FIELDS                                                                                           \
    KFUZZ_FRAME_FIELDS, {"crc", KFUZZ_MESSAGE_AT_CRC, 4}, {"magic", KFUZZ_AT_MAGIC, 1},                                \
    {"attributes", KFUZZ_MESSAGE_AT_ATTRIBUTES, 1}

static const kfuzz_field kfuzz_header_fields[] = {
    KFUZZ_FRAME_FIELDS,
    {"partition_leader_epoch", KFUZZ_AT_PARTITION_LEADER_EPOCH, 4},
    {"magic", KFUZZ_AT_MAGIC, 1},
    {"crc", KFUZZ_AT_CRC, 4},
    {"attributes", KFUZZ_AT_ATTRIBUTES, 2},
    {"last_offset_delta", KFUZZ_AT_LAST_OFFSET_DELTA, 4},
    {"base_timestamp", KFUZZ_AT_BASE_TIMESTAMP, 8},
    {"max_timestamp", KFUZZ_AT_MAX_TIMESTAMP, 8},
    {"producer_id", KFUZZ_AT_PRODUCER_ID, 8},
    {"producer_epoch", KFUZZ_AT_PRODUCER_EPOCH, 2},
    {"base_sequence", KFUZZ_AT_BASE_SEQUENCE, 4},
    {"record_count", KFUZZ_AT_RECORD_COUNT, 4},
};

/* By magic: magic 1 adds the timestamp. */
static const kfuzz_field kfuzz_v0_fields[] = {
    KFUZZ_MESSAGE_FIELDS,
    {"key_length", KFUZZ_KEY_AT_V0, 4},
};
static const kfuzz_field kfuzz_v1_fields[] = {
    KFUZZ_MESSAGE_FIELDS,
    {"timestamp", KFUZZ_MESSAGE_AT_TIMESTAMP, 8},
    {"key_length", KFUZZ_KEY_AT_V1, 4},
};

enum {
    KFUZZ_HEADER_FIELDS = sizeof(kfuzz_header_fields) / sizeof(kfuzz_field),
    KFUZZ_V0_FIELDS = sizeof(kfuzz_v0_fields) / sizeof(kfuzz_field),
    KFUZZ_V1_FIELDS = sizeof(kfuzz_v1_fields) / sizeof(kfuzz_field),
};

#endif
