"""Bombs: small payloads that decompress to very many bytes, and batches with very many records or headers.

They are built by hand on demand, so their digests are the same on every machine.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

from kfuzz.vectors.recipes.making.builder import CREATED_MS, Json, Raw, Record, batch, varint
from kfuzz.vectors.recipes.making.containers import (
    Bits,
    lz4_compressed,
    lz4_parts,
    lz4_stored,
    raw_snappy,
    stored,
    xerial,
    zstd_block,
    zstd_parts,
)
from kfuzz.vectors.recipes.making.large_message import MESSAGES
from kfuzz.vectors.recipes.making.message import Body
from kfuzz.vectors.recipes.making.sent import LARGE

MIB = 1024 * 1024
ZSTD_BLOCK_BYTES = 128 * 1024
LZ4_BLOCK_BYTES = 4 * MIB
RECORD = Record().encode()
VALUE_BYTES = 96 * MIB
# Of so many zeros. To hash them takes 0.1 s, and each run of the suite makes the bombs.
VALUE_SHA256 = "425382d5857f04fc49585cabbdef6fc647472ee26f52c54caaaeaad17320b3f8"


def zstd_zeros(prefix: bytes, zeros: int, suffix: bytes = b"") -> bytes:
    """A zstd frame: ``prefix``, then RLE blocks of zeros (four bytes for each 128 KiB), then ``suffix``."""
    whole, rest = divmod(zeros, ZSTD_BLOCK_BYTES)
    sizes = [ZSTD_BLOCK_BYTES] * whole + [rest] * (rest > 0)
    runs = (zstd_block(b"\x00", 1, size=size, last=False) for size in sizes)
    return zstd_parts(zstd_block(prefix, last=False), *runs, zstd_block(suffix))


def lz4_zeros(prefix: bytes, zeros: int, suffix: bytes = b"") -> bytes:
    """An lz4 frame with 4 MiB blocks: stored ``prefix`` and ``suffix``; the zeros are copies, compressed 255 to 1."""
    whole, rest = divmod(zeros, LZ4_BLOCK_BYTES)
    runs = [lz4_compressed(_lz4_copies(LZ4_BLOCK_BYTES))] * whole + [lz4_compressed(_lz4_copies(rest))] * (rest > 0)
    # An empty block would be the end mark.
    before, after = ([lz4_stored(data)] if data else [] for data in (prefix, suffix))
    return lz4_parts(*before, *runs, *after, block_size=0x70)


def _lz4_copies(size: int) -> bytes:
    """One block of ``size`` zeros (at least 25): a literal, one copy of all but the last five bytes, five literals."""
    # The copy's length is 4 + 15 + the sum of the bytes after its offset.
    full, rest = divmod(size - 6 - 19, 255)
    return b"\x1f\x00\x01\x00" + b"\xff" * full + bytes([rest]) + b"\x50" + bytes(5)


def gzip_zeros(prefix: bytes, zeros: int, suffix: bytes = b"") -> bytes:
    """A gzip member: stored ``prefix``, zeros in fixed Huffman codes (13 bits for 258 bytes), stored ``suffix``."""
    bits = _CopyBits()
    bits.stored(prefix, last=False)
    bits.write(0b010, 3)
    bits.code(0b00110000, 8)
    copies, rest = divmod(zeros - 1, 258)
    bits.repeat_copy_258(copies)
    for _ in range(rest):
        bits.code(0b00110000, 8)
    bits.code(0, 7)
    bits.stored(suffix, last=True)
    crc = zlib.crc32(prefix)
    chunk = bytes(min(zeros, MIB))
    for _ in range(zeros // MIB):
        crc = zlib.crc32(chunk, crc)
    crc = zlib.crc32(suffix, zlib.crc32(bytes(zeros % MIB), crc))
    size = len(prefix) + zeros + len(suffix) & 0xFFFFFFFF
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + bits.done() + struct.pack("<II", crc, size)


class _CopyBits(Bits):
    """A bit writer that can repeat a copy a million times without a write for each."""

    def repeat_copy_258(self, times: int) -> None:
        """Write length code 285 (258 bytes) at distance 1, ``times`` times. Every eight codes fill whole bytes."""
        start = len(self.out)
        for _ in range(min(times, 8)):
            self.code(0b11000101, 8)
            self.code(0, 5)
        if times > 8:
            period = bytes(self.out[start:])
            # Eight codes of 13 bits are 13 bytes, so the held bits are the same before and after.
            whole, rest = divmod(times - 8, 8)
            self.out += (self._period(period)) * whole
            for _ in range(rest):
                self.code(0b11000101, 8)
                self.code(0, 5)

    def _period(self, first: bytes) -> bytes:
        """The 13 bytes that eight more codes add to the state after the first eight."""
        again = _CopyBits()
        again.held, again.count = self.held, self.count
        again.repeat_copy_258(8)
        if (again.held, again.count) != (self.held, self.count):
            raise AssertionError("eight copies of 13 bits must not change the bit position")
        return bytes(again.out)


ZEROS: dict[str, Callable[..., bytes]] = {"gzip": gzip_zeros, "lz4": lz4_zeros, "zstd": zstd_zeros}


def _zeros_behind_record(codec: str, zeros: int) -> Raw:
    payload = ZEROS[codec](RECORD, zeros)
    return batch(Record(), codec=codec, payload=payload, hostile=["payload"])


def _zeros_without_record(codec: str, zeros: int) -> Raw:
    return batch(codec=codec, payload=ZEROS[codec](b"", zeros), hostile=["payload"])


def _large_value(codec: str) -> Raw:
    """One record with a value of 96 MiB of zeros. Only its size is unusual."""
    head = b"\x00\x00\x00" + varint(1) + b"k" + varint(VALUE_BYTES)
    prefix = varint(len(head) + VALUE_BYTES + 1) + head
    payload = ZEROS[codec](prefix, VALUE_BYTES, b"\x00")
    record = {
        "headers": [],
        "key": "6b",
        "offset": "0",
        "timestamp": str(CREATED_MS),
        "value": {"sha256": VALUE_SHA256, "size": VALUE_BYTES},
    }
    return batch(Record(), codec=codec, payload=payload, contents=[record], hostile=["payload"])


def _snappy_blocks() -> Raw:
    """A record, then 600 snappy blocks of 64 KiB of zeros each. Copies of up to 64 bytes keep the blocks small."""
    block = b"\x80\x80\x04\x00\x00" + b"\xfe\x01\x00" * 1023 + b"\xfa\x01\x00"
    return batch(Record(), codec="snappy", payload=xerial(raw_snappy(RECORD), *[block] * 600), hostile=["payload"])


def _small_records(count: int) -> Raw:
    """``count`` empty records (no key, value or headers) of seven to nine bytes each."""
    # The builder makes each record field by field. That would add two seconds to every run of the suite.
    timestamp = str(CREATED_MS)
    # Before an offset delta of `size` bytes come the record's length, its attributes and its timestamp delta. After it
    # come a null key, a null value and no headers.
    before, after = [varint(size + 5) + b"\x00\x00" for size in range(6)], b"\x01\x01\x00"
    payload = b"".join([before[len(delta)] + delta + after for delta in map(varint, range(count))])
    records: list[Json] = [
        {"headers": [], "key": None, "offset": str(index), "timestamp": timestamp, "value": None}
        for index in range(count)
    ]
    made = batch(
        Record(),
        payload=payload,
        contents=records,
        canonical=True,
        last_offset_delta=count - 1,
        record_count=count,
    )
    # The batch is ordinary, only large, so no byte is marked as hostile.
    return replace(made, layout=())


RAWS: dict[str, Callable[[], Raw]] = {
    "zstd-2gib-behind-record": lambda: _zeros_behind_record("zstd", 2048 * MIB),
    "lz4-256mib-behind-record": lambda: _zeros_behind_record("lz4", 256 * MIB),
    "gzip-128mib-behind-record": lambda: _zeros_behind_record("gzip", 128 * MIB),
    "snappy-37mib-behind-record": _snappy_blocks,
    "zstd-2gib-without-record": lambda: _zeros_without_record("zstd", 2048 * MIB),
    "lz4-256mib-without-record": lambda: _zeros_without_record("lz4", 256 * MIB),
    "zstd-value-96mib": lambda: _large_value("zstd"),
    "lz4-value-96mib": lambda: _large_value("lz4"),
    "gzip-value-96mib": lambda: _large_value("gzip"),
    "records-131071": lambda: _small_records(131_071),
}


def _headers(codec: str, count: int, header: bytes, contents: list[str | None]) -> Raw:
    """A batch of one record with ``count`` equal headers, whose bytes are ``header``.

    The bytes are joined here: the builder of records would take a second for so many fields.
    """
    head = b"\x00\x00\x00" + varint(1) + b"k" + varint(1) + b"v" + varint(count)
    length = varint(len(head) + count * len(header))
    if codec == "none":
        payload = length + head + header * count
    elif any(header):
        payload = stored(codec, length + head + header * count)
    else:
        payload = ZEROS[codec](length + head, count * len(header))
    read = {**Record().contents(0, CREATED_MS), "headers": [contents] * count}
    made = batch(
        codec=codec,
        payload=payload,
        contents=[read],
        canonical=codec == "none",
        max_timestamp=CREATED_MS,
        record_count=1,
    )
    # The batch is ordinary, only large, so no byte is marked as hostile.
    return replace(made, layout=())


# Three bytes each: a key of one letter, and null. Or two zero bytes each, which compress well: an empty key and value.
MANY_HEADERS: dict[str, Callable[[], Raw]] = {
    "headers-10000": lambda: _headers("none", 10_000, b"\x02h\x01", ["h", None]),
    "headers-10000-gzip": lambda: _headers("gzip", 10_000, b"\x02h\x01", ["h", None]),
    "headers-10000-snappy": lambda: _headers("snappy", 10_000, b"\x02h\x01", ["h", None]),
    "headers-10000-lz4": lambda: _headers("lz4", 10_000, b"\x02h\x01", ["h", None]),
    "headers-65536-gzip": lambda: _headers("gzip", 65_536, bytes(2), ["", ""]),
    "headers-65536-zstd": lambda: _headers("zstd", 65_536, bytes(2), ["", ""]),
}


def contents(name: str) -> Any:
    """The contents to read from the bytes of ``name``; the vector's file may have only their digest."""
    return message_of(name).contents if name in MESSAGES else list(raw_of(name).batches)


@lru_cache(maxsize=8)
def message_of(name: str) -> Body:
    """The large message ``name``. Its bytes and its contents are asked for one after the other."""
    return MESSAGES[name]()


@cache
def raw_of(name: str) -> Raw:
    """The bomb ``name`` with its contents; built once and cached."""
    return (RAWS | MANY_HEADERS | LARGE)[name]()


def _maker(name: str) -> Callable[[], bytes]:
    return lambda: message_of(name).data if name in MESSAGES else raw_of(name).data


# The builder of a bomb's bytes, by the name in a vector's "recipe".
BOMBS: dict[str, Callable[[], bytes]] = {name: _maker(name) for name in [*RAWS, *MANY_HEADERS, *LARGE, *MESSAGES]}
