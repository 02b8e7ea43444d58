"""Batches whose payload a mutator can reach: compressed ones with the payload standing there uncompressed.

:func:`pack` makes real batches of them. A mutation inside a compressed stream only breaks the stream; here it breaks
what the stream holds. May import ``kfuzz.records`` and ``kfuzz.wire``.
"""

from __future__ import annotations

from kfuzz.records import CODECS
from kfuzz.records.codecs import compress
from kfuzz.wire.checksum import crc32, crc32c
from kfuzz.wire.framing import LOG_OVERHEAD, next_frame
from kfuzz.wire.message_set import encode_message, parse_message
from kfuzz.wire.record_batch import BATCH_HEADER_SIZE

__all__ = ["pack"]

CODEC_MASK = 0x07
ATTRIBUTES_LOW_BYTE = 22
CRC_AT = 17
CRC_COVERS_FROM = 21
SMALLEST_MESSAGE = 14


def pack(data: bytes) -> bytes | None:
    """The first batch in ``data`` with its payload compressed as its attributes say, and right lengths and CRCs.

    None where there is no whole batch with a codec. In a wrapper of magic 0 or 1 the inner CRCs are made right too.
    """
    size, magic, _ = next_frame(data, 0)
    if size <= 0 or magic is None:
        return None
    return _pack_batch(data[:size]) if magic == 2 else _pack_wrapper(data[:size], magic)


def _pack_batch(batch: bytes) -> bytes | None:
    codec = batch[ATTRIBUTES_LOW_BYTE] & CODEC_MASK
    if not 0 < codec < len(CODECS):
        return None
    payload = compress(CODECS[codec], batch[BATCH_HEADER_SIZE:])
    length = BATCH_HEADER_SIZE - LOG_OVERHEAD + len(payload)
    body = batch[CRC_COVERS_FROM:BATCH_HEADER_SIZE] + payload
    return b"".join((batch[:8], length.to_bytes(4, "big"), batch[12:CRC_AT], crc32c(body).to_bytes(4, "big"), body))


def _pack_wrapper(wrapper: bytes, magic: int) -> bytes | None:
    message, _ = parse_message(wrapper, 0, len(wrapper))
    if message is None:
        return None
    offset, _, _, attributes, timestamp, key, (value_at, value_length), _ = message
    codec = attributes & CODEC_MASK
    # Wrappers know gzip, snappy and lz4.
    if value_length < 0 or not 0 < codec < CODECS.index("zstd"):
        return None
    inner = compress(CODECS[codec], _seal(wrapper[value_at : value_at + value_length]), magic=magic)
    return encode_message(magic, offset, attributes, timestamp, key, inner, crc32)


def _seal(messages: bytes) -> bytes:
    """The messages of a wrapper with right CRCs, as far as their sizes hold."""
    out = bytearray(messages)
    at = 0
    while len(out) - at >= LOG_OVERHEAD:
        size = int.from_bytes(out[at + 8 : at + LOG_OVERHEAD], "big")
        end = at + LOG_OVERHEAD + size
        if not SMALLEST_MESSAGE <= size <= len(out) - at - LOG_OVERHEAD:
            break
        out[at + 12 : at + 16] = crc32(out[at + 16 : end]).to_bytes(4, "big")
        at = end
    return bytes(out)
