"""Codec containers as Apache Kafka reads and writes them; the block codecs are the libraries'.

A decompressor never judges: it says which bytes came out, how many it consumed and how it ended, and never gives more
than the bound it is given. Where a library is stricter or laxer than Kafka's Java classes, the container is walked
here. May import ``errors``, ``model`` and ``kfuzz.wire`` only.
"""

from __future__ import annotations

import contextlib
import struct
import threading
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import cramjam
import lz4.frame
import xxhash
import zstandard

from kfuzz.errors import UsageError
from kfuzz.records.model import Codec
from kfuzz.wire.cursor import uvarint_in_front
from kfuzz.wire.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Decompressed", "compress", "compress_parts", "decompress", "open_stream"]


class Decompressed(NamedTuple):
    """What came out of a compressed payload.

    ``ended``: "whole", the stream came to its end after ``consumed`` bytes; "limit", the output would exceed the bound;
    "broken", for ``reason``; a stream that is whole may have a reason too: its content is not what its header says.
    ``data`` holds what a reader of the stream has got up to there.
    """

    data: bytes
    consumed: int
    ended: Literal["whole", "limit", "broken"]
    reason: str = ""


# What walks a container: from the data into the output, to where the stream ends.
_Reader = Callable[[memoryview, Output, int], int]


class _Broken(Exception):
    """The stream cannot go on; the text says why."""


class _Cut(_Broken):
    """The stream ends too early."""


def decompress(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """Decompress ``data`` to at most ``limit_bytes``. Never raises on bad bytes.

    ``magic`` 0 skips the lz4 header checksum, which old writers got wrong (KAFKA-3160). Mirrors
    ``org.apache.kafka.common.compress``.
    """
    if codec == "none":
        return Decompressed(bytes(data), len(data), "whole")
    return _run(_READERS[codec], memoryview(data), limit_bytes, magic)


def open_stream(codec: Codec, data: bytes | memoryview, limit_bytes: int, *, magic: int = 2) -> Decompressed:
    """As far as Kafka goes with a stream that it opens and never reads, as for a batch without records.

    That is the gzip header, the lz4 frame descriptor, the whole of a raw snappy block, and nothing of zstd.
    """
    return _run(_OPENERS[codec], memoryview(data), limit_bytes, magic)


def _run(reader: _Reader, data: memoryview, limit_bytes: int, magic: int) -> Decompressed:
    output = Output(limit_bytes)
    try:
        consumed = reader(data, output, magic)
    except Full:
        return Decompressed(output.close(), len(data), "limit")
    except _Broken as error:
        return Decompressed(output.close(), len(data), "broken", str(error))
    return Decompressed(output.close(), consumed, "whole", output.mismatch)


def compress(codec: Codec, data: Buffer, *, magic: int = 2, level: int | None = None) -> bytes:
    """``data`` in the container that Kafka's producer writes: gzip; xerial snappy; an lz4 frame of independent
    blocks; zstd.

    ``level`` is the codec's own; None is Kafka's default. The bytes may differ between versions of the libraries.
    """
    return b"".join(compress_parts(codec, data, magic=magic, level=level))


def compress_parts(codec: Codec, data: Buffer, *, magic: int = 2, level: int | None = None) -> list[Buffer]:
    """What :func:`compress` makes, in the pieces that it comes in, for whoever puts something in front of it."""
    if codec == "none":
        return [data]
    try:
        return _WRITERS[codec](data, level, magic)
    except (ValueError, OverflowError, RuntimeError, TypeError) as error:
        if level is None:
            raise
        raise UsageError(f"compression level {level!r} is none of {codec}'s: {error}") from None


# ------------------------------------------------------------------------------------------------- gzip

# java.util.zip.GZIPInputStream reads through a buffer of this size (GzipCompression), and it shows: after a member it
# looks for
# another one only if bytes remain beyond the buffer, or more than 26 in it.
GZIP_BUFFER = 8192
GZIP_LEFTOVER = 26


def _gzip_header(data: memoryview, at: int) -> int:
    """Where the header that begins at ``at`` ends; flags as java.util.zip.GZIPInputStream reads them."""

    def need(n: int) -> memoryview:
        nonlocal at
        if n > len(data) - at:
            raise _Broken("a gzip header is cut")
        at += n
        return data[at - n : at]

    start = at
    if bytes(need(2)) != b"\x1f\x8b":
        raise _Broken("not a gzip stream")
    method, flags = need(2)
    if method != 8:
        raise _Broken(f"gzip compression method {method}; only 8 exists")
    need(6)
    if flags & 4:
        need(int.from_bytes(need(2), "little"))
    for flag in (8, 16):
        if flags & flag:
            while need(1)[0]:
                pass
    if flags & 2:
        crc = zlib.crc32(data[start:at]) & 0xFFFF
        if int.from_bytes(need(2), "little") != crc:
            raise _Broken("a gzip header's checksum is wrong")
    return at


def _open_gzip(data: memoryview, output: Output, magic: int) -> int:
    return _gzip_header(data, 0)


def _read_gzip(data: memoryview, output: Output, magic: int) -> int:
    at = buffered = _gzip_header(data, 0)
    # One piece for the one member that there nearly always is; small ones for any others, for what a member leaves of
    # a piece is copied.
    piece_bytes = len(data)
    while True:
        at, buffered, remaining = _gzip_member(data, at, buffered, piece_bytes, output)
        piece_bytes = GZIP_BUFFER
        if buffered == len(data) and remaining <= GZIP_LEFTOVER:
            return at
        try:
            after_header = _gzip_header(data, at)
        except _Broken:
            # Kafka takes what follows for padding, whatever it is.
            return at
        at = after_header
        buffered = max(buffered, at)


def _gzip_member(data: memoryview, at: int, buffered: int, piece_bytes: int, output: Output) -> tuple[int, int, int]:
    """Inflate from ``at``: the place after the trailer, the end of Java's buffer, and what that held before the
    trailer.
    """
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    start = at
    crc = size = 0
    chunk: bytes | memoryview = b""
    while not inflater.eof:
        if not len(chunk):
            chunk = data[at : at + piece_bytes]
            at += len(chunk)
            if not len(chunk):
                raise _Broken("the gzip stream is cut")
        try:
            piece = inflater.decompress(chunk, output.room + 1)
        except zlib.error as error:
            with contextlib.suppress(Full):
                output.add(_inflate_to_fault(data[start:], size + output.room)[size:])
            raise _Broken(f"deflate: {error}") from None
        output.add(piece)
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        chunk = inflater.unconsumed_tail
    at -= len(inflater.unused_data)
    # Java has filled its buffer as often as it took to come here.
    while buffered < at:
        buffered = min(buffered + GZIP_BUFFER, len(data))
    remaining = buffered - at
    trailer = data[at : at + 8]
    if len(trailer) < 8:
        raise _Broken("the gzip trailer is cut")
    if struct.unpack("<II", trailer) != (crc, size & 0xFFFFFFFF):
        raise _Broken("the gzip trailer's checksum or size is wrong")
    return at + 8, max(buffered, at + 8), remaining


def _inflate_to_fault(data: memoryview, most_bytes: int) -> bytes:
    """What a reader of a broken deflate stream gets before the fault; zlib itself gives nothing of that piece."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    out = bytearray()
    for at in range(0, len(data), GZIP_BUFFER):
        before = inflater.copy()
        try:
            out += inflater.decompress(data[at : at + GZIP_BUFFER], most_bytes - len(out) + 1)
        except zlib.error:
            with contextlib.suppress(zlib.error):
                for i in range(at, at + GZIP_BUFFER):
                    out += before.decompress(data[i : i + 1])
            break
        if len(out) > most_bytes:
            break
    return bytes(out[:most_bytes])


def _write_gzip(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    deflater = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, zlib.MAX_WBITS | 16
    )
    return [deflater.compress(data), deflater.flush()]


# ------------------------------------------------------------------------------------------------- snappy

# org.xerial.snappy: magic, version and the lowest version that can read it, then blocks with their lengths in front.
XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEAD = int.from_bytes(XERIAL_MAGIC[:4], "big", signed=True)
XERIAL_HEADER = struct.Struct(">8sii")
XERIAL_BYTES = XERIAL_HEADER.size
XERIAL_BLOCK = 32 * 1024
SNAPPY_CHUNK = struct.Struct(">i")
XERIAL_BEGIN = XERIAL_HEADER.pack(XERIAL_MAGIC, 1, 1)
XERIAL_LARGEST_CHUNK = 512 * 1024 * 1024
# What Kafka fills at a time from a snappy stream (SnappyCompression.decompressionOutputSize).
SNAPPY_BUFFER = 2048
# The most that a snappy block can grow: a copy of 64 bytes takes 3, a bit over 21 to 1.
SNAPPY_MOST = 22


def _snappy_block(block: memoryview, output: Output, rest_bytes: int) -> None:
    """One raw block, behind which ``rest_bytes`` are left. Its length in front is checked against what the block can
    hold and the bound before anything is allocated.
    """
    size = uvarint_in_front(block)
    if size < 0:
        raise _Broken(f"a snappy block's length is {'cut' if size == -1 else 'too long'}")
    if size > 0xFFFFFFFF or size > len(block) * SNAPPY_MOST:
        raise _Broken(f"a snappy block of {len(block)} bytes claims to hold {size}")
    if size > output.room:
        raise Full
    try:
        output.fill(cramjam.snappy.decompress_raw_into, block, size, rest_bytes)
    except cramjam.DecompressionError as error:
        raise _Broken(f"snappy: {error}") from None


def _open_snappy(data: memoryview, output: Output, magic: int) -> int:
    """Step over the xerial header; without one, the whole is a raw block."""
    if not len(data):
        raise _Broken("the snappy stream is empty")
    if len(data) >= XERIAL_BYTES and data[:8] == XERIAL_MAGIC:
        return XERIAL_BYTES
    _snappy_block(data, output, 0)
    return len(data)


def _read_snappy(data: memoryview, output: Output, magic: int) -> int:
    at = _open_snappy(data, output, magic)
    filled_from = output.room
    end = len(data)
    while end - at >= 4:
        size: int = SNAPPY_CHUNK.unpack_from(data, at)[0]
        at += 4
        if size == XERIAL_HEAD:
            further = _snappy_header(data, at - 4)
            at += XERIAL_HEADER.size - 4
            if not further:
                # snappy-java says "no more" this once, and goes on when it is asked again. Kafka asks again if it got
                # any bytes for the buffer that it was filling.
                if (filled_from - output.room) % SNAPPY_BUFFER == 0:
                    return at
                filled_from = output.room
            continue
        if size < 0 or size > XERIAL_LARGEST_CHUNK or size > end - at:
            raise _Broken(f"a snappy chunk of {size} bytes where {end - at} are left")
        _snappy_block(data[at : at + size], output, end - at - size)
        at += size
    return at


def _snappy_header(data: memoryview, at: int) -> bool:
    """Whether the header of a further stream stands at ``at``; four bytes told it from a chunk so far."""
    header = data[at : at + XERIAL_HEADER.size]
    if len(header) < XERIAL_HEADER.size:
        raise _Broken("a further snappy stream's header is cut")
    found, version, _ = XERIAL_HEADER.unpack(header)
    if found == XERIAL_MAGIC and version < 1:
        raise _Broken(f"snappy stream version {version}; it must be 1 or more")
    return bool(found == XERIAL_MAGIC)


def _write_snappy(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    out: list[Buffer] = [XERIAL_BEGIN]
    view = memoryview(data)
    for at in range(0, len(view), XERIAL_BLOCK):
        block = cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK])
        out.append(SNAPPY_CHUNK.pack(len(block)))
        out.append(block)
    return out


# ------------------------------------------------------------------------------------------------- lz4

LZ4_MAGIC = b"\x04\x22\x4d\x18"
LZ4_WORD = struct.Struct("<I")
LZ4_STORED = 0x80000000
LZ4_BLOCK_CHECKSUM = 0x10
LZ4_CONTENT_SIZE = 0x08
LZ4_CONTENT_CHECKSUM = 0x04


def _lz4_descriptor(data: memoryview, magic: int) -> tuple[int, int, int]:
    """Where the blocks begin, the flags, and the largest block."""
    there = len(data) > 4 and data[4] & LZ4_CONTENT_SIZE
    return _lz4_head(bytes(data[: 15 if there else 7]), magic)


# A writer's frames all begin alike.
@lru_cache(maxsize=64)
def _lz4_head(data: bytes, magic: int) -> tuple[int, int, int]:
    """The same of a frame's first bytes; org.apache.kafka.common.compress.Lz4BlockInputStream."""
    if len(data) < 6:
        raise _Broken("the lz4 frame is cut in its header")
    if data[:4] != LZ4_MAGIC:
        raise _Broken("not an lz4 frame")
    flags, block = data[4], data[5]
    if flags >> 6 != 1:
        raise _Broken(f"lz4 frame version {flags >> 6}; only 1 exists")
    if flags & 0x03:
        raise _Broken("reserved lz4 flags are set")
    if not flags & 0x20:
        raise _Broken("the lz4 blocks depend on each other")
    if block & 0x8F or not 4 <= block >> 4 <= 7:
        raise _Broken(f"lz4 block descriptor {block:#04x}")
    at = 14 if flags & LZ4_CONTENT_SIZE else 6
    if len(data) <= at:
        raise _Broken("the lz4 frame is cut in its header")
    if magic != 0 and data[at] != xxhash.xxh32_intdigest(data[4:at]) >> 8 & 0xFF:
        raise _Broken("the lz4 header checksum is wrong")
    return at + 1, flags, 1 << (8 + 2 * (block >> 4))


def _open_lz4(data: memoryview, output: Output, magic: int) -> int:
    return _lz4_descriptor(data, magic)[0]


def _read_lz4(data: memoryview, output: Output, magic: int) -> int:
    at, flags, largest = _lz4_descriptor(data, magic)
    content = xxhash.xxh32() if flags & LZ4_CONTENT_CHECKSUM else None
    total = 0
    end = len(data)
    while True:
        if end - at < 4:
            raise _Broken("the lz4 frame ends without its end mark")
        size: int = LZ4_WORD.unpack_from(data, at)[0]
        at += 4
        stored = size & LZ4_STORED
        size &= ~LZ4_STORED
        if size == 0:
            break
        if size > largest or size > end - at:
            raise _Broken(f"an lz4 block of {size} bytes where at most {min(largest, end - at)} may stand")
        block = data[at : at + size]
        at += size
        if flags & LZ4_BLOCK_CHECKSUM:
            if end - at < 4 or LZ4_WORD.unpack_from(data, at) != (xxhash.xxh32_intdigest(block),):
                raise _Broken("an lz4 block checksum is wrong")
            at += 4
        if stored:
            came = output.fill(_copy, block, size, end - at)
        else:
            came = _lz4_block(block, output, largest, end - at)
        if came == 0:
            # Kafka's buffered stream takes a block of no bytes for the end.
            return at
        total += came
        if content is not None:
            content.update(output.tail(came))
    # Kafka steps over the content's size and checksum without looking at them.
    if flags & LZ4_CONTENT_SIZE and total != int.from_bytes(data[6:14], "little"):
        output.mismatch = "the lz4 content size is wrong"
    if content is not None:
        if end - at < 4:
            raise _Broken("the lz4 content checksum is cut")
        if LZ4_WORD.unpack_from(data, at) != (content.intdigest(),):
            output.mismatch = "the lz4 content checksum is wrong"
        at += 4
    return at


def _lz4_block(block: memoryview, output: Output, largest: int, rest_bytes: int) -> int:
    """One block of at most ``largest`` bytes, behind which ``rest_bytes`` are left: how many came out."""
    # No byte of input can make more than 255 of output, so little input never makes a large buffer.
    most = min(largest, len(block) * 255 + 16)
    size = min(most, output.room + 1)
    try:
        return output.fill(_lz4_into, block, size, rest_bytes)
    except cramjam.DecompressionError as error:
        # What does not fit is the bound's doing if that is what made the space small.
        if size < most:
            raise Full from None
        raise _Broken(f"lz4: {error}") from None


def _lz4_into(block: memoryview, space: memoryview) -> int:
    # Without a length, the binding may take a block's first four bytes for one.
    return cramjam.lz4.decompress_block_into(block, space, output_len=len(space))


def _copy(block: memoryview, space: memoryview) -> int:
    space[:] = block
    return len(block)


def _write_lz4(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    frame: bytes = lz4.frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    if magic == 0:
        # Writers of magic 0 computed the header checksum over the frame's magic too, and readers of it expect that.
        return [frame[:6], bytes([xxhash.xxh32_intdigest(frame[:6]) >> 8 & 0xFF]), frame[7:]]
    return [frame]


# ------------------------------------------------------------------------------------------------- zstd

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# The low four bits of the first byte are free.
ZSTD_SKIPPABLE = b"\x50\x2a\x4d\x18"
# com.github.luben.zstd.ZstdInputStreamNoFinalizer reads in pieces of this size (ZSTD_DStreamInSize).
ZSTD_BUFFER = 128 * 1024 + 3
ZSTD_LARGEST_BLOCK = 128 * 1024
# What a streaming decoder allows for unless told otherwise, as zstd-jni is not.
ZSTD_LARGEST_WINDOW = (1 << 27) + 1
# The window of the highest ordinary level, 19.
ZSTD_KEPT_WINDOW = 1 << 23
ZSTD_SINGLE_SEGMENT = 0x20


class _Contexts(threading.local):
    """A context costs more than a small batch; one serves a thread for good."""

    def __init__(self) -> None:
        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, zstandard.ZstdCompressor] = {}

    def decompressor_of(self, window: int) -> zstandard.ZstdDecompressor:
        """A decompressor keeps the largest window that it has met; one beyond the ordinary goes with its batch."""
        return self.decompressor if window <= ZSTD_KEPT_WINDOW else zstandard.ZstdDecompressor()

    def compressor(self, level: int) -> zstandard.ZstdCompressor:
        if level not in self.compressors:
            self.compressors[level] = zstandard.ZstdCompressor(level=level)
        return self.compressors[level]


_contexts = _Contexts()


def _zstd_header(data: memoryview, at: int) -> tuple[int, bool, int | None, int]:
    """The frame header at ``at``: where the blocks begin, whether a checksum follows, the content size, the window
    size.
    """
    try:
        descriptor = data[at + 4]
        at += 5
        single = descriptor >> 5 & 1
        window = 0
        if not single:
            exponent, mantissa = data[at] >> 3, data[at] & 7
            window = (1 << (10 + exponent)) + ((1 << (10 + exponent)) >> 3) * mantissa
            at += 1
    except IndexError:
        raise _Cut("a zstd frame header is cut") from None
    at += (0, 1, 2, 4)[descriptor & 3]
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    field = data[at : at + width]
    at += width
    if at > len(data):
        raise _Cut("a zstd frame header is cut")
    content: int | None = None
    if width:
        content = int.from_bytes(field, "little") + (256 if width == 2 else 0)
    if single and content is not None:
        window = content
    if window > ZSTD_LARGEST_WINDOW:
        raise _Broken(f"a zstd window of {window} bytes")
    return at, bool(descriptor & 4), content, window


def _zstd_blocks(data: memoryview, at: int, window: int) -> tuple[int, int]:
    """Walk the blocks from ``at``: where they end, and the most they can hold; nothing is decompressed."""
    most = 0
    while True:
        header = data[at : at + 3]
        if len(header) < 3:
            raise _Cut("the zstd frame is cut")
        word = int.from_bytes(header, "little")
        at += 3
        kind, size = word >> 1 & 3, word >> 3
        if kind == 3:
            raise _Broken("a reserved zstd block type")
        at += 1 if kind == 1 else size
        most += min(ZSTD_LARGEST_BLOCK, max(window, 1024)) if kind == 2 else size
        if at > len(data):
            raise _Cut("the zstd frame is cut")
        if word & 1:
            return at, most


def _open_zstd(data: memoryview, output: Output, magic: int) -> int:
    return 0


def _read_zstd(data: memoryview, output: Output, magic: int) -> int:
    at = 0
    while at < len(data):
        try:
            end = _zstd_next(data, at, output)
        except _Broken as fault:
            # zstd-jni forgets that it needs more when a frame ended in the same buffer: what is there is then all.
            starts_buffer = at % ZSTD_BUFFER == 0
            if not isinstance(fault, _Cut) or starts_buffer or len(data) > (at // ZSTD_BUFFER + 1) * ZSTD_BUFFER:
                with contextlib.suppress(_Broken, Full):
                    _zstd_rest(data[at:], output)
                raise
            _zstd_rest(data[at:], output)
            return at
        at = end
    return at


def _zstd_next(data: memoryview, at: int, output: Output) -> int:
    """Decompress the frame that begins at ``at``, or step over a skippable one; where it ends."""
    start = at
    if len(data) - at < 4:
        rest = bytes(data[at:])
        if not ZSTD_MAGIC.startswith(rest) and not (
            rest[0] & 0xF0 == ZSTD_SKIPPABLE[0] and ZSTD_SKIPPABLE[1:].startswith(rest[1:])
        ):
            raise _Broken("not a zstd frame")
        raise _Cut("a zstd frame is cut in its magic")
    if data[at] & 0xF0 == ZSTD_SKIPPABLE[0] and data[at + 1 : at + 4] == ZSTD_SKIPPABLE[1:]:
        size = int.from_bytes(data[at + 4 : at + 8], "little")
        if len(data) - at < 8 or size > len(data) - at - 8:
            raise _Cut("a skippable zstd frame is cut")
        return at + 8 + size
    if data[at : at + 4] != ZSTD_MAGIC:
        raise _Broken("not a zstd frame")
    at, checksum, content, window = _zstd_header(data, at)
    at, most = _zstd_blocks(data, at, window)
    at += 4 if checksum else 0
    if at > len(data):
        raise _Cut("the zstd checksum is cut")
    if content is not None and content > most:
        raise _Broken(f"a zstd frame claims {content} bytes; its blocks hold at most {most}")
    _zstd_frame(data[start:at], content, most, window, output)
    return at


def _zstd_lean(frame: memoryview, window: int, needed: int) -> tuple[memoryview | bytes, int]:
    """``frame`` with its window made no larger than a content of ``needed`` bytes can use, and that window.

    The library makes room for the window before it looks at a block, and a header may ask for 128 MiB in front of one
    byte. Where the window goes, so does the content size of a frame that has no other one.
    """
    # Below this, the window bounds the blocks themselves.
    exponent = (max(needed, ZSTD_LARGEST_BLOCK) - 1).bit_length()
    if window <= 1 << exponent:
        return frame, window
    descriptor, rest = frame[4], frame[6:]
    if descriptor & ZSTD_SINGLE_SEGMENT:
        # Dictionary id, then content size, which goes.
        ids = 5 + (0, 1, 2, 4)[descriptor & 3]
        rest = frame[ids + (1 << (descriptor >> 6)) :]
        return b"".join((frame[:4], bytes([descriptor & 0x1F, exponent - 10 << 3]), frame[5:ids], rest)), 1 << exponent
    return b"".join((frame[:5], bytes([exponent - 10 << 3]), rest)), 1 << exponent


def _zstd_rest(data: memoryview, output: Output) -> None:
    """What comes out of a frame before its cut or its fault."""
    frame: memoryview | bytes = data
    window = 0
    with contextlib.suppress(_Cut):
        window = _zstd_header(data, 0)[3] if data[:4] == ZSTD_MAGIC else 0
    if window:
        frame, window = _zstd_lean(data, window, output.room + ZSTD_LARGEST_BLOCK)
    try:
        with _contexts.decompressor_of(window).stream_reader(frame) as reader:
            while piece := reader.read(ZSTD_LARGEST_BLOCK):
                output.add(piece)
    except zstandard.ZstdError as error:
        raise _Broken(f"zstd: {error}") from None


def _zstd_frame(frame: memoryview, content: int | None, most: int, window: int, output: Output) -> None:
    if content is not None and content > output.room:
        raise Full
    room = min(most, output.room)
    lean, window = _zstd_lean(frame, window, room + ZSTD_LARGEST_BLOCK) if content is None else (frame, window)
    try:
        piece = _contexts.decompressor_of(window).decompress(lean, max_output_size=max(room, 1))
    except zstandard.ZstdError as error:
        # The frame is whole, so what the library misses is room.
        if room < most and ("too small" in str(error) or "full frame" in str(error)):
            raise Full from None
        raise _Broken(f"zstd: {error}") from None
    output.add(piece)


def _write_zstd(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    return [_contexts.compressor(3 if level is None else level).compress(memoryview(data))]


_OPENERS: dict[str, _Reader] = {"gzip": _open_gzip, "snappy": _open_snappy, "lz4": _open_lz4, "zstd": _open_zstd}
_READERS: dict[str, _Reader] = {"gzip": _read_gzip, "snappy": _read_snappy, "lz4": _read_lz4, "zstd": _read_zstd}
_WRITERS = {"gzip": _write_gzip, "snappy": _write_snappy, "lz4": _write_lz4, "zstd": _write_zstd}
