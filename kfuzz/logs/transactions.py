"""Which records belong to aborted transactions, and where a consumer in ``read_committed`` stops.

A transaction ends at the next marker of its producer. Where a part of a log ends before that marker, an :class:`Ahead`
finds out what becomes of it. In a segment that has a transaction index, the index may say so at once: it has an entry
for each transaction that was aborted there. Otherwise the headers of the following batches are read, up to the marker.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.kafka import INT32_MAX
from kfuzz.logs.arrow_rows import beginnings
from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.indexes import ABORTED_ENTRY, Starts, entries
from kfuzz.logs.segments import Segment, partition_of
from kfuzz.logs.snapshot import Producer, opened_of, read_snapshot
from kfuzz.mapped import mapped, require_whole
from kfuzz.wire.io.layout import CONTROL, TRANSACTIONAL
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.walk.search import Search
from kfuzz.wire.walk.transaction_walk import TransactionWalk
from kfuzz.wire.walk.transactions import ABORT, COMMIT

STRETCH_BYTES: Final = 16 << 20
MARKER_KEY_BYTES, MARKER_VALUE_BYTES = 4, 6
OPEN, COMMITTED, ABORTED = -1, 0, 1

Numbers = npt.NDArray[np.int64]


# -------------------------------------------------------------------------------------------- what comes later


class Ahead(ABC):
    """Looks further in a log than its reader has come. Places are byte offsets that grow along the log."""

    def __init__(self) -> None:
        self.walk = TransactionWalk()
        # The place of the walk, where its last stretch began, and whether it has left the segment in which it began.
        self.at = self.since = -1
        self.has_left = False
        # By producer: the offsets of its markers, and whether they abort.
        self.ends: dict[int, deque[tuple[int, bool]]] = {}

    def aborted(self, producers: Mapping[int, int], place: int) -> set[int]:
        """Which of these producers abort the transactions that are open at ``place``.

        ``producers`` has the offset of each one's last batch in the window that ends at ``place``.
        """
        if not self.has_left and self.at < place:
            self.at, self.since, self.walk = place, place, TransactionWalk()
            self.ends.clear()
            for producer, offset in producers.items():
                self.walk.begin(producer, offset)
        return {producer for producer, offset in producers.items() if self._is_aborted(producer, offset)}

    def _is_aborted(self, producer: int, offset: int) -> bool:
        while True:
            ends = self.ends.get(producer, deque())
            while ends and ends[0][0] <= offset:
                ends.popleft()
            if ends:
                return ends[0][1]
            told = self.indexed(producer, offset)
            if told is not None:
                return told
            if not self.step():
                # It is still open at the end of the log.
                return False

    def took(self, data: memoryview) -> int:
        """Walk over ``data``, keep the markers; returns where the walk stopped."""
        stopped = self.walk.walk(data)
        for producer, offset, is_abort in self.walk.ends():
            self.ends.setdefault(producer, deque()).append((offset, is_abort))
        return stopped

    @abstractmethod
    def step(self) -> bool:
        """Walk some way; False at the end of the log."""

    def indexed(self, producer: int, offset: int) -> bool | None:
        """Whether an index says that the transaction is aborted (True) or committed (False)."""
        return None


class FileAhead(Ahead):
    """Looks ahead in the segments of a partition folder, from ``segment`` on."""

    def __init__(self, segment: Segment) -> None:
        super().__init__()
        self.first = self.segment = segment
        self.later: deque[Segment] | None = None
        self.index = aborted_entries(segment)
        self.starts: Starts | None = None
        self.search: Search | None = None

    def step(self) -> bool:
        if self.at >= self.segment.size:
            return self._next_segment()
        with self.segment.open() as file:
            view = mapped(file, self.at, min(self.at + STRETCH_BYTES, self.segment.size))
            moved = self.took(view)
            require_whole(view)
            if moved:
                self.since, self.at = self.at, self.at + moved
            else:
                self._step_by_crc(file)
        return True

    def _step_by_crc(self, file: BinaryIO) -> None:
        """Go on where a header stopped the walk, or a batch that is larger than a stretch.

        A wrong length may have led there, past sound batches. So the batches of the last stretch are walked again, only
        those with a right CRC. To begin or end a transaction twice changes nothing.
        """
        end, stopped, self.at = self.segment.size, self.at, self.since
        view = mapped(file, 0, end)
        self.search = self.search or Search(view)
        while self.at <= min(stopped, end - 1):
            size = next_frame(view, self.at)[0]
            if size > 0 and self.search.holds(self.at):
                self.took(view[self.at : self.at + size])
                self.at += size
            else:
                # It maps the file, when it is first asked.
                self.starts = self.starts or Starts(self.segment, file)
                self.starts.file = file
                self.at = self.starts.resume(self.at, size, end)
        self.since = self.at
        require_whole(view)

    def _next_segment(self) -> bool:
        if self.later is None:
            base = self.first.base_offset
            self.later = deque(
                one for one in partition_of(self.first) if base is not None and (one.base_offset or 0) > base
            )
        if not self.later:
            return False
        self.segment = self.later.popleft()
        self.at, self.since, self.has_left, self.starts, self.search = 0, 0, True, None, None
        self.index = aborted_entries(self.segment)
        return True

    def indexed(self, producer: int, offset: int) -> bool | None:
        if self.index is None:
            return None
        inside = (self.index["first_offset"] <= offset) & (self.index["last_offset"] >= offset)
        if (inside & (self.index["producer_id"] == producer)).any():
            return True
        # As ``TransactionIndex.collectAbortedTxns``: below a last stable offset, all transactions have ended.
        return False if (self.index["last_stable_offset"] > offset).any() else None


def aborted_entries(segment: Segment) -> npt.NDArray[np.void] | None:
    """The entries of the segment's transaction index; None if there is no such file, or if it is damaged."""
    path = segment.path.with_suffix(".txnindex")
    if segment.base_offset is None or not path.is_file():
        return None
    found = entries(path, ABORTED_ENTRY)
    is_good = (
        (found["version"] == 0)
        & (found["first_offset"] <= found["last_offset"])
        & (found["last_offset"] >= segment.base_offset)
        & (found["last_offset"] <= segment.base_offset + INT32_MAX)
        & (found["last_stable_offset"] <= found["last_offset"] + 1)
    )
    if segment.next_offset is not None:
        is_good &= found["last_offset"] < segment.next_offset
    return found.astype(found.dtype.newbyteorder("=")) if is_good.all() else None


# ------------------------------------------------------------------------------------------- batches of a window


def aborted_batches(
    heads: BatchHeads, counts: Numbers, columns: pa.RecordBatch, ahead: Ahead, place: int
) -> npt.NDArray[np.bool_] | None:
    """For each batch of a window that ends at ``place``: whether it belongs to an aborted transaction.

    ``columns`` has the records of these batches, ``counts`` says how many each batch has. None if no batch does.
    """
    producer_id, attributes = heads.values("producer_id", np.int64), heads.values("attributes", np.int64)
    is_control = (attributes & CONTROL) != 0
    chosen = np.flatnonzero((producer_id >= 0) & (is_control | ((attributes & TRANSACTIONAL) != 0)))
    if not len(chosen) or is_control[chosen].all():
        return None
    # Each producer's batches together, in the order of the log.
    chosen = chosen[np.argsort(producer_id[chosen], kind="stable")]
    producers = producer_id[chosen]
    ends = np.full(len(chosen), OPEN, np.int8)
    at_controls = np.flatnonzero(is_control[chosen])
    if len(at_controls):
        ends[at_controls] = _ends(counts, columns, chosen[at_controls])
    is_data = ~is_control[chosen]
    # The next marker of each batch's producer.
    places = np.where(ends == OPEN, len(chosen), np.arange(len(chosen)))
    following = np.minimum.accumulate(places[::-1])[::-1]
    within = np.minimum(following, len(chosen) - 1)
    known = (following < len(chosen)) & (producers[within] == producers)
    is_aborted = is_data & known & (ends[within] == ABORTED)
    is_open = is_data & ~known
    if is_open.any():
        # Of equal producers, the last batch counts.
        offsets = heads.values("last_offset", np.int64)[chosen[is_open]]
        last = dict(zip(producers[is_open].tolist(), offsets.tolist(), strict=True))
        if aborted := ahead.aborted(last, place):
            is_aborted |= is_open & np.isin(producers, list(aborted))
    if not is_aborted.any():
        return None
    made = np.zeros(len(counts), np.bool_)
    made[chosen[is_aborted]] = True
    return made


def _ends(counts: Numbers, columns: pa.RecordBatch, controls: npt.NDArray[np.intp]) -> npt.NDArray[np.int8]:
    """How these control batches end a transaction; ``OPEN`` if they end none. See ``wire.transactions``."""
    made = np.full(len(controls), OPEN, np.int8)
    # Compaction may have removed the record.
    full = counts[controls] > 0
    rows = (np.cumsum(counts) - counts)[controls[full]]
    lengths, first = beginnings(columns.column("key"), rows)
    value_lengths, value_first = beginnings(columns.column("value"), rows)
    kinds = np.ascontiguousarray(first).view(">i4").reshape(-1) & 0xFFFF
    is_marker = (lengths >= MARKER_KEY_BYTES) & (first[:, 0] < 0x80)
    is_marker &= (value_lengths >= MARKER_VALUE_BYTES) & (value_first[:, 0] < 0x80)
    made[full] = np.select([is_marker & (kinds == ABORT), is_marker & (kinds == COMMIT)], [ABORTED, COMMITTED], OPEN)
    return made


# --------------------------------------------------------------------------------------------- last stable offset


def last_stable_offset(segment: Segment) -> int | None:
    """The first offset of the oldest transaction that is open at the end of the segment's partition; None if none is.

    Reading begins where everything before is known to have ended: at the last stable offset in the last entry of a
    transaction index, or at the last producer snapshot. Without both, the headers of the whole partition are read.
    ``UsageError`` if a file cannot be read.
    """
    partition = partition_of(segment)
    walk = TransactionWalk()
    start = 0
    for one in reversed(partition):
        if (producers := snapshot_of(one)) is not None:
            for producer_id, began in opened_of(producers).items():
                walk.begin(producer_id, began)
            start = one.base_offset or 0
            break
        index = aborted_entries(one)
        if index is not None and len(index):
            start = int(index["last_stable_offset"][-1])
            break
    for one in partition:
        if one.next_offset is not None and one.next_offset <= start:
            continue
        ahead = FileAhead(one)
        ahead.walk = walk
        with one.open() as file:
            ahead.at = ahead.since = Starts(one, file).before(start)
        while ahead.at < one.size:
            ahead.step()
            ahead.ends.clear()
    return walk.first_open


def snapshot_of(segment: Segment) -> list[Producer] | None:
    """The producers in the snapshot where the segment begins. None if it is missing or damaged."""
    return read_snapshot(segment.path.with_suffix(".snapshot"))
