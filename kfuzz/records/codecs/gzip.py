"""The gzip container, as ``java.util.zip.GZIPInputStream`` reads it with Kafka's buffer size."""

from __future__ import annotations

import contextlib
import struct
import zlib
from typing import TYPE_CHECKING

from kfuzz.records.codecs.container import Broken, require_memory
from kfuzz.wire.io.output import Full, Output

if TYPE_CHECKING:
    from typing_extensions import Buffer

# Its name and version: the compressed bytes depend on them.
LIBRARY = ("zlib", zlib.ZLIB_RUNTIME_VERSION)

# Kafka gives java.util.zip.GZIPInputStream a buffer of this size (GzipCompression). The size affects the result: after
# a member, Java looks for another one only if bytes remain after the buffer, or more than 26 bytes remain in it.
GZIP_BUFFER = 8192
GZIP_LEFTOVER = 26
# In Python's error text for zlib's Z_MEM_ERROR. The stream itself may be valid.
NO_MEMORY = "Error -4 "


def _header(data: memoryview, at: int) -> int:
    """Where the header that begins at ``at`` ends. Reads the flags as java.util.zip.GZIPInputStream does."""

    def need(n: int) -> memoryview:
        nonlocal at
        if n > len(data) - at:
            raise Broken("a gzip header is cut")
        at += n
        return data[at - n : at]

    start = at
    if bytes(need(2)) != b"\x1f\x8b":
        raise Broken("not a gzip stream")
    method, flags = need(2)
    if method != 8:
        raise Broken(f"gzip compression method {method}; only 8 exists")
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
            raise Broken("a gzip header's checksum is wrong")
    return at


def open_stream(data: memoryview, output: Output, magic: int) -> int:
    return _header(data, 0)


def read_stream(data: memoryview, output: Output, magic: int) -> int:
    at = buffered = _header(data, 0)
    # There is nearly always one member, so it gets all input as one piece. Later members get small pieces, because zlib
    # copies the unused part of a piece.
    piece_bytes = len(data)
    while True:
        at, buffered, remaining = _member(data, at, buffered, piece_bytes, output)
        piece_bytes = GZIP_BUFFER
        if buffered == len(data) and remaining <= GZIP_LEFTOVER:
            return at
        try:
            after_header = _header(data, at)
        except Broken:
            # Kafka ignores all bytes that follow, as if they were padding.
            return at
        at = after_header
        buffered = max(buffered, at)


def _member(data: memoryview, at: int, buffered: int, piece_bytes: int, output: Output) -> tuple[int, int, int]:
    """Inflate the member at ``at``.

    Returns the place after its trailer, the end of Java's buffer, and how many unread bytes the buffer held at the
    start of the trailer.
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
                raise Broken("the gzip stream is cut")
        try:
            piece = inflater.decompress(chunk, output.room + 1)
        except zlib.error as error:
            require_memory(error, NO_MEMORY, "zlib")
            with contextlib.suppress(Full):
                output.add(_inflate_to_fault(data[start:], size + output.room)[size:])
            raise Broken(f"deflate: {error}") from None
        output.add(piece)
        crc = zlib.crc32(piece, crc)
        size += len(piece)
        chunk = inflater.unconsumed_tail
    at -= len(inflater.unused_data)
    # Compute the end of Java's buffer after the refills that were needed to get here.
    while buffered < at:
        buffered = min(buffered + GZIP_BUFFER, len(data))
    remaining = buffered - at
    trailer = data[at : at + 8]
    if len(trailer) < 8:
        raise Broken("the gzip trailer is cut")
    if struct.unpack("<II", trailer) != (crc, size & 0xFFFFFFFF):
        raise Broken("the gzip trailer's checksum or size is wrong")
    return at + 8, max(buffered, at + 8), remaining


def _inflate_to_fault(data: memoryview, most_bytes: int) -> bytes:
    """The output of a broken deflate stream before the fault. zlib returns nothing of the piece that has the fault."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    out = bytearray()
    for at in range(0, len(data), GZIP_BUFFER):
        before = inflater.copy()
        try:
            out += inflater.decompress(data[at : at + GZIP_BUFFER], most_bytes - len(out) + 1)
        except zlib.error as error:
            require_memory(error, NO_MEMORY, "zlib")
            try:
                for i in range(at, at + GZIP_BUFFER):
                    out += before.decompress(data[i : i + 1])
            except zlib.error as fault:
                require_memory(fault, NO_MEMORY, "zlib")
            break
        if len(out) > most_bytes:
            break
    return bytes(out[:most_bytes])


def write_stream(data: Buffer, level: int | None, magic: int) -> list[Buffer]:
    deflater = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION if level is None else level, zlib.DEFLATED, zlib.MAX_WBITS | 16
    )
    return [deflater.compress(data), deflater.flush()]
