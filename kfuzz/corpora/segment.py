"""Makes the files of one segment of a plan, in memory or on disk.

The bytes depend only on the segment and on the versions of the codec libraries, so a retry or a speculative task
writes the same bytes. Therefore no committer is needed: each attempt writes under its own temporary names and renames
the complete files, the ``.log`` last.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.corpora.manifest import Row, codec_versions
from kfuzz.corpora.plan import Segment, batch_bytes_max
from kfuzz.corpora.synth import Synthesiser
from kfuzz.corpora.workload import Workload
from kfuzz.files import cannot_write
from kfuzz.records.codecs import compress
from kfuzz.wire.checksum import crc32c

__all__ = ["SegmentBytes", "generate_segment", "write_segment"]

# 16 adjectives and 16 nouns of seven letters: every pair, with its two spaces, is a phrase of 16 bytes.
ADJECTIVES: Final = (
    "ancient", "brittle", "careful", "distant", "eastern", "foreign", "gradual", "hopeful",
    "instant", "joyless", "kindred", "limited", "massive", "neutral", "orderly", "patient",
)  # fmt: skip
NOUNS: Final = (
    "account", "balance", "courier", "deposit", "engines", "freight", "gateway", "harvest",
    "invoice", "journal", "keyword", "library", "machine", "network", "outcome", "parcels",
)  # fmt: skip
PHRASES: Final = "".join(f"{adjective} {noun} " for adjective in ADJECTIVES for noun in NOUNS).encode()


@dataclass(frozen=True, slots=True)
class SegmentBytes:
    """The contents of a segment's files; ``transaction_index`` is empty if no transaction was aborted."""

    log: bytes
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes


def generate_segment(segment: Segment, workload: Workload) -> SegmentBytes:
    """The files of ``segment`` in memory; for tests and small corpora."""
    synthesiser = _synthesiser(segment, workload)
    log = b"".join(bytes(chunk) for chunk in _chunks(synthesiser))
    return SegmentBytes(
        log,
        synthesiser.offset_index_bytes(),
        synthesiser.time_index_bytes(),
        synthesiser.transaction_index_bytes(),
    )


def write_segment(segment: Segment, segment_id: int, workload: Workload, out: Path, attempt: str) -> Row:
    """Write the files of ``segment`` under ``out`` and return its row for the manifest.

    ``attempt`` must differ between attempts that may run at the same time, on one machine or on several. On any error,
    no half-written file gets a final name, and this attempt's temporary files are removed. Raises ``UsageError`` if
    the system refuses to write: a full disk, missing permission.
    """
    directory = out / segment.directory
    synthesiser = _synthesiser(segment, workload)
    with _Attempt(directory, attempt) as files:
        log_crc = files.write(f"{segment.stem}.log", _chunks(synthesiser))
        offset_crc = files.write(f"{segment.stem}.index", iter([synthesiser.offset_index_bytes()]))
        time_crc = files.write(f"{segment.stem}.timeindex", iter([synthesiser.time_index_bytes()]))
        aborted = synthesiser.transaction_index_bytes()
        transaction_crc = files.write(f"{segment.stem}.txnindex", iter([aborted])) if aborted else None
        files.publish()
    return Row(
        segment_id=segment_id,
        path=segment.path,
        bytes=synthesiser.size,
        crc32c=log_crc,
        fingerprint=synthesiser.fingerprint(),
        batches=synthesiser.batches,
        control_batches=synthesiser.control_batches,
        records=synthesiser.records,
        first_offset=segment.first_offset,
        last_offset=segment.last_offset,
        min_timestamp=synthesiser.min_timestamp if synthesiser.max_timestamp >= 0 else None,
        max_timestamp=synthesiser.max_timestamp if synthesiser.max_timestamp >= 0 else None,
        index_crc32c=offset_crc,
        timeindex_crc32c=time_crc,
        txnindex_crc32c=transaction_crc,
        valid=synthesiser.batches,
        acceptable=0,
        invalid=0,
        codec_versions=codec_versions(),
    )


def _synthesiser(segment: Segment, workload: Workload) -> Synthesiser:
    bound = batch_bytes_max(segment.topic)
    return Synthesiser(segment, workload.index_interval_bytes, bound, PHRASES, compress)


def _chunks(synthesiser: Synthesiser) -> Iterator[memoryview]:
    """The log in chunks of a reused buffer. Each chunk is valid only until the next is requested."""
    while used := synthesiser.fill():
        yield synthesiser.view[:used]


class _Attempt:
    """The files of one attempt. They have temporary names until ``publish``; without ``publish`` they are removed."""

    def __init__(self, directory: Path, attempt: str) -> None:
        self._directory = directory
        self._suffix = f"{attempt}.{os.getpid()}.tmp"
        self._names: list[str] = []

    def __enter__(self) -> _Attempt:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._directory, error) from None
        return self

    def write(self, name: str, chunks: Iterator[memoryview | bytes] | Iterator[bytes] | Iterator[memoryview]) -> int:
        """Write and fsync ``name`` under its temporary name; returns the CRC-32C of its bytes."""
        self._names.append(name)
        crc = 0
        try:
            # Unbuffered, because the chunks are large and a buffer would only add a copy.
            with open(self._temporary(name), "wb", buffering=0) as file:
                for chunk in chunks:
                    crc = crc32c(chunk, crc)
                    _write_fully(file.fileno(), chunk)
                os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(self._directory / name, error) from None
        return crc

    def publish(self) -> None:
        """Give the files their final names. The log is renamed last, so that a visible log always has its indexes."""
        for name in reversed(self._names):
            os.replace(self._temporary(name), self._directory / name)

    def __exit__(self, *error: object) -> None:
        for name in self._names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary(name))

    def _temporary(self, name: str) -> Path:
        return self._directory / f".{name}.{self._suffix}"


def _write_fully(descriptor: int, data: memoryview | bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
