"""Makes compressed batches from batches whose payload is still uncompressed, so that a mutator can change it.

A mutation inside a compressed stream only breaks the stream. A mutation before :func:`pack` compresses the payload
changes the data inside the stream.
"""

from __future__ import annotations

from kfuzz.kafka import MESSAGE_CODECS
from kfuzz.records import CODECS
from kfuzz.records.codecs import compress, decompress
from kfuzz.wire.io.checksum import crc32, crc32c
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    CODEC_AT,
    CODEC_MASK,
    HEADER_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_AT,
    MESSAGE_CRC_COVERS_FROM,
)
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.records.message_set import encode_message, parse_message

__all__ = ["pack", "unpack"]


def pack(data: bytes) -> bytes | None:
    """The first batch in ``data``, compressed with the codec in its attributes, with correct lengths and CRCs.

    None if ``data`` does not start with a whole batch that has a codec. In a wrapper of magic 0 or 1, the CRCs of the
    inner messages are corrected too.
    """
    size, magic, _ = next_frame(data, 0)
    if size <= 0 or magic is None:
        return None
    return _pack_batch(data[:size]) if magic == 2 else _pack_wrapper(data[:size], magic)


def unpack(packed: bytes, limit_bytes: int = 1 << 20) -> bytes:
    """The batch that :func:`pack` made, with its payload uncompressed again, up to ``limit_bytes`` of it."""
    magic = packed[MAGIC_AT]
    codec = CODECS[packed[CODEC_AT[magic]] & CODEC_MASK]
    if magic == 2:
        payload = decompress(codec, packed[BATCH_HEADER_SIZE:], limit_bytes).data
        made = packed[:BATCH_HEADER_SIZE] + payload
        length = (len(made) - LOG_OVERHEAD).to_bytes(4, "big")
        return made[: HEADER_AT["batch_length"]] + length + made[LOG_OVERHEAD:]
    message, _ = parse_message(packed, 0, len(packed))
    assert message is not None
    offset, _, _, attributes, timestamp, key, (value_at, value_length), _ = message
    inner = decompress(codec, packed[value_at : value_at + value_length], limit_bytes, magic=magic).data
    return encode_message(magic, offset, attributes, timestamp, key, inner)


def _pack_batch(batch: bytes) -> bytes | None:
    codec = batch[CODEC_AT[2]] & CODEC_MASK
    if not 0 < codec < len(CODECS):
        return None
    payload = compress(CODECS[codec], batch[BATCH_HEADER_SIZE:])
    length = BATCH_HEADER_SIZE - LOG_OVERHEAD + len(payload)
    body = batch[BATCH_CRC_COVERS_FROM:BATCH_HEADER_SIZE] + payload
    offset, between = batch[: HEADER_AT["batch_length"]], batch[LOG_OVERHEAD : HEADER_AT["crc"]]
    return b"".join((offset, length.to_bytes(4, "big"), between, crc32c(body).to_bytes(4, "big"), body))


def _pack_wrapper(wrapper: bytes, magic: int) -> bytes | None:
    message, _ = parse_message(wrapper, 0, len(wrapper))
    if message is None:
        return None
    offset, _, _, attributes, timestamp, key, (value_at, value_length), _ = message
    codec = attributes & CODEC_MASK
    if value_length < 0 or not 0 < codec < len(MESSAGE_CODECS):
        return None
    inner = compress(CODECS[codec], _seal(wrapper[value_at : value_at + value_length]), magic=magic)
    return encode_message(magic, offset, attributes, timestamp, key, inner)


def _seal(messages: bytes) -> bytes:
    """A wrapper's messages with correct CRCs, up to the first message with a wrong size."""
    out = bytearray(messages)
    for at, size, _ in frames(messages, any_magic=True):
        covered = messages[at + MESSAGE_CRC_COVERS_FROM : at + size]
        crc_at = at + MESSAGE_AT[0]["crc"]
        out[crc_at : crc_at + 4] = crc32(covered).to_bytes(4, "big")
    return bytes(out)
