"""Compressed streams, built by hand so that any part can be wrong and every machine makes the same bytes.

``stored`` makes a stream without compressing, which every format allows. ``packed`` uses the compression libraries,
whose bytes differ between versions.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable

from xxhash import xxh32_intdigest

from kfuzz.wire.io.cursor import uvarint

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
LZ4_MAGIC = struct.pack("<I", 0x184D2204)
LZ4_STORED = 0x80000000
ZSTD_MAGIC = struct.pack("<I", 0xFD2FB528)
# Exponent 7 over 1 KiB: a window of 128 KiB.
ZSTD_WINDOW = 7 << 3
BLOCK_BYTES = 65535


def stored(codec: str, data: bytes) -> bytes:
    """A stream of ``codec`` that holds ``data`` uncompressed; the bytes are the same on every machine."""
    makers: dict[str, Callable[[bytes], bytes]] = {
        "none": bytes,
        "gzip": gzip_member,
        "snappy": lambda data: xerial(raw_snappy(data)),
        "lz4": lz4_frame,
        "zstd": zstd_frame,
    }
    return makers[codec](data)


def packed(codec: str, data: bytes) -> bytes:
    """A stream of ``codec``, compressed by the codec's usual library; another version may make different bytes."""
    if codec == "gzip":
        return gzip_member(data, deflate=_deflate(data))
    if codec == "snappy":
        import snappy

        return xerial(snappy.compress(data))
    if codec == "lz4":
        import lz4.frame

        return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))
    import zstandard

    return zstandard.ZstdCompressor(level=3).compress(data)


def _deflate(data: bytes) -> bytes:
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    return compressor.compress(data) + compressor.flush()


def gzip_member(
    data: bytes,
    *,
    flags: int = 0,
    fields: bytes = b"",
    method: int = 8,
    deflate: bytes | None = None,
    crc: int | None = None,
    size: int | None = None,
) -> bytes:
    """One gzip member (RFC 1952); ``fields`` holds the optional header fields that ``flags`` declare."""
    body = _stored_deflate(data) if deflate is None else deflate
    crc = zlib.crc32(data) if crc is None else crc
    size = len(data) if size is None else size
    header = struct.pack("<2sBBIBB", b"\x1f\x8b", method, flags, 0, 0, 255)
    return header + fields + body + struct.pack("<II", crc, size & 0xFFFFFFFF)


def _stored_deflate(data: bytes) -> bytes:
    chunks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)] or [b""]
    blocks = [struct.pack("<BHH", 0, len(chunk), len(chunk) ^ 0xFFFF) + chunk for chunk in chunks]
    blocks[-1] = b"\x01" + blocks[-1][1:]
    return b"".join(blocks)


class Bits:
    """A bit writer in deflate's order: numbers start with their lowest bit, codes with their highest."""

    def __init__(self) -> None:
        self.out = bytearray()
        self.held = 0
        self.count = 0

    def write(self, value: int, bits: int) -> None:
        """Write a number of ``bits`` bits."""
        self.held |= value << self.count
        self.count += bits
        while self.count >= 8:
            self.out.append(self.held & 0xFF)
            self.held >>= 8
            self.count -= 8

    def code(self, value: int, bits: int) -> None:
        """Write a Huffman code of ``bits`` bits."""
        self.write(int(f"{value:0{bits}b}"[::-1], 2), bits)

    def stored(self, data: bytes, *, last: bool) -> None:
        """Write a stored block."""
        self.write(int(last), 3)
        self.write(0, -self.count % 8)
        self.out += struct.pack("<HH", len(data), len(data) ^ 0xFFFF) + data

    def done(self) -> bytes:
        """The bytes; the last one is padded with zero bits."""
        self.write(0, -self.count % 8)
        return bytes(self.out)


def raw_snappy(data: bytes, *, claimed: int | None = None) -> bytes:
    """A raw snappy block of one literal; ``claimed`` replaces the uncompressed length in its preamble."""
    length = len(data) if claimed is None else claimed
    if not data:
        return uvarint(length)
    if len(data) <= 60:
        return uvarint(length) + bytes([(len(data) - 1) << 2]) + data
    return uvarint(length) + b"\xf4" + struct.pack("<H", len(data) - 1) + data


def xerial(*blocks: bytes, versions: bytes = XERIAL_VERSIONS) -> bytes:
    """The snappy-java framing that Kafka uses: a magic, two versions, and blocks with a big-endian length each."""
    return XERIAL_MAGIC + versions + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lz4_frame(
    *chunks: bytes,
    content_checksum: int | bool = False,
    block_checksums: int | bool = False,
    content_size: int | None = None,
    version: int = 1,
    header_checksum: int | None = None,
    end_mark: bool = True,
) -> bytes:
    """One LZ4 frame of uncompressed blocks of up to 64 KiB. ``True`` computes a checksum, a number sets it."""
    flags = version << 6 | 0x20 | 0x10 * (block_checksums is not False) | 0x08 * (content_size is not None)
    flags |= 0x04 * (content_checksum is not False)
    size = b"" if content_size is None else struct.pack("<Q", content_size)
    end = bytes(4) + _lz4_checksum(content_checksum, b"".join(chunks)) if end_mark else b""
    # An empty block would be the end mark.
    blocks = (lz4_stored(chunk) + _lz4_checksum(block_checksums, chunk) for chunk in filter(None, chunks))
    return lz4_parts(*blocks, flags=flags, fields=size, header_checksum=header_checksum, end=end)


def lz4_parts(
    *blocks: bytes,
    flags: int = 0x60,
    block_size: int = 0x40,
    fields: bytes = b"",
    header_checksum: int | None = None,
    end: bytes = bytes(4),
) -> bytes:
    """One LZ4 frame of ready-made blocks, each with its length. ``block_size`` is the code of the largest."""
    descriptor = bytes([flags, block_size]) + fields
    check = xxh32_intdigest(descriptor) >> 8 & 0xFF if header_checksum is None else header_checksum
    return LZ4_MAGIC + descriptor + bytes([check]) + b"".join(blocks) + end


def lz4_stored(data: bytes) -> bytes:
    """An uncompressed block with its length."""
    return struct.pack("<I", len(data) | LZ4_STORED) + data


def lz4_compressed(data: bytes) -> bytes:
    """A compressed block with its length; ``data`` is its sequences."""
    return struct.pack("<I", len(data)) + data


def _lz4_checksum(asked: int | bool, data: bytes) -> bytes:
    if asked is False:
        return b""
    return struct.pack("<I", xxh32_intdigest(data) if asked is True else asked)


def zstd_frame(
    data: bytes, *, checksum: int | None = None, content_size: int | None = None, last: bool = True
) -> bytes:
    """One Zstandard frame of raw blocks with a 128 KiB window. ``checksum`` sets the content checksum."""
    chunks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)] or [b""]
    blocks = [zstd_block(chunk, last=last and index == len(chunks)) for index, chunk in enumerate(chunks, 1)]
    descriptor = 0x04 * (checksum is not None)
    end = b"" if checksum is None else struct.pack("<I", checksum)
    if content_size is None:
        return zstd_parts(*blocks, descriptor=descriptor, end=end)
    size = struct.pack("<Q", content_size)
    return zstd_parts(*blocks, descriptor=descriptor | 0xE0, window=None, fields=size, end=end)


def zstd_parts(
    *blocks: bytes, descriptor: int = 0, window: int | None = ZSTD_WINDOW, fields: bytes = b"", end: bytes = b""
) -> bytes:
    """A frame of the given parts. ``fields`` holds the dictionary id and the content size, ``end`` the checksum."""
    head = bytes([descriptor]) + (b"" if window is None else bytes([window])) + fields
    return ZSTD_MAGIC + head + b"".join(blocks) + end


def zstd_block(data: bytes, kind: int = 0, *, last: bool = True, size: int | None = None) -> bytes:
    """A block; ``size`` is the size in its header, by default the right one."""
    size = len(data) if size is None else size
    return (last | kind << 1 | size << 3).to_bytes(3, "little") + data
