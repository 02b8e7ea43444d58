"""``kfuzz cat``: the records of a segment or a log directory, as lines of JSON or as a table."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Complaints, Word, complain, reader_is_gone, standard_input, terminal_width
from kfuzz.cli.opening import log_at
from kfuzz.errors import RecordsError, UsageError
from kfuzz.files import local_path, map_bytes
from kfuzz.kafka import ISOLATIONS
from kfuzz.text import printable
from kfuzz.units import counted, utc_text

if TYPE_CHECKING:
    from kfuzz.client.copying import Live
    from kfuzz.logs.printing import Request

COPY_BYTES = 1 << 20
# Longer keys and values are cut in a table.
CELL_CHARACTERS = 48
WIDTHS = {"topic": 16, "partition": 4, "offset": 10, "timestamp": 24, "key": 20, "value": CELL_CHARACTERS}
FIXED = ("partition", "offset", "timestamp")
TITLES = {"partition": "part"}


def _bound(text: str) -> int | datetime:
    """An offset, or a time: a date with or without a time of day, and with or without a zone."""
    with contextlib.suppress(ValueError):
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is neither an offset nor a time such as 2026-11-24 or 2026-11-24T10:00:00+01:00"
        ) from None


def _key(text: str) -> bytes:
    if not text.startswith("hex:"):
        return os.fsencode(text)
    try:
        return bytes.fromhex(text.removeprefix("hex:"))
    except ValueError:
        raise UsageError(f"{text!r} is not hex; give pairs of hex digits, such as hex:00ff") from None


def _header(text: str) -> tuple[bytes, bytes | None]:
    name, sign, value = text.partition("=")
    return os.fsencode(name), _key(value) if sign else None


def _in_zone(bound: int | datetime | None, zone: tzinfo | None) -> int | datetime | None:
    """The bound; a time without a zone gets this one, or the local one."""
    if not isinstance(bound, datetime) or bound.tzinfo is not None:
        return bound
    try:
        return bound.replace(tzinfo=zone) if zone else bound.astimezone()
    except (OverflowError, ValueError, OSError):
        raise UsageError(f"the time {bound} is beyond the calendar; give an offset, or no bound") from None


BOUND = Word("offset or time", _bound)
KEY = Word("text", _key)
HEADER = Word("name or name=value", _header)
COLUMNS = Word("names", lambda text: tuple(name.strip() for name in text.split(",")))


@click.command()
@click.argument("path", metavar="[FILE|DIR]", required=False)
@options.live
@click.option(
    "--from", "first", type=BOUND, help="The first offset, or the earliest time: 4711, 2026-11-24, 2026-11-24T10:00."
)
@click.option("--to", "last", type=BOUND, help="The last offset, or the latest time.")
@click.option("--utc", is_flag=True, help="Times are in UTC.  [default: local on a terminal, UTC elsewhere]")
@click.option("--key", type=KEY, help="Only records with this key; hex:00ff for bytes that are not text.")
@click.option(
    "--header",
    "headers",
    type=HEADER,
    multiple=True,
    help="Only records with this header: NAME, or NAME=VALUE; hex:00ff as for --key. Several: those with all of them.",
)
@click.option("--tombstones", is_flag=True, help="Only records without a value, which delete their keys.")
@click.option(
    "--latest",
    is_flag=True,
    help="Of each key in a partition the last record, within the bounds; no key that was deleted, or with --tombstones "
    "only those.",
)
@options.records()
@click.option("--tail", type=click.IntRange(1), metavar="N", help="The last N records of each partition.")
@options.topics
@click.option(
    "--columns",
    type=COLUMNS,
    help="Names of what to print, with commas between.  [default: topic, partition (for a file in a partition folder), "
    "offset, timestamp, key, value, headers]",
)
@click.option(
    "--isolation",
    type=click.Choice(["log", *ISOLATIONS]),
    default="read_uncommitted",
    show_default=True,
    help="log: also control records.  read_committed: no records of aborted or open transactions.",
)
@options.records_of
@options.schemas
@click.option("--validate", is_flag=True, help="Also compare JSON values with their JSON Schema.")
@click.option("--table", "as_table", is_flag=True, help="Print a table with readable times instead of JSON.")
@click.option("--keep-going", is_flag=True, help="Say on standard error what is damaged, and continue after it.")
def command(
    path: str | None,
    live: Live | None,
    records_max: int | None,
    first: int | datetime | None,
    last: int | datetime | None,
    utc: bool,
    tail: int | None,
    records_of: str | None,
    places: tuple[str, ...],
    registry: str | None,
    validate: bool,
    as_table: bool,
    keep_going: bool,
    **others: Any,
) -> int:
    """Print the records of a segment file, a partition folder or a log directory; - is standard input.

    Each record is an object of JSON on its own line. Keys and values are text. Bytes that are not UTF-8 are printed as
    {"hex": "ff00"}. Timestamps are milliseconds since 1970, in a table times. All of a log is read in constant memory.

    Times without a zone are in local time if standard output is a terminal, otherwise, and with --utc, in UTC: those
    after --from and --to, and those in a table. 2026-11-24T10:00:00+01:00 has a zone. A number is an offset.

    The columns are topic, partition, offset, timestamp, timestamp_type, key, value, headers, leader_epoch,
    producer_id, producer_epoch, sequence, transactional, control, aborted, segment and position (a byte);
    header.NAME is the last header of that name.

    Keys and values that begin with a schema's id (Avro, Protobuf, JSON Schema), or have it in a header, are JSON by
    their schemas: those of --schema and --registry, or of the partition _schemas-0 beside the data. One that cannot be
    decoded is printed with the reason and its bytes, counted, and makes the exit code 1.

    Keys and values in Kafka's own topics, such as __consumer_offsets, are objects: the type, the version and the data.
    So are those of control records, in every topic, and those in snapshots of the metadata log (.checkpoint).

    Folders that a broker deletes, copies or does not know (their names end with -delete, -future or -stray) are passed
    over, unless you name one.

    Exit code 0: all was read; 1: something is damaged or was skipped; 2: wrong use. Links inside a log directory are
    skipped, as are pipes and devices.

    \b
    Examples:
      kfuzz cat 00000000000000000000.log
      kfuzz cat /var/lib/kafka/data --topics orders --from 2026-11-24T10:00 --to 2026-11-24T11:00
      kfuzz cat orders-0 --key customer-17 --tail 5 --table
      kfuzz cat orders-0 --isolation log --columns offset,producer_id,control,aborted
      kfuzz cat broken.log --keep-going > records.ndjson
    """
    from kfuzz.logs.printing import Request

    if tail is not None and records_max is not None:
        raise UsageError("--tail and --records exclude each other; --tail N gives the last N, --records N the first")
    zone = UTC if utc or not sys.stdout.isatty() else None
    bounds = {"first": _in_zone(first, zone), "last": _in_zone(last, zone)}
    if (first, last) != tuple(bounds.values()) and zone is None:
        complain(f"times without a zone are local: {', '.join(str(one) for one in bounds.values() if one is not None)}")
    with log_at(path, live, topics=others["topics"], first=bounds["first"]) as found, _stored(found) as place:
        schemas = options.schemas_of(found, places, registry, topics=others["topics"], validate=validate)
        topic = "" if records_of == options.AS_THEY_ARE else records_of
        # The other options have the names of the request's fields.
        others |= bounds | {"schemas": schemas}
        wanted = Request(place, most=records_max, tail=tail, records_of=topic, is_cut=as_table, **others)
        return _print(wanted, _Table(zone) if as_table else None, keep_going=keep_going)


@contextlib.contextmanager
def _stored(path: str) -> Iterator[str]:
    """The path of the file; standard input and pipes are copied to a temporary one, as a log is read at any place."""
    is_pipe = path != "-" and local_path(path).is_fifo()
    if path != "-" and not is_pipe:
        yield path
        return
    from kfuzz.logs.contents import require_batches
    from kfuzz.places import stand_in

    names: dict[str, str] = {}
    with stand_in(names) as folder:
        copy = folder / "given"
        names[str(copy)] = path if is_pipe else "standard input"
        with (
            local_path(path).open("rb") if is_pipe else contextlib.nullcontext(standard_input()) as given,
            copy.open("wb") as file,
        ):
            shutil.copyfileobj(given, file, COPY_BYTES)
        require_batches(path, map_bytes(copy))
        yield str(copy)


def _print(wanted: Request, table: _Table | None, *, keep_going: bool) -> int:
    from kfuzz.logs.printing import json_lines, key_like
    from kfuzz.logs.segments import find_segments, lost_between, passed_over

    complaints = Complaints()
    is_empty = True
    out = sys.stdout.buffer
    try:
        for text in json_lines(wanted, complaints.say if keep_going else None, complaints.skip):
            is_empty = False
            if table is None:
                out.write(text)
            else:
                table.show(bytes(text).splitlines())
            if reader_is_gone():
                break
    except RecordsError as error:
        out.flush()
        complaints.say(f"{error}; --keep-going reads what follows")
        return 1
    out.flush()
    if sentence := passed_over(wanted.path):
        complain(sentence)
    if (wanted.first, wanted.last, wanted.most, wanted.tail) == (None, None, None, None):
        missing = list(lost_between(find_segments(wanted.path, topics=wanted.topics, pass_over=lambda *_: None)))
        if missing:
            one = missing[0]
            more = f" ({counted(len(missing) - 1, 'more gap', 'more gaps')})" if missing[1:] else ""
            complain(
                f"{one.partition}: offsets {one.first} to {one.last} are in no segment; the next record has offset "
                f"{one.next}{more}; `kfuzz check` says whether the missing ones are lost or were compacted"
            )
    if wanted.schemas is not None and (count := wanted.schemas.without_id):
        what = counted(count, "key or value has", "keys or values have")
        complain(f"{what} no schema's id, although others of the topic have one, and stay as they are")
    if wanted.schemas is not None and (count := wanted.schemas.failures):
        what = counted(count, "key or value", "keys or values")
        complaints.say(f"{what} cannot be decoded; the first: {wanted.schemas.first_failure}")
    if is_empty and (sentence := key_like(wanted)):
        complain(sentence)
    return 1 if complaints.count else 0


class _Table:
    """Rows with columns of fixed widths, so that they can be printed before all of them are known.

    In a terminal, texts share what numbers and times leave. Times are in UTC or, if ``zone`` is None, local.
    """

    def __init__(self, zone: tzinfo | None) -> None:
        self.zone = zone
        self.terminal = terminal_width()
        self.widths: dict[str, int] = {}

    def show(self, lines: list[bytes]) -> None:
        for line in lines:
            record: dict[str, Any] = json.loads(line)
            if not self.widths:
                self.widths = _widths(record, self.terminal)
                click.echo(self._row({name: TITLES.get(name, name) for name in record}))
            click.echo(self._row({name: self._cell(name, value) for name, value in record.items()}))

    def _cell(self, name: str, value: Any) -> str:
        if name != "timestamp" or value is None or self.zone is not None:
            return _cell(name, value)
        try:
            return datetime.fromtimestamp(value / 1000, UTC).astimezone().isoformat(timespec="milliseconds")
        except (OverflowError, ValueError, OSError):
            return str(value)

    def _row(self, cells: Mapping[str, str]) -> str:
        shown = []
        for name, cell in cells.items():
            width = self.widths[name]
            text = cell if self.terminal is None or name in FIXED else _cut(cell, width)
            shown.append(text.rjust(width) if name in ("partition", "offset") else text.ljust(width))
        return "  ".join(shown).rstrip()


def _widths(names: Iterable[str], terminal: int | None) -> dict[str, int]:
    if terminal is None:
        return {name: WIDTHS.get(name, max(len(name), 8)) for name in names}
    wanted = {name: WIDTHS.get(name, CELL_CHARACTERS) for name in names}
    left = terminal - 2 * (len(wanted) - 1)
    order = sorted(wanted, key=lambda name: (name not in FIXED, wanted[name]))
    for i, name in enumerate(order):
        wanted[name] = wanted[name] if name in FIXED else max(min(wanted[name], left // (len(order) - i)), 1)
        left -= wanted[name]
    return wanted


def _cell(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name == "timestamp":
        return utc_text(value)
    if isinstance(value, dict):
        # A value with a schema may have fields of these names too.
        if value.keys() == {"hex"} and isinstance(value["hex"], str):
            return _cut("0x" + value["hex"])
        return _cut(json.dumps(value["data"] if value.keys() == {"type", "version", "data"} else value))
    if isinstance(value, list):
        return _cut(" ".join(f"{_cell('', key)}={_cell('', item)}" for key, item in value))
    text = value if isinstance(value, str) else json.dumps(value)
    # A line break or an escape sequence would break the table, or the terminal. An escape of more than one character
    # may be cut, so that cells stay short.
    return _cut(printable(text[: CELL_CHARACTERS + 1]))


def _cut(text: str, width: int = CELL_CHARACTERS) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
