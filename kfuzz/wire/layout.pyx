"""The constants of Kafka's format for Python: the layout tables and attribute bits that the compiled modules use."""

cimport kfuzz.wire.format as c

# The start of every batch and message of any magic: (field, offset, width in bytes), all big-endian.
FRAME_LAYOUT = (("base_offset", c.AT_BASE_OFFSET, 8), ("batch_length", c.AT_BATCH_LENGTH, 4))

# The header of a record batch.
HEADER_LAYOUT = (
    *FRAME_LAYOUT,
    ("partition_leader_epoch", c.AT_PARTITION_LEADER_EPOCH, 4),
    ("magic", c.AT_MAGIC, 1),
    ("crc", c.AT_CRC, 4),
    ("attributes", c.AT_ATTRIBUTES, 2),
    ("last_offset_delta", c.AT_LAST_OFFSET_DELTA, 4),
    ("base_timestamp", c.AT_BASE_TIMESTAMP, 8),
    ("max_timestamp", c.AT_MAX_TIMESTAMP, 8),
    ("producer_id", c.AT_PRODUCER_ID, 8),
    ("producer_epoch", c.AT_PRODUCER_EPOCH, 2),
    ("base_sequence", c.AT_BASE_SEQUENCE, 4),
    ("record_count", c.AT_RECORD_COUNT, 4),
)

# The fixed fields of a message, by magic: magic 1 adds the timestamp.
MESSAGE_START = (
    *FRAME_LAYOUT,
    ("crc", c.MESSAGE_AT_CRC, 4),
    ("magic", c.AT_MAGIC, 1),
    ("attributes", c.MESSAGE_AT_ATTRIBUTES, 1),
)
MESSAGE_LAYOUT = {
    0: (*MESSAGE_START, ("key_length", c.KEY_AT_V0, 4)),
    1: (*MESSAGE_START, ("timestamp", c.MESSAGE_AT_TIMESTAMP, 8), ("key_length", c.KEY_AT_V1, 4)),
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
