# Writes messages of magic 0 and 1 for the generator.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kfuzz.wire.io.checksum cimport crc32_of
from kfuzz.wire.io.format cimport AT_MAGIC, KEY_AT_V0, KEY_AT_V1, LENGTHS_BYTES, LOG_OVERHEAD, MESSAGE_AT_CRC
from kfuzz.wire.io.sink cimport put_int8, put_int32, put_int64

# The number of bytes in a message before the length of its key.
cdef inline int64_t message_fields(int magic) noexcept nogil:
    return KEY_AT_V1 if magic == 1 else KEY_AT_V0

# The size of an uncompressed message; ``fields`` is the result of ``message_fields``, and a size is -1 for null.
cdef inline int64_t size_of_message(int64_t fields, int64_t key_size, int64_t value_size) noexcept nogil:
    return fields + LENGTHS_BYTES + max(key_size, 0) + max(value_size, 0)

# Write the fields of a message up to both lengths, as if the key were empty; the CRC stays 0.
cdef inline uint8_t *put_message(uint8_t *p, int64_t offset, int magic, int attributes, int64_t timestamp,
                                 int64_t key_size, int64_t value_size) noexcept nogil:
    p = put_int64(p, offset)
    p = put_int32(p, <int32_t> (size_of_message(message_fields(magic), key_size, value_size) - LOG_OVERHEAD))
    p = put_int32(p, 0)
    p = put_int8(p, magic)
    p = put_int8(p, attributes)
    if magic == 1:
        p = put_int64(p, timestamp)
    p = put_int32(p, <int32_t> key_size)
    return put_int32(p, <int32_t> value_size)

# Write the CRC of the message of ``size`` bytes at ``p``.
cdef inline void put_message_crc(uint8_t *p, int64_t size) noexcept nogil:
    put_int32(p + MESSAGE_AT_CRC, <int32_t> crc32_of(p + AT_MAGIC, size - AT_MAGIC))
