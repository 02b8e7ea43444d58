"""Lets a testee read a corpus, batch by batch, and compares its answers with what the corpus says.

A batch that the corpus labels as hostile is judged like its vector in the golden suite. Every other batch must be read
as kfuzz reads it, whole and without a complaint.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

from kfuzz.conformance.judge.causes import Deviation, causes_of, deviation
from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.judge.reference import as_vector, verdict
from kfuzz.conformance.judge.runner import cells, judged_answer
from kfuzz.conformance.protocol.peer import TesteeProcess
from kfuzz.conformance.protocol.session import NoHandshake
from kfuzz.conformance.protocol.testees import own
from kfuzz.corpora.hostile import hostile_vector, moved_expectation
from kfuzz.corpora.labels import labels_of
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import Workload
from kfuzz.errors import KfuzzError
from kfuzz.storage import Target
from kfuzz.text import printable
from kfuzz.units import counted
from kfuzz.wire.io.layout import HEADER_AT
from kfuzz.wire.records.framing import frames

# The requests of a chunk are in memory at once.
CHUNK_BATCHES = 2000
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class SegmentResult:
    """A testee's result on one segment: how many batches it was asked, and those that it did not read as the corpus
    says. Such a deviation has the batch's place, ``PATH@BYTE``, as its ``input``, and the byte as its ``number``; its
    ``reason`` is the id of a hostile batch's vector.
    """

    segment_id: int
    path: str
    batches: int
    hostile: int
    unsupported: int
    deviations: tuple[Deviation, ...]

    def to_json(self) -> dict[str, Any]:
        """The result for JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self)} | {
            "deviations": [one.to_json() for one in self.deviations]
        }


def conform_segments(
    out: str | Path | Target,
    workload: Workload,
    segment_ids: Iterable[int],
    argv: Sequence[str] | None,
    *,
    cwd: Path | None = None,
) -> Iterator[SegmentResult]:
    """Ask the testee ``argv`` each batch of these segments of the corpus in ``out``, as a consumer.

    None as ``argv`` is kfuzz's own testee, which runs with this Python. A testee that dies is started again, and only
    the batch that killed it counts. Raises ``KfuzzError`` if the testee does not start, or if a segment is missing or
    not what its corpus says.
    """
    target = Target.of(out)
    plan = Plan(workload)
    for segment_id in segment_ids:
        segment = plan[segment_id]
        # The vector's id for the byte offset of each hostile batch.
        labels = {label.at: label.vector for label in labels_of(target, segment)}
        with target.view(segment.path) as view:
            if view is None:
                raise KfuzzError(f"{target}/{segment.path} is missing; run `kfuzz corpus verify`")
            yield _conform(argv or own().argv, cwd, view, labels, segment_id, segment.path)


def _conform(
    argv: Sequence[str], cwd: Path | None, data: memoryview, labels: Mapping[int, str], segment_id: int, path: str
) -> SegmentResult:
    asked = unsupported = 0
    deviations = []
    try:
        with TesteeProcess(argv, cwd=cwd) as peer:
            chunks = _chunks(data, labels, path)
            for case, cell in chain.from_iterable(cells(peer, chunk, judged_answer) for chunk in chunks):
                asked += 1
                unsupported += cell.outcome == "unsupported"
                if found := deviation(peer.handshake.label, case, cell, "unexpected"):
                    at = int(found.input.rpartition("@")[2])
                    deviations.append(replace(found, number=at, reason=labels.get(at, "")))
    except NoHandshake as error:
        raise KfuzzError(f"the testee {argv[0]} does not start: {error}") from None
    deviations.sort(key=lambda one: one.number)
    return SegmentResult(segment_id, path, asked, len(labels), unsupported, tuple(deviations))


def _chunks(data: memoryview, labels: Mapping[int, str], path: str) -> Iterator[list[Case]]:
    """The questions about the log. The chunks depend on nothing but the log, so tasks cannot change a result."""
    chunk: list[Case] = []
    used = end = 0
    left = dict(labels)
    for at, size, _ in frames(data):
        end = at + size
        chunk.append(_case(bytes(data[at:end]), at, left.pop(at, None), path))
        used += size
        if len(chunk) == CHUNK_BATCHES or used >= CHUNK_BYTES:
            yield chunk
            chunk, used = [], 0
    if end != len(data) or left:
        raise KfuzzError(f"{path} is not what its corpus says (at byte {end}); run `kfuzz corpus verify`")
    if chunk:
        yield chunk


def _case(data: bytes, at: int, label: str | None, path: str) -> Case:
    # Ids are unique in a run, and a vector may occur several times.
    name = f"{path}@{at}"
    if label is None:
        made = verdict(data)
        if made.findings:
            raise KfuzzError(f"{path} has an unlabelled bad batch at byte {at}; run `kfuzz corpus verify`")
        return Case(as_vector(name, data, made, "consumer"), "consumer")
    vector = hostile_vector(label)
    at = HEADER_AT["partition_leader_epoch"]
    base_offset, epoch = (int.from_bytes(field, "big", signed=True) for field in (data[:8], data[at : at + 4]))
    expected = moved_expectation(vector, base_offset, epoch)
    return Case(replace(vector, id=name, source=data, expect={"consumer": expected}), "consumer")


def report_lines(results: Sequence[SegmentResult]) -> list[str]:
    """One line for each cause, the worst first, with its smallest batch; then the totals.

    Each is harmless for a terminal.
    """
    found = [deviation for result in results for deviation in result.deviations]
    lines = []
    for cause in causes_of(found):
        path, _, at = cause.smallest.input.rpartition("@")
        vector = f" ({cause.smallest.reason})" if cause.smallest.reason else ""
        lines.append(
            f"{harm_named(cause.harm).title}: {cause.what}; {counted(cause.count, 'batch', 'batches')}, "
            f"the smallest at byte {at} of {path}{vector}"
        )
    batches, hostile = sum(one.batches for one in results), sum(one.hostile for one in results)
    unsupported = sum(one.unsupported for one in results)
    lines.append(
        f"{len(results)} segments, {batches} batches, {hostile} of them hostile: {len(found)} deviations, "
        f"{unsupported} unsupported"
    )
    return [printable(line) for line in lines]
