"""Parts that tests of corpora share: a topic with transactions of every kind, and digests of files."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from kfuzz.corpora.plan import Segment
from kfuzz.corpora.segment import synthesiser
from kfuzz.corpora.workload import Batches, Producers, Range, Topic, Transactions, Values, Workload

__all__ = ["BUSY", "SegmentBytes", "digests", "generate_segment"]

BUSY = Topic(
    "busy",
    partitions=3,
    leader_epoch_offsets=700,
    values=Values(size=Range(0, 60)),
    batches=Batches(records=Range(1, 9)),
    producers=Producers(count=2, share=0.3, epoch_records=500, first_sequence=2**31 - 100),
    transactions=Transactions(
        producers=3,
        share=0.5,
        records=20,
        abort_share=0.4,
        partitions=2,
        cross_share=0.6,
        epoch_transactions=11,
        coordinator_epoch_transactions=17,
        first_sequence=2**31 - 50,
    ),
)


class SegmentBytes(NamedTuple):
    """The contents of a segment's files; ``transaction_index`` is empty if no transaction was aborted."""

    log: bytes
    offset_index: bytes
    time_index: bytes
    transaction_index: bytes


def generate_segment(segment: Segment, workload: Workload) -> SegmentBytes:
    """The files of ``segment`` in memory."""
    making = synthesiser(segment, workload.index_interval_bytes)
    log = b"".join(bytes(making.view[:used]) for used in iter(making.fill, 0))
    return SegmentBytes(log, making.offset_index_bytes(), making.time_index_bytes(), making.transaction_index_bytes())


def digests(out: Path) -> dict[str, str]:
    """The SHA-256 of each file below ``out``, by its path there. It uses nothing of kfuzz."""
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }
