"""The xerial container of snappy blocks, and raw blocks, as snappy-java reads them.

python-snappy compresses. It cannot decompress into memory of a given size, so blocks are read by cramjam, the library
under it: a block's claim must not become an allocation.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

import cramjam
import snappy

from kfuzz.records.codecs.container import Broken
from kfuzz.wire.io.cursor import uvarint_in_front
from kfuzz.wire.io.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Its name and version: the compressed bytes depend on them.
LIBRARY = ("snappy", f"cramjam-{cramjam.__version__}")

# org.xerial.snappy: magic, version, and the lowest version that can read it. Then blocks, each preceded by its length.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = int.from_bytes(XERIAL_MAGIC[:4], "big", signed=True)
XERIAL_HEADER = struct.Struct(">8sii")
XERIAL_BYTES = XERIAL_HEADER.size
XERIAL_BLOCK = 32 * 1024
SNAPPY_CHUNK = struct.Struct(">i")
XERIAL_BEGIN = XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)
XERIAL_LARGEST_CHUNK = 512 * 1024 * 1024
# Kafka fills a buffer of this size from a snappy stream (SnappyCompression.decompressionOutputSize).
SNAPPY_BUFFER = 2048
# cramjam's error about a literal whose length has bytes of its own, and the number of lengths that need none.
LITERAL_CUT: Final = re.compile(r"expected literal read of length 4; remaining src: (\d+)")
LITERAL_SHORT: Final = 60
# An upper bound for the growth of a snappy block: a copy of 64 bytes takes 3 bytes, a ratio of 21.3.
SNAPPY_MOST = 22


def _block(block: memoryview, output: Output, rest_bytes: int) -> None:
    """Decompress one raw block; ``rest_bytes`` follow it.

    Before anything is allocated, the block's stated length is checked against the bound and the possible growth.
    """
    size = uvarint_in_front(block)
    if size < 0:
        raise Broken(f"a snappy block's length is {'cut' if size == -1 else 'too long'}")
    if size > 0xFFFFFFFF or size > len(block) * SNAPPY_MOST:
        raise Broken(f"a snappy block of {len(block)} bytes claims to hold {size}")
    if size > output.room:
        raise Full
    try:
        output.fill(cramjam.snappy.decompress_raw_into, block, size, rest_bytes)
    except cramjam.DecompressionError as error:
        shorter = _with_short_literal(block, str(error))
        if shorter is None:
            raise Broken(f"snappy: {error}") from None
        try:
            output.fill(cramjam.snappy.decompress_raw_into, shorter, size, rest_bytes)
        except cramjam.DecompressionError:
            raise Broken(f"snappy: {error}") from None


def _with_short_literal(block: memoryview, error: str) -> bytes | None:
    """The same block with its last literal in the short form, if that literal is why it was refused; otherwise None.

    A literal's length may have one to four bytes of its own. cramjam wants four bytes after the tag of such a literal,
    even if the block ends before. snappy-java does not.
    """
    found = LITERAL_CUT.search(error)
    left = int(found[1]) if found else 0
    if not 0 < left < len(block):
        return None
    tag = block[-left - 1]
    length_bytes = (tag >> 2) - LITERAL_SHORT + 1
    size = int.from_bytes(block[-left:][:length_bytes], "little") + 1
    if tag & 3 or length_bytes < 1 or length_bytes + size != left:
        return None
    return b"".join((block[: -left - 1], bytes([(size - 1) << 2]), block[-size:]))


def open_stream(data: memoryview, output: Output, magic: int) -> int:
    """Skip the xerial header. Without a header, all data is one raw block."""
    if not len(data):
        raise Broken("the snappy stream is empty")
    if len(data) >= XERIAL_BYTES and data[:8] == XERIAL_MAGIC:
        return XERIAL_BYTES
    _block(data, output, 0)
    return len(data)


def read_stream(data: memoryview, output: Output, magic: int) -> int:
    at = open_stream(data, output, magic)
    filled_from = output.room
    end = len(data)
    while end - at >= 4:
        size: int = SNAPPY_CHUNK.unpack_from(data, at)[0]
        at += 4
        if size == XERIAL_HEAD:
            further = _header(data, at - 4)
            at += XERIAL_HEADER.size - 4
            if not further:
                # snappy-java returns "end of stream" once here, and continues on the next call. Kafka calls again if it
                # already got bytes for the buffer that it is filling.
                if (filled_from - output.room) % SNAPPY_BUFFER == 0:
                    return at
                filled_from = output.room
            continue
        if size < 0 or size > XERIAL_LARGEST_CHUNK or size > end - at:
            raise Broken(f"a snappy chunk claims {size} bytes; {end - at} are left")
        _block(data[at : at + size], output, end - at - size)
        at += size
    return at


def _header(data: memoryview, at: int) -> bool:
    """Whether another stream's header begins at ``at``. The caller has checked only its first four bytes."""
    header = data[at : at + XERIAL_HEADER.size]
    if len(header) < XERIAL_HEADER.size:
        raise Broken("the header of another snappy stream is cut")
    found, version, _ = XERIAL_HEADER.unpack(header)
    if found == XERIAL_MAGIC and version < 1:
        raise Broken(f"snappy stream version {version}; it must be 1 or more")
    return bool(found == XERIAL_MAGIC)


def write_stream(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    out: list[Buffer] = [XERIAL_BEGIN]
    view = memoryview(data)
    for at in range(0, len(view), XERIAL_BLOCK):
        block = snappy.compress(view[at : at + XERIAL_BLOCK])
        out.append(SNAPPY_CHUNK.pack(len(block)))
        out.append(block)
    return out
