"""The batches of a buffer, a line each, with what is wrong with them; it continues after damage.

A batch costs one step of the compiled walk and one line of text, and nothing is kept: a file of any size takes the same
memory. ``kfuzz show`` prints it, and opens the batch that is looked for.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kfuzz.annotate.parts import moved
from kfuzz.findings import Finding, Profile
from kfuzz.findings.stored import length_wrong
from kfuzz.kafka import CODECS, Role
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.reader import headers
from kfuzz.text import printable
from kfuzz.units import counted, utc_text
from kfuzz.wire.io.layout import ATTRIBUTE_BITS, CODEC_MASK
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.walk.search import Search

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.walk.policy import Policy

# The lines of a list, each with the columns that a terminal must have for it. Narrow ones have one time, or none.
WIDTH: Final = 147
FORMATS: Final = (
    (WIDTH, "{:>8} {:>12} {:>9}  {:<23} {:>7}  {:<41}  {:<6}  {}"),
    (110, "{:>8} {:>12} {:>9}  {:<23} {:>7}  {:<24.24}  {:<6}  {}"),
    (0, "{0:>6} {1:>11} {2:>9}  {3:<21} {4:>7}  {6:<6}  {7}"),
)
INDENT: Final = " " * 10
# The pages of a mapped file count as memory until they are given back.
RELEASED_BYTES: Final = 32 << 20
# In the text of a batch's time, the date is printed once if both times have it.
DATE: Final = len("2023-11-14T")


class Entry(NamedTuple):
    """One line of a listing.

    ``kind`` is "batch", "unreadable" (bytes whose length leads to no batch), or "tail" (the start of a batch at the end
    of the data). ``number`` counts batches and unreadable stretches from 0; a tail has the next number. ``at`` and
    ``size`` are in bytes. Of a batch that is refused, the fields are what its header says. Timestamps are in
    milliseconds, -1 for none. ``attributes`` has the bits of a batch's header, or those of a message.
    """

    kind: Literal["batch", "unreadable", "tail"]
    number: int
    at: int
    size: int
    magic: int = -1
    records: int = 0
    base_offset: int = -1
    last_offset: int = -1
    base_timestamp: int = -1
    max_timestamp: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    leader_epoch: int = -1
    findings: tuple[Finding, ...] = ()

    @property
    def is_refused(self) -> bool:
        """Whether it has a fatal finding, so that its records cannot be read."""
        return any(one.severity == "fatal" for one in self.findings)

    def has(self, code: str | None) -> bool:
        """Whether it has a finding with this code; None means any."""
        if code is None:
            return bool(self.findings)
        return any(one.code == code for one in self.findings)

    def to_json(self) -> dict[str, Any]:
        """The entry as a JSON object; what it does not have is left out."""
        out: dict[str, Any] = {"kind": self.kind, "batch": self.number, "at": self.at, "size": self.size}
        if self.kind == "batch":
            out |= {
                "magic": self.magic,
                "records": self.records,
                "base_offset": self.base_offset,
                "last_offset": self.last_offset,
                "base_timestamp": None if self.base_timestamp == -1 else self.base_timestamp,
                "max_timestamp": None if self.max_timestamp == -1 else self.max_timestamp,
                "codec": codec_name(self.attributes),
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
                "base_sequence": self.base_sequence,
                "leader_epoch": self.leader_epoch,
                "flags": flags_of(self),
            }
        return out | {"findings": [one.to_json() for one in self.findings]}


@dataclass(slots=True)
class Found:
    """How often a code was found: the first finding, the number of its batch, and how many batches have one."""

    finding: Finding
    first: int
    batches: int = 0


class Listing:
    """Iterates over the entries of ``data``; the sums are right when it has ended.

    A batch is judged as :func:`kfuzz.records.check` does for ``profile`` and ``role``. After a refused batch, the
    listing continues where its length leads if a batch is there, and otherwise at the next one with a right CRC. Rules
    about several batches begin again there. Raises ``UsageError`` for an unknown profile or role.

    ``also``, for role ``log`` only, is asked about each batch that is not refused. Then the entries without findings
    are left out, except those where it stops the walk, and only the sums ``batches``, ``refused`` and ``found`` are
    right.
    """

    def __init__(
        self,
        data: Buffer,
        *,
        profile: Profile = "kafka",
        role: Role = "consumer",
        limits: Limits = DEFAULT_LIMITS,
        also: Policy | None = None,
    ) -> None:
        self.view = memoryview(data).cast("B")
        self._mapped = data if isinstance(data, mmap.mmap) else None
        self._released = 0
        self.batches = 0
        self.records = 0
        self.refused = 0
        self.lost_bytes = 0
        self.offsets: tuple[int, int] | None = None
        self.times: tuple[int, int] | None = None
        self.found: dict[str, Found] = {}
        # Set by a caller that does not ask for all entries.
        self.is_cut_short = False
        self._options: dict[str, Any] = {"profile": profile, "role": role, "limits": limits, "also": also}
        self._is_done = False
        self._search = Search(self.view)

    def __iter__(self) -> Iterator[Entry]:
        at = 0
        while at < len(self.view) and not self._is_done:
            for entry in self._run(at, self.batches):
                self._count(entry)
                yield entry
                at = entry.at + entry.size
                if at - self._released > RELEASED_BYTES:
                    self._released = _released(self._mapped, self._released, at)

    def sums_json(self) -> dict[str, Any]:
        """The sums as JSON members."""
        return {
            "batch_count": self.batches,
            "record_count": self.records,
            "refused": self.refused,
            "refused_bytes": self.lost_bytes,
            "offsets": self.offsets,
            "timestamps": self.times,
            "more": self.is_cut_short,
            "codes": {
                code: {"severity": found.finding.severity, "batches": found.batches, "first": found.first}
                for code, found in self.found.items()
            },
        }

    def _run(self, start: int, first: int) -> Iterator[Entry]:
        """The entries from byte ``start`` on, where batch ``first`` begins, up to the first one that is refused."""
        end = len(self.view)
        data = self.view[start:] if start else self.view
        for number, at, size, *fields, goes_on, found in headers(data, **self._options):
            self.batches = index = first + number
            place = start + at
            if goes_on and size and not found:
                # Nearly all batches: this takes half the time that a call of the class takes.
                yield tuple.__new__(Entry, ("batch", index, place, size, *fields, ()))
                continue
            findings = _moved(found, start, index) if found else ()
            if size and goes_on:
                yield Entry._make(("batch", index, place, size, *fields, findings))
                continue
            if size == 0 and goes_on and place < end:
                # A broker refuses a Produce request as a whole.
                yield Entry("unreadable", index, place, end - place, findings=findings)
                return
            if size == 0 and goes_on:
                self._is_done = True
                # A role has a finding about the end of the data.
                if findings:
                    yield Entry("tail", max(index - 1, 0), place, 0, findings=findings)
                return
            after = next_place(self._search, self._mapped, place, size, end)
            if size == 0 and after == end:
                yield Entry("tail", index, place, end - place, findings=findings)
            elif size > 0 and place + size == after:
                yield Entry._make(("batch", index, place, size, *fields, findings))
            else:
                if size == 0:
                    findings = (*findings, length_wrong(index, place, after, self._options["profile"]))
                yield Entry("unreadable", index, place, after - place, findings=findings)

    def _count(self, entry: Entry) -> None:
        if entry.kind != "tail":
            self.batches = entry.number + 1
        if entry.kind == "batch" and not (entry.findings and entry.is_refused):
            self.records += entry.records
            self.offsets = _widened(self.offsets, entry.base_offset, entry.last_offset)
            last = entry.max_timestamp
            if last != -1:
                base = entry.base_timestamp
                self.times = _widened(self.times, last if base == -1 else base, last)
        elif entry.is_refused:
            self.refused += 1
            self.lost_bytes += entry.size
        for one in entry.findings:
            known = self.found.setdefault(one.code, Found(one, entry.number))
            known.batches += 1


def _widened(known: tuple[int, int] | None, low: int, high: int) -> tuple[int, int]:
    """The range that holds both; it is often the known one, or ends where the new one does."""
    if known is None:
        return low, high
    if low >= known[0]:
        return known if high <= known[1] else (known[0], high)
    return (low, max(high, known[1]))


def _moved(findings: list[Finding], start: int, index: int) -> tuple[Finding, ...]:
    """Findings of a part of the data that begins at byte ``start``, about the batch that is number ``index`` of all."""
    return tuple(moved(one, start, f"batch[{index}]{one.path.partition(']')[2]}") for one in findings)


def _released(mapped: mmap.mmap | None, start: int, end: int) -> int:
    """Give back the memory of the mapped bytes from ``start`` to about ``end``; returns where that is."""
    start -= start % mmap.PAGESIZE
    end -= end % mmap.PAGESIZE
    # Those pages are read again if they are needed. The call exists on Linux only.
    if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED, start, end - start)
    return end


def next_place(search: Search, mapped: mmap.mmap | None, bad: int, size: int, end: int) -> int:
    """``search.after``; the memory of bytes that are ``mapped`` does not grow with the way to the next batch."""
    near = min(bad + RELEASED_BYTES, end)
    place = search.after(bad, size, near)
    if place != near or place == bad + size:
        return place
    found = find_next(search, mapped, near, end)
    return end if found is None else found


def find_next(search: Search, mapped: mmap.mmap | None, start: int, end: int) -> int | None:
    """``search.find``; the memory of bytes that are ``mapped`` does not grow with the way to the batch."""
    for at in range(start, end, RELEASED_BYTES):
        after = min(at + RELEASED_BYTES, end)
        if (found := search.find(at, after)) is not None:
            return found
        _released(mapped, at, after)
    return None


def is_one_batch(data: Buffer) -> bool:
    """Whether ``data`` has at most one batch, perhaps with a partial tail after it, so that a dump shows all of it."""
    view = memoryview(data).cast("B")
    if not len(view):
        return True
    size = max(next_frame(view, 0)[0], 0)
    return size == len(view) or (
        (not size or next_frame(view, size)[0] <= 0)
        and find_next(Search(view), data if isinstance(data, mmap.mmap) else None, max(size, 1), len(view)) is None
    )


def opened_with_neighbours(
    listing: Listing, wanted: Callable[[Entry], bool], better: Callable[[Entry], bool] | None = None
) -> tuple[Entry | None, Entry, Entry | None] | None:
    """The first entry that is ``wanted``, with the one before it and the one after it; None if there is none.

    With ``better``, the first wanted entry for which it is true, if there is one.
    """
    before: Entry | None = None
    found: tuple[Entry | None, Entry, Entry | None] | None = None
    is_best = False
    for entry in listing:
        if found is not None and found[2] is None:
            found = (*found[:2], entry)
        if is_best:
            break
        if wanted(entry):
            is_best = better is None or better(entry)
            if is_best or found is None:
                found = before, entry, None
        before = entry
    return found


# ------------------------------------------------------------------------------------------------- texts


def codec_name(attributes: int) -> str:
    """The codec in a batch's or a message's attributes."""
    number = attributes & CODEC_MASK
    return CODECS[number] if number < len(CODECS) else f"codec {number}"


def flags_of(entry: Entry) -> list[str]:
    """The names of a batch's flags, and its magic if it is an old one."""
    if not entry.attributes and entry.magic == 2:
        return []
    if entry.magic == 0:
        return ["magic 0"]
    flags = [name.replace(" ", "-") for name, bit in ATTRIBUTE_BITS.items() if entry.attributes & bit]
    return flags if entry.magic == 2 else ["magic 1", *(flag for flag in flags if flag == "log-append")]


def time_text(entry: Entry) -> str:
    """The first and the last time of a batch in UTC, or the max timestamp alone."""
    base, last = entry.base_timestamp, entry.max_timestamp
    if last == -1 and base == -1:
        return "-"
    if base == last or base == -1:
        return utc_text(last)
    first, second = utc_text(base), utc_text(last)
    return f"{first} to {second[DATE:] if first[:DATE] == second[:DATE] else second}"


def heading(width: int | None = None) -> str:
    """The line above a list; ``width`` is that of a terminal."""
    time = "time" if width is None or width >= WIDTH else "first time"
    who = "producer/epoch/sequence, flags"
    return row(FORMATS, width, "batch", "byte", "size", "offsets", "records", time, "codec", who)


def row(formats: Sequence[tuple[int, str]], width: int | None, *columns: object) -> str:
    """A line of a table in the first of ``formats`` for which a terminal is wide enough. Others may be cut."""
    if width is None or width >= formats[0][0]:
        return formats[0][1].format(*columns).rstrip()
    text = next(line for least, line in formats if width >= least).format(*columns).rstrip()
    return text if len(text) <= width else text[: width - 1] + "…"


def line_of(entry: Entry, width: int | None = None) -> list[str]:
    """The lines of an entry: one, and one more for each finding. ``width`` is that of a terminal."""
    if entry.kind == "batch":
        if entry.base_offset == entry.last_offset:
            offsets = str(entry.base_offset)
        else:
            offsets = f"{entry.base_offset} to {entry.last_offset}"
        who = "" if entry.producer_id == -1 else f"{entry.producer_id}/{entry.producer_epoch}/{entry.base_sequence}"
        flags = flags_of(entry)
        who = f"{who}{' ' if who and flags else ''}{', '.join(flags)}"
        time, codec = time_text(entry), codec_name(entry.attributes)
        text = row(FORMATS, width, entry.number, entry.at, entry.size, offsets, entry.records, time, codec, who)
        if not entry.findings:
            return [text]
    elif entry.kind == "unreadable":
        text = f"{entry.number:>8} {entry.at:>12} {entry.size:>9}  cannot be read"
    else:
        text = f"{'-':>8} {entry.at:>12} {entry.size:>9}  a partial tail"
    return [text, *(f"{INDENT}{one.severity}: {printable(str(one))}" for one in entry.findings)]


def summary(listing: Listing) -> list[str]:
    """The lines under a listing: sums, then each code of a finding."""
    text = f"{counted(listing.batches, 'batch', 'batches')}, {counted(listing.records, 'record')}"
    if listing.offsets is not None:
        text += f", offsets {listing.offsets[0]} to {listing.offsets[1]}"
    if listing.times is not None:
        text += f", {utc_text(listing.times[0])} to {utc_text(listing.times[1])}"
    lines = [text]
    if listing.refused:
        lines.append(f"{listing.refused} of them cannot be read: {counted(listing.lost_bytes, 'byte')}")
    for code, found in sorted(listing.found.items(), key=lambda item: (item[1].finding.severity != "fatal", item[0])):
        where = f"{counted(found.batches, 'batch', 'batches')}, first in batch {found.first}"
        lines.append(f"{found.finding.severity} {code} in {where}")
    return lines
