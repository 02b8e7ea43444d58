"""Slices of segments to Arrow batches, by the loop of ``kfuzz.records.columns``, one mapped window after another."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.annotate.listing import Listing
from kfuzz.errors import RecordsError, UsageError
from kfuzz.findings import Finding
from kfuzz.findings.stored import LENGTH_WRONG
from kfuzz.logs.arrow_rows import NUMBERS, Rows, alike, array_of, numbers, select_rows
from kfuzz.logs.choosing import EVERY, HEADER, JSON, Choice, header_column, json_column
from kfuzz.logs.heads import BatchHeads
from kfuzz.logs.indexes import Starts
from kfuzz.logs.lost import LostOffsets, with_losses
from kfuzz.logs.segments import EVERYTHING, Segment, Selection, Slice, batch_bytes, find_segments, log_end
from kfuzz.logs.slicing import Isolation, require_isolation, slices
from kfuzz.logs.transactions import Ahead, FileAhead, aborted_batches
from kfuzz.mapped import Mapped, became_shorter, mapped, require_whole
from kfuzz.places import opened
from kfuzz.records import Limits
from kfuzz.records.arrow import Part, next_part
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.text import foreign_text, really
from kfuzz.wire.io.layout import TRANSACTIONAL
from kfuzz.wire.records.framing import next_frame

if TYPE_CHECKING:
    from kfuzz.schemas.values import Schemas

Mode = Literal["strict", "tolerant"]
MODES: Final = ("strict", "tolerant")

VIEW: Final = pa.binary_view()
HEADERS: Final = pa.list_(pa.struct([pa.field("key", VIEW, nullable=False), pa.field("value", VIEW)]))
# The columns of a record, in their order.
COLUMNS: Final[dict[str, pa.DataType]] = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "timestamp_type": pa.int32(),
    "key": VIEW,
    "value": VIEW,
    "headers": HEADERS,
    "leader_epoch": pa.int32(),
    "producer_id": pa.int64(),
    "producer_epoch": pa.int16(),
    "sequence": pa.int32(),
    "transactional": pa.bool_(),
    "control": pa.bool_(),
    "aborted": pa.bool_(),
    "segment": pa.int64(),
    "position": pa.int64(),
}
FINDING: Final = "finding"
ABORTED: Final = "aborted"

# Larger windows are slower: Arrow then asks the system for memory again and again.
WINDOW_BYTES: Final = 4 << 20
PAYLOAD_BYTES: Final = 16 << 20
# A record takes about 130 bytes in the columns, even if it has seven bytes in its batch.
ROWS_MOST: Final = 1 << 17
SEQUENCE_MASK: Final = 0x7FFFFFFF
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def schema(columns: Sequence[str] | None = None, *, mode: Mode = "strict") -> pa.Schema:
    """The schema of the batches that :func:`read` gives. ``UsageError`` for an unknown column or mode.

    ``columns`` are some of ``COLUMNS``, which are also the default, ``key_json``, ``value_json``, and ``header.NAME``
    for the last header of any name.

    >>> from kfuzz import logs
    >>> logs.schema(["offset", "key"], mode="tolerant").names
    ['offset', 'key', 'finding']
    """
    if mode not in MODES:
        raise UsageError(f"mode {mode!r} does not exist; take one of {', '.join(MODES)}")
    named = (name for name in columns or () if name.startswith(HEADER) and name != HEADER)
    # Arrow has no column whose name is not UTF-8.
    extra = dict.fromkeys(JSON, pa.string()) | {
        name: pa.binary() for name in named if name == name.encode(errors="ignore").decode()
    }
    fields: list[pa.Field[Any]] = list(schema_of(COLUMNS if columns is None else COLUMNS | extra, columns))
    if mode == "tolerant":
        fields.append(pa.field(FINDING, pa.string()))
    return pa.schema(fields)


def schema_of(known: Mapping[str, pa.DataType], columns: Sequence[str] | None) -> pa.Schema:
    """A schema of some of the known columns, or of all. ``UsageError`` for a column that is unknown or named twice."""
    names = list(known) if columns is None else list(columns)
    for name in names:
        if name not in known:
            raise UsageError(f"column {name!r} does not exist; take some of {', '.join(known)}")
        if names.count(name) > 1:
            raise UsageError(f"column {name!r} is named twice; name it once")
    return pa.schema([pa.field(name, known[name]) for name in names])


def read(
    path: str | Path,
    *,
    topics: str = "*",
    columns: Sequence[str] | None = None,
    first_offset: int | None = None,
    last_offset: int | None = None,
    min_timestamp: int | datetime | None = None,
    max_timestamp: int | datetime | None = None,
    mode: Mode = "strict",
    isolation: Isolation = "log",
    limits: Limits = DEFAULT_LIMITS,
    schemas: Schemas | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of a log directory, a partition folder or a segment file, as Arrow batches. It may be in an archive,
    or at a URI: see :func:`kfuzz.logs.opened`.

    ``columns`` selects some of the columns of :func:`schema`; ``schemas`` decode those with JSON. Offsets and
    timestamps are inclusive bounds; a timestamp is a ``datetime`` with a time zone, or milliseconds. A batch of records
    comes from at most a few MiB of one segment. It keeps these bytes mapped for as long as you keep it.

    In mode ``strict``, bad bytes raise ``RecordsError`` with file, byte and reason. In mode ``tolerant`` the batches
    have a column ``finding``, which is null for a record. For each stretch of bad bytes there is a row with the reason
    in ``finding``, and reading continues after them. With bounds, there is none if all its offsets are outside.

    ``isolation`` selects records as a consumer does. ``log`` gives everything. ``read_uncommitted`` leaves out control
    records. ``read_committed`` also leaves out the records of aborted transactions, and stops at the last stable
    offset: where the oldest open transaction began.

    Raises ``UsageError`` if a file cannot be read or becomes shorter while it is read, and for an unknown column, mode
    or isolation. The generator reads files when it is asked for batches. Batches that you keep must not outlive their
    bytes: columns of a file that is truncated later read as zeros.

    >>> import pathlib, tempfile
    >>> from kfuzz import records
    >>> from kfuzz import logs
    >>> place = tempfile.TemporaryDirectory()
    >>> folder = pathlib.Path(place.name, "orders-0")
    >>> folder.mkdir()
    >>> made = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> folder.joinpath("00000000000000000000.log").write_bytes(made)
    70
    >>> for batch in logs.read(place.name, columns=["topic", "offset", "value"]):
    ...     print(batch.to_pylist())
    [{'topic': 'orders', 'offset': 0, 'value': b'v'}]
    >>> place.cleanup()
    """
    wanted = schema(columns, mode=mode)
    selection = Selection(
        first_offset, last_offset, milliseconds(min_timestamp, up=True), milliseconds(max_timestamp, up=False)
    )
    require_isolation(isolation)
    with contextlib.ExitStack() as stack:
        segments = find_segments(stack.enter_context(opened(path)), topics=topics)
        parts = slices(segments, selection, isolation=isolation)
        place = stack.pop_all()

    def rows() -> Iterator[pa.RecordBatch]:
        with place:
            for part in parts:
                yield from read_slice(part, wanted, selection, isolation=isolation, limits=limits, schemas=schemas)

    return rows()


def milliseconds(moment: int | datetime | None, *, up: bool) -> int | None:
    """Milliseconds since 1970; None stays None. A bound between two milliseconds is rounded ``up`` or down."""
    if not isinstance(moment, datetime):
        return moment
    if moment.tzinfo is None:
        raise UsageError(f"the timestamp {moment} has no time zone; add one, such as tzinfo=timezone.utc")
    whole, rest = divmod(moment - EPOCH, timedelta(milliseconds=1))
    return whole + (up and bool(rest))


def read_slice(
    part: Slice,
    wanted: pa.Schema,
    selection: Selection = EVERYTHING,
    *,
    isolation: Isolation = "log",
    limits: Limits = DEFAULT_LIMITS,
    choice: Choice = EVERY,
    schemas: Schemas | None = None,
) -> Iterator[pa.RecordBatch]:
    """The records of one slice as Arrow batches with the schema ``wanted``, which :func:`schema` makes.

    ``selection`` and ``isolation`` must be those that the slice was made with. Errors are those of :func:`read`. The
    mode is tolerant if ``wanted`` has a column ``finding``. If its column ``headers`` is one of views, that has the
    bytes of each record's headers. A ``choice`` by headers needs that, or no such column.
    """
    require_isolation(isolation)
    yield from walk_slice(
        part, RowMaker(part.segment, wanted, selection.below(part.stable_offset), isolation, choice, schemas), limits
    )


def walk_slice(part: Slice, rows: RowMaker, limits: Limits = DEFAULT_LIMITS) -> Iterator[pa.RecordBatch]:
    """Give ``rows`` the batches of one slice; yields its rows, and those of damage. Errors are as in :func:`read`."""
    with part.segment.open() as file:
        yield from _Reader(part, rows, limits, file).batches()


def _unless_cut(view: memoryview, rows: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """``rows``, if there are any. Raises ``UsageError`` if the file of ``view`` became shorter before they were made,
    or while they were read.
    """
    require_whole(view)
    if rows is not None:
        yield rows
        require_whole(view)


@dataclass(slots=True)
class _Reader:
    """One pass over a slice."""

    part: Slice
    rows: RowMaker
    limits: Limits
    file: BinaryIO
    starts: Starts | None = None
    losses: Iterator[LostOffsets] | None = None
    lost: LostOffsets | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        at = self.part.start
        end = self.part.end
        if os.fstat(self.file.fileno()).st_size < end:
            raise became_shorter(self.part.segment.path)
        window = WINDOW_BYTES
        ahead = FileAhead(self.part.segment) if self.rows.needs_outcomes else None
        while at < end:
            view = mapped(self.file, at, min(at + window, end))
            made = next_part(
                view,
                limits=self.limits,
                payload_bytes=PAYLOAD_BYTES,
                rows_most=ROWS_MOST,
                raw_headers=self.rows.has_raw_headers,
            )
            rows = self.rows.of(view, made, at, ahead)
            yield from _unless_cut(view, rows)
            for table in made.more:
                piece = made._replace(columns=table, counts=[table.num_rows])
                rows = self.rows.of(view, piece, at, ahead)
                yield from _unless_cut(view, rows)
                # They keep a payload in memory, which must not be there while the next one is decompressed.
                del piece, table
            rows = None
            if made.finding is None:
                at += made.consumed
                window = WINDOW_BYTES
                if made.places:
                    del made
                    continue
                # The window may have less than one batch.
                if len(view) < end - at and len(view) < (needed := batch_bytes(view)) <= end - at:
                    window = needed
                    continue
            told, bad, at = self._passed(view, made, at, end)
            # Otherwise, damage becomes a row.
            if FINDING not in self.rows.wanted.names:
                raise RecordsError(told)
            if self._concerns(bad, at):
                yield self.rows.of_damage(told, bad)

    def _passed(self, view: memoryview, made: Part, at: int, end: int) -> tuple[Finding, int, int]:
        """The finding in the bytes after ``made``, where they begin, and where reading continues.

        ``at`` is where ``view`` begins in the segment.
        """
        bad = at + made.consumed
        size, _, _ = next_frame(view, made.consumed)
        if self.starts is None:
            self.starts = Starts(self.part.segment, self.file)
        after = self.starts.resume(bad, size, end)
        place, costs = really(str(self.part.segment.path)), ""
        if lost := self._lost_at(bad):
            costs = f"; {lost}"
        if made.finding is None:
            code, message = "file-truncated", f"the last {end - bad} bytes are not a whole batch"
            if after < end or end < self.part.segment.size:
                code, message = LENGTH_WRONG, f"the batch is longer than the {after - bad} bytes before the next one"
            return Finding(code, "fatal", bad, place, None, message + costs), bad, after
        told = replace(made.finding, message=made.finding.message + costs)
        if "payload" in made.finding.path and made.finding.at < size:
            place = f"{place}, batch at byte {bad}, payload"
            return replace(told, path=place), bad, after
        return replace(told, path=place, at=at + made.finding.at), bad, after

    def _concerns(self, bad: int, after: int) -> bool:
        """Whether the damage from byte ``bad`` up to ``after`` may have had selected records, by their offsets."""
        low, high = self.rows.selection.first_offset, self.rows.selection.last_offset
        first = last = None
        if lost := self._lost_at(bad):
            first, last = lost.first, lost.last
        elif after == self.part.segment.size:
            first, _ = log_end(self.part.segment)
        return (low is None or last is None or low <= last) and (high is None or first is None or first <= high)

    def _lost_at(self, bad: int) -> LostOffsets | None:
        """The offsets that the damage at byte ``bad`` costs; None if only a tail is cut off."""
        if self.losses is None:
            listing = Listing(Mapped(self.file, 0, self.part.segment.size), limits=self.limits)
            both = with_losses(self.part.segment.path, listing)
            self.losses = (one for one in both if isinstance(one, LostOffsets))
        while self.lost is None or self.lost.end <= bad:
            self.lost = next(self.losses, None)
            if self.lost is None:
                return None
        return self.lost if self.lost.at <= bad else None


# --------------------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Makes the selected rows of a segment, with the columns of ``wanted``."""

    segment: Segment
    wanted: pa.Schema
    selection: Selection
    isolation: Isolation
    choice: Choice = EVERY
    schemas: Schemas | None = None

    @property
    def of_segment(self) -> dict[str, Any]:
        """The columns that have one value. In the topic, a byte that is not UTF-8 is written as ``\\udcff``."""
        segment, topic = self.segment, None if self.segment.topic is None else foreign_text(self.segment.topic)
        return {"topic": topic, "partition": segment.partition, "segment": segment.base_offset, FINDING: None}

    @property
    def has_raw_headers(self) -> bool:
        """Whether no lists of headers are made: they are not wanted, or their bytes are."""
        return "headers" not in self.wanted.names or self.wanted.field("headers").type == VIEW

    @property
    def needs_outcomes(self) -> bool:
        """Whether it must be known which transactions are aborted."""
        return ABORTED in self.wanted.names or self.isolation == "read_committed"

    def of_damage(self, told: Finding, position: int) -> pa.RecordBatch:
        """The row of bad bytes that begin at ``position``."""
        known = self.of_segment | {"position": position, FINDING: foreign_text(str(told))}
        return pa.RecordBatch.from_pylist([known], schema=self.wanted)

    def of(self, view: memoryview, made: Part, at: int, ahead: Ahead | None) -> pa.RecordBatch | None:
        """The selected records of ``made``, which was read of ``view``; None if there is none.

        ``view`` begins at byte ``at`` of the segment. ``ahead`` looks at what comes after it.
        """
        if not made.columns.num_rows:
            return None
        heads = _Heads(view, made, at)
        aborted = None
        if ahead is not None and (heads.new["attributes"] & TRANSACTIONAL).any():
            aborted = aborted_batches(heads, heads.counts, made.columns, ahead, at + made.consumed)
        chosen = self._chosen(made.columns, heads, aborted)
        table = made.columns if chosen is None else select_rows(made.columns, chosen)
        count = table.num_rows
        if not count:
            return None
        heads.table, of_segment = table, self.of_segment
        columns: list[pa.Array[Any]] = []
        for field in self.wanted:
            if field.name in ("key", "value", "headers", "offset"):
                columns.append(table.column(field.name))
            elif field.name == "timestamp":
                columns.append(table.column("timestamp").view(field.type))
            elif field.name in of_segment:
                columns.append(alike(field.type, of_segment[field.name], count))
            elif field.name.startswith(HEADER):
                columns.append(header_column(field.name.removeprefix(HEADER), table.column("headers")))
            elif side := JSON.get(field.name):
                columns.append(json_column(self.schemas, side, table.column(side), table.column("headers")))
            elif field.name == ABORTED:
                columns.append(heads.flags(aborted))
            else:
                columns.append(heads.column(field.name, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.wanted)

    def _chosen(self, table: pa.RecordBatch, heads: _Heads, aborted: npt.NDArray[np.bool_] | None) -> Rows | None:
        """The rows that are selected; None if all are."""
        mask: npt.NDArray[np.bool_] | None = None
        if self.isolation != "log":
            left_out = heads.values("control", np.bool_)
            if self.isolation == "read_committed" and aborted is not None:
                left_out = left_out | aborted
            if left_out.any():
                mask = np.repeat(~left_out, heads.counts)
        for within in (*_within(table, self.selection), *self.choice.masks(table)):
            mask = within if mask is None else mask & within
        return None if mask is None else np.flatnonzero(mask)


class _Heads(BatchHeads):
    """Columns from the headers of batches: one value per batch, repeated for each of its records."""

    def __init__(self, view: memoryview, made: Part, at: int) -> None:
        super().__init__(view, made.places, at)
        # Columns have the rows of ``table``, which may become some of all.
        self.table = self.all = made.columns
        self.counts = np.asarray(made.counts)

    def flags(self, values: npt.NDArray[np.bool_] | None) -> pa.Array[Any]:
        """A column from one truth value for each batch; None is false for all."""
        if values is None:
            return alike(pa.bool_(), False, self.table.num_rows)
        return numbers(pa.bool_(), self._of_records(values))

    def column(self, name: str, kind: pa.DataType) -> pa.Array[Any]:
        """A column of the table's length."""
        if name == "sequence":
            return self._sequence()
        values = self.values(name, NUMBERS[kind])
        if (values == values[0]).all():
            return alike(kind, values[0].item(), self.table.num_rows)
        return numbers(kind, self._of_records(values))

    def _of_records(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if self.table is self.all:
            return np.repeat(values, self.counts)
        return np.take(values, self.table.column("batch").to_numpy())

    def _sequence(self) -> pa.Array[Any]:
        base = self.values("base_sequence", np.int64)
        if (base < 0).all():
            return alike(pa.int32(), -1, self.table.num_rows)
        # Both are wanted as one number per batch: a record's sequence is its offset and this.
        shift = base - self.values("base_offset", np.int64)
        sequences = (self.table.column("offset").to_numpy() + self._of_records(shift)) & SEQUENCE_MASK
        return numbers(pa.int32(), np.where(self._of_records(base < 0), -1, sequences).astype(np.int32))


def _within(table: pa.RecordBatch, selection: Selection) -> Iterator[npt.NDArray[np.bool_]]:
    """For each bound that some rows are outside of: which rows are within it. A null is within none."""
    for name, low, high in (
        ("offset", selection.first_offset, selection.last_offset),
        ("timestamp", selection.min_timestamp, selection.max_timestamp),
    ):
        if low is None and high is None:
            continue
        column = table.column(name)
        values = array_of(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]
        within = np.ones(len(values), np.bool_)
        if column.null_count:
            within &= column.is_valid().to_numpy(zero_copy_only=False)
        if low is not None:
            within &= values >= low
        if high is not None:
            within &= values <= high
        if not within.all():
            yield within
