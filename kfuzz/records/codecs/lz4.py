"""The lz4 frame, as Kafka's own ``Lz4BlockInputStream`` reads it."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

import cramjam
import lz4.frame
import xxhash

from kfuzz.records.codecs.container import Broken
from kfuzz.wire.io.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Its name and version: the compressed bytes depend on them.
LIBRARY = ("lz4", lz4.library_version_string())

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_WORD = struct.Struct("<I")
LZ4_STORED = 0x80000000
LZ4_BLOCK_CHECKSUM = 0x10
LZ4_CONTENT_SIZE = 0x08
LZ4_CONTENT_CHECKSUM = 0x04


def _descriptor(data: memoryview, magic: int) -> tuple[int, int, int]:
    """Where the blocks begin, the flags, and the largest block size."""
    there = len(data) > 4 and data[4] & LZ4_CONTENT_SIZE
    return _head(bytes(data[: 15 if there else 7]), magic)


# All frames of one writer begin with the same bytes, so a cache saves the work.
@lru_cache(maxsize=64)
def _head(data: bytes, magic: int) -> tuple[int, int, int]:
    """The same, from a frame's first bytes. Mirrors org.apache.kafka.common.compress.Lz4BlockInputStream."""
    if len(data) < 6:
        raise Broken("the lz4 frame is cut in its header")
    if data[:4] != LZ4_MAGIC:
        raise Broken("not an lz4 frame")
    flags, block = data[4], data[5]
    if flags >> 6 != 1:
        raise Broken(f"lz4 frame version {flags >> 6}; only 1 exists")
    if flags & 0x03:
        raise Broken("reserved lz4 flags are set")
    if not flags & 0x20:
        raise Broken("the lz4 blocks depend on each other")
    if block & 0x8F or not 4 <= block >> 4 <= 7:
        raise Broken(f"lz4 block descriptor {block:#04x}")
    at = 14 if flags & LZ4_CONTENT_SIZE else 6
    if len(data) <= at:
        raise Broken("the lz4 frame is cut in its header")
    if magic != 0 and data[at] != xxhash.xxh32_intdigest(data[4:at]) >> 8 & 0xFF:
        raise Broken("the lz4 header checksum is wrong")
    return at + 1, flags, 1 << (8 + 2 * (block >> 4))


def open_stream(data: memoryview, output: Output, magic: int) -> int:
    return _descriptor(data, magic)[0]


def read_stream(data: memoryview, output: Output, magic: int) -> int:
    at, flags, largest = _descriptor(data, magic)
    content = xxhash.xxh32() if flags & LZ4_CONTENT_CHECKSUM else None
    total = 0
    end = len(data)
    while True:
        if end - at < 4:
            raise Broken("the lz4 frame ends without its end mark")
        size: int = LZ4_WORD.unpack_from(data, at)[0]
        at += 4
        stored = size & LZ4_STORED
        size &= ~LZ4_STORED
        if size == 0:
            break
        if size > largest or size > end - at:
            raise Broken(f"an lz4 block claims {size} bytes; at most {min(largest, end - at)} are possible")
        block = data[at : at + size]
        at += size
        if flags & LZ4_BLOCK_CHECKSUM:
            if end - at < 4 or LZ4_WORD.unpack_from(data, at) != (xxhash.xxh32_intdigest(block),):
                raise Broken("an lz4 block checksum is wrong")
            at += 4
        if stored:
            came = output.fill(_copy, block, size, end - at)
        else:
            came = _block(block, output, largest, end - at)
        if came == 0:
            # Kafka's buffered stream treats an empty block as the end.
            return at
        total += came
        if content is not None:
            content.update(output.tail(came))
    # Kafka does not check the content size and the content checksum, so a wrong one does not make the stream broken.
    if flags & LZ4_CONTENT_SIZE and total != int.from_bytes(data[6:14], "little"):
        output.mismatch = "the lz4 content size is wrong"
    if content is not None:
        if end - at < 4:
            raise Broken("the lz4 content checksum is cut")
        if LZ4_WORD.unpack_from(data, at) != (content.intdigest(),):
            output.mismatch = "the lz4 content checksum is wrong"
        at += 4
    return at


def _block(block: memoryview, output: Output, largest: int, rest_bytes: int) -> int:
    """Decompress one block to at most ``largest`` bytes; ``rest_bytes`` follow it. Returns the output size."""
    # One input byte gives at most 255 output bytes. This keeps the buffer small for small input.
    most = min(largest, len(block) * 255 + 16)
    size = min(most, output.room + 1)
    try:
        return output.fill(_into, block, size, rest_bytes)
    except cramjam.DecompressionError as error:
        # If the caller's bound made the buffer smaller, assume that the output did not fit.
        if size < most:
            raise Full from None
        raise Broken(f"lz4: {error}") from None


def _into(block: memoryview, space: memoryview) -> int:
    # Without a length, the binding may read the block's first four bytes as the length.
    return cramjam.lz4.decompress_block_into(block, space, output_len=len(space))


def _copy(block: memoryview, space: memoryview) -> int:
    space[:] = block
    return len(block)


def write_stream(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic == 0:
        # Writers of magic 0 included the frame's magic in the header checksum, and readers of magic 0 expect that.
        return [frame[:6], bytes([xxhash.xxh32_intdigest(frame[:6]) >> 8 & 0xFF]), frame[7:]]
    return [frame]
