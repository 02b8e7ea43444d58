"""Keeps the outcomes of a log's transactions when batches of the log are lost, by the files beside its segments.

A transaction ends with a marker. If that is lost, the records before it seem to belong to the producer's next
transaction, and end as that one does. The original's transaction indexes name all aborted transactions, and its
producer snapshots those that are open. They show which markers were lost: ``kfuzz.logs.salvaging`` writes them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kfuzz import records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.lost import Bounds, LostOffsets
from kfuzz.logs.segments import Segment, partition_of
from kfuzz.logs.snapshot import Producer, opened_of, read_snapshot, snapshot_name
from kfuzz.logs.stored import few
from kfuzz.logs.transactions import aborted_entries
from kfuzz.records import Record, RecordBatch
from kfuzz.records.read.reader import BatchHeader, headers
from kfuzz.wire.io.layout import CONTROL, TRANSACTIONAL

# By producer, the first offset of each aborted transaction and the offset of its marker, in their order.
Aborted = Mapping[int, Sequence[tuple[int, int]]]


class Marker(NamedTuple):
    """The lost end of a transaction. It is written again in this gap of this segment, counted from 0."""

    segment: int
    gap: LostOffsets
    offset: int
    producer_id: int
    is_abort: bool

    @property
    def kind(self) -> ControlRecordType:
        """The type of its record."""
        return ControlRecordType.ABORT if self.is_abort else ControlRecordType.COMMIT

    def __str__(self) -> str:
        return (
            f"the lost {self.kind.name} marker of producer {self.producer_id} is written again, at offset {self.offset}"
        )

    def encode(self, before: BatchHeader) -> bytes:
        """The batch as a broker writes it; ``before`` is the producer's last one before it."""
        # The coordinator's epoch is lost. A lower one is no error in a log.
        key, value = encode_control(ControlRecord(ControlRecordKey(self.kind), EndTransactionMarker(0)))
        batch = RecordBatch(self.offset, self.offset, [Record(self.offset, before.max_timestamp, key, value)])
        batch.transactional = batch.control = True
        batch.producer_id, batch.producer_epoch = self.producer_id, before.producer_epoch
        batch.partition_leader_epoch = before.leader_epoch
        return records.encode([batch])


@dataclass(slots=True)
class Change:
    """Kept records of one transaction, and how it ended, None if not known, and ends in the copy: committed, aborted or
    open.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    was: str | None
    now: str

    def __str__(self) -> str:
        return self.about([self.producer_id])

    def about(self, producers: Sequence[int]) -> str:
        """The sentence, if it is true of all of these producers."""
        stops = f"; a reader in read_committed stops at {self.first_offset}" if self.now == "open" else ""
        s = "s" if len(producers) > 1 else ""
        was = f"how their transaction{s} ended is lost" if self.was is None else f"they were {self.was}"
        where = f"producer{s} {few(producers)}, offsets {self.first_offset} to {self.last_offset}"
        return f"{where}: {self.now} now; {was}{stops}"


def sentences(changes: Iterable[Change]) -> Iterator[str]:
    """A sentence for each change. Those of which it is only known that they are possible, because all these producers
    may have written the lost marker, are one sentence for each way in which they end now.
    """
    unknown: dict[str, list[Change]] = defaultdict(list)
    for one in changes:
        if one.was is None:
            unknown[one.now].append(one)
        else:
            yield str(one)
    for found in unknown.values():
        whole = replace(
            found[0],
            first_offset=min(one.first_offset for one in found),
            last_offset=max(one.last_offset for one in found),
        )
        yield whole.about(sorted({one.producer_id for one in found}))


@dataclass(slots=True)
class Original:
    """The knowledge of the files beside the segments of a partition.

    ``producers`` are those before the first segment. ``aborted`` has the transaction indexes, ``ends`` their markers in
    order: offset, producer and the last stable offset after it. ``is_whole`` says whether no entry is missing.
    ``known_to`` is the offset of the last readable snapshot; ``opened`` has the transactions that are open there.
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: Aborted = field(default_factory=dict)
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    is_whole: bool = True
    known_to: int = 0
    opened: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, first: Segment) -> Original:
        """All that is known of the partition of ``first``, from this segment on."""
        made = cls()
        if first.base_offset is None:
            return made
        found: list[npt.NDArray[np.void]] = []
        bounds = Bounds(first.path)
        segments = {one.base_offset or 0: one for one in partition_of(first)}
        for base in bounds.beside(".txnindex"):
            # The index of a segment that is missing.
            path = first.path.with_name(f"{base:020d}.log")
            if base > first.base_offset and base not in segments:
                segments[base] = replace(first, path=path, base_offset=base, next_offset=None)
        for _, segment in sorted(segments.items()):
            if (entries := aborted_entries(segment)) is not None:
                found.append(entries)
            else:
                made.is_whole &= not segment.path.with_suffix(".txnindex").exists()
        made.aborted = by_producer(found)
        made.ends = sorted((one[3], one[1], one[4]) for entries in found for one in entries.tolist())
        for offset in sorted(bounds.beside(".snapshot")):
            known = read_snapshot(first.path.with_name(snapshot_name(offset - 1)))
            if known is not None and offset >= first.base_offset:
                made.known_to, made.opened = offset, opened_of(known)
                if offset == first.base_offset:
                    made.producers = {one.producer_id: one for one in known}
        return made

    def ended_before(self, producer_id: int, began: int) -> int | None:
        """An offset before which the transaction that began at ``began`` has ended; None if none is known."""
        limit = min(self.known_to, self.opened.get(producer_id, self.known_to))
        if began < limit:
            return limit
        # As ``TransactionIndex.collectAbortedTxns``: below a last stable offset, all transactions have ended.
        return next(
            (offset for offset, _, stable in self.ends[bisect_left(self.ends, (began,)) :] if stable > began), None
        )

    def fate(self, producer_id: int, offset: int) -> str | None:
        """How the transaction of the producer's record at ``offset`` ended; None if not known."""
        if not self.is_whole:
            return None
        if covering(self.aborted, producer_id, offset):
            return "aborted"
        if self.opened.get(producer_id, offset + 1) <= offset < self.known_to:
            return "open"
        return None if self.ended_before(producer_id, offset) is None else "committed"


def by_producer(indexes: Iterable[npt.NDArray[np.void]]) -> Aborted:
    """The entries of transaction indexes."""
    made: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for entries in indexes:
        for _, producer_id, first, last, _ in entries.tolist():
            made[producer_id].append((first, last))
    return made


def covering(aborted: Aborted, producer_id: int, offset: int) -> tuple[int, int] | None:
    """The aborted transaction of the producer in which ``offset`` is."""
    found = aborted.get(producer_id, ())
    at = bisect_left(found, offset, key=lambda one: one[1])
    return found[at] if at < len(found) and found[at][0] <= offset else None


Gaps = Sequence[tuple[int, LostOffsets]]


def lost_aborts(original: Original, gaps: Gaps) -> Iterator[Marker]:
    """The aborts in the original's indexes that are in the ``gaps`` of the segments with these numbers."""
    for segment, gap in gaps:
        for offset, producer_id, _ in original.ends[bisect_left(original.ends, (gap.first or 0,)) :]:
            if gap.last is not None and offset > gap.last:
                break
            yield Marker(segment, gap, offset, producer_id, True)


def lost_commits(
    original: Original, gaps: Gaps, aborted: Aborted, opened: Mapping[int, int], taken: set[int]
) -> Iterator[Marker]:
    """The commits in the ``gaps``: where a transaction of the copy has another beginning than in the original's index,
    or is open although it has ended. ``taken`` has the offsets of other markers there.

    ``original.is_whole`` becomes false if the copy has an abort that is in no index: there may have been another.
    """
    merged: list[tuple[int, int, int | None]] = []
    for producer_id, ranges in aborted.items():
        for began, last in ranges:
            known = covering(original.aborted, producer_id, last)
            original.is_whole &= known is not None and known[1] == last
            merged += [(producer_id, began, known[0])] if known else []
    merged += [(one, began, original.ended_before(one, began)) for one, began in opened.items()]
    for producer_id, began, before in merged if original.is_whole else ():
        # The last place that is left: the producer may have written more to the same transaction before.
        for segment, gap in reversed(gaps):
            first, end = gap.first or 0, INT64_MAX if gap.last is None else gap.last + 1
            inside = range(first, min(before or 0, end)) if began < first else ()
            free = next((offset for offset in inside if offset not in taken), None)
            if free is not None:
                taken.add(free)
                yield Marker(segment, gap, free, producer_id, False)
                break


def changes(
    data: Buffer,
    original: Original,
    aborted: Aborted,
    opened: Mapping[int, int],
    ends: Mapping[int, list[int]],
    gaps: Gaps,
) -> list[Change]:
    """The kept records of a segment's copy whose transactions end otherwise now, or may do so.

    ``aborted`` are the transactions of the copy, ``opened`` has the first offset of those that are open at its end,
    ``ends`` the offsets of all markers, by producer.
    """
    made: dict[tuple[int, str | None, str, int], Change] = {}
    for one in headers(data):
        if one.attributes & CONTROL or not one.attributes & TRANSACTIONAL or one.magic < 2:
            continue
        producer_id, last = one.producer_id, one.last_offset
        was, now = original.fate(producer_id, last), "committed"
        if covering(aborted, producer_id, last):
            now = "aborted"
        elif opened.get(producer_id, last + 1) <= last:
            now = "open"
        later = ends.get(producer_id, [])
        at = bisect_left(later, last)
        end = later[at] if at < len(later) else INT64_MAX
        # If nothing is known of its end, that may have been lost with one of the gaps.
        may_differ = any(last < (gap.first or 0) <= end for _, gap in gaps)
        if was != now and (was is not None or may_differ):
            key = producer_id, was, now, end
            made.setdefault(key, Change(producer_id, one.base_offset, last, was, now)).last_offset = last
    return list(made.values())
