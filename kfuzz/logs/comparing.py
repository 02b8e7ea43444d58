"""Compares two logs: by their bytes, and record by record where batches differ. ``kfuzz diff`` is the verb.

Batches that differ are decoded, until a batch ends on both sides at the same record. So a copy may be compressed or
divided into batches and segments in another way, and its records are still known to be equal. The memory does not grow
with the logs.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import groupby, islice, repeat
from pathlib import Path
from typing import Any, BinaryIO, Final

from kfuzz.annotate.listing import codec_name
from kfuzz.annotate.parts import PREVIEW_SIZE
from kfuzz.annotate.records import opened
from kfuzz.files import local_path
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.alike import alike
from kfuzz.logs.latest import Keyed, Latest, last_records
from kfuzz.logs.reading import FINDING, read_slice, schema
from kfuzz.logs.segments import Segment, Whole, batch_bytes, by_contents, find_segments, refuse
from kfuzz.logs.slicing import slices
from kfuzz.logs.stored import OFFSET, last_offset
from kfuzz.logs.transactions import last_stable_offset
from kfuzz.mapped import mapped, require_whole
from kfuzz.records import Limits, Record, iterate
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.records.read.reader import BatchHeader, headers
from kfuzz.units import counted
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, CODEC_MASK, CONTROL, HEADER_UP_TO_MAGIC, TRANSACTIONAL
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.walk.transactions import ABORT, COMMIT, end_marker

WINDOW_BYTES: Final = 16 << 20
# Of each side, so many ranges of offsets and places with bad bytes are kept.
KEPT_MOST: Final = 20
# The fields of a batch that are compared if its records are equal.
OF_BATCH: Final = tuple(
    one for one in BatchHeader._fields if one not in ("number", "at", "size", "is_readable", "findings")
)
OF_RECORD: Final = ("timestamp", "key", "value", "headers", "attributes")
# The bytes or characters that are shown before the first one that differs, and how long other texts may be.
BEFORE_BYTES: Final = 8
TEXT_MOST: Final = 160
MARKERS: Final = {ABORT: "ABORT marker", COMMIT: "COMMIT marker"}
WANTED: Final = schema(["offset", "key", "value"], mode="tolerant")
# The bytes of a value's digest.
DIGEST_BYTES: Final = 16


class Side:
    """One side of a partition: a walk over its batches, and what only this side has.

    - ``ranges``: first offset, last offset and number of neighbouring records that the other side lacks
    - ``damage``: file, byte, size and reason of bytes that cannot be read, unless both sides have the same bytes

    Of both, at most ``KEPT_MOST`` are kept; ``more_ranges`` and ``more_damage`` count the others.
    """

    def __init__(self, segments: Sequence[Segment], limits: Limits) -> None:
        self.segments = segments
        self.limits = limits
        self.records = self.more_ranges = self.more_damage = 0
        self.ranges: list[list[int]] = []
        self.damage: list[dict[str, Any]] = []
        self.is_open = False
        # The next batch begins at ``at`` in ``view``, which begins at byte ``begin`` of a file of ``size`` bytes.
        self.view = memoryview(b"")
        self.begin = self.at = self.size = self.done = 0
        # The next batch, once somebody looked at it.
        self.head: BatchHeader | None = None
        self._files = (segment for segment in segments if segment.size)
        self._segment: Segment | None = None
        self._file: BinaryIO | None = None
        self._whole: Whole | None = None
        # Why the next batch counts as one that cannot be read, although it can.
        self.misfit = ""
        # The batches that are ``passed`` were not looked at, and the highest offset before them.
        self._reached = -1
        self.passed = memoryview(b"")

    @property
    def place(self) -> dict[str, Any]:
        """Where the next batch is."""
        return {"file": str(self._file.name), "at": self.begin + self.at} if self._file else {}

    def to_json(self) -> dict[str, Any]:
        """The side as a JSON object."""
        names = ("records", "ranges", "more_ranges", "damage", "more_damage")
        return {"segments": len(self.segments)} | {name: getattr(self, name) for name in names}

    def add(self, first: int, last: int, records: int) -> None:
        """Note records that only this side has; they continue the last range while it ``is_open`` and offsets rise."""
        self.records += records
        self.is_open &= not self.ranges or first > self.ranges[-1][1]
        if self.is_open and not self.more_ranges:
            self.ranges[-1][1:] = last, self.ranges[-1][2] + records
        elif not self.is_open and len(self.ranges) < KEPT_MOST:
            self.ranges.append([first, last, records])
        else:
            self.more_ranges += not self.is_open
        self.is_open = True

    def spoil(self, reason: str, place: dict[str, Any]) -> None:
        """Note bytes that cannot be read."""
        if len(self.damage) < KEPT_MOST:
            self.damage.append(place | {"reason": reason})
        else:
            self.more_damage += 1

    @property
    def reached(self) -> int:
        """The highest offset before the next batch."""
        if self.passed:
            base, highest = 0, [self._reached]
            for at, _, _ in deque(frames(self.passed), maxlen=2):
                base = OFFSET.unpack_from(self.passed, at)[0]
                highest.append(max(highest[-1], last_offset(self.passed[at:])))
            # If the last one leaps beyond the next one, its own offset is wrong.
            is_wrong = base > highest[-2] + 1 and OFFSET.unpack_from(self.view, self.at)[0] <= highest[-1]
            self._reached, self.passed = highest[-2 if is_wrong else -1], memoryview(b"")
        return self._reached

    def fill(self) -> bool:
        """Have the whole next batch in ``view``, if there is one. Returns False at the end of the log."""
        while True:
            left, ready = self.size - self.begin - self.at, len(self.view) - self.at
            needed = max(batch_bytes(self.view[self.at :]), HEADER_UP_TO_MAGIC) if ready > 0 else 0
            if ready > 0 and (ready == left or not ready < needed <= left):
                return True
            require_whole(self.view)
            if left:
                self.begin, self.at = self.begin + self.at, 0
                assert self._file is not None
                self.view = mapped(self._file, self.begin, min(self.begin + max(WINDOW_BYTES, needed), self.size))
                continue
            if self._file is not None:
                self._file.close()
            if (segment := next(self._files, None)) is None:
                return False
            self.done += self.size
            self._segment, self._file, self.size = segment, segment.open(), segment.size
            self._whole = Whole(self._file, self.size)
            self.view, self.begin, self.at = memoryview(b""), 0, 0

    def look(self) -> BatchHeader | None:
        """The next batch, or bytes that cannot be read; None at the end of the log."""
        if self.head is None and self.fill():
            size = next_frame(self.view, self.at)[0]
            end = self.at + size if size > 0 else None
            self.head = next(headers(self.view[self.at : end], limits=self.limits))
            self.misfit = ""
            assert self._whole is not None
            if size <= 0 or not self.head.is_readable:
                bad = self.begin + self.at
                after = self._whole.next_place(bad, size, self.size)
                self.head = self.head._replace(size=after - bad, is_readable=False)
            elif misfit := self._misfit(self.head):
                self.misfit, self.head = misfit, self.head._replace(is_readable=False)
            elif self.head.last_offset <= self.reached:
                self.head = self._again(self.head)
        return self.head

    def _again(self, head: BatchHeader) -> BatchHeader:
        """The batches from ``head`` on whose offsets were reached before, as bytes that cannot be read."""
        assert self._whole is not None
        whole, start, low = memoryview(self._whole.mapped), self.begin + self.at, self.reached
        end, highest = start, -1
        for at, size, _ in frames(whole, start):
            if (last := last_offset(whole[at:])) > low:
                break
            end, highest = at + size, max(highest, last)
        self.misfit = _goes_back(head, highest, low)
        return head._replace(size=end - start, is_readable=False)

    def _misfit(self, head: BatchHeader) -> str:
        """Why the offsets do not fit, if they reach those of the batch after ``head``. No CRC covers a base offset.

        If the batch after that one is above ``head``, the one between them has too low an offset.
        """
        assert self._segment is not None
        assert self._whole is not None
        if head.base_offset < 0:
            return f"its offsets do not fit: {head.base_offset} is below 0"
        whole = memoryview(self._whole.mapped)
        frame_places = (at for at, _, _ in frames(whole, self.begin + self.at + head.size))
        after = [OFFSET.unpack_from(whole, at)[0] for at in islice(frame_places, 2)]
        after += [] if self._segment.next_offset is None else [self._segment.next_offset]
        is_low = len(after) > 1 and after[1] > head.last_offset
        # If it continues the batch before, the one after goes back.
        is_low |= bool(after) and after[0] <= self.reached >= head.base_offset - 1
        if is_low or not after or not (self._segment.base_offset or 0) <= after[0] <= head.last_offset:
            return ""
        return f"its offsets do not fit: {head.base_offset}, and the next batch begins at {after[0]}"

    def unreadable(self) -> memoryview:
        """The bytes at which :meth:`look` found nothing that can be read."""
        assert self.head is not None
        assert self._whole is not None
        at = self.begin + self.at
        return memoryview(self._whole.mapped)[at : at + self.head.size]

    def advance(self) -> None:
        """Pass over the next batch, or the bytes that cannot be read."""
        if self.head is not None and self.head.is_readable:
            self._reached = max(self.reached, self.head.last_offset)
        self.at += self.head.size if self.head else 0
        self.head = None

    def skip(self, end: int, batches: int) -> None:
        """Pass over batches up to byte ``end`` of ``view`` that the other side has too."""
        # Whether one batch leaps is seen by the one before.
        self._reached = self.reached if batches == 1 else self._reached
        self.passed, self.at, self.head, self.is_open = self.view[self.at : end], end, None, False

    def rows(self) -> Iterator[Record | None]:
        """The records of the next batches, and None after each batch."""
        while (head := self.look()) is not None:
            made = iterate(self.view[self.at : self.at + head.size], limits=self.limits)
            if head.base_offset <= (low := self.reached):
                self.spoil(_goes_back(head, low, low), self.place | {"size": head.size})
                made = (one for one in made if one.offset > low)
            yield from made
            self.advance()
            yield None

    def has_more(self, last_offset: int) -> bool:
        """Whether a batch follows that begins at ``last_offset`` or before."""
        return (head := self.look()) is not None and head.is_readable and head.base_offset <= last_offset


@dataclass(slots=True)
class Compared:
    """A partition of both logs. ``name`` is empty for files in no partition folder.

    ``batches`` counts the batches with equal bytes, and ``fields`` the batches that differ in a field although their
    records are equal; neighbouring batches that are divided in another way count once. ``records`` counts the records
    that differ. ``record`` and ``batch`` are the first differences: offset, field, and for each side value, leader
    epoch, file and byte of the batch.
    """

    name: str
    sides: tuple[Side, Side]
    batches: int = 0
    records: int = 0
    fields: Counter[str] = field(default_factory=Counter)
    record: dict[str, Any] | None = None
    batch: dict[str, Any] | None = None

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        for side, name in zip(self.sides, "BA", strict=True):
            if not side.segments:
                return f"only in {name}"
        if self.record or any(side.ranges or side.damage for side in self.sides):
            return "different"
        return "records are equal, batches differ" if self.batch else "equal"

    def to_json(self) -> dict[str, Any]:
        """The partition as a JSON object."""
        names = ("verdict", "batches", "records", "fields", "record", "batch")
        sides = {name: side.to_json() for name, side in zip("ab", self.sides, strict=True)}
        return {"partition": self.name} | {name: getattr(self, name) for name in names} | sides

    def run(self, on_bytes: Callable[[int], None]) -> None:
        """Compare the two sides. ``on_bytes`` gets the bytes of both that were read."""
        a, b = self.sides
        while True:
            on_bytes(sum(side.done + side.begin for side in self.sides))
            if a.fill() & b.fill() and self._pass_alike():
                continue
            one, other = a.look(), b.look()
            bad = [side for side in self.sides if side.head and not side.head.is_readable]
            if one is None and other is None:
                return
            if bad:
                self._pass_damage(bad)
            elif one and other and one.base_offset <= other.last_offset and other.base_offset <= one.last_offset:
                self._merge(one, other)
            else:
                self._pass_only(int(one is None or (other is not None and other.base_offset < one.base_offset)))

    def run_latest(self, on_bytes: Callable[[int], None]) -> None:
        """As :meth:`run`, but compare the last value of each key that a reader in read_committed sees.

        A key whose last value is null counts as missing, and records without a key are passed over.
        """
        both = [Latest(self._values_of(side, on_bytes)).by("key") for side in self.sides]
        merged = heapq.merge(*map(zip, both, map(repeat, (0, 1))), key=_key)
        for key, same in groupby(merged, _key):
            found = {i: (offset, value) for (_, offset, value), i in same if value is not None}
            if len({value for _, value in found.values()}) > 1 or len(found) == 1:
                texts = [found[i][1][DIGEST_BYTES:].decode() if i in found else "none" for i in (0, 1)]
                values = [f"{text} at offset {found[i][0]}" if i in found else text for i, text in enumerate(texts)]
                if texts[0] == texts[1]:
                    # Long values may differ later.
                    values = [f"{text}, with the hash {found[i][1][:4].hex()}" for i, text in enumerate(values)]
                name = f"last value of the key {_shown(key)}"
                self._note_record(max(found.values())[0], name, *values)

    def _values_of(self, side: Side, on_bytes: Callable[[int], None]) -> Iterator[Keyed]:
        """Of each key in each batch of rows, the last value: its digest and its text."""
        stable = last_stable_offset(side.segments[0])
        below = INT64_MAX if stable is None else stable
        # Damage after the last stable offset counts too: it may have been the marker that ends a transaction.
        for part in slices(side.segments):
            for rows in read_slice(part, WANTED, isolation="read_committed", limits=side.limits):
                if not rows.column(FINDING).null_count:
                    side.spoil(str(rows.column(FINDING)[0]), {"file": str(part.segment.path), "at": None, "size": None})
                    continue
                for key, offset, value in last_records(rows, below):
                    if value is not None:
                        value = blake2b(value, digest_size=DIGEST_BYTES).digest() + _shown(value).encode()
                    yield key, offset, value
            side.done += part.end - part.start
            on_bytes(sum(one.done for one in self.sides))

    def _pass_alike(self) -> bool:
        """Pass over the batches that are alike. Returns False if there are none."""
        a, b = self.sides
        start = a.at, b.at
        *ends, batches, differing, first = alike(a.view, b.view, *start)
        if differing:
            a.at, b.at, a.head, b.head = first, start[1] + first - start[0], None, None
            self._note_batch(a.look(), b.look(), differing)
        self.batches += batches - differing
        if batches:
            for side, end in zip(self.sides, ends, strict=True):
                side.skip(end, batches)
        return batches > 0

    def _pass_damage(self, bad: list[Side]) -> None:
        """Pass over bytes that cannot be read. Equal bytes are equal, whatever is wrong with them."""
        is_same = len(bad) == 2 and bad[0].unreadable() == bad[1].unreadable()
        for side in bad:
            assert side.head is not None
            found = [f"{one.message} [{one.code}]" for one in side.head.findings or () if one.severity == "fatal"]
            found += [side.misfit] if side.misfit else []
            if not is_same:
                side.spoil((found or ["not a whole batch"])[0], side.place | {"size": side.head.size})
            side.advance()

    def _pass_only(self, i: int) -> None:
        """Pass over a batch that only one side has."""
        head = self.sides[i].head
        assert head is not None
        if head.record_count > 0:
            self._add(i, head.base_offset, head.last_offset, head.record_count)
        else:
            self._note_batch(head if i == 0 else None, head if i == 1 else None)
        self.sides[i].advance()

    def _add(self, i: int, first: int, last: int, records: int = 1) -> None:
        self.sides[1 - i].is_open = False
        self.sides[i].add(first, last, records)

    def _merge(self, one: BatchHeader, other: BatchHeader) -> None:
        """Compare record by record, until no batch is begun on either side."""
        before = self.fields.copy(), self.batch, self.records, self.sides[0].records, self.sides[1].records
        self._note_batch(one, other)
        if self._has_equal_payloads(one, other):
            for side in self.sides:
                side.advance()
                side.is_open = False
            return
        streams = [side.rows() for side in self.sides]
        rows = [next(stream) for stream in streams]
        while rows[0] or rows[1]:
            for i, side, there in ((0, self.sides[0], self.sides[1].head), (1, self.sides[1], self.sides[0].head)):
                # A batch ends here and not on the other side, so the next one continues it.
                while not rows[i] and there and rows[1 - i] and side.has_more(there.last_offset):
                    rows[i] = next(streams[i])
            left, right = rows
            if left and right and left.offset == right.offset:
                self._compare(left, right)
                moving = [0, 1]
            elif left and not (right and right.offset < left.offset):
                self._add(0, left.offset, left.offset)
                moving = [0]
            elif right:
                self._add(1, right.offset, right.offset)
                moving = [1]
            for i in moving:
                rows[i] = next(streams[i])
        if before[2:] != (self.records, self.sides[0].records, self.sides[1].records):
            self.fields, self.batch = before[:2]

    def _has_equal_payloads(self, one: BatchHeader, other: BatchHeader) -> bool:
        """Whether the same records are compressed in another way. This saves to make objects of them."""
        # Magic, number of records, offsets and timestamps.
        if one.magic != 2 or one[2:8] != other[2:8] or _kind(one) != _kind(other):
            return False
        if (one.attributes ^ other.attributes) & ~CODEC_MASK:
            return False
        payloads = []
        for side, head in zip(self.sides, (one, other), strict=True):
            frame = side.view[side.at : side.at + head.size]
            stream = opened(frame, side.limits)
            payloads.append(frame[BATCH_HEADER_SIZE:] if stream is None else stream.data)
        return bool(payloads[0] == payloads[1])

    def _compare(self, left: Record, right: Record) -> None:
        """Compare two records of the same offset."""
        kinds = [_kind(side.head, record) for side, record in zip(self.sides, (left, right), strict=True)]
        self.sides[0].is_open = self.sides[1].is_open = False
        if left != right or kinds[0] != kinds[1]:
            pairs = [("kind", *kinds), *((name, getattr(left, name), getattr(right, name)) for name in OF_RECORD)]
            self._note_record(left.offset, *next(pair for pair in pairs if pair[1] != pair[2]))

    def _note_record(self, offset: int, name: str, one: object, other: object) -> None:
        """Note that records differ; ``one`` and ``other`` are the values of the first field that does."""
        self.records += 1
        self.record = self.record or self._difference(offset, name, one, other)

    def _note_batch(self, one: BatchHeader | None, other: BatchHeader | None, times: int = 1) -> None:
        """Note in which fields two batches differ; one of them is None if only one side has it."""
        names = ["record_count"]
        if one and other:
            names = [name for name in OF_BATCH if getattr(one, name) != getattr(other, name)] or ["bytes"]
        values = [getattr(head, names[0], "other bytes") if head else "no such batch" for head in (one, other)]
        if names[0] == "attributes":
            values = [f"{head.attributes:#06x} ({codec_name(head.attributes)})" for head in (one, other) if head]
        self.fields.update(dict.fromkeys(names, times))
        offset = max(head.base_offset for head in (one, other) if head)
        self.batch = self.batch or self._difference(offset, names[0], *values)

    def _difference(self, offset: int, name: str, one: object, other: object) -> dict[str, Any]:
        sides = [
            {"value": value, "leader_epoch": side.head and side.head.leader_epoch} | side.place
            for value, side in zip(_texts(one, other), self.sides, strict=True)
        ]
        return {"offset": offset, "field": name, "a": sides[0], "b": sides[1]}


def _goes_back(head: BatchHeader, highest: int, low: int) -> str:
    """Why offsets from those of ``head`` up to ``highest`` are not read: ``low`` was reached before."""
    return f"its offsets go back: {head.base_offset} to {highest}, after {low}"


def _key(one: tuple[Keyed, int]) -> bytes:
    return one[0][0]


def _kind(head: BatchHeader | None, record: Record | None = None) -> str:
    """The kind of a batch's records, or of one of them: it decides whether a consumer sees them."""
    assert head is not None
    kind = "control record" if head.attributes & CONTROL else "record"
    if record and head.attributes & CONTROL:
        kind = MARKERS.get(end_marker(record.key, record.value)[0], kind)
    if not head.attributes & TRANSACTIONAL:
        return kind
    return f"{kind} in a transaction of producer {head.producer_id}, epoch {head.producer_epoch}"


def _texts(one: object, other: object) -> list[str]:
    """Two values that differ, as texts. Of long ones, the part is shown that is near the first difference."""
    pair: list[Any] = ["null" if value is None else value for value in (one, other)]
    pair = [value if isinstance(value, str | bytes) else repr(value) for value in pair]
    at = 0
    if type(pair[0]) is type(pair[1]):
        differing = (i for i, (x, y) in enumerate(zip(*pair, strict=False)) if x != y)
        at = max(next(differing, min(map(len, pair))) - BEFORE_BYTES, 0)
    return [_near(value, at) for value in pair]


def _near(whole: str | bytes, at: int) -> str:
    if isinstance(whole, bytes):
        return f"{counted(len(whole), 'byte')}, from byte {at} on {_shown(whole, at)}"
    return whole if len(whole) <= TEXT_MOST else f"…{whole[at : at + TEXT_MOST]}…"


def _shown(data: bytes, at: int = 0) -> str:
    """Some bytes from byte ``at`` on, as text if they are printable ASCII, otherwise in hexadecimal."""
    part = data[at : at + PREVIEW_SIZE]
    text = repr(part.decode()) if part.isascii() and part.decode().isprintable() else part.hex()
    return text + ("…" if len(data) > at + PREVIEW_SIZE else "")


# --------------------------------------------------------------------------------------------------- logs


def compare(
    a: str | Path,
    b: str | Path,
    *,
    topics: str = "*",
    compacted: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    on_bytes: Callable[[int], None] = lambda done: None,
    pass_over: Callable[[Path, str], None] = refuse,
) -> Iterator[Compared]:
    """Compare the partitions of two logs, each a log directory, a partition folder or a segment file.

    Partitions of the same name are compared; two partition folders or files also under different names. With
    ``compacted``, a record is the last value of a key: see :meth:`Compared.run_latest`. ``on_bytes`` gets how many
    bytes of both were read. The other arguments and errors are those of :func:`kfuzz.logs.find_segments`; a file that
    becomes shorter meanwhile raises ``UsageError``.
    """
    done = 0
    for name, segments in pairs_of(a, b, topics=topics, pass_over=pass_over):
        # A file that is alone may have any name.
        sides = [Side(one if len(one) == 1 else by_contents(one), limits) for one in segments]
        names = [{(one.path.name, one.name) for one in side.segments} for side in sides]
        for side, there in zip(sides, names[::-1], strict=True):
            for one in side.segments:
                if one.name != one.path.name and (one.path.name, one.name) not in there:
                    place = {"file": str(one.path), "at": 0, "size": one.size}
                    side.spoil(f"its name does not fit its first offset, {one.base_offset}", place)
        made = Compared(name, (sides[0], sides[1]))
        if all(segments):
            run = made.run_latest if compacted else made.run
            run(lambda now, before=done: on_bytes(before + now))  # type: ignore[misc]
        done += sum(segment.size for both in segments for segment in both)
        yield made


def pairs_of(
    a: str | Path, b: str | Path, *, topics: str, pass_over: Callable[[Path, str], None]
) -> list[tuple[str, tuple[list[Segment], list[Segment]]]]:
    """The partitions of two logs: name, and the segments of both; a side that lacks a partition has none."""
    sides = [find_segments(path, topics=topics, pass_over=pass_over) for path in (a, b)]
    # Somebody who names two files or two partition folders means these.
    is_named = all(local_path(path) in (of[0].path, of[0].path.parent) for path, of in zip((a, b), sides, strict=True))
    found: defaultdict[tuple[str, int], tuple[list[Segment], list[Segment]]] = defaultdict(lambda: ([], []))
    for number, side in enumerate(sides):
        for segment in side:
            of = sides[0][0] if is_named else segment
            found[of.topic or "", of.partition or 0][number].append(segment)
    return [(f"{topic}-{partition}" if topic else "", found[topic, partition]) for topic, partition in sorted(found)]
