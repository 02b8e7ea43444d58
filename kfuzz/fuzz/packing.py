"""Makes compressed batches from batches whose payload is still uncompressed, so that a mutator can change it.

A mutation inside a compressed stream only breaks the stream. A mutation before :func:`pack` compresses the payload
changes the data inside the stream.
"""

from __future__ import annotations

import struct

from kfuzz.annotate.records import codec_number, opened
from kfuzz.kafka import CODECS, Codec
from kfuzz.mutate.engine import seal
from kfuzz.records import RecordBatch, encode_batch
from kfuzz.records.codecs import compress, decompress
from kfuzz.records.read.limits import Limits
from kfuzz.wire.io.checksum import crc32
from kfuzz.wire.io.cursor import uvarint_of
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, HEADER_AT, MAGIC_AT, MESSAGE_AT, MESSAGE_CRC_COVERS_FROM
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.records.message_set import encode_message, parse_message


def pack(data: bytes) -> bytes | None:
    """The first batch in ``data``, compressed with the codec in its attributes, with correct lengths and CRCs.

    None if ``data`` does not start with a whole batch that has a codec. In a wrapper of magic 0 or 1, the CRCs of the
    inner messages are corrected too.
    """
    size, magic, _ = next_frame(data, 0)
    if size <= 0 or magic is None:
        return None
    batch = data[:size]
    codec = codec_number(batch)
    # Wrapper messages support gzip, snappy and lz4 only.
    if not 0 < codec < (len(CODECS) if magic == 2 else CODECS.index("zstd")):
        return None
    if magic == 2:
        return seal(batch[:BATCH_HEADER_SIZE] + compress(CODECS[codec], batch[BATCH_HEADER_SIZE:]), True, True)
    message, _ = parse_message(batch, 0, size)
    if message is None or message.value[1] < 0:
        return None
    value_at, value_length = message.value
    inner = _sealed(batch[value_at : value_at + value_length])
    return _with_value(batch, compress(CODECS[codec], inner, magic=magic))


def unpack(packed: bytes, limit_bytes: int = 1 << 20) -> bytes:
    """The batch that :func:`pack` made, with its payload uncompressed again, up to ``limit_bytes`` of it."""
    found = opened(packed, Limits(decompressed_bytes=limit_bytes))
    assert found is not None
    if packed[MAGIC_AT] == 2:
        return seal(packed[:BATCH_HEADER_SIZE] + found.data, True, False)
    return _with_value(packed, found.data)


def selected(data: bytes) -> tuple[Codec, int]:
    """The codec and the magic that the first byte of a `compression` input selects. 1 is any magic above 0."""
    return CODECS[1 + data[0] % 4], data[0] >> 2 & 1


def in_batch(data: bytes, limit_bytes: int = 1 << 16) -> bytes | None:
    """A batch, or a wrapper, that holds the stream of a `compression` input. None if there can be none, or if the
    stream has more than ``limit_bytes``.
    """
    if not data:
        return None
    codec, magic = selected(data)
    plain = decompress(codec, data[1:], limit_bytes, magic=magic)
    if plain.ended == "limit":
        return None
    number, found = CODECS.index(codec), _records_in(plain.data)
    if magic and (found or codec == "zstd"):
        # Kafka decompresses nothing of a batch without records.
        count = max(found, 1)
        empty = bytearray(encode_batch(RecordBatch(0, count - 1, [])))
        struct.pack_into(">h", empty, HEADER_AT["attributes"], number)
        struct.pack_into(">i", empty, HEADER_AT["record_count"], count)
        return seal(bytes(empty) + data[1:], True, True)
    return None if codec == "zstd" else encode_message(magic, 0, number, -1, None, data[1:])


def stream_of(batch: bytes) -> bytes:
    """The input of target `compression` that has the stream in ``batch``, which :func:`in_batch` made."""
    if batch[MAGIC_AT] == 2:
        stream = batch[BATCH_HEADER_SIZE:]
    else:
        message, _ = parse_message(batch, 0, len(batch))
        assert message is not None
        at, size = message.value
        stream = batch[at : at + size]
    return bytes([codec_number(batch) - 1 | min(batch[MAGIC_AT], 1) << 2]) + stream


def _records_in(payload: bytes) -> int:
    """How many records fill the payload; 0 if it ends with something else."""
    at = count = 0
    while at < len(payload):
        number, size = uvarint_of(payload[at : at + 5], 5)
        length = (number >> 1) ^ -(number & 1)
        if size <= 0 or not 0 <= length <= len(payload) - at - size:
            return 0
        at += size + length
        count += 1
    return count


def _with_value(wrapper: bytes, value: bytes) -> bytes:
    message, _ = parse_message(wrapper, 0, len(wrapper))
    assert message is not None
    offset, magic, attributes, timestamp, key, *_ = message
    return encode_message(magic, offset, attributes, timestamp, key, value)


def _sealed(messages: bytes) -> bytes:
    """A wrapper's messages with correct CRCs, up to the first message with a wrong size."""
    out = bytearray(messages)
    for at, size, _ in frames(messages, any_magic=True):
        # Also of a message that claims magic 2, which a wrapper cannot hold.
        crc = crc32(messages[at + MESSAGE_CRC_COVERS_FROM : at + size])
        struct.pack_into(">I", out, at + MESSAGE_AT[0]["crc"], crc)
    return bytes(out)
