"""Fingerprints of a corpus and of its partitions, each in two parts: what the records are, and which bytes hold them.

Compare ``contents`` if the codec libraries differ, and ``bytes`` if every bit must be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfuzz.corpora.manifest import Row

if TYPE_CHECKING:
    from hashlib import _Hash as _Digest


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """``contents`` depends on the records, ``bytes`` on every byte of the segments' files. Both are SHA-256 in hex."""

    contents: str
    bytes: str


def of_partitions(rows: Iterable[Row]) -> dict[str, Fingerprints]:
    """The fingerprints of each partition by its folder, such as ``orders-0``. ``rows`` come in the plan's order.

    They cover a line for each segment, in order: the name of its log, and its content fingerprint or size and CRCs.
    """
    found: dict[str, tuple[_Digest, _Digest]] = {}
    for row in rows:
        folder, _, name = row.path.partition("/")
        contents, every_byte = found.setdefault(folder, (hashlib.sha256(), hashlib.sha256()))
        contents.update(f"{name} {row.fingerprint}\n".encode())
        every_byte.update(f"{name} {_bytes(row)}\n".encode())
    return {folder: Fingerprints(one.hexdigest(), other.hexdigest()) for folder, (one, other) in found.items()}


def of_corpus(partitions: dict[str, Fingerprints]) -> Fingerprints:
    """The fingerprints of a whole corpus: over a line for each partition, its folder and its fingerprint."""
    contents, every_byte = hashlib.sha256(), hashlib.sha256()
    for folder, part in partitions.items():
        contents.update(f"{folder} {part.contents}\n".encode())
        every_byte.update(f"{folder} {part.bytes}\n".encode())
    return Fingerprints(contents.hexdigest(), every_byte.hexdigest())


def fingerprint_lines(rows: Iterable[Row]) -> list[str]:
    """The lines of ``_SUCCESS`` with all fingerprints. ``sha256sum --check`` takes them for comments."""
    partitions = of_partitions(rows)
    whole = of_corpus(partitions)
    lines = [f"# contents {whole.contents}", f"# bytes {whole.bytes}"]
    for folder, part in partitions.items():
        lines += [f"# contents {part.contents} {folder}", f"# bytes {part.bytes} {folder}"]
    return lines


def _bytes(row: Row) -> str:
    sums = (row.crc32c, row.index_crc32c, row.timeindex_crc32c, row.txnindex_crc32c, row.snapshot_crc32c)
    return " ".join([str(row.bytes), *("-" if one is None else f"{one:08x}" for one in sums)])
