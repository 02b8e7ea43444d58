"""Records of a log as lines of JSON, in memory that does not grow with the log. ``kfuzz cat`` prints them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa

from kfuzz.control import control_json
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX, INTERNAL_TOPICS
from kfuzz.logs.choosing import Choice, json_column
from kfuzz.logs.contents import TIMES_MS
from kfuzz.logs.latest import Latest, last_records
from kfuzz.logs.lines import Lines
from kfuzz.logs.reading import FINDING, milliseconds, read_slice, schema
from kfuzz.logs.segments import Segment, Selection, Slice, find_segments, refuse
from kfuzz.logs.slicing import Isolation, slices
from kfuzz.messages.internal import FRAMED, decode_internal, topic_of_path
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.text import json_printable
from kfuzz.units import utc_text

if TYPE_CHECKING:
    from kfuzz.schemas.values import Schemas, Side

DEFAULT_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
# The last records of a partition are looked for in slices of this size, from its end on.
TAIL_BYTES: Final = 4 << 20
ALL: Final = (1 << 63) - 1
# So many records are decoded at a time, by their schemas.
DECODED_ROWS: Final = 2048
# So many records are looked at for a key that shows what keys are like.
KEYS_TRIED: Final = 100
# Keys of Kafka's own topics are small; those of others may be of any size.
KEYS_BYTES_MAX: Final = 1 << 16
# The end of a line whose last column says that it is no control record.
NOT_CONTROL: Final = b',"control":false}'
# A line that may be longer is printed in pieces, or cut for a table. Cells are cut later, so a table has a lower bound.
LARGE_BYTES: Final = 8 << 20
LARGE_IN_TABLE_BYTES: Final = 1 << 20

LINE_BREAK: Final = ord("\n")

# Gets the place and the reason of each stretch of bad bytes.
OnDamage = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Request:
    """The part of the log directory, partition folder or segment file ``path`` to print.

    - ``columns``: some of ``kfuzz.logs.COLUMNS``. None means those of ``DEFAULT_COLUMNS`` that the path gives:
      a file that is in no partition folder has no topic and no partition.
    - ``first``, ``last``: inclusive bounds; a number is an offset, a ``datetime`` with a time zone a timestamp.
    - ``key``, ``headers`` and ``tombstones`` are those of a :class:`~kfuzz.logs.choosing.Choice`.
    - ``latest``: of those that the bounds and the isolation select, only the last record of each key of a partition.
    - ``schemas``: keys and values are JSON, by their schemas.
    - ``most``: at most this many records. ``tail``: the last so many records of each partition.
    - ``records_of``: keys and values are decoded as those of this topic of Kafka's own, one of ``INTERNAL_TOPICS``; an
      empty text decodes nothing. None goes by the names of the partition folders. A key or a value of more than a MiB
      is printed as its bytes.
    - ``is_cut``: a long line has only the beginning of each key, value and header.
    - The others are those of :func:`kfuzz.logs.read`.
    """

    path: str | Path
    topics: str = "*"
    columns: Sequence[str] | None = None
    first: int | datetime | None = None
    last: int | datetime | None = None
    isolation: Isolation = "read_uncommitted"
    key: bytes | None = None
    headers: Sequence[tuple[bytes, bytes | None]] = ()
    tombstones: bool = False
    latest: bool = False
    schemas: Schemas | None = None
    most: int | None = None
    tail: int | None = None
    records_of: str | None = None
    is_cut: bool = False
    limits: Limits = DEFAULT_LIMITS


def json_lines(
    wanted: Request, on_damage: OnDamage | None = None, pass_over: Callable[[Path, str], None] = refuse
) -> Iterator[memoryview]:
    """Lines, about a MiB at a time; each text is valid until the next one is asked for. Only a line of several MiB is
    divided.

    A record is an object with the names of its columns; its key and value are text, or ``{"hex": "ff00"}`` if they are
    not UTF-8. Nothing is cut, unless ``is_cut`` asks for it. With ``on_damage``, reading continues after bad bytes;
    without it, they raise ``RecordsError``. ``pass_over`` is that of ``find_segments``. Raises ``UsageError`` as
    :func:`kfuzz.logs.read` does.
    """
    segments = find_segments(wanted.path, topics=wanted.topics, pass_over=pass_over)
    _require_offsets(wanted, segments)
    columns = columns_of(segments) if wanted.columns is None else wanted.columns
    # Control records are decoded in every topic, by their keys.
    adds_control = wanted.isolation == "log" and wanted.records_of != "" and "control" not in columns
    printer = _Printer(wanted, [*columns, "control"] if adds_control else columns, on_damage)
    slice_bytes = None if wanted.tail is None else TAIL_BYTES
    lines = printer.lines(slices(segments, printer.selection, isolation=wanted.isolation, slice_bytes=slice_bytes))
    topics = {segment.topic or topic_of_path(segment.path) for segment in segments}
    records_of = wanted.records_of
    if records_of is None and len(topics) == 1:
        (records_of,) = topics
    is_internal = not topics.isdisjoint(INTERNAL_TOPICS) if records_of is None else records_of in INTERNAL_TOPICS
    if not is_internal and (wanted.isolation != "log" or wanted.records_of == ""):
        return lines
    return _decoded(lines, records_of, is_internal=is_internal, adds_control=adds_control)


def _decoded(
    lines: Iterator[memoryview], records_of: str | None, *, is_internal: bool, adds_control: bool
) -> Iterator[memoryview]:
    """The lines with the control records decoded, and if a topic ``is_internal``, with its keys and values decoded:
    those of ``records_of``; None: of the topic that a line names.

    With ``adds_control``, the last column only marks control records, and is left out.
    """
    is_whole = True
    for text in lines:
        # A piece of a divided line is not decoded: its values would take a hundred times their bytes.
        is_piece, is_whole = not is_whole, text[-1] == LINE_BREAK
        if is_piece or not is_whole:
            yield text
            continue
        made = []
        for line in bytes(text).splitlines():
            # Quotes inside a value have backslashes.
            is_control = b'"control":true' in line
            if not is_control and not is_internal:
                made.append((line.removesuffix(NOT_CONTROL) + b"}" if adds_control else line) + b"\n")
                continue
            record = json.loads(line)
            if adds_control:
                del record["control"]
            topic = record.get("topic") if records_of is None else records_of
            if is_control and "key" in record:
                shown = control_json(_bytes(record["key"]), _bytes(record.get("value")))
                record |= {name: side for name, side in zip(("key", "value"), shown, strict=True) if name in record}
                line = _as_line(record)
            elif topic in INTERNAL_TOPICS and not is_control:
                sides = decode_internal(topic, _bytes(record.get("key")), _bytes(record.get("value")))
                for name, side in (("key", sides.key), ("value", sides.value)):
                    # Without its key, the kind of a coordinator's record is not known.
                    if record.get(name) is not None and side is not None and ("key" in record or topic in FRAMED):
                        record[name] = side.to_json()
                line = _as_line(record)
            elif adds_control:
                line = _as_line(record)
            made.append(line + b"\n")
        yield memoryview(b"".join(made))


def key_like(wanted: Request) -> str:
    """A hint if no record has the key that was asked for, but keys are objects; otherwise an empty text."""
    if wanted.key is None:
        return ""
    any_key = replace(wanted, key=None, most=KEYS_TRIED, tail=None, columns=("topic", "key"))
    for decoded, plain in zip(_keys(any_key), _keys(replace(any_key, records_of="", schemas=None)), strict=False):
        if decoded != plain:
            example = json.dumps(decoded, ensure_ascii=False)
            return (
                f"no record has this key; keys are bytes here, such as hex:{(_bytes(plain) or b'').hex()} for {example}"
            )
    return ""


def _keys(wanted: Request) -> list[Any]:
    made = bytearray()
    for text in json_lines(wanted):
        # A text may end inside a line.
        made += text[:KEYS_BYTES_MAX]
        if len(made) >= KEYS_BYTES_MAX:
            return []
    return [json.loads(line)["key"] for line in made.splitlines()]


def _as_line(record: dict[str, Any]) -> bytes:
    return json_printable(json.dumps(record, ensure_ascii=False, separators=(",", ":"))).encode()


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
        self._columns = columns
        self._sides = {"key", "value"}.intersection(columns) if wanted.schemas is not None else set[str]()
        # A header may have the schema's id.
        read = [*columns, "headers"] if self._sides and "headers" not in columns else columns
        self._schema = _with_raw_headers(self._of_columns(read))
        printed = _with_raw_headers(schema(columns))
        for name in self._sides:
            printed = printed.set(printed.get_field_index(name), pa.field(name, pa.string()))
        self._printed = printed
        self._lines = Lines(printed, LARGE_IN_TABLE_BYTES if wanted.is_cut else LARGE_BYTES)
        self._choice = Choice(wanted.key, wanted.headers, wanted.tombstones)
        self.selection = _selection(wanted)

    def lines(self, parts: Iterator[Slice]) -> Iterator[memoryview]:
        left = ALL if self._wanted.most is None else min(self._wanted.most, ALL)
        for _, group in groupby(parts, lambda part: part.segment.path.parent):
            partition: Iterable[Slice] = group
            if self._wanted.latest or self._wanted.tail is not None:
                partition = list(partition)
            if self._wanted.latest:
                columns = self._of_columns(("offset", "key"))
                found = (rows for part in partition for rows in self._rows_of(part, columns, None, Choice()))
                self._choice = replace(self._choice, latest=Latest(chain.from_iterable(map(last_records, found))))
            if self._wanted.tail is not None:
                yield from self._tail(list(partition), self._wanted.tail)
                continue
            for part in partition:
                for rows in self._rows_of(part, self._schema, self._on_damage):
                    yield from self._of_rows(part, rows.slice(0, left))
                    left -= min(rows.num_rows, left)
                    if left <= 0:
                        return
                    del rows

    def _tail(self, parts: list[Slice], most: int) -> Iterator[memoryview]:
        """The last ``most`` lines of a partition: its slices are read from the last one on, until they suffice."""
        # Lines may take very much memory, so they are counted first, and made when it is known which ones are wanted.
        start, count = len(parts), 0
        counted = self._of_columns(("offset",))
        while start and count < most:
            start -= 1
            count += sum(rows.num_rows for rows in self._rows_of(parts[start], counted, self._on_damage))
        skipped = max(count - most, 0)
        for part in parts[start:]:
            for rows in self._rows_of(part, self._schema, None):
                if skipped < rows.num_rows:
                    yield from self._of_rows(part, rows.slice(skipped))
                skipped -= min(rows.num_rows, skipped)
                del rows

    def _of_rows(self, part: Slice, rows: pa.RecordBatch) -> Iterator[memoryview]:
        """The lines of the rows."""
        topic = self._wanted.records_of or part.segment.topic
        size = DECODED_ROWS if self._sides else max(rows.num_rows, 1)
        for start in range(0, rows.num_rows, size):
            piece = rows.slice(start, size)
            # The records of Kafka's own topics have no schemas.
            schemas = None if topic in INTERNAL_TOPICS else self._wanted.schemas
            arrays = [
                json_column(schemas, cast("Side", name), piece.column(name), piece.column("headers"), topic)
                if name in self._sides
                else piece.column(name)
                for name in self._columns
            ]
            yield from self._of_piece(pa.RecordBatch.from_arrays(arrays, schema=self._printed))

    def _of_piece(self, rows: pa.RecordBatch) -> Iterator[memoryview]:
        row = 0
        while row < rows.num_rows:
            text, count, row = self._lines.of(rows, row)
            if count:
                yield text
            else:
                # It is large. Its last piece ends with the only line break.
                pieces = self._lines.pieces(rows, row, self._wanted.is_cut)
                for piece in (b"".join(pieces),) if self._wanted.is_cut else pieces:
                    yield memoryview(piece)
                row += 1

    def _of_columns(self, columns: Sequence[str]) -> pa.Schema:
        return schema(columns, mode="tolerant" if self._on_damage else "strict")

    def _rows_of(
        self, part: Slice, columns: pa.Schema, on_damage: OnDamage | None, choice: Choice | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a slice, without those about damage."""
        wanted = self._wanted
        choice = self._choice if choice is None else choice
        found = read_slice(
            part, columns, self.selection, isolation=wanted.isolation, limits=wanted.limits, choice=choice
        )
        for batch in found:
            if self._on_damage and not batch.column(FINDING).null_count:
                if on_damage is not None:
                    on_damage(str(batch.column(FINDING)[0]))
                continue
            yield batch
            # It keeps a payload in memory, which must not be there while the next one is decompressed.
            del batch


def _require_offsets(wanted: Request, segments: Sequence[Segment]) -> None:
    """Raise ``UsageError`` for an offset that no segment can have, and that looks like a time in milliseconds."""
    for option, bound in (("--from", wanted.first), ("--to", wanted.last)):
        if isinstance(bound, int) and bound in TIMES_MS and all(_ends_before(one, bound) for one in segments):
            raise UsageError(
                f"{option} {bound} is an offset, and all offsets are lower; for that time, give "
                f"{option} {utc_text(bound)}"
            )


def _ends_before(segment: Segment, offset: int) -> bool:
    base = segment.base_offset
    if base is None:
        with segment.open() as file:
            base = int.from_bytes(file.read(8), "big", signed=True)
    # An index has the distance of an offset from its segment's in an int32.
    return base + INT32_MAX < offset


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
