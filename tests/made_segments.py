"""Segments of a few batches, for tests of what is wrong in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kfuzz import records
from kfuzz.records import Record, RecordBatch


def batch(offset: int, count: int = 1, value: bytes = b"v", **fields: Any) -> bytes:
    """A batch of ``count`` equal records."""
    made = [Record(offset + i, 1, b"k", value) for i in range(count)]
    return records.encode([RecordBatch(offset, offset + count - 1, made, **fields)])


def bad(data: bytes, at: int = -1, bit: int = 1) -> bytes:
    """The same bytes with one bit the other way."""
    made = bytearray(data)
    made[at] ^= bit
    return bytes(made)


def written(folder: Path, *pieces: bytes, base: int = 0) -> Path:
    """The segment of these pieces."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base:020d}.log"
    path.write_bytes(b"".join(pieces))
    return path
