"""The contents of a browser: the batches of a file or one message, and each field of the open one with its bytes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kfuzz.annotate.dump import Dump, dump_entry, dump_message
from kfuzz.annotate.killing import KillingField, mark
from kfuzz.annotate.listing import Entry, Listing
from kfuzz.annotate.marks import findings_of
from kfuzz.annotate.parts import Part
from kfuzz.annotate.records import payload_of
from kfuzz.errors import UsageError
from kfuzz.findings import Finding, Profile
from kfuzz.kafka import Role
from kfuzz.messages.model import Definition
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.annotate.records import RecordsOf

# More lines than anybody scrolls through; `kfuzz show` lists all. A row takes about 500 bytes, and so does a finding.
BATCHES_MAX: Final = 250_000
PARTS_MAX: Final = 50_000
# Records that are shown of one batch.
RECORDS_MAX: Final = 2_000
# How the heading of a batch begins.
HEADING: Final = re.compile(r"magic (\d+), \d+ bytes$")
RECORD: Final = re.compile(r"records\[(\d+)\]")
# Of the batches inside a message.
INSIDE_MAX: Final = 1_000


@dataclass(frozen=True)
class Page:
    """The open page: the parts of a batch or of a message, in order.

    ``findings`` has, by the index of a part, the findings about it. ``killing`` are the indices of the parts without
    which a crash goes away. ``is_cut`` says that there are more parts.
    """

    parts: Sequence[Part]
    findings: dict[int, list[Finding]]
    data: memoryview
    at: int
    killing: tuple[int, ...] = ()
    is_cut: bool = False
    limits: Limits = DEFAULT_LIMITS
    # The decompressed payload that was looked at last.
    _payloads: dict[str, bytes] = field(default_factory=dict)

    def bytes_around(self, index: int) -> tuple[Buffer, int]:
        """The bytes that the part is of, and the offset of the first one: those of the file or message, or the
        decompressed payload that the part is in.
        """
        payload = self.parts[index].payload
        if not payload:
            return self.data, self.at
        if payload not in self._payloads:
            batch = payload.removesuffix(".payload")
            at = next(part.at for part in self.parts if part.path == batch) - self.at
            self._payloads.clear()
            self._payloads[payload] = payload_of(self.data, at, self.limits)
        return self._payloads[payload], 0

    def magic_of(self, index: int) -> int:
        """The magic of the batch that the part is in; 2 if it is in none, or if that is not known."""
        for part in reversed(self.parts[: index + 1]):
            if part.heading and (found := HEADING.match(part.value)):
                return int(found[1])
        return 2

    def part_at(self, at: int) -> int:
        """The index of the part outside payloads that holds byte ``at``."""
        there = [i for i, part in enumerate(self.parts) if part.size and not part.payload]
        place = bisect_right(there, at, key=lambda i: self.parts[i].at)
        return there[place - 1] if place else 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a search leads: the number of a row, and a byte or a finding's code in it."""

    row: int
    at: int | None = None
    code: str | None = None


class Document:
    """The file or message in a browser. ``rows`` are its batches, as far as they are known; a message is one row."""

    # How many bytes follow the rows that are kept.
    bytes_left = 0
    # Of a crash: the fields that kill.
    kills: Sequence[KillingField] = ()

    def __init__(self, title: str, data: Buffer, limits: Limits = DEFAULT_LIMITS) -> None:
        self.title = title
        self.view = memoryview(data).cast("B")
        self.limits = limits
        self.rows: list[Entry] = []

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self.view)

    def load(self) -> Iterator[int]:
        """Find the rows. Yields how many bytes were looked at, from time to time."""
        yield from ()

    def open(self, row: int) -> Page:
        """The parts of one row."""
        raise NotImplementedError

    def _page(self, dump: Dump, data: memoryview, at: int) -> Page:
        marked = (mark(dump.parts, one) for one in self.kills)
        killing = tuple(index for index in marked if index is not None)
        found = findings_of(dump.parts, dump.findings)
        return Page(dump.parts, found, data, at, killing, dump.is_cut, self.limits)


class Message(Document):
    """A request, a response or a header."""

    def __init__(
        self, title: str, data: bytes, definition: Definition, version: int, *, profile: Profile = "kafka"
    ) -> None:
        super().__init__(title, data)
        self.definition = definition
        self.version = version
        self._profile: Profile = profile
        self.rows = [Entry("batch", 0, 0, len(data))]

    def open(self, row: int) -> Page:
        dump = dump_message(
            self.definition,
            self.version,
            self.view,
            self._profile,
            INSIDE_MAX,
            parts_max=PARTS_MAX,
            records_shown=RECORDS_MAX,
        )
        return self._page(dump, self.view, 0)


class Batches(Document):
    """The batches of a file or a vector."""

    def __init__(
        self,
        title: str,
        data: Buffer,
        *,
        profile: Profile = "kafka",
        role: Role = "consumer",
        limits: Limits = DEFAULT_LIMITS,
        records_of: RecordsOf = None,
    ) -> None:
        super().__init__(title, data, limits)
        self.records_of = records_of
        self.listing = Listing(self.view, profile=profile, role=role, limits=limits)

    def load(self) -> Iterator[int]:
        kept = 0
        for entry in self.listing:
            if kept >= BATCHES_MAX:
                self.bytes_left = len(self.view) - entry.at
                return
            self.rows.append(entry)
            kept += 1 + len(entry.findings)
            if len(self.rows) % 1024 == 0:
                yield entry.at + entry.size

    def open(self, row: int) -> Page:
        entry = self.rows[row]
        around = next((int(found[1]) for one in entry.findings if (found := RECORD.search(one.path))), None)
        dump = dump_entry(
            self.view,
            entry,
            limits=self.limits,
            records_of=self.records_of,
            parts_max=PARTS_MAX,
            records_shown=RECORDS_MAX,
            around=around,
        )
        return self._page(dump, self.view[entry.at : entry.at + entry.size], entry.at)


def place_of(text: str, document: Document, after: int = -1) -> Place:
    """Where a person's search leads: an offset (``4711``), a byte (``0x88`` or ``@136``), or a finding's code or a part
    of it, in a row after row ``after`` and then from the first one. ``UsageError`` if it leads nowhere.
    """
    text = text.strip()
    rows = document.rows
    if re.fullmatch(r"0[xX][0-9a-fA-F]+|@\d+", text):
        at = int(text[1:]) if text[0] == "@" else int(text, 16)
        row = bisect_right(rows, at, key=lambda entry: entry.at) - 1
        if row < 0 or at >= rows[row].at + rows[row].size:
            raise UsageError(f"byte {at} is not in a batch{_not_listed(document)}; the data has {document.size} bytes")
        return Place(row, at)
    if re.fullmatch(r"-?\d+", text):
        offset = int(text)
        for row, entry in enumerate(rows):
            if entry.kind == "batch" and entry.base_offset <= offset <= entry.last_offset:
                return Place(row)
        raise UsageError(f"no batch holds offset {offset}{_not_listed(document)}")
    order = [*range(after + 1, len(rows)), *range(after + 1)]
    for row in order:
        for finding in rows[row].findings:
            if text.casefold() in finding.code:
                return Place(row, code=finding.code)
    raise UsageError(f"no batch has a finding with {text!r} in its code{_not_listed(document)}")


def _not_listed(document: Document) -> str:
    return f" of the first {len(document.rows):,}" if document.bytes_left else ""
