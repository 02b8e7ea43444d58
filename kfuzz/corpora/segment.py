"""Makes the files of one segment of a plan, in memory or on disk.

The bytes depend only on the segment and on the versions of the codec libraries, so a retry or a speculative task
writes the same bytes. Therefore no committer is needed: ``targets`` gives files their names when they are complete, the
``.log`` last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from itertools import chain
from pathlib import Path
from threading import Event

from kfuzz.corpora.hostile import hostile_of
from kfuzz.corpora.labels import Label, encode_labels, label_file, sums_of
from kfuzz.corpora.manifest import Row, codec_versions
from kfuzz.corpora.own_log import OwnSynthesiser, files_beside
from kfuzz.corpora.plan import Plan, Segment, batch_bytes_max
from kfuzz.corpora.synth import Synthesiser
from kfuzz.corpora.words import PHRASES
from kfuzz.corpora.workload import Workload
from kfuzz.logs.snapshot import Producer, encode, snapshot_name
from kfuzz.records.codecs import compress
from kfuzz.storage import Target
from kfuzz.wire.io.checksum import crc32c


def log_chunks(segment: Segment, workload: Workload) -> Iterator[memoryview]:
    """The log of ``segment``, in chunks of whole batches. Each chunk is valid only until the next is requested."""
    return _chunks(synthesiser(segment, workload.index_interval_bytes))


def write_segment(
    segment: Segment,
    segment_id: int,
    workload: Workload,
    out: str | Path | Target,
    attempt: str,
    cancelled: Event | None = None,
) -> Row:
    """Write the files of ``segment`` under ``out`` and return its row for the manifest.

    ``attempt`` must differ between attempts that may run at the same time, on one machine or on several. On any error,
    no half-written file gets a final name, and this attempt's temporary files are removed. Raises ``UsageError`` if
    the system refuses to write: a full disk, missing permission. Raises ``CancelledError`` soon after another thread
    has set ``cancelled``.
    """
    making = synthesiser(segment, workload.index_interval_bytes)
    with Target.of(out).stage(segment.directory, attempt) as files:
        files.write(f"{segment.stem}.log", _until(cancelled, _chunks(making)))
        offsets, times = making.offset_index, making.time_index
        files.write(f"{segment.stem}.index", [offsets])
        files.write(f"{segment.stem}.timeindex", [times])
        aborted = making.transaction_index
        if aborted:
            files.write(f"{segment.stem}.txnindex", [aborted])
        snapshot = encode(_known_producers(segment, segment_id, workload, making, cancelled))
        files.write(snapshot_name(segment.last_offset), [snapshot])
        others = files_beside(segment)
        if labels := _labels(segment, making):
            others = chain(others, [(label_file(segment), iter([memoryview(encode_labels(labels))]))])
        for path, chunks in others:
            # They are there before the log is.
            directory, _, name = path.rpartition("/")
            with Target.of(out).stage(directory, attempt) as beside:
                beside.write(name, _until(cancelled, chunks))
                beside.publish()
        files.publish()
    return Row(
        segment_id=segment_id,
        path=segment.path,
        first_offset=segment.first_offset,
        last_offset=segment.last_offset,
        snapshot_crc32c=crc32c(snapshot),
        codec_versions=codec_versions(),
        **sums_of(making, making.size, (offsets, times, aborted), labels),
    )


def _labels(segment: Segment, making: Synthesiser | OwnSynthesiser) -> list[Label]:
    if not making.labels:
        return []
    vectors = hostile_of(segment.topic.adversarial)
    return [Label.of(segment.path, at, offset, vectors[number]) for at, _, offset, number in making.labels]


def _producers(making: Synthesiser | OwnSynthesiser) -> dict[int, Producer]:
    return {fields[0]: Producer(*fields) for fields in making.producers}


def _known_producers(
    segment: Segment, segment_id: int, workload: Workload, making: Synthesiser | OwnSynthesiser, cancelled: Event | None
) -> Iterable[Producer]:
    """The producers that wrote to ``segment`` or before it, for its snapshot.

    Every producer writes data to every full segment. So only a partition's last segment can lack some; then the segment
    before it is made once more, in memory, for the producer's last batches.
    """
    if isinstance(making, OwnSynthesiser):
        return ()
    found = _producers(making)
    if segment.index == 0:
        return found.values()
    before = Plan(workload)[segment_id - 1]
    lacking = {number for number in before.producer_ids if number not in found or found[number].last_offset < 0}
    if lacking:
        earlier = synthesiser(before, workload.index_interval_bytes)
        assert isinstance(earlier, Synthesiser)
        for _ in _until(cancelled, _chunks(earlier)):
            pass
        known = _producers(earlier)
        found |= {number: known[number].followed_by(found.get(number)) for number in lacking}
    return found.values()


def synthesiser(segment: Segment, index_interval_bytes: int) -> Synthesiser | OwnSynthesiser:
    """The generator of the bytes of ``segment``, not begun yet."""
    if segment.topic.is_own:
        return OwnSynthesiser(segment, index_interval_bytes)
    return Synthesiser(segment, index_interval_bytes, batch_bytes_max(segment.topic), PHRASES, compress)


def _until(cancelled: Event | None, chunks: Iterator[memoryview]) -> Iterator[memoryview]:
    for chunk in chunks:
        if cancelled is not None and cancelled.is_set():
            raise CancelledError
        yield chunk


def _chunks(making: Synthesiser | OwnSynthesiser) -> Iterator[memoryview]:
    """The log in chunks of a reused buffer. Each chunk is valid only until the next is requested."""
    while used := making.fill():
        yield making.view[:used]
