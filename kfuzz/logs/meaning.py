"""What a log's own files know of its transactions, and what becomes of them when batches of the log are lost.

A transaction ends with a marker. If the marker is lost, the records before it seem to belong to the producer's next
transaction, and end as that one does. The original's transaction indexes name all aborted transactions, and its producer
snapshots those that were open. With both, the lost markers are known, and :mod:`kfuzz.logs.salvaging` writes them again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import Buffer

from kfuzz import records
from kfuzz.control import ControlRecord, ControlRecordKey, ControlRecordType, EndTransactionMarker, encode_control
from kfuzz.errors import UsageError
from kfuzz.files import read_small
from kfuzz.kafka import INDEX_INTERVAL_BYTES, INT64_MAX
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.lost import Bounds, LostOffsets
from kfuzz.logs.segments import ABORTED_ENTRY, Segment, partition_of
from kfuzz.logs.snapshot import Producer, decode
from kfuzz.logs.transactions import SNAPSHOT_BYTES_MAX, aborted_entries
from kfuzz.mapped import mapped
from kfuzz.records import Record, RecordBatch
from kfuzz.records.read.reader import check_with, headers
from kfuzz.wire.io.layout import CONTROL, TRANSACTIONAL
from kfuzz.wire.walk.transaction_walk import TransactionWalk

COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"
NO_ENTRIES: Final = np.empty(0, ABORTED_ENTRY)


class Marker(NamedTuple):
    """The end of a transaction, to be written at byte ``at`` of a segment. The timestamp is in milliseconds."""

    at: int
    offset: int
    producer_id: int
    is_abort: bool
    producer_epoch: int
    coordinator_epoch: int
    leader_epoch: int
    timestamp: int

    def __str__(self) -> str:
        kind = "ABORT" if self.is_abort else "COMMIT"
        return f"the lost {kind} marker of producer {self.producer_id} is written again, at offset {self.offset}"

    def encode(self) -> bytes:
        """The batch, as a broker writes it."""
        kind = ControlRecordType.ABORT if self.is_abort else ControlRecordType.COMMIT
        marker = ControlRecord(ControlRecordKey(kind), EndTransactionMarker(max(self.coordinator_epoch, 0)))
        record = Record(self.offset, self.timestamp, *encode_control(marker))
        batch = RecordBatch(self.offset, self.offset, [record], transactional=True, control=True)
        batch.producer_id, batch.producer_epoch = self.producer_id, self.producer_epoch
        batch.partition_leader_epoch = self.leader_epoch
        return records.encode([batch])

    def to_json(self) -> dict[str, Any]:
        """The marker as a JSON object."""
        kind = "ABORT" if self.is_abort else "COMMIT"
        return {"offset": self.offset, "producer_id": self.producer_id, "type": kind}


@dataclass(slots=True)
class Change:
    """Kept records of one transaction, from offset ``first`` to ``last``: how it ended, None if not known, and how it
    ends in the copy. Each is committed, aborted or open.
    """

    producer_id: int
    first: int
    last: int
    was: str | None
    now: str

    def __str__(self) -> str:
        where = f"producer {self.producer_id}, offsets {self.first} to {self.last}"
        if self.was is None:
            return f"{where}: {self.now} now; how their transaction ended is lost"
        return f"{where}: were {self.was}, are {self.now} now"

    def to_json(self) -> dict[str, Any]:
        """The change as a JSON object."""
        offsets = {"first_offset": self.first, "last_offset": self.last}
        return {"producer_id": self.producer_id} | offsets | {"was": self.was, "now": self.now}


# By producer, the first offset of each aborted transaction and the offset of its marker, in their order.
Aborted = Mapping[int, Sequence[tuple[int, int]]]


@dataclass(slots=True)
class Original:
    """What the files beside the segments of a partition know.

    ``producers`` are those before the first segment. ``aborted`` has the entries of all transaction indexes, and
    ``stable`` their pairs of a marker's offset and the last stable offset after it. ``is_whole`` says whether no entry
    is missing. ``snapshot`` has the offset of the last readable snapshot, and the first offset of each transaction that
    is open there.
    """

    producers: dict[int, Producer] = field(default_factory=dict)
    aborted: Aborted = field(default_factory=dict)
    stable: list[tuple[int, int]] = field(default_factory=list)
    is_whole: bool = True
    snapshot: tuple[int, Mapping[int, int]] = (0, MappingProxyType({}))

    @classmethod
    def of(cls, first: Segment) -> Original:
        """What is known of the partition of ``first``, from this segment on."""
        made = cls()
        if first.base_offset is None:
            return made
        found = NO_ENTRIES
        for segment in partition_of(first):
            entries = aborted_entries(segment)
            made.is_whole &= entries is not None or not segment.path.with_suffix(".txnindex").exists()
            found = found if entries is None else np.concatenate([found, entries])
        made.aborted = aborted_by_producer(found)
        made.stable = list(zip(found["last_offset"].tolist(), found["last_stable_offset"].tolist(), strict=True))
        for offset in sorted(Bounds(first.path).beside(".snapshot")):
            try:
                path = first.path.with_name(f"{offset:020d}.snapshot")
                known = decode(read_small(path, bytes_max=SNAPSHOT_BYTES_MAX))
            except UsageError:
                continue
            if known is not None and offset >= first.base_offset:
                made.snapshot = offset, _opened(known)
            if known is not None and offset == first.base_offset:
                made.producers = {one.producer_id: one for one in known}
        return made

    @property
    def opened(self) -> list[tuple[int, int]]:
        """Producer and first offset of each transaction that is open before the first segment."""
        return sorted(_opened(self.producers.values()).items())

    def ended_before(self, producer_id: int, began: int) -> int | None:
        """An offset before which the transaction that began at ``began`` has ended; None if none is known."""
        offset, opened = self.snapshot
        if began < min(offset, opened.get(producer_id, offset)):
            return min(offset, opened.get(producer_id, offset))
        # As ``TransactionIndex.collectAbortedTxns``: below a last stable offset, all transactions have ended.
        return next((marker for marker, stable in self.stable if stable > began), None)

    def fate(self, producer_id: int, offset: int) -> str | None:
        """How the transaction of the producer's record at ``offset`` ended; None if not known."""
        if not self.is_whole:
            return None
        if covering(self.aborted, producer_id, offset):
            return ABORTED
        if self.snapshot[1].get(producer_id, offset + 1) <= offset < self.snapshot[0]:
            return OPEN
        return None if self.ended_before(producer_id, offset) is None else COMMITTED


def _opened(producers: Iterable[Producer]) -> dict[int, int]:
    return {one.producer_id: one.current_txn_first_offset for one in producers if one.current_txn_first_offset >= 0}


def aborted_by_producer(entries: npt.NDArray[np.void]) -> Aborted:
    """The entries of transaction indexes."""
    made: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for _, producer_id, first, last, _ in sorted(entries.tolist(), key=lambda entry: entry[3]):
        made[producer_id].append((first, last))
    return made


def covering(aborted: Aborted, producer_id: int, offset: int) -> tuple[int, int] | None:
    """The aborted transaction of the producer in which ``offset`` is."""
    found = aborted.get(producer_id, ())
    at = bisect_left(found, offset, key=lambda one: one[1])
    return found[at] if at < len(found) and found[at][0] <= offset else None


# --------------------------------------------------------------------------------------------- markers


@dataclass(slots=True)
class _Gap:
    """Lost offsets, and the state there of each producer."""

    lost: LostOffsets
    markers: list[Marker]
    leader_epoch: int
    states: dict[int, Producer]

    @property
    def first(self) -> int:
        return self.lost.first or 0

    def add(self, producer_id: int, is_abort: bool, first: int, last: int) -> None:
        """A marker at the lowest free offset from ``first`` to ``last``, if there is one."""
        taken = {one.offset for one in self.markers}
        offset = next(one for one in range(first, first + len(taken) + 1) if one not in taken)
        if offset <= last:
            state = self.states[producer_id]
            place = self.lost.at, offset, producer_id, is_abort, state.epoch, state.coordinator_epoch
            self.markers.append(Marker(*place, self.leader_epoch, state.timestamp))


class _Search:
    """Finds the markers that were lost, while it is given what is kept and what is not, in the order of the log."""

    def __init__(self, original: Original) -> None:
        self.original = original
        # By producer: the gaps that its open transaction spans, and where it began.
        self.spanned: dict[int, list[_Gap]] = defaultdict(list)
        self.began: dict[int, int] = {}

    def gap(self, gap: _Gap, opened: Iterable[tuple[int, int]]) -> None:
        """The transactions ``opened`` are open at this gap. An abort that was lost in it is in the index."""
        for producer_id, began in opened:
            self.spanned[producer_id].append(gap)
            self.began[producer_id] = began
            end = INT64_MAX if gap.lost.last is None else gap.lost.last
            for first, marker in self.original.aborted.get(producer_id, ()):
                if gap.first <= marker <= end:
                    gap.add(producer_id, True, marker, marker)
                    self.aborts(producer_id, first)

    def kept(self, producer_id: int, offset: int, is_abort: bool) -> None:
        """The next marker of a producer that was kept."""
        known = covering(self.original.aborted, producer_id, offset)
        if is_abort and known and known[1] == offset:
            self.aborts(producer_id, known[0])
        elif is_abort:
            self.original.is_whole = False
        self.spanned.pop(producer_id, None)

    def aborts(self, producer_id: int, first: int) -> None:
        """The producer aborts a transaction that began at ``first``. One that began earlier was committed before."""
        gaps = [gap for gap in self.spanned.pop(producer_id, ()) if gap.first < first]
        if gaps and first > self.began[producer_id]:
            end = first - 1 if gaps[-1].lost.last is None else min(gaps[-1].lost.last, first - 1)
            gaps[-1].add(producer_id, False, gaps[-1].first, end)

    def end(self) -> None:
        """The end of the log: a transaction that is known to have ended was committed."""
        for producer_id in list(self.spanned):
            before = self.original.ended_before(producer_id, self.began[producer_id])
            if before is not None:
                self.aborts(producer_id, before)


def lost_markers(
    parts: Iterable[tuple[Segment, Sequence[tuple[int, int]], Sequence[LostOffsets]]], original: Original
) -> list[list[Marker]]:
    """The markers to write again, for each segment of a partition with its kept stretches and the gaps between them.

    ``original.is_whole`` becomes false if an abort that was kept is in no index. Then no commit is written: it may have
    been an abort.
    """
    search = _Search(original)
    made: list[list[_Gap]] = []
    opened, states, leader_epoch = original.opened, dict(original.producers), 0
    for segment, stretches, gaps in parts:
        made.append([])
        walk, ends = IndexWalk(segment.base_offset or 0, INDEX_INTERVAL_BYTES, opened), TransactionWalk()
        for producer_id, began in opened:
            ends.begin(producer_id, began)
        with segment.open() as file:
            lost = {gap.at: gap for gap in gaps}
            for at, end in sorted([*stretches, *((gap.at, gap.end) for gap in gaps)]):
                if at not in lost:
                    view = mapped(file, at, end)
                    ends.walk(view)
                    for producer_id, offset, is_abort in ends.ends():
                        search.kept(producer_id, offset, is_abort)
                else:
                    gap = _Gap(lost[at], [], leader_epoch, states)
                    search.gap(gap, walk.open_transactions)
                    made[-1].append(gap)
                    view = memoryview(b"".join(one.encode() for one in gap.markers))
                    ends.walk(view)
                    ends.ends()
                check_with(view, walk)
                states = states | {fields[0]: Producer(*fields) for fields in walk.producers}
                leader_epoch = max([leader_epoch, *(epoch for epoch, _ in walk.leader_epochs)])
        opened = walk.open_transactions
    search.end()
    is_known = original.is_whole
    return [[one for gap in gaps for one in gap.markers if one.is_abort or is_known] for gaps in made]


# --------------------------------------------------------------------------------------------- what has changed


def changes(
    data: Buffer, original: Original, aborted: Aborted, opened: Mapping[int, int], gaps: Sequence[LostOffsets]
) -> list[Change]:
    """The kept records of a segment's copy whose transactions end otherwise now, or may do so.

    ``aborted`` are the transactions of the copy, ``opened`` has the first offset of those that are open at its end.
    """
    made: dict[tuple[int, str | None, str, int], Change] = {}
    for one in headers(data):
        if one.attributes & CONTROL or not one.attributes & TRANSACTIONAL or one.magic < 2:
            continue
        producer_id, last = one.producer_id, one.last_offset
        was, now, began, end = original.fate(producer_id, last), COMMITTED, 0, last
        if found := covering(aborted, producer_id, last):
            now, began, end = ABORTED, *found
        elif opened.get(producer_id, last + 1) <= last:
            now, began, end = OPEN, opened[producer_id], INT64_MAX
        # If nothing is known of its end, that may have been lost with one of the gaps.
        may_differ = now != COMMITTED and any(began < (gap.first or 0) <= end for gap in gaps)
        if was != now and (was is not None or may_differ):
            key = producer_id, was, now, began
            made.setdefault(key, Change(producer_id, one.base_offset, last, was, now)).last = last
    return list(made.values())
