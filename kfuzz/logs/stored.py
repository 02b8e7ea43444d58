"""The files that Kafka keeps beside the segments of a log: what is in them, and what is wrong with them.

An index is judged by what a broker asks of it when it starts (``AbstractIndex.sanityCheck``, ``TransactionIndex``), and
by its segment, if that is beside it: an entry of an offset index must lead to a batch. Kafka does not ask that; a wrong
entry makes a consumer miss records. This module needs neither numpy nor pyarrow. Files of any size take little memory:
entries are read again each time, and what is larger than Kafka's files can be is refused.
"""

from __future__ import annotations

import base64
import mmap
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import merge
from itertools import islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from kfuzz import messages
from kfuzz.errors import MessageError, UsageError
from kfuzz.files import map_regular
from kfuzz.findings import Finding, Profile
from kfuzz.findings.stored import stored_finding
from kfuzz.logs.log_facts import first_fall
from kfuzz.logs.snapshot import CRC_BYTES, LEADER_EPOCH_CHECKPOINT, OTHER_BYTES_MAX, PREFIX, VERSION, is_sound
from kfuzz.text import printable
from kfuzz.units import counted, utc_text
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    HEADER_AT,
    HEADER_UP_TO_MAGIC,
    LOG_OVERHEAD,
    MAGIC_AT,
)
from kfuzz.wire.records.framing import frames, next_frame

# The entries of each kind of index: fields and their widths in bytes; all are big-endian and signed.
INDEXES: Final[dict[str, tuple[tuple[str, int], ...]]] = {
    ".index": (("offset", 4), ("position", 4)),
    ".timeindex": (("timestamp", 8), ("offset", 4)),
    ".txnindex": (
        ("version", 2),
        ("producer_id", 8),
        ("first_offset", 8),
        ("last_offset", 8),
        ("last_stable_offset", 8),
    ),
}
# Kafka maps an index as a whole, so it has at most so many bytes.
INDEX_BYTES_MAX: Final = 2**31 - 1
PIECE_BYTES: Final = 1 << 20
FORMATS: Final = {2: "h", 4: "i", 8: "q"}
# A file that Kafka is going to delete or to put in place of another has one more suffix.
LATER: Final = (".deleted", ".swap", ".cleaned")
# A partition's folder that a broker deletes, copies to another disk, or does not know: an id and the reason follow its
# name, which may be cut for that. With the others of a directory, its records would be read twice.
LEAVING: Final = re.compile(
    r"((?P<partition>.+-\d{1,10})(\.[0-9a-f]{32})?|.+\.[0-9a-f]{32})-(?P<why>delete|future|stray)"
)
FOLDER: Final = re.compile(r"(?P<topic>.+)-(?P<partition>\d{1,10})", re.DOTALL)
NAMES_MOST: Final = 5
# The fewest bytes after a batch's length: those of a message of magic 0.
MESSAGE_BYTES_LEAST: Final = 14
BASE_OFFSET: Final = re.compile(r"\d{20}")
ABORTED_VERSION: Final = 0
CHECKPOINT_VERSION: Final = 0
METADATA_VERSION: Final = 0
METADATA_NAME: Final = "partition.metadata"
# Files of a broker beside its partitions. With the second one it believes the indexes of a log; without, it makes them
# again.
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
RECOVERY_POINT: Final = "recovery-point-offset-checkpoint"
LOG_START: Final = "log-start-offset-checkpoint"
REPLICATION: Final = "replication-offset-checkpoint"
CLEANER: Final = "cleaner-offset-checkpoint"
# Those with offsets of partitions.
OF_PARTITIONS: Final[tuple[str, ...]] = (RECOVERY_POINT, LOG_START, REPLICATION, CLEANER)
# The columns of a checkpoint, by the file's name.
EPOCH_COLUMNS: Final = ("epoch", "start_offset")
OFFSET_COLUMNS: Final = ("topic", "partition", "offset")
CHECKPOINTS: Final = {
    LEADER_EPOCH_CHECKPOINT: EPOCH_COLUMNS,
    **dict.fromkeys(OF_PARTITIONS, OFFSET_COLUMNS),
}
NUMBER: Final = re.compile(r"[+-]?\d{1,19}")
INT32: Final = re.compile(r"[+-]?\d{1,10}")
UUID_BYTES: Final = 16
LINE: Final = re.compile(rb"(?=.)([^\r\n]*)(?:\r\n|\r|\n|\Z)", re.DOTALL)
OFFSET: Final = struct.Struct(">q")
DELTA: Final = struct.Struct(">i")
METADATA_LINE: Final = re.compile(r"(\S+):\s+(.*)")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: its name for people, and a function that reads it, by path and bytes. Wrong bytes are findings.

    ``read`` raises ``UsageError`` for a file that is larger than Kafka's can be.
    """

    title: str
    read: Callable[[Path, bytes | mmap.mmap, Profile], Stored]


@dataclass(slots=True)
class Stored:
    """The contents of a file.

    ``facts`` describe the whole file, by name. ``columns`` are the names of the values in an entry. ``entries`` yields
    the byte offset and the values of each entry. ``room`` is the number of zero bytes after the entries: a broker
    makes the index of its active segment as large as it may become.
    """

    title: str
    size: int
    columns: tuple[str, ...]
    count: int
    entries: Callable[[], Iterator[tuple[int, tuple[Any, ...]]]]
    profile: Profile
    facts: dict[str, Any] = field(default_factory=dict)
    room: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_refused(self) -> bool:
        """Whether Kafka refuses the file."""
        return any(one.severity == "fatal" for one in self.findings)

    @property
    def outcome(self) -> str:
        """One line that says what it is."""
        room = f", then {self.room} bytes of zeros: room for more" if self.room else ""
        return f"{self.title}, {counted(self.count, 'entry', 'entries')}{room}"

    def find(self, code: str, path: str, at: int, found: int = 0, allowed: int = 0, detail: str = "") -> Stored:
        """Add a finding, see ``stored_finding``. Returns this object."""
        one = stored_finding(code, path, at, self.profile, found=found, allowed=allowed, detail=detail)
        self.findings.append(one)
        return self

    def to_json(self) -> dict[str, Any]:
        """The JSON members that say what is in the file, except for its entries."""
        findings = [one.to_json() for one in self.findings]
        return {"kind": self.title, "size": self.size, **self.facts, "room": self.room, "findings": findings}

    def entries_json(self) -> Iterator[dict[str, Any]]:
        """The entries as JSON objects. An index may have millions."""
        return ({"at": at} | dict(zip(self.columns, row, strict=True)) for at, row in self.entries())


def kind_of(name: str) -> Kind | None:
    """The kind of file that Kafka gives this name; None for segments and all others."""
    base = Path(name).name
    while base.endswith(LATER):
        base = base.rpartition(".")[0]
    if base in CHECKPOINTS:
        return EPOCHS if CHECKPOINTS[base] == EPOCH_COLUMNS else OFFSETS
    if base == METADATA_NAME:
        return METADATA
    stem, _, suffix = base.rpartition(".")
    return BY_SUFFIX.get(f".{suffix}") if BASE_OFFSET.fullmatch(stem) else None


def read_stored(path: Path) -> Stored | None:
    """The contents of the file at ``path``, judged by its name as Kafka does; None if it cannot be read."""
    try:
        kind = kind_of(path.name)
        return kind.read(path, map_regular(path), "kafka") if kind else None
    except UsageError:
        return None


def partition_offsets(path: Path) -> dict[tuple[str, int], int]:
    """The offsets in a checkpoint of partitions; none if it cannot be read."""
    stored = read_stored(path)
    rows = stored.entries() if stored and not stored.is_refused else ()
    return {(topic, partition): offset for _, (topic, partition, offset) in rows}


def names_in(folder: Path) -> set[str]:
    """The names in a folder; none if it cannot be read, or was just deleted."""
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()


def left_out(folders: Iterable[Path]) -> str:
    """The folders of ``LEAVING`` among these, as a sentence; empty if there are none."""
    names = sorted(printable(folder.name) for folder in folders if LEAVING.fullmatch(folder.name))
    if not names:
        return ""
    return f"passed over {few(names)}: folders that a broker deletes, copies, or does not know; name one to read it"


def few(names: Sequence[object]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMES_MOST} more" if len(names) > NAMES_MOST else ""
    return ", ".join(map(str, names[:NAMES_MOST])) + more


def kind_by_content(data: bytes | mmap.mmap) -> Kind | None:
    """The kind of file whose name says nothing, if the bytes show it: a snapshot with a right CRC, or a checkpoint."""
    if len(data) <= OTHER_BYTES_MAX and is_sound(data):
        return BY_SUFFIX[".snapshot"]
    head = data[:4096].split(b"\n")
    if re.fullmatch(rb"version: \d+", head[0]) and len(head) > 1 and head[1].startswith(b"topic_id: "):
        return METADATA
    if len(head) > 2 and head[0] == b"0" and head[1].isdigit():
        return EPOCHS if len(head[2].split()) == len(EPOCH_COLUMNS) else OFFSETS
    return None


def lines_of(stored: Stored) -> Iterator[str]:
    """The file as text: its facts, its entries in columns, and its findings below the entry that they are about."""
    for name, value in stored.facts.items():
        yield f"{name}: {value}"
    widths = [max(len(name), 24 if name == "timestamp" else 12) for name in stored.columns]
    if stored.count:
        yield "  ".join([f"{'entry':>8}", f"{'byte':>10}", *map(str.rjust, stored.columns, widths)])

    def rows() -> Iterator[tuple[int, str]]:
        for number, (at, row) in enumerate(stored.entries()):
            named = zip(stored.columns, row, strict=True)
            cells = [utc_text(cell) if name == "timestamp" else str(cell) for name, cell in named]
            yield at, "  ".join([f"{number:>8}", f"{at:>10}", *map(str.rjust, cells, widths)])

    found = sorted(((one.at, f"{'':10}{one.severity}: {one}") for one in stored.findings), key=itemgetter(0))
    yield from map(itemgetter(1), merge(rows(), found, key=itemgetter(0)))


# ------------------------------------------------------------------------------------------------- indexes


def entry_struct(suffix: str) -> struct.Struct:
    """How an entry of this kind of index is packed."""
    return struct.Struct(">" + "".join(FORMATS[width] for _, width in INDEXES[suffix]))


class _Index:
    """One index while it is judged."""

    def __init__(self, path: Path, data: bytes | mmap.mmap, suffix: str, title: str, profile: Profile) -> None:
        _require_size(path, data, INDEX_BYTES_MAX)
        self.suffix = suffix
        self.layout = entry_struct(suffix)
        self.columns = tuple(name for name, _ in INDEXES[suffix])
        self.path = path
        stem = path.name.partition(".")[0]
        self.base = int(stem) if BASE_OFFSET.fullmatch(stem) else 0
        filled = _filled(data)
        whole = len(data) // self.layout.size
        # An entry may end with zeros, and the first entry may have zeros alone.
        count = min(-(-filled // self.layout.size), whole)
        room = len(data) - count * self.layout.size
        if room <= self.layout.size:
            count, room = whole, 0
        self.data, self.end = data, count * self.layout.size
        facts = {"base_offset": self.base}
        self.absolute = partial(_absolute, self.columns, self.base)
        # Without ``self``: in a circle, the file would stay open until Python looks for circles.
        self.entries = partial(_entries, data, self.end, self.layout, self.absolute)
        self.made = Stored(title, len(data), self.columns, count, self.entries, profile, facts, room)
        if len(data) % self.layout.size:
            self.find("index-size-uneven", self.end, "size", len(data), self.layout.size)

    def find(self, code: str, at: int, name: str, found: int, allowed: int) -> None:
        number = at // self.layout.size
        path = name if code == "index-size-uneven" else f"entry[{number}].{name}"
        # Report only the first entry with this code. All entries after it are often wrong too.
        if not self.has(code):
            self.made.find(code, path, at, found, allowed, name)

    def has(self, code: str) -> bool:
        """Whether this was found."""
        return any(one.code == code for one in self.made.findings)

    def rising(self, *columns: str, may_repeat: bool = False) -> None:
        """Find the first entry in which one of the columns does not rise."""
        falls = []
        for place, (name, width) in enumerate(INDEXES[self.suffix]):
            if name in columns:
                at = struct.calcsize(self.layout.format[: place + 1])
                falls.append((first_fall(self.whole, self.layout.size, at, width, may_repeat), place))
        if found := min((one for one in falls if one[0] > 0), default=None):
            (_, before), (at, row) = islice(self.entries(), found[0] - 1, found[0] + 1)
            self.find("index-not-rising", at, self.columns[found[1]], row[found[1]], before[found[1]])

    @property
    def whole(self) -> memoryview:
        """The bytes of the entries."""
        return memoryview(self.data)[: self.end]

    def entry(self, number: int) -> tuple[Any, ...]:
        return self.absolute(self.layout.unpack_from(self.data, number * self.layout.size))

    def last(self) -> tuple[int, tuple[Any, ...]] | None:
        return (self.end - self.layout.size, self.entry(self.made.count - 1)) if self.end else None

    def segment(self) -> memoryview | None:
        """The segment beside the index, if it is there and not empty."""
        data = _beside(self.path, ".log")
        return memoryview(data) if data else None


def _entries(
    data: bytes | mmap.mmap, end: int, layout: struct.Struct, absolute: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    size = layout.size
    step = PIECE_BYTES // size * size
    for start in range(0, end, step):
        piece = _piece(data, start, min(start + step, end))
        for number, row in enumerate(layout.iter_unpack(piece)):
            yield start + number * size, absolute(row)


def _absolute(columns: tuple[str, ...], base: int, row: tuple[int, ...]) -> tuple[int, ...]:
    """The offsets of the two sparse indexes count from the segment's base offset."""
    if len(row) > 2:
        return row
    return (row[0] + base, row[1]) if columns[0] == "offset" else (row[0], row[1] + base)


def _beside(path: Path, suffix: str) -> bytes | mmap.mmap | None:
    """The file of this suffix for the same segment; None if there is none that can be read."""
    try:
        return map_regular(path.with_name(f"{path.name.partition('.')[0]}{suffix}"))
    except UsageError:
        return None


def _require_size(path: Path, data: bytes | mmap.mmap, bytes_max: int) -> None:
    if len(data) > bytes_max:
        raise UsageError(f"{path} has {len(data)} bytes; kfuzz reads such a file up to {bytes_max} bytes")


def _piece(data: bytes | mmap.mmap, start: int, end: int) -> bytes:
    piece = data[start:end]
    if isinstance(data, mmap.mmap) and len(data) > PIECE_BYTES:
        # Without this, a large index that has been read would stay in memory as a whole.
        first = start - start % mmap.PAGESIZE
        data.madvise(mmap.MADV_DONTNEED, first, end - first)
    return piece


def _filled(data: bytes | mmap.mmap) -> int:
    """The size of ``data`` without the zeros at its end."""
    for end in range(len(data), 0, -PIECE_BYTES):
        start = max(end - PIECE_BYTES, 0)
        if found := _piece(data, start, end).rstrip(b"\0"):
            return start + len(found)
    return 0


def _offset_index_of(path: Path) -> _Index | None:
    """The offset index of the segment that the file ``path`` belongs to; None if it cannot be read."""
    data = _beside(path, ".index")
    return None if data is None or len(data) > INDEX_BYTES_MAX else _Index(path, data, ".index", "", "kafka")


def offset_entries(path: Path) -> memoryview:
    """The entries of that index; none if it cannot be read."""
    index = _offset_index_of(path)
    return memoryview(b"") if index is None else index.whole


def _last_entry(path: Path) -> tuple[int, int] | None:
    """The offset and the position in the last entry of that index; None if there is none."""
    index = _offset_index_of(path)
    last = None if index is None else index.last()
    return None if last is None else (last[1][0], last[1][1])


def offset_index(path: Path, data: bytes | mmap.mmap, profile: Profile, misplaced: int | None = None) -> Stored:
    """Judge an offset index. ``misplaced``: what a walk found (``LogFacts.misplaced``); None looks into the segment."""
    index = _Index(path, data, ".index", "offset index", profile)
    if (last := index.last()) and last[1][0] < index.base:
        index.find("index-last-offset-low", last[0], "offset", last[1][0], index.base)
    index.rising("offset", "position")
    log = index.segment() if misplaced is None else None
    for number, (at, (offset, position)) in enumerate(index.entries() if log is not None or misplaced != -1 else ()):
        if number == misplaced or (log is not None and last_offset_at(log, position) != offset):
            index.find("index-entry-misplaced", at, "position", offset, position)
            break
    return index.made


def _time_index(path: Path, data: bytes | mmap.mmap, profile: Profile) -> Stored:
    index = _Index(path, data, ".timeindex", "time index", profile)
    if last := index.last():
        first = next(index.entries())[1]
        if last[1][0] < first[0]:
            index.find("last-timestamp-low", last[0], "timestamp", last[1][0], first[0])
        if last[1][1] < index.base:
            index.find("index-last-offset-low", last[0], "offset", last[1][1], index.base)
    index.rising("timestamp")
    index.rising("offset", may_repeat=True)
    if last and (log := index.segment()) is not None:
        end, _ = last_batch(index.path, log) or (None, 0)
        # Of offsets that do not fall, the last one is the highest.
        is_high = end is not None and (last[1][1] > end or index.has("index-not-rising"))
        for at, (_, offset) in index.entries() if is_high else ():
            if end is not None and offset > end:
                index.find("index-entry-beyond-log", at, "offset", offset, end)
                break
        for at, (timestamp, offset) in (next(index.entries()), last):
            known = _max_timestamp(path, log, offset)
            if known is not None and known != timestamp:
                index.find("index-timestamp-wrong", at, "timestamp", timestamp, known)
    return index.made


def _max_timestamp(path: Path, log: memoryview, offset: int) -> int | None:
    """The largest timestamp of the batch with this offset; None if no sound batch of magic 2 has it."""
    start, index = 0, _offset_index_of(path)
    if index is not None and (after := bisect_right(range(index.made.count), offset, key=lambda i: index.entry(i)[0])):
        known, position = index.entry(after - 1)
        start = position if last_offset_at(log, position) == known else 0
    at = next((at for at, *_ in frames(log, start) if last_offset(log[at:]) >= offset), -1)
    if at < 0 or OFFSET.unpack_from(log, at)[0] > offset or not has_right_crc(log, at):
        return None
    return int(OFFSET.unpack_from(log, at + HEADER_AT["max_timestamp"])[0])


def _transaction_index(path: Path, data: bytes | mmap.mmap, profile: Profile) -> Stored:
    index = _Index(path, data, ".txnindex", "transaction index", profile)
    for at, (version, _, first, last, _) in index.entries():
        if version > ABORTED_VERSION:
            index.find("aborted-entry-version-unknown", at, "version", version, ABORTED_VERSION)
        if last < index.base:
            index.find("index-last-offset-low", at, "last_offset", last, index.base)
        if last < first:
            index.find("index-not-rising", at, "last_offset", last, first)
    index.rising("last_offset")
    return index.made


def last_offset(head: bytes | memoryview) -> int:
    """The last offset of the batch that begins with ``head``, by its header."""
    (last,) = OFFSET.unpack_from(head)
    return int(last) + (DELTA.unpack_from(head, HEADER_AT["last_offset_delta"])[0] if _has_header(head) else 0)


def _has_header(head: bytes | memoryview) -> bool:
    """Whether a broker takes the batch for one of magic 2, as it does all above; the byte is signed."""
    return 2 <= head[MAGIC_AT] < 128


def has_right_crc(log: memoryview, at: int) -> bool:
    """Whether the batch at byte ``at`` has magic 2 for a broker and a right CRC, which does not cover the magic."""
    (size,) = DELTA.unpack_from(log, at + OFFSET.size)
    batch = log[at : at + LOG_OVERHEAD + max(size, 0)]
    if len(batch) < BATCH_HEADER_SIZE or len(batch) < LOG_OVERHEAD + size or not _has_header(batch):
        return False
    return bool(DELTA.unpack_from(batch, HEADER_AT["crc"])[0] & 0xFFFFFFFF == crc32c(batch[BATCH_CRC_COVERS_FROM:]))


def broker_offsets(log: memoryview, at: int = 0) -> Iterator[int | None]:
    """The last offset of each batch from byte ``at`` on, by lengths alone; then None if a broker that reads this ends.

    Mirrors ``FileLogInputStream``: the CRC is not looked at, and bytes that are less than the length says are passed
    over.
    """
    while len(log) - at > HEADER_UP_TO_MAGIC:
        size = LOG_OVERHEAD + DELTA.unpack_from(log, at + OFFSET.size)[0]
        if size < LOG_OVERHEAD + MESSAGE_BYTES_LEAST:
            yield None
            return
        if size > len(log) - at:
            return
        is_cut = _has_header(log[at:]) and len(log) - at < BATCH_HEADER_SIZE
        yield None if is_cut else last_offset(log[at:])
        at += size


def broker_end(path: Path) -> int | None:
    """The offset at which a broker continues that does not recover the last segment, at ``path``; None if it ends.

    Mirrors ``LogSegment.readNextOffset``: it begins where the last entry of the offset index leads, right or wrong.
    """
    base = int(path.stem)
    wanted, at = _last_entry(path) or (base, 0)
    offsets = list(broker_offsets(memoryview(_beside(path, ".log") or b""), at)) if at >= 0 else [None]
    found = [one for one in offsets if one is not None]
    if len(found) < len(offsets):
        return None
    return found[-1] + 1 if found and max(found) >= wanted else base


def last_offset_at(log: memoryview, position: int) -> int | None:
    """The last offset of the batch at byte ``position`` of a segment; None if there is no whole batch."""
    if not 0 <= position < len(log) or next_frame(log, position)[0] <= 0:
        return None
    return last_offset(log[position:])


def last_batch(path: Path, log: memoryview) -> tuple[int, int] | None:
    """The last offset of a segment's last whole batch, and the byte where that batch ends; None if no batch is whole.

    The segment's offset index, if it is right, says where its last batches are.
    """
    start = 0
    if (last := _last_entry(path)) and last_offset_at(log, last[1]) == last[0]:
        start = last[1]
    found = None
    for at, size, _ in frames(log, start):
        found = at, size
    return None if found is None else (last_offset(log[found[0] :]), sum(found))


# ------------------------------------------------------------------------------------------------- other files


def _snapshot(path: Path, mapped: bytes | mmap.mmap, profile: Profile) -> Stored:
    """A producer snapshot. Mirrors ``ProducerStateManager.readSnapshot``."""
    _require_size(path, mapped, OTHER_BYTES_MAX)
    data = bytes(mapped)
    rows: list[dict[str, Any]] = []
    made = Stored("producer snapshot", len(data), (), 0, lambda: iter(()), profile)
    if len(data) < PREFIX.size:
        return made.find("snapshot-cut", "size", 0, len(data), PREFIX.size)
    version, crc = PREFIX.unpack_from(data)
    made.facts = {"version": version}
    if version != VERSION:
        return made.find("snapshot-version-unknown", "version", 0, version, VERSION)
    if (actual := crc32c(data[PREFIX.size :])) != crc:
        made.find("snapshot-crc-mismatch", "crc", 2, crc, actual)
    try:
        rows = messages.decode("ProducerSnapshot", VERSION, data[PREFIX.size - CRC_BYTES :])["producerEntries"]
    except MessageError as error:
        at = PREFIX.size - CRC_BYTES + error.finding.at
        made.find("snapshot-unreadable", error.finding.path, at, detail=error.finding.message)
    made.count = len(rows)
    made.columns = tuple(rows[0]) if rows else ()
    size = (len(data) - PREFIX.size - 4) // len(rows) if rows else 0
    made.entries = lambda: ((PREFIX.size + 4 + size * i, tuple(row.values())) for i, row in enumerate(rows))
    return made


def _checkpoint(
    path: Path, mapped: bytes | mmap.mmap, profile: Profile, title: str, columns: tuple[str, ...]
) -> Stored:
    """A checkpoint file. Mirrors ``CheckpointFile.CheckpointReadBuffer``; without a line, it has no entries."""
    _require_size(path, mapped, OTHER_BYTES_MAX)
    data = bytes(mapped)

    def entries() -> Iterator[tuple[int, tuple[Any, ...]]]:
        return ((at, row) for _, at, row in islice(_rows(data, columns), made.count) if row is not None)

    made = Stored(title, len(data), columns, 0, entries, profile)
    head = list(islice(_lines(data), 2))
    for number, (at, line) in enumerate(head):
        if not INT32.fullmatch(line):
            return made.find("checkpoint-line-malformed", f"line[{number}]", at, number + 1)
        if number == 0:
            made.facts["version"] = int(line)
            if int(line) != CHECKPOINT_VERSION:
                return made.find("checkpoint-version-unknown", "version", at, int(line), CHECKPOINT_VERSION)
    for number, at, row in _rows(data, columns):
        if row is None:
            return made.find("checkpoint-line-malformed", f"line[{number}]", at, number + 1)
        made.count += 1
    if len(head) > 1 and int(head[1][1]) != made.count:
        return made.find("checkpoint-count-mismatch", "count", data.index(b"\n") + 1, int(head[1][1]), made.count)
    falls = (
        (f"entry[{number}].{name}", at, here, before, name)
        for number, ((_, last), (at, row)) in enumerate(pairwise(entries()), 1)
        for name, here, before in zip(columns, row, last, strict=True)
        if here <= before
    )
    if columns == EPOCH_COLUMNS and (fallen := next(falls, None)):
        made.find("leader-epochs-not-rising", *fallen)
    return made


def _lines(data: bytes) -> Iterator[tuple[int, str]]:
    """The lines of a text as Java reads them, with the bytes at which they begin."""
    for match in LINE.finditer(data):
        yield match.start(), match[1].decode("utf-8", "replace")


def _rows(data: bytes, columns: tuple[str, ...]) -> Iterator[tuple[int, int, tuple[Any, ...] | None]]:
    """The lines after the two at the head of a checkpoint: number, byte and values. The last one may be malformed."""
    for number, (at, line) in enumerate(islice(_lines(data), 2, None), 2):
        cells = line.split()
        if len(cells) != len(columns) or not all(map(NUMBER.fullmatch, cells[columns[0] == "topic" :])):
            yield number, at, None
            return
        row = tuple(cell if name == "topic" else int(cell) for name, cell in zip(columns, cells, strict=True))
        yield number, at, row


def _metadata(path: Path, mapped: bytes | mmap.mmap, profile: Profile) -> Stored:
    """``partition.metadata``: the topic's id. Mirrors ``PartitionMetadataFile.PartitionMetadataReadBuffer``."""
    _require_size(path, mapped, OTHER_BYTES_MAX)
    data = bytes(mapped)
    made = Stored("partition metadata", len(data), (), 0, lambda: iter(()), profile)
    at = 0
    for number, raw in enumerate(data.splitlines(keepends=True)[:2]):
        match = METADATA_LINE.fullmatch(raw.decode("utf-8", "replace").rstrip("\r\n"))
        name = ("version", "topic_id")[number]
        if match is None or match[1] != name or (name == "version" and not INT32.fullmatch(match[2])):
            return made.find("checkpoint-line-malformed", f"line[{number}]", at, number + 1)
        made.facts[name] = int(match[2]) if name == "version" else match[2]
        at += len(raw)
    version = made.facts.get("version")
    if version is not None and version != METADATA_VERSION:
        return made.find("checkpoint-version-unknown", "version", 0, version, METADATA_VERSION)
    if not _is_topic_id(made.facts.get("topic_id", "")):
        return made.find("topic-id-missing", "topic_id", at)
    return made


def _is_topic_id(text: str) -> bool:
    """Whether it is a uuid as Kafka writes it, and not the one of zeros."""
    try:
        value = base64.urlsafe_b64decode(f"{text}==")
    except ValueError:
        return False
    return len(value) == UUID_BYTES and any(value)


METADATA: Final = Kind("partition metadata", _metadata)
EPOCHS, OFFSETS = (
    Kind(title, partial(_checkpoint, title=title, columns=columns))
    for title, columns in (("leader epochs", EPOCH_COLUMNS), ("offsets of partitions", OFFSET_COLUMNS))
)
BY_SUFFIX: Final = {
    ".index": Kind("offset index", offset_index),
    ".timeindex": Kind("time index", _time_index),
    ".txnindex": Kind("transaction index", _transaction_index),
    ".snapshot": Kind("producer snapshot", _snapshot),
}
