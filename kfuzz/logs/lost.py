"""The offsets that damage in a segment costs its readers, and how a consumer group passes over them.

A damaged batch may name any offset, so offsets are taken from what is sound around it: the batches before and after it,
the names of its segment and of the next one, and at the end of a log the files beside it. This module needs neither
numpy nor pyarrow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from typing_extensions import Buffer

from kfuzz.annotate.listing import Entry, Listing
from kfuzz.control import ControlRecordType
from kfuzz.kafka import INT32_MAX, INT64_MAX
from kfuzz.logs.stored import BASE_OFFSET, FOLDER, RECOVERY_POINT, REPLICATION, names_in, partition_offsets, read_stored
from kfuzz.records.read.reader import BatchHeader
from kfuzz.text import shell_word
from kfuzz.wire.io.layout import CONTROL

if TYPE_CHECKING:
    from kfuzz.logs.log_facts import LogFacts

# Of more stretches of damage in a file, a report has the first ones.
LOSSES_MAX: Final = 100
# A batch with one of these can be read; a consumer passes over those whose offsets are lower than one before.
NOT_INCREASING: Final = "offset-not-increasing"
INDEXED: Final = "indexed-offset-not-increasing"
OUTSIDE: Final = "offset-outside-segment"
OFFSET_CODES: Final = (NOT_INCREASING, INDEXED, OUTSIDE)
# The size of a marker's batch, and where in it the record's type is.
MARKER_BYTES: Final = 78
MARKER_TYPE: Final = slice(68, 70)
# The column of the last offset in an entry of each index.
LAST_COLUMN: Final = {".index": 0, ".timeindex": 1, ".txnindex": 3}


@dataclass(frozen=True, slots=True)
class LostOffsets:
    """The offsets of the damage from byte ``at`` up to byte ``end`` of a segment: from ``first`` to ``last``; there are
    none if ``last`` is lower.

    ``next`` is the first offset that can be read again; None if nothing follows in the log. Then ``last`` is None, and
    ``seen`` is the highest offset that is known to have been there, or None. ``first`` is None if it is not known.
    ``partition`` is the topic and the number as Kafka's tools take them, such as ``orders:0``; empty if not known.
    """

    at: int
    end: int
    partition: str
    first: int | None
    last: int | None
    next: int | None
    seen: int | None = None

    def __str__(self) -> str:
        if self.last is None:
            start = "offsets that are not known" if self.first is None else f"the offsets from {self.first} on"
            least = "" if self.seen is None else f", at least to {self.seen}"
            return f"{start} are lost{least}; nothing follows them"
        if self.first is None:
            what = f"offsets up to {self.last} are"
        elif self.first < self.last:
            what = f"offsets {self.first} to {self.last} are"
        else:
            what = f"offset {self.last} is" if self.first == self.last else "no offset is"
        return f"{what} lost; go on at {self.next}"

    def __contains__(self, offset: int) -> bool:
        return (self.first or 0) <= offset and (self.last is None or offset <= self.last)

    @property
    def is_empty(self) -> bool:
        """Whether no offset is lost."""
        return self.first is not None and self.last is not None and self.first > self.last

    @property
    def skip(self) -> str | None:
        """The command with which a consumer group passes over the damage; None if the partition is not known."""
        if not self.partition:
            return None
        to = "--to-latest" if self.next is None else f"--to-offset {self.next}"
        return (
            "kafka-consumer-groups.sh --bootstrap-server HOST:PORT --group GROUP "
            f"--topic {shell_word(self.partition)} --reset-offsets {to} --execute"
        )

    def to_json(self) -> dict[str, Any]:
        """The offsets as a JSON object. An unknown offset is null."""
        return {
            "at": self.at,
            "size": self.end - self.at,
            "first_lost": self.first,
            "last_lost": self.last,
            "at_least_to": self.seen,
            "next_readable": self.next,
            "skip": self.skip,
        }


def join(before: list[LostOffsets], after: list[LostOffsets]) -> list[LostOffsets]:
    """Make one stretch of the damage at the end of a segment and at the beginning of the next, of which these are the
    lost offsets. Returns the list in which damage at the beginning of a third segment would go on.
    """
    if before and after and before[-1].next is not None and before[-1].next == after[0].first:
        one = after.pop(0)
        before[-1] = replace(before[-1], last=one.last, next=one.next, seen=one.seen)
    return after or before


class Bounds:
    """The offsets that the segment file ``path`` may have, by its name and the name of the next segment."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.base = _number(self.path.name, ".log")

    @classmethod
    def between(cls, path: Path, base: int | None, following: int | None) -> Self:
        """Other bounds than those by the names: from ``base`` on, and below ``following``."""
        made = cls(path)
        made.base, made.next = base, following
        return made

    @cached_property
    def partition(self) -> str:
        """The topic and the number, such as ``orders:0``; empty if the file is not named as a segment is."""
        folder = FOLDER.fullmatch(self.path.absolute().parent.name)
        return f"{folder['topic']}:{int(folder['partition'])}" if folder and self.base is not None else ""

    @cached_property
    def next(self) -> int | None:
        """The base offset of the next segment; None if there is none."""
        return min((one for one in self.beside(".log") if self.base is not None and one > self.base), default=None)

    def hold(self, entry: Entry) -> bool:
        """Whether the batch may be in this segment."""
        return entry.base_offset >= (self.base or 0) and (self.next is None or entry.last_offset < self.next)

    def lost(self, at: int, end: int, before: int | None, after: int | None) -> LostOffsets:
        """The offsets of the damage from byte ``at`` to ``end``. The sound batch before it ends with the offset
        ``before``, the one after it begins with ``after``. None: there is no such batch in the segment.
        """
        if before is None and self.base is not None:
            before = self.base - 1
        first = None if before is None else before + 1
        after = self.next if after is None else after
        if after is None:
            return LostOffsets(at, end, self.partition, first, None, None, self._seen(before))
        return LostOffsets(at, end, self.partition, first, after - 1, after)

    def _seen(self, before: int | None) -> int | None:
        """The highest offset after ``before`` that the files beside the last segment of a log have."""
        if self.base is None or before is None:
            return None
        # A snapshot has the first offset that it does not cover in its name.
        found = [one - 1 for one in self.beside(".snapshot")]
        topic, _, number = self.partition.rpartition(":")
        for name in (RECOVERY_POINT, REPLICATION) if topic else ():
            points = kept_offsets(self.path.absolute().parents[1] / name)
            found.append(points.get((topic, int(number)), 0) - 1)
        found += self.indexed()
        return max((one for one in found if before < one <= self.base + INT32_MAX), default=None)

    def indexed(self) -> Iterator[int]:
        """The last offset in each index of the segment."""
        # An index has offsets that count from the one in its name.
        for suffix, column in LAST_COLUMN.items() if self.base == _number(self.path.name, ".log") else ():
            made = read_stored(self.path.with_suffix(suffix))
            if made is not None and not any(one.code == "index-not-rising" for one in made.findings):
                yield from (row[column] for _, row in deque(made.entries(), maxlen=1))

    def missing(self, end: int, before: int) -> LostOffsets | None:
        """The offsets that are missing after the ``end`` of the segment, whose last offset is ``before``; None if
        nothing shows that there were any. The cleaner may have removed them, unless it is the last segment.
        """
        lost = self.lost(end, end, before, None)
        return lost if lost.seen is not None or before + 1 < (lost.next or 0) else None

    def beside(self, suffix: str) -> Iterator[int]:
        """The offsets in the names of the files with this suffix in the segment's folder."""
        return (number for name in names_in(self.path.parent) if (number := _number(name, suffix)) is not None)


@lru_cache(maxsize=4)
def _offsets_at(path: Path, changed_ns: int) -> dict[tuple[str, int], int]:
    return partition_offsets(path)


def kept_offsets(path: Path) -> dict[tuple[str, int], int]:
    """The offsets in a checkpoint, which is asked about many partitions."""
    try:
        return _offsets_at(path, path.stat().st_mtime_ns)
    except OSError:
        return {}


def _number(name: str, suffix: str) -> int | None:
    stem, dot, last = name.partition(".")
    number = int(stem) if dot + last == suffix and BASE_OFFSET.fullmatch(stem) else INT64_MAX + 1
    return number if number <= INT64_MAX else None


def with_losses(
    path: str | Path, entries: Iterable[Entry], facts: LogFacts | None = None
) -> Iterator[Entry | LostOffsets]:
    """The ``entries`` of a listing of the segment ``path``; after each stretch of damage, the offsets that it costs.

    Damages side by side are one stretch. A batch whose offsets do not fit between those around it is damage too: a
    consumer that reads it passes over the batches that follow. ``facts``, if the listing has them, know the sound
    batches that it leaves out.
    """
    bounds = Bounds(path)
    # The last offsets of the two batches before, where the last one begins and ends, and its base offset.
    earlier = before = None if bounds.base is None else bounds.base - 1
    begin = at = end = 0
    # Where the last batch began before which lost offsets were named, and the last one of them.
    named = 0, -1
    is_damaged = is_misplaced = is_cut = False
    last_base = -1

    def catch_up(facts: LogFacts, to: int) -> None:
        nonlocal earlier, before, begin, at, last_base
        for base, offset, stop in facts.recent:
            if at < stop <= to:
                begin, at, earlier, before, last_base = at, stop, before, offset, base

    if facts is not None:
        # The first batch is not compared with the segment's name by anybody else.
        facts.stops_at_each = True
    for entry in entries:
        if facts is not None and not is_misplaced:
            catch_up(facts, entry.at)
        is_refused = bool(entry.findings) and any(
            one.severity == "fatal" and one.code not in OFFSET_CODES for one in entry.findings
        )
        base, end = entry.base_offset, entry.at + entry.size
        fits = before is None or base > before
        # If the one before has too high an offset, this one fits after its forerunner.
        fits_earlier = fits or earlier is None or base > earlier
        is_sound = entry.kind == "batch" and not is_refused
        if is_sound and fits_earlier and (not is_damaged or bounds.hold(entry)):
            if is_damaged or is_misplaced or not fits:
                start, last = (at, before) if fits else (begin, earlier)
                if last is not None and last < named[1] < base:
                    start, last = named
                lost = bounds.lost(start, entry.at, last, base)
                if is_damaged or (lost.first or 0) < base:
                    yield lost
                    named = entry.at, base - 1
            begin, at = at if fits else begin, end
            earlier, before, last_base = before if fits else earlier, entry.last_offset, base
            is_damaged = is_misplaced = False
        else:
            is_damaged, is_misplaced = is_damaged or is_refused, True
            is_cut = entry.kind == "tail" and not is_refused
        if facts is not None:
            # After a finding, the walk may begin again with lower offsets.
            facts.stops_at_each = is_misplaced or bool(entry.findings)
        yield entry
    if facts is not None and not is_misplaced:
        catch_up(facts, INT64_MAX)
    if is_damaged:
        yield bounds.lost(at, end, before, None)
    elif is_cut and before is not None and (missing := bounds.missing(end, before)):
        yield replace(missing, at=at)
    elif bounds.next is not None and (earlier or 0) < bounds.next <= last_base:
        yield bounds.lost(begin, at, earlier, None)


def is_torn_abort(data: Buffer, entry: Entry | BatchHeader) -> bool:
    """Whether these are the bytes of an ABORT marker that cannot be read, as far as they can be believed."""
    kind = memoryview(data)[entry.at :][MARKER_TYPE]
    is_marker = entry.size == MARKER_BYTES and bool(entry.attributes & CONTROL)
    return is_marker and int.from_bytes(kind, "big") == ControlRecordType.ABORT


def lost_at(path: str | Path, listing: Listing, at: int) -> LostOffsets | None:
    """The offsets that the damage at byte ``at`` of the segment ``path`` costs; None if there is none."""
    both = with_losses(path, listing)
    return next((one for one in both if isinstance(one, LostOffsets) and one.at <= at < max(one.end, one.at + 1)), None)
