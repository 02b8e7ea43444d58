#!/usr/bin/env python3
"""Tests a small decoder of Kafka record batches with a copied kfuzz suite. Uses only the standard library.

    python3 read_suite.py [SUITE]

The decoder below is a consumer for magic 2, uncompressed or with gzip. To test your own decoder, replace
``read_batches``, and declare in ``unsupported`` what it does not support.

Exit codes: 0 if no required vector failed; 1 if one failed or none passed; 2 if there is no suite.
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SPOKEN_CODECS = ("none", "gzip")
# The fields: base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base timestamp, max
# timestamp, producer id, producer epoch, base sequence, record count.
HEADER = struct.Struct(">qiibIhiqqqhii")
LOG_OVERHEAD = 12
CRC_COVERS_FROM = 21
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024
# For a key or value longer than this, the suite may hold only a digest.
DIGEST_ABOVE_BYTES = 64 * 1024


class Refused(Exception):
    """The bytes are invalid. Any other exception is a fault of the decoder."""


# --------------------------------------------------------------------------------------------------- the decoder


def read_batches(data: bytes) -> tuple[list[dict[str, Any]], int, bool]:
    """Return the batches in ``data``, where the last whole one ends, and whether a truncated one follows.

    A truncated batch at the end is not an error.
    """
    batches, at = [], 0
    while len(data) - at >= LOG_OVERHEAD + 5:
        (length,) = struct.unpack_from(">i", data, at + 8)
        magic = data[at + 16]
        if length < 14 or (magic == 2 and length < HEADER.size - LOG_OVERHEAD):
            raise Refused(f"length {length}")
        if len(data) - at - LOG_OVERHEAD < length:
            break
        if magic != 2:
            raise Refused(f"magic {magic}")
        batches.append(read_batch(data[at : at + LOG_OVERHEAD + length]))
        at += LOG_OVERHEAD + length
    return batches, at, at < len(data)


def read_batch(batch: bytes) -> dict[str, Any]:
    (
        base_offset, _, leader_epoch, _, crc, attributes, last_offset_delta,
        base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count,
    ) = HEADER.unpack_from(batch)  # fmt: skip
    if crc != crc32c(batch[CRC_COVERS_FROM:]):
        raise Refused("wrong CRC")
    codec = attributes & 7
    if codec >= len(CODECS):
        raise Refused(f"codec {codec}")
    if count < 0:
        raise Refused(f"record count {count}")
    payload = Cursor(gunzip(batch[HEADER.size :]) if CODECS[codec] == "gzip" else batch[HEADER.size :])
    log_append_time = max_timestamp if attributes & 8 else None
    # Do not allocate by ``count``, which may be wrong: if it is too high, the first missing record raises ``Refused``.
    records = []
    for _ in range(count):
        records.append(read_record(payload, base_offset, base_timestamp, log_append_time))
    if payload.left:
        raise Refused(f"{payload.left} bytes after the records")
    last_offset = int64(base_offset + last_offset_delta)
    return {
        "base_offset": str(base_offset),
        "last_offset": str(last_offset),
        "next_offset": str(int64(last_offset + 1)),
        "magic": 2,
        "compression": CODECS[codec],
        "timestamp_type": "create" if log_append_time is None else "log-append",
        "transactional": bool(attributes & 16),
        "control": bool(attributes & 32),
        "delete_horizon": str(base_timestamp) if attributes & 64 else None,
        "producer_id": str(producer_id),
        "producer_epoch": producer_epoch,
        "base_sequence": base_sequence,
        "partition_leader_epoch": leader_epoch,
        "records": records,
    }


def read_record(payload: Cursor, base_offset: int, base_timestamp: int, log_append_time: int | None) -> dict[str, Any]:
    size = payload.varint(32)
    if size < 0:
        raise Refused(f"record length {size}")
    record = Cursor(payload.take(size))
    record.take(1)
    timestamp = int64(base_timestamp + record.varint(64))
    offset = int64(base_offset + record.varint(32))
    key, value = record.octets(), record.octets()
    header_count = record.varint(32)
    if header_count < 0:
        raise Refused(f"header count {header_count}")
    headers = []
    for _ in range(header_count):
        name, content = record.octets(), record.octets()
        if name is None:
            raise Refused("a header without a key")
        headers.append([text(name), shown(content)])
    if record.left:
        raise Refused(f"{record.left} bytes after the record's last header")
    return {
        "offset": str(offset),
        "timestamp": str(timestamp if log_append_time is None else log_append_time),
        "key": shown(key),
        "value": shown(value),
        "headers": headers,
    }


class Cursor:
    """Takes bytes from the front of ``data``, and checks each length before it reads."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise Refused(f"{size} bytes wanted, {self.left} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def varint(self, bits: int) -> int:
        """A zigzag varint of at most 5 bytes (32 bits) or 10 bytes (64 bits). Like Java, drops bits that do not fit."""
        value = 0
        for shift in range(0, bits + 3, 7):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                value &= (1 << bits) - 1
                return value >> 1 ^ -(value & 1)
        raise Refused(f"a varint of more than {bits // 7 + 1} bytes")

    def octets(self) -> bytes | None:
        size = self.varint(32)
        return None if size < 0 else self.take(size)


def gunzip(data: bytes) -> bytes:
    """Decompress a gzip stream of one or more members, up to a fixed limit."""
    out = b""
    while True:
        inflater = zlib.decompressobj(wbits=31)
        try:
            out += inflater.decompress(data, DECOMPRESSED_BYTES_MAX + 1 - len(out))
        except zlib.error as error:
            raise Refused(f"gzip: {error}") from None
        if len(out) > DECOMPRESSED_BYTES_MAX:
            raise Refused("the decompressed payload exceeds the limit")
        if not inflater.eof:
            raise Refused("the gzip stream is cut")
        data = inflater.unused_data
        if not data:
            return out


def _crc32c_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC32C = _crc32c_table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def int64(number: int) -> int:
    """``number`` wrapped to 64 bits, as Java's ``long`` arithmetic does."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def shown(octets: bytes | None) -> Any:
    """Bytes in the suite's form: hex, null, or a digest if they are long."""
    if octets is None:
        return None
    if len(octets) > DIGEST_ABOVE_BYTES:
        return {"sha256": hashlib.sha256(octets).hexdigest(), "size": len(octets)}
    return octets.hex()


def text(octets: bytes) -> Any:
    """A header's key: a string, or hex if it is not UTF-8."""
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return {"hex": octets.hex()}


# ----------------------------------------------------------------------------------------------------- the judge


def unsupported(data: bytes) -> str | None:
    """The reason to skip ``data``, or None.

    Declare here what the decoder does not support; never guess it from a failure.
    """
    at = 0
    while len(data) - at >= LOG_OVERHEAD + 6:
        (length,) = struct.unpack_from(">i", data, at + 8)
        if data[at + 16] < 2:
            return "magic 0 or 1"
        if data[at + 16] == 2 and len(data) - at > 22:
            codec = data[at + 22] & 7
            if codec < len(CODECS) and CODECS[codec] not in SPOKEN_CODECS:
                return CODECS[codec]
        if length < 0:
            break
        at += LOG_OVERHEAD + length
    return None


def judge(expect: dict[str, Any], data: bytes) -> str | None:
    """Returns what is wrong with the decoder's answer, or None if it is right."""
    try:
        batches, consumed, partial_tail = read_batches(data)
    except Refused as error:
        return f"refused valid bytes: {error}" if expect["verdict"] == "valid" else None
    except Exception as error:
        return f"fault: {type(error).__name__}: {error}"
    if expect["verdict"] == "invalid":
        return f"accepted invalid bytes: {expect['finding']}"
    # A decoder that accepts must read the expected contents, or one of the alternatives that are equally right.
    if not any(same(reading, batches) for reading in (expect["batches"], *expect.get("alternatives", ()))):
        return f"read {json.dumps(batches)[:2000]}"
    if consumed != expect["consumed"]:
        return f"consumed {consumed} bytes, not {expect['consumed']}"
    if partial_tail != expect.get("partial_tail", False):
        return f"partial tail: {partial_tail}"
    return None


def same(reading: Any, batches: list[dict[str, Any]]) -> bool:
    """Whether ``batches`` are the expected ones. The suite may hold only their digest."""
    if isinstance(reading, list):
        return bool(reading == batches)
    line = json.dumps(batches, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    return bool(reading == {"sha256": hashlib.sha256(line).hexdigest(), "size": len(line)})


def main(root: Path) -> int:
    passed, missed, failed, skipped = 0, 0, 0, Counter[str]()
    for name in sorted(json.loads((root / "manifest.json").read_bytes())["vectors"]):
        document = json.loads((root / name).read_bytes())
        for vector in document["vectors"]:
            expect = vector.get("expect", {}).get("consumer")
            if document["kind"] != "records" or expect is None:
                skipped["other kinds and roles"] += 1
                continue
            if "recipe" in vector and not (root / "bombs" / f"{vector['recipe']}.bin").is_file():
                skipped["bombs without bytes"] += 1
                continue
            bomb = "recipe" in vector
            data = (root / "bombs" / f"{vector['recipe']}.bin").read_bytes() if bomb else bytes.fromhex(vector["hex"])
            if reason := unsupported(data):
                skipped[reason] += 1
                continue
            began = time.process_time()
            wrong = judge(expect, data)
            spent_ms = (time.process_time() - began) * 1000
            if wrong is None and "budget" in vector and spent_ms > vector["budget"]["cpu_ms"]:
                wrong = f"took {spent_ms:.0f} ms of CPU; the budget is {vector['budget']['cpu_ms']}"
            if wrong is None:
                passed += 1
            elif vector["level"] == "recommended":
                missed += 1
                print(f"missed {vector['id']} (recommended): {wrong}")
            else:
                failed += 1
                print(f"FAILED {vector['id']} ({vector['summary']}): {wrong}")
    print(f"{passed} passed, {missed} recommended missed, {failed} failed")
    print("skipped: " + (", ".join(f"{n} {why}" for why, n in sorted(skipped.items())) or "none"))
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    suite = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    if not (suite / "manifest.json").is_file():
        print(f"{suite} holds no manifest.json; name a folder that `kfuzz vectors copy` wrote", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(suite))
