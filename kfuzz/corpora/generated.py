"""A workload's batches and records as Arrow batches, made in memory: nothing is written.

The rows are those that ``kfuzz.logs`` reads of the corpus once it is written. docs/dataframes.md is the guide.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz import logs, records
from kfuzz.corpora.own_log import LIMITS
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.segment import log_chunks
from kfuzz.corpora.workload import Workload, require_topics
from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS
from kfuzz.logs.arrow_rows import NUMBERS, alike, numbers, views_of
from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.reading import PAYLOAD_BYTES, WINDOW_BYTES, RowMaker, milliseconds, schema_of
from kfuzz.logs.segments import EVERYTHING, Selection
from kfuzz.logs.slicing import Isolation, require_isolation
from kfuzz.logs.transactions import Ahead
from kfuzz.records.arrow import next_part
from kfuzz.wire.records.framing import frames

__all__ = ["BATCH_COLUMNS", "ROWS", "Query", "read", "read_segment", "schema", "segment_ids"]

Rows = Literal["batches", "records"]
ROWS: Final[tuple[Rows, ...]] = get_args(Rows)
# The columns of a batch, in their order.
BATCH_COLUMNS: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "base_offset": pa.int64(),
    "last_offset": pa.int64(),
    "records": pa.int32(),
    "magic": pa.int32(),
    "codec": pa.string(),
    "timestamp_type": pa.int32(),
    "max_timestamp": pa.timestamp("ms", tz="UTC"),
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "base_sequence": pa.int32(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "segment": pa.int64(),
    "position": pa.int64(),
    "size": pa.int32(),
    "batch": pa.binary_view(),
}


def schema(rows: Rows = "batches", columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of the Arrow batches that :func:`read` gives. ``UsageError`` for unknown rows or an unknown column.

    >>> from kfuzz.corpora import generated
    >>> generated.schema(columns=["base_offset", "codec"]).names
    ['base_offset', 'codec']
    """
    if rows not in ROWS:
        raise UsageError(f"rows {rows!r} do not exist; take one of {', '.join(ROWS)}")
    return schema_of(BATCH_COLUMNS, columns) if rows == "batches" else logs.schema(columns)


@dataclass(frozen=True, slots=True)
class Query:
    """The part of a workload to read: the columns, and bounds. Of ``rows="batches"``, offsets are base offsets.

    ``UsageError`` for an unknown isolation, and for one of batches.
    """

    rows: Rows
    wanted: pa.Schema
    selection: Selection = EVERYTHING
    isolation: Isolation = "log"

    def __post_init__(self) -> None:
        require_isolation(self.isolation)
        if self.rows == "batches" and self.isolation != "log":
            raise UsageError("batches have no isolation; leave isolation out, or choose records as rows")


def read(
    workload: Workload,
    *,
    rows: Rows = "batches",
    topics: str = "*",
    columns: Sequence[str] | None = None,
    first_offset: int | None = None,
    last_offset: int | None = None,
    min_timestamp: int | datetime | None = None,
    max_timestamp: int | datetime | None = None,
    isolation: Isolation = "log",
) -> Iterator[pa.RecordBatch]:
    """The batches or the records of a workload as Arrow batches, in the order of topic, partition and offset.

    With ``rows="batches"``, each row holds the bytes of one batch; its columns are ``BATCH_COLUMNS``. With
    ``rows="records"``, a row is a record, with the columns of :func:`kfuzz.logs.read`; bounds, ``topics`` (a
    glob) and ``isolation`` mean what they mean there. Of batches, the offset that is compared is the base offset, and
    the timestamp is the max timestamp.

    Raises ``UsageError`` for a workload that cannot be planned, and for a wrong argument.

    >>> from kfuzz.corpora import generated, workload
    >>> tiny = workload.parse('size = "1MiB"\\n[[topics]]\\nname = "demo"', "tiny")
    >>> for batch in generated.read(tiny, rows="records", columns=["offset", "key"], last_offset=1):
    ...     print(batch.num_rows, batch.schema.names)
    2 ['offset', 'key']
    """
    selection = Selection(
        first_offset, last_offset, milliseconds(min_timestamp, up=True), milliseconds(max_timestamp, up=False)
    )
    query = Query(rows, schema(rows, columns), selection, isolation)
    plan = Plan(workload)
    require_topics(workload, topics)
    return (
        batch
        for ids in segment_ids(plan, query, topics=topics)
        for segment_id in ids
        for batch in read_segment(plan, segment_id, query)
    )


def segment_ids(
    plan: Plan, query: Query, *, topics: str = "*", partitions: Callable[[str, int], bool] = lambda topic, number: True
) -> Iterator[range]:
    """The ids of the segments that may hold selected rows: a range for each partition that has some.

    ``topics`` is a glob; ``partitions`` says of a topic and a number whether that partition is wanted.
    """
    low, high = query.selection.first_offset, query.selection.last_offset
    for topic in plan.topics:
        if not fnmatchcase(topic.topic.name, topics):
            continue
        for number in topic.partitions:
            begin, segments = topic.first_ids[number], range(topic.segments(number))
            first = 0 if low is None else max(0, bisect_right(segments, low, key=topic.first_offset) - 1)
            end = len(segments) if high is None else bisect_right(segments, high, key=topic.first_offset)
            if first < end and (low or 0) < topic.counts[number] and partitions(topic.topic.name, number):
                yield range(begin + first, begin + end)


def read_segment(plan: Plan, segment_id: int, query: Query) -> Iterator[pa.RecordBatch]:
    """The rows of one segment of a plan, by its id. Segments are independent, so they may be read anywhere.

    >>> from kfuzz.corpora import generated, plan, workload
    >>> made = plan.Plan(workload.parse('size = "1MiB"\\n[[topics]]\\nname = "demo"', "tiny"))
    >>> query = generated.Query("batches", generated.schema("batches", ["base_offset", "records"]))
    >>> [batch] = generated.read_segment(made, 0, query)
    >>> batch.slice(1, 1).to_pylist()
    [{'base_offset': 100, 'records': 100}]
    """
    segment = plan[segment_id]
    place = logs.Segment(
        Path(segment.path), segment.topic.name, segment.partition, segment.first_offset, None, segment.offsets
    )
    if query.rows == "batches":
        at = 0
        for window in _windows(segment, plan.workload):
            if (made := _batches(window, place, query, at)) is not None:
                yield made
            at += len(window)
        return
    rows = RowMaker(place, query.wanted, query.selection, query.isolation)
    ahead = _GeneratedAhead(plan, segment_id)
    for at, window in ahead.windows():
        start = 0
        while start < len(window):
            view = window[start:]
            part = next_part(view, limits=LIMITS, payload_bytes=PAYLOAD_BYTES)
            if not part.consumed:
                raise RuntimeError(f"{segment.path}, byte {at + start}: a generated batch is refused: {part.finding}")
            # The rest of this window comes first.
            ahead.rest = (at + start + part.consumed, view[part.consumed :])
            needs = rows.needs_outcomes
            if (found := rows.of(view, part, at + start, ahead if needs else None)) is not None:
                yield found
            start += part.consumed


def _windows(segment: Segment, workload: Workload) -> Iterator[memoryview]:
    """The segment's log in windows of whole batches, each in memory of its own."""
    held = memoryview(b"")
    used = 0
    for chunk in log_chunks(segment, workload):
        if used + len(chunk) > len(held):
            if used:
                yield held[:used]
            # Not cleared first, as a bytearray would be.
            memory: Any = np.empty(max(WINDOW_BYTES, len(chunk)), np.uint8)
            held, used = memoryview(memory), 0
        held[used : used + len(chunk)] = chunk
        used += len(chunk)
    if used:
        yield held[:used]


class _GeneratedAhead(Ahead):
    """Makes more of a segment, and then the partition's next segments, to see what becomes of a transaction."""

    def __init__(self, plan: Plan, segment_id: int) -> None:
        super().__init__()
        self.plan = plan
        self.segment_id = segment_id
        self.source = _windows(plan[segment_id], plan.workload)
        self.made = 0
        # Windows that are made but not yet returned.
        self.waiting: deque[tuple[int, memoryview]] = deque()
        # The next rows of the window that is being read.
        self.rest: tuple[int, memoryview] = (0, memoryview(b""))
        # The windows of the segment that follows, as far as they are needed.
        self.later: Iterator[memoryview] | None = None

    def windows(self) -> Iterator[tuple[int, memoryview]]:
        """The windows of the segment with the byte at which each begins."""
        while self.waiting or self._make():
            yield self.waiting.popleft()

    def _make(self) -> bool:
        window = next(self.source, None)
        if window is None:
            return False
        self.waiting.append((self.made, window))
        self.made += len(window)
        return True

    def step(self) -> bool:
        if self.later is not None:
            window = next(self.later, None)
            if window is None:
                return self._next_segment()
            self.took(window)
            return True
        for at, view in (self.rest, *self.waiting):
            if at == self.at and len(view):
                self.at += self.took(view)
                return True
        return self._make() or self._next_segment()

    def _next_segment(self) -> bool:
        """Go to the partition's next segment; False if there is none."""
        if self.segment_id + 1 == len(self.plan):
            return False
        before, following = self.plan[self.segment_id], self.plan[self.segment_id + 1]
        if (following.topic.name, following.partition) != (before.topic.name, before.partition):
            return False
        self.segment_id += 1
        self.later, self.has_left = _windows(following, self.plan.workload), True
        return True


# ------------------------------------------------------------------------------------------------ batches


def _batches(window: memoryview, segment: logs.Segment, query: Query, at: int) -> pa.RecordBatch | None:
    """The selected batches of a window, which begins at byte ``at`` of its segment; None if there is none."""
    places = np.fromiter((place for place, _, _ in frames(window)), np.int64)
    sizes = np.diff(places, append=len(window))
    heads = BatchHeads(window, places, at)
    counts = _counts(window, heads, sizes)
    # A wrapper has the offset of its last record.
    base = heads.values("base_offset", np.int64) - np.where(heads.is_new, 0, counts - 1)
    newest = heads.values("max_timestamp", np.int64)
    chosen = _chosen(query.selection, base, newest, heads.magic)
    if not len(chosen):
        return None
    whole = len(chosen) == len(places)
    of_segment = {"topic": segment.topic, "partition": segment.partition, "segment": segment.base_offset}
    own = {"base_offset": base, "records": counts, "size": sizes}
    columns: list[pa.Array[Any]] = []
    for field in query.wanted:
        name, kind = field.name, field.type
        if name in of_segment:
            columns.append(alike(kind, of_segment[name], len(chosen)))
        elif name == "codec":
            codecs = heads.values("codec", np.int64)[chosen]
            columns.append(pa.array(CODECS, pa.string()).take(numbers(pa.int64(), codecs)))
        elif name == "batch":
            columns.append(views_of(window, places[chosen], sizes[chosen]))
        elif name == "max_timestamp":
            timed = heads.magic[chosen] > 0
            columns.append(numbers(pa.int64(), newest[chosen], None if timed.all() else timed).view(kind))
        else:
            values = own[name].astype(NUMBERS[kind]) if name in own else heads.values(name, NUMBERS[kind])
            columns.append(numbers(kind, values if whole else values[chosen]))
    return pa.RecordBatch.from_arrays(columns, schema=query.wanted)


def _counts(window: memoryview, heads: BatchHeads, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The number of records in each batch. A wrapper of magic 0 or 1 must be opened to count them."""
    counts = np.ones(len(heads.places), np.int64)
    counts[heads.is_new] = heads.new["record_count"]
    for i in np.flatnonzero(~heads.is_new & (heads.values("codec", np.int64) != 0)):
        place = int(heads.places[i])
        counts[i] = records.check(window[place : place + int(sizes[i])], limits=LIMITS).record_count
    return counts


def _chosen(
    selection: Selection, base: npt.NDArray[np.int64], newest: npt.NDArray[np.int64], magic: npt.NDArray[np.uint8]
) -> npt.NDArray[Any]:
    """Which batches are selected."""
    within = np.ones(len(base), np.bool_)
    for values, known, low, high in (
        (base, True, selection.first_offset, selection.last_offset),
        (newest, magic > 0, selection.min_timestamp, selection.max_timestamp),
    ):
        if low is not None:
            within &= known & (values >= low)
        if high is not None:
            within &= known & (values <= high)
    return np.flatnonzero(within)
