"""Compressed streams, built by hand so that any part can be wrong and every machine makes the same bytes.

``stored`` makes a stream without compressing, which every format allows. ``packed`` uses the compression libraries,
whose bytes differ between versions.
"""

from __future__ import annotations

import struct
import zlib

from kfuzz.wire.io.cursor import uvarint

__all__ = [
    "Bits",
    "gzip_member",
    "lz4_frame",
    "packed",
    "raw_snappy",
    "stored",
    "xerial",
    "xxh32",
    "xxh64",
    "zstd_frame",
]

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_VERSIONS = struct.pack(">ii", 1, 1)
LZ4_MAGIC = struct.pack("<I", 0x184D2204)
LZ4_STORED = 0x80000000
ZSTD_MAGIC = struct.pack("<I", 0xFD2FB528)
BLOCK_BYTES = 65535


def stored(codec: str, data: bytes) -> bytes:
    """A stream of ``codec`` that holds ``data`` uncompressed; the bytes are the same on every machine."""
    makers = {
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
    descriptor = bytes([flags, 0x40]) + (b"" if content_size is None else struct.pack("<Q", content_size))
    check = xxh32(descriptor) >> 8 & 0xFF if header_checksum is None else header_checksum
    out = LZ4_MAGIC + descriptor + bytes([check])
    # An empty block would be the end mark.
    for chunk in filter(None, chunks):
        out += struct.pack("<I", len(chunk) | LZ4_STORED) + chunk + _lz4_checksum(block_checksums, chunk)
    if not end_mark:
        return out
    return out + struct.pack("<I", 0) + _lz4_checksum(content_checksum, b"".join(chunks))


def _lz4_checksum(asked: int | bool, data: bytes) -> bytes:
    if asked is False:
        return b""
    return struct.pack("<I", xxh32(data) if asked is True else asked)


def xxh32(data: bytes) -> int:
    """xxHash32 with seed 0, as specified."""
    mask = 0xFFFFFFFF
    prime = (2654435761, 2246822519, 3266489917, 668265263, 374761393)

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & mask

    at, total = 0, prime[4]
    if len(data) >= 16:
        lanes = [(prime[0] + prime[1]) & mask, prime[1], 0, -prime[0] & mask]
        while at + 16 <= len(data):
            words = struct.unpack_from("<4I", data, at)
            lanes = [
                rotate((lane + word * prime[1]) & mask, 13) * prime[0] & mask
                for lane, word in zip(lanes, words, strict=True)
            ]
            at += 16
        total = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True))
    total = (total + len(data)) & mask
    for word in struct.unpack_from(f"<{(len(data) - at) // 4}I", data, at):
        total = rotate((total + word * prime[2]) & mask, 17) * prime[3] & mask
    for byte in data[len(data) - len(data) % 4 :]:
        total = rotate((total + byte * prime[4]) & mask, 11) * prime[0] & mask
    total = (total ^ total >> 15) * prime[1] & mask
    total = (total ^ total >> 13) * prime[2] & mask
    return total ^ total >> 16


def xxh64(data: bytes) -> int:
    """xxHash64 with seed 0, as specified."""
    mask = 0xFFFFFFFFFFFFFFFF
    prime = (
        11400714785074694791,
        14029467366897019727,
        1609587929392839161,
        9650029242287828579,
        2870177450012600261,
    )

    def rotate(value: int, by: int) -> int:
        return (value << by | value >> (64 - by)) & mask

    def mixed(lane: int, word: int) -> int:
        return rotate((lane + word * prime[1]) & mask, 31) * prime[0] & mask

    at, total = 0, prime[4]
    if len(data) >= 32:
        lanes = [(prime[0] + prime[1]) & mask, prime[1], 0, -prime[0] & mask]
        while at + 32 <= len(data):
            words = struct.unpack_from("<4Q", data, at)
            lanes = [mixed(lane, word) for lane, word in zip(lanes, words, strict=True)]
            at += 32
        total = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & mask
        for lane in lanes:
            total = ((total ^ mixed(0, lane)) * prime[0] + prime[3]) & mask
    total = (total + len(data)) & mask
    for word in struct.unpack_from(f"<{(len(data) - at) // 8}Q", data, at):
        total = (rotate(total ^ mixed(0, word), 27) * prime[0] + prime[3]) & mask
    at = len(data) - len(data) % 8
    if len(data) - at >= 4:
        (word,) = struct.unpack_from("<I", data, at)
        total = (rotate(total ^ word * prime[0] & mask, 23) * prime[1] + prime[2]) & mask
        at += 4
    for byte in data[at:]:
        total = rotate(total ^ byte * prime[4] & mask, 11) * prime[0] & mask
    total = (total ^ total >> 33) * prime[1] & mask
    total = (total ^ total >> 29) * prime[2] & mask
    return total ^ total >> 32


def zstd_frame(
    data: bytes, *, checksum: int | None = None, content_size: int | None = None, last: bool = True
) -> bytes:
    """One Zstandard frame of raw blocks with a 128 KiB window. ``checksum`` sets the content checksum."""
    descriptor = 0x04 * (checksum is not None)
    if content_size is None:
        # Window descriptor: exponent 7 over 1 KiB is 128 KiB.
        header = bytes([descriptor, 7 << 3])
    else:
        header = bytes([descriptor | 0xE0]) + struct.pack("<Q", content_size)
    chunks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)] or [b""]
    out = ZSTD_MAGIC + header
    for index, chunk in enumerate(chunks):
        final = last and index == len(chunks) - 1
        out += (final | len(chunk) << 3).to_bytes(3, "little") + chunk
    return out + (b"" if checksum is None else struct.pack("<I", checksum))
