"""The constants of Kafka's format for Python: the layout tables and attribute bits that the compiled modules use."""

cimport kfuzz.wire.io.format as c

cdef extern from "fields.h":
    ctypedef struct field_t "kfuzz_field":
        const char *name
        int at
        int width
    const field_t *kfuzz_header_fields
    const field_t *kfuzz_v0_fields
    const field_t *kfuzz_v1_fields
    int KFUZZ_HEADER_FIELDS
    int KFUZZ_V0_FIELDS
    int KFUZZ_V1_FIELDS


cdef tuple fields(const field_t *first, int count):
    """(field, offset, width in bytes) for each field; all are big-endian."""
    return tuple([(first[i].name.decode(), first[i].at, first[i].width) for i in range(count)])


# The header of a record batch.
HEADER_LAYOUT = fields(kfuzz_header_fields, KFUZZ_HEADER_FIELDS)
# The start of every batch and message of any magic.
FRAME_LAYOUT = HEADER_LAYOUT[:2]
# The fixed fields of a message, by magic: magic 1 adds the timestamp.
MESSAGE_LAYOUT = {
    0: fields(kfuzz_v0_fields, KFUZZ_V0_FIELDS),
    1: fields(kfuzz_v1_fields, KFUZZ_V1_FIELDS),
}

# The offset of a field: HEADER_AT[field], MESSAGE_AT[magic][field].
HEADER_AT = {name: at for name, at, _ in HEADER_LAYOUT}
MESSAGE_AT = {magic: {name: at for name, at, _ in layout} for magic, layout in MESSAGE_LAYOUT.items()}

LOG_OVERHEAD = c.LOG_OVERHEAD
MAGIC_AT = c.AT_MAGIC
HEADER_UP_TO_MAGIC = c.HEADER_UP_TO_MAGIC
BATCH_HEADER_SIZE = c.HEADER_SIZE
# The offset of the attributes byte that holds the codec, by magic.
CODEC_AT = {0: c.MESSAGE_AT_ATTRIBUTES, 1: c.MESSAGE_AT_ATTRIBUTES, 2: c.AT_ATTRIBUTES + 1}
# A CRC covers the bytes from here to the end of the batch: CRC-32C in a record batch, CRC-32 in a message.
BATCH_CRC_COVERS_FROM = c.AT_ATTRIBUTES
MESSAGE_CRC_COVERS_FROM = c.AT_MAGIC
# The lengths of key and value, which every message has.
MESSAGE_LENGTHS_BYTES = c.LENGTHS_BYTES
# The smallest valid batch length, by magic.
BATCH_LENGTH_MIN = {0: c.SMALLEST_MESSAGE, 1: c.SMALLEST_MESSAGE, 2: c.SMALLEST_BATCH}
INNER_BYTES_MAX = c.INNER_BYTES_MAX

CODEC_MASK = c.CODEC_MASK
LOG_APPEND_TIME = c.LOG_APPEND_TIME
TRANSACTIONAL = c.TRANSACTIONAL
CONTROL = c.CONTROL
DELETE_HORIZON = c.DELETE_HORIZON
# By their names in dumps and lists.
ATTRIBUTE_BITS = {
    "log-append": LOG_APPEND_TIME, "transactional": TRANSACTIONAL, "control": CONTROL, "delete horizon": DELETE_HORIZON,
}
