"""Makes the files of one segment of a plan, in memory or on disk.

The bytes depend only on the segment and on the versions of the codec libraries, so a retry or a speculative task
writes the same bytes. Therefore no committer is needed: ``targets`` gives files their names when they are complete, the
``.log`` last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kfuzz.corpora.manifest import Row, codec_versions
from kfuzz.corpora.plan import Plan, Segment, batch_bytes_max
from kfuzz.corpora.snapshot import Producer, encode, snapshot_name
from kfuzz.corpora.synth import Synthesiser
from kfuzz.corpora.targets import Target
from kfuzz.corpora.words import PHRASES
from kfuzz.corpora.workload import Workload
from kfuzz.records.codecs import compress

__all__ = ["SegmentBytes", "generate_segment", "write_segment"]


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


def write_segment(segment: Segment, segment_id: int, workload: Workload, out: str | Path | Target, attempt: str) -> Row:
    """Write the files of ``segment`` under ``out`` and return its row for the manifest.

    ``attempt`` must differ between attempts that may run at the same time, on one machine or on several. On any error,
    no half-written file gets a final name, and this attempt's temporary files are removed. Raises ``UsageError`` if
    the system refuses to write: a full disk, missing permission.
    """
    synthesiser = _synthesiser(segment, workload)
    with Target.of(out).stage(segment.directory, attempt) as files:
        log_crc = files.write(f"{segment.stem}.log", _chunks(synthesiser))
        offset_crc = files.write(f"{segment.stem}.index", [synthesiser.offset_index_bytes()])
        time_crc = files.write(f"{segment.stem}.timeindex", [synthesiser.time_index_bytes()])
        aborted = synthesiser.transaction_index_bytes()
        transaction_crc = files.write(f"{segment.stem}.txnindex", [aborted]) if aborted else None
        snapshot = encode(_known_producers(segment, segment_id, workload, synthesiser))
        snapshot_crc = files.write(snapshot_name(segment.last_offset), [snapshot])
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
        aborted_records=synthesiser.aborted_records,
        first_offset=segment.first_offset,
        last_offset=segment.last_offset,
        min_timestamp=synthesiser.min_timestamp if synthesiser.max_timestamp >= 0 else None,
        max_timestamp=synthesiser.max_timestamp if synthesiser.max_timestamp >= 0 else None,
        index_crc32c=offset_crc,
        timeindex_crc32c=time_crc,
        txnindex_crc32c=transaction_crc,
        snapshot_crc32c=snapshot_crc,
        valid=synthesiser.batches,
        acceptable=0,
        invalid=0,
        codec_versions=codec_versions(),
    )


def _producers(synthesiser: Synthesiser) -> dict[int, Producer]:
    return {fields[0]: Producer(*fields) for fields in synthesiser.producers()}


def _known_producers(
    segment: Segment, segment_id: int, workload: Workload, synthesiser: Synthesiser
) -> Iterable[Producer]:
    """The producers that wrote to ``segment`` or before it, for its snapshot.

    Every producer writes data to every full segment. So only a partition's last segment can lack some; then the segment
    before it is made once more, in memory, for the producer's last batches.
    """
    found = _producers(synthesiser)
    if segment.index == 0:
        return found.values()
    before = Plan(workload)[segment_id - 1]
    lacking = {number for number in before.producer_ids if number not in found or found[number].last_offset < 0}
    if lacking:
        earlier = _synthesiser(before, workload)
        while earlier.fill():
            pass
        known = _producers(earlier)
        found |= {number: known[number].followed_by(found.get(number)) for number in lacking}
    return found.values()


def _synthesiser(segment: Segment, workload: Workload) -> Synthesiser:
    bound = batch_bytes_max(segment.topic)
    return Synthesiser(segment, workload.index_interval_bytes, bound, PHRASES, compress)


def _chunks(synthesiser: Synthesiser) -> Iterator[memoryview]:
    """The log in chunks of a reused buffer. Each chunk is valid only until the next is requested."""
    while used := synthesiser.fill():
        yield synthesiser.view[:used]
