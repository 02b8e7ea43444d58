"""Seeded batches and mutants of every magic and codec; most carry right lengths and CRCs, so decoders get far."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator

from crc32c import crc32c

from kfuzz import records
from kfuzz.records.compression import compress, decompress
from kfuzz.records.model import CODECS, Record, RecordBatch, wrap64

HEADER_SIZE = 61
TELLING_BYTES = bytes([0, 1, 2, 3, 4, 0x7F, 0x80, 0x81, 0xFE, 0xFF])
TELLING_COUNTS = (0, 1, 2, -1, 3, 100, 2**31 - 1)
LIMIT_BYTES = 1 << 24


class Mutants:
    """An endless, seeded source of inputs."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield self.input()

    def input(self) -> bytes:
        roll = self.random.random()
        data = records.encode_batch(self.batch())
        if roll >= 0.05:
            mutant = self.mutant(records.encode_batch(self.batch()))
            data = mutant if roll < 0.9 else data + mutant
        if self.random.random() < 0.05:
            data = data[: self.random.randrange(len(data) + 1)]
        return data

    # -- what is well-formed

    def batch(self) -> RecordBatch:
        pick = self.random.choice
        magic = pick([2, 2, 2, 2, 1, 0])
        base = pick([0, 0, 5, 5, 1 << 40, 1 << 40, -1, (1 << 63) - 2])
        v2 = magic == 2
        compression = pick(CODECS if v2 else CODECS[:4])
        # Uncompressed messages of magic 0 and 1 are batches of one record.
        count = pick([0, 1, 1, 2, 3, 5, 20]) if v2 else 1 if compression == "none" else pick([1, 2, 3])
        return RecordBatch(
            base_offset=base,
            last_offset=wrap64(base + max(count - 1, 0)),
            records=[self.record(wrap64(base + i), magic) for i in range(count)],
            magic=magic,
            compression=compression,
            timestamp_type="none" if magic == 0 else pick(["create", "create", "log-append"]),
            transactional=v2 and self.random.random() < 0.1,
            control=v2 and self.random.random() < 0.1,
            producer_id=pick([-1, 7]) if v2 else -1,
            delete_horizon=pick([None, None, 5]) if v2 else None,
        )

    def record(self, offset: int, magic: int) -> Record:
        pick = self.random.choice
        return Record(
            offset,
            1_700_000_000_000 + self.random.randrange(-1000, 1000) if magic else None,
            pick([None, b"", self.random.randbytes(3), self.random.randbytes(10)]),
            pick([None, b"", self.random.randbytes(5), b"a" * self.random.randrange(300)]),
            tuple(self.header() for _ in range(pick([0, 0, 1, 3]))) if magic == 2 else (),
        )

    def header(self) -> tuple[bytes, bytes | None]:
        return self.random.choice([b"h", b"key", b"\xff\xc0", b""]), self.random.choice([None, b"", b"x"])

    # -- what is not

    def mutant(self, data: bytes) -> bytes:
        magic = data[16]
        codec = CODECS[(data[22] if magic == 2 else data[17]) & 7]
        roll = self.random.random()
        if magic == 2 and roll < 0.35:
            return self.with_payload(data, codec)
        if magic < 2 and codec != "none" and roll < 0.5:
            return self.with_inner_messages(data, codec, magic)
        start = HEADER_SIZE if magic == 2 else 17
        if roll < 0.8:
            return self.sealed(data[:start] + self.scramble(data[start:]))
        if roll < 0.95:
            return self.sealed(self.scramble(data[:start]) + data[start:])
        return self.scramble(data)

    def with_payload(self, data: bytes, codec: records.Codec) -> bytes:
        """The records are changed before they are compressed."""
        header, payload = data[:HEADER_SIZE], data[HEADER_SIZE:]
        if payload:
            payload = compress(codec, self.scramble(decompress(codec, payload, LIMIT_BYTES).data))
        if self.random.random() < 0.1:
            header = header[:57] + struct.pack(">i", self.random.choice(TELLING_COUNTS))
        return self.sealed(header + payload)

    def with_inner_messages(self, data: bytes, codec: records.Codec, magic: int) -> bytes:
        """The messages inside a wrapper are changed, and most of their CRCs mended."""
        key_at = 18 if magic == 0 else 26
        value_at = key_at + 4 + max(0, struct.unpack_from(">i", data, key_at)[0])
        inner = decompress(codec, data[value_at + 4 :], LIMIT_BYTES, magic=magic).data
        if self.random.random() < 0.8:
            inner = self.scramble(inner)
        mended = bytearray(inner)
        at = 0
        while len(mended) - at >= 26 and self.random.random() < 0.95:
            size = struct.unpack_from(">i", mended, at + 8)[0]
            if size < 14 or size > len(mended) - at - 12:
                break
            struct.pack_into(">I", mended, at + 12, zlib.crc32(mended[at + 16 : at + 12 + size]))
            at += 12 + size
        value = compress(codec, bytes(mended), magic=magic)
        return self.sealed(data[:value_at] + struct.pack(">i", len(value)) + value)

    def scramble(self, data: bytes) -> bytes:
        out = bytearray(data)
        for _ in range(self.random.choice([1, 1, 2, 3])):
            if not out:
                out.append(0)
            at = self.random.randrange(len(out))
            match self.random.randrange(6):
                case 0:
                    out[at] = self.random.choice(TELLING_BYTES)
                case 1:
                    out[at] ^= 1 << self.random.randrange(8)
                case 2:
                    del out[at : at + self.random.choice([1, 1, 2, 8])]
                case 3:
                    out[at:at] = bytes(self.random.choices(TELLING_BYTES, k=self.random.choice([1, 1, 4, 9])))
                case 4:
                    out[at] = self.random.getrandbits(8)
                case _:
                    out += self.random.randbytes(self.random.choice([1, 3, 8, 20, 30]))
        return bytes(out)

    def sealed(self, data: bytes) -> bytes:
        """With the length and the CRC that belong to the bytes, mostly."""
        out = bytearray(data)
        if len(out) < 21:
            return data
        if self.random.random() < 0.95:
            struct.pack_into(">i", out, 8, len(out) - 12)
        if self.random.random() < 0.97:
            if out[16] == 2:
                struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
            else:
                struct.pack_into(">I", out, 12, zlib.crc32(out[16:]))
        return bytes(out)
