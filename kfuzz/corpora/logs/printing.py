"""Records of a log as lines of JSON, in memory that does not grow with the log. ``kfuzz cat`` prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import pyarrow as pa

from kfuzz.corpora.logs.lines import Lines
from kfuzz.corpora.logs.reading import FINDING, milliseconds, read_slice, schema
from kfuzz.corpora.logs.segments import Segment, Selection, Slice, find_segments
from kfuzz.corpora.logs.slicing import Isolation, slices
from kfuzz.kafka import INTERNAL_TOPICS
from kfuzz.messages.internal import FRAMED, decode_internal
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.text import json_printable

__all__ = ["DEFAULT_COLUMNS", "Request", "columns_of", "json_lines"]

DEFAULT_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
# The last records of a partition are looked for in slices of this size, from its end on.
TAIL_BYTES: Final = 4 << 20
ALL: Final = (1 << 63) - 1
# A line that may be longer is printed in pieces, or cut for a table. Cells are cut later, so a table has a lower bound.
LARGE_BYTES: Final = 8 << 20
LARGE_IN_TABLE_BYTES: Final = 1 << 20

# Gets the place and the reason of each stretch of bad bytes.
LINE_BREAK: Final = ord("\n")

OnDamage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """What to print of the log directory, partition folder or segment file ``path``.

    - ``columns``: some of ``kfuzz.corpora.logs.COLUMNS``. None means those of ``DEFAULT_COLUMNS`` that the path tells:
      a file that is in no partition folder has no topic and no partition.
    - ``first``, ``last``: inclusive bounds; a number is an offset, a ``datetime`` with a time zone a timestamp.
    - ``key``: only records with this key.
    - ``most``: at most this many records. ``tail``: the last so many records of each partition.
    - ``records_of``: keys and values are decoded as those of this topic of Kafka's own, one of ``INTERNAL_TOPICS``; an
      empty text decodes nothing. None goes by the names of the partition folders. A key or a value of more than a MiB
      is printed as its bytes.
    - ``is_cut``: a long line has only the beginning of each key, value and header.
    - The others are those of :func:`kfuzz.corpora.logs.read`.
    """

    path: str | Path
    topics: str = "*"
    columns: Sequence[str] | None = None
    first: int | datetime | None = None
    last: int | datetime | None = None
    isolation: Isolation = "read_uncommitted"
    key: bytes | None = None
    most: int | None = None
    tail: int | None = None
    records_of: str | None = None
    is_cut: bool = False
    limits: Limits = DEFAULT_LIMITS


def json_lines(wanted: Request, on_damage: OnDamage | None = None) -> Iterator[memoryview]:
    """Lines, about a MiB at a time; each text is valid until the next one is asked for. Only a line of several MiB is
    divided.

    A record is an object with the names of its columns; its key and value are text, or ``{"hex": "ff00"}`` if they are
    not UTF-8. Nothing is cut, unless ``is_cut`` asks for it. With ``on_damage``, reading goes on behind bad bytes;
    without it, they raise ``RecordsError``. Raises ``UsageError`` as :func:`kfuzz.corpora.logs.read` does.
    """
    segments = find_segments(wanted.path, topics=wanted.topics)
    columns = columns_of(segments) if wanted.columns is None else wanted.columns
    printer = _Printer(wanted, columns, on_damage)
    if wanted.tail is None:
        parts = slices(segments, printer.selection, isolation=wanted.isolation)
        lines = printer.forwards(parts)
    else:
        parts = slices(segments, printer.selection, isolation=wanted.isolation, slice_bytes=TAIL_BYTES)
        lines = printer.tails(list(parts), wanted.tail)
    topics = {segment.topic for segment in segments}
    if wanted.records_of is None and topics.isdisjoint(INTERNAL_TOPICS):
        return lines
    only = topics.pop() if len(topics) == 1 else None
    return _decoded(lines, only if wanted.records_of is None else wanted.records_of)


def _decoded(lines: Iterator[memoryview], records_of: str | None) -> Iterator[memoryview]:
    """The lines with decoded keys and values, if they are of ``records_of``; None: of the topic that a line names."""
    is_whole = True
    for text in lines:
        # A piece of a divided line is not decoded: its values would take a hundred times their bytes.
        is_piece, is_whole = not is_whole, text[-1] == LINE_BREAK
        if is_piece or not is_whole:
            yield text
            continue
        made = []
        for line in bytes(text).splitlines():
            record = json.loads(line)
            topic = record.get("topic") if records_of is None else records_of
            # The records of markers are control records; they are known if their column is printed.
            if topic in INTERNAL_TOPICS and not record.get("control"):
                sides = decode_internal(topic, _bytes(record.get("key")), _bytes(record.get("value")))
                for name, side in (("key", sides.key), ("value", sides.value)):
                    # Without its key, the kind of a coordinator's record is not known.
                    if record.get(name) is not None and side is not None and ("key" in record or topic in FRAMED):
                        record[name] = side.to_json()
                line = json_printable(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode()
            made.append(line + b"\n")
        yield memoryview(b"".join(made))


def _bytes(value: str | dict[str, str] | None) -> bytes | None:
    """The bytes of a key or a value, as a line has it."""
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return None if value is None else value.encode()


def columns_of(segments: Sequence[Segment]) -> tuple[str, ...]:
    """The default columns of these segments."""
    return DEFAULT_COLUMNS if segments[0].topic is not None else DEFAULT_COLUMNS[2:]


class _Printer:
    def __init__(self, wanted: Request, columns: Sequence[str], on_damage: OnDamage | None) -> None:
        self._wanted = wanted
        self._on_damage = on_damage
        printed = schema(columns)
        # Rows are chosen by their key even if it is not printed.
        hidden = ["key"] if wanted.key is not None and "key" not in columns else []
        read = [*columns, *hidden]
        self._schema = _with_raw_headers(schema(read, mode="tolerant" if on_damage else "strict"))
        large = LARGE_IN_TABLE_BYTES if wanted.is_cut else LARGE_BYTES
        self._lines = Lines(_with_raw_headers(schema(read)), wanted.key, len(printed), large)
        self._names = read
        self.selection = _selection(wanted)

    def forwards(self, parts: Iterator[Slice]) -> Iterator[memoryview]:
        left = ALL if self._wanted.most is None else self._wanted.most
        for part in parts:
            for text, count in self._of_part(part, left):
                yield text
                left -= count
            if left <= 0:
                return

    def tails(self, parts: list[Slice], most: int) -> Iterator[memoryview]:
        """The last ``most`` lines of each partition: its slices are read from the last one on, until they suffice."""
        start = 0
        for i, part in enumerate(parts):
            is_last = i + 1 == len(parts) or parts[i + 1].segment.path.parent != part.segment.path.parent
            if is_last:
                yield from self._tail(parts[start : i + 1], most)
                start = i + 1

    def _tail(self, parts: list[Slice], most: int) -> Iterator[memoryview]:
        # Lines may take very much memory, so they are counted first, and made when it is known which ones are wanted.
        start, count = len(parts), 0
        while start and count < most:
            start -= 1
            for rows in self._rows_of(parts[start], self._on_damage):
                count += self._lines.count_of(rows)[0]
                del rows
        skipped = max(count - most, 0)
        for part in parts[start:]:
            for rows in self._rows_of(part, None):
                lines, row = self._lines.count_of(rows, skipped)
                skipped -= lines
                yield from (text for text, _ in self._of_rows(rows, row, ALL))
                del rows

    def _of_part(self, part: Slice, most: int) -> Iterator[tuple[memoryview, int]]:
        """Lines of a slice, and how many of them end in each text."""
        for rows in self._rows_of(part, self._on_damage):
            for text, count in self._of_rows(rows, 0, most):
                most -= count
                yield text, count
            if most <= 0:
                return
            del rows

    def _of_rows(self, rows: pa.RecordBatch, row: int, most: int) -> Iterator[tuple[memoryview, int]]:
        while row < rows.num_rows and most > 0:
            text, count, after = self._lines.of(rows, row, most)
            if count:
                yield text, count
            elif after < rows.num_rows:
                # It is large. Its last piece ends with the only line break.
                pieces = self._lines.pieces(rows, after, self._wanted.is_cut)
                if self._wanted.is_cut:
                    pieces = iter((b"".join(pieces),))
                for piece in pieces:
                    yield memoryview(piece), int(piece.endswith(b"\n"))
                after += 1
                count = 1
            most -= count
            row = after

    def _rows_of(self, part: Slice, on_damage: OnDamage | None) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, without those about damage."""
        wanted = self._wanted
        found = read_slice(part, self._schema, self.selection, isolation=wanted.isolation, limits=wanted.limits)
        for batch in found:
            if self._on_damage and not batch.column(FINDING).null_count:
                if on_damage is not None:
                    on_damage(str(batch.column(FINDING)[0]))
                continue
            yield self._without_finding(batch)
            # It keeps a payload in memory, which must not be there while the next one is decompressed.
            del batch

    def _without_finding(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self._names) if self._on_damage else batch


def _with_raw_headers(columns: pa.Schema) -> pa.Schema:
    """The schema with the bytes of headers in place of lists, which would take much more memory."""
    if "headers" not in columns.names:
        return columns
    return columns.set(columns.names.index("headers"), pa.field("headers", pa.binary_view()))


def _selection(wanted: Request) -> Selection:
    first, last = wanted.first, wanted.last
    return Selection(
        first_offset=None if isinstance(first, datetime) else first,
        last_offset=None if isinstance(last, datetime) else last,
        min_timestamp=milliseconds(first, up=True) if isinstance(first, datetime) else None,
        max_timestamp=milliseconds(last, up=False) if isinstance(last, datetime) else None,
    )
