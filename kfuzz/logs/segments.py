"""The segments of a log directory: which files they are, in which order, and where their offsets end."""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Final

from kfuzz.annotate.listing import next_place
from kfuzz.errors import NotRegular, UsageError
from kfuzz.files import file_kind, local_path, map_bytes, open_regular
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.contents import require_batches
from kfuzz.logs.lost import Bounds, LostOffsets, kept_offsets
from kfuzz.logs.stored import CLEANER, FOLDER, LEAVING, few, last_batch, last_offset, left_out
from kfuzz.mapped import Mapped, mapped, require_whole
from kfuzz.wire.io.layout import LOG_OVERHEAD
from kfuzz.wire.records.framing import frames
from kfuzz.wire.walk.search import Search

NAME: Final = re.compile(r"(\d{20})\.log")
# Kafka's own topics, such as __consumer_offsets, begin with this.
INTERNAL: Final = "__"
FRAME: Final = struct.Struct(">qi")
LENGTH: Final = slice(8, 12)


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file. ``topic`` and ``partition`` are None if the file is in no partition folder.

    ``base_offset`` is the number in the file's name, or None. ``next_offset`` is the base offset of the partition's
    next segment, or None for the last one. ``size`` is in bytes. ``is_link``: the user named a link; it
    is followed.
    """

    path: Path
    topic: str | None
    partition: int | None
    base_offset: int | None
    next_offset: int | None
    size: int
    is_link: bool = False

    @property
    def name(self) -> str:
        """The name that fits ``base_offset``: that of the file, unless :func:`by_contents` found another one."""
        return self.path.name if self.base_offset is None or self.is_copy else f"{self.base_offset:020d}.log"

    @property
    def is_copy(self) -> bool:
        """Whether another segment has all offsets of this one, as :func:`by_contents` found."""
        return self.base_offset is not None and self.next_offset == self.base_offset

    def open(self) -> BinaryIO:
        """The file, open for reading; ``UsageError`` with the reason if that fails."""
        return open_regular(self.path, follow=self.is_link)


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to read, by offset and by timestamp in milliseconds. Each bound is inclusive; None is no bound."""

    first_offset: int | None = None
    last_offset: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None

    def below(self, offset: int | None) -> Selection:
        """The same records, of those below ``offset``; None is no bound."""
        if offset is None or (self.last_offset is not None and self.last_offset < offset):
            return self
        return replace(self, last_offset=offset - 1)


EVERYTHING: Final = Selection()


@dataclass(frozen=True, slots=True)
class Slice:
    """The bytes of a segment from ``start`` to ``end``: whole batches, unless the segment is damaged.

    ``stable_offset`` is the partition's last stable offset if reading in ``read_committed`` ends there, otherwise None.
    """

    segment: Segment
    start: int
    end: int
    stable_offset: int | None = None


def batch_bytes(data: memoryview) -> int:
    """The size of the batch at the start of ``data``, as its length says; 0 without a length. It may be wrong."""
    if len(data) < LOG_OVERHEAD:
        return 0
    return LOG_OVERHEAD + int.from_bytes(data[LENGTH], "big", signed=True)


def refuse(path: Path, what: str) -> None:
    """Raise ``NotRegular``: a log directory has a link, a pipe or a device in place of a file or folder."""
    raise NotRegular(f"{path} is {what}, which kfuzz does not open inside a log directory; remove it, or name it alone")


def find_segments(
    path: str | Path, *, topics: str = "*", pass_over: Callable[[Path, str], None] = refuse
) -> list[Segment]:
    """The segments in ``path``: a log directory, one partition folder, or one segment file.

    ``topics`` is a glob over the topics of a log directory. Kafka's own topics, which begin with ``__``, are left out
    unless the glob begins with ``__``. Segments are in the order of topic, partition and offset.

    Inside ``path``, links are not followed, and pipes and devices are not opened. Where one has the name of a segment
    or of a partition folder, ``pass_over`` is called with it and what it is, such as "a pipe"; without it, such a thing
    is an error. So is a partition folder beside segments, inside another one, or beside another one of the same
    partition.

    Raises ``UsageError`` if ``path`` does not exist, has no segment, or has no topic that matches.
    """
    path = local_path(path)
    try:
        if path.is_file():
            require_batches(path, map_bytes(path))
            return _of_topic([replace(_segment(path, None), is_link=path.is_symlink())], path, topics)
        if not path.is_dir():
            there = f"is {file_kind(path.stat().st_mode)}" if path.exists() else "does not exist"
            raise UsageError(f"{path} {there}; name a log directory, a partition folder or a segment file")
        if direct := _partition(path, pass_over):
            for *_, folder in sorted(_folders(path)):
                pass_over(folder, "a partition beside segments")
            return _of_topic(direct, path, topics)
        folders = sorted(_folders(path))
        matching: dict[tuple[str, int], Path] = {}
        for topic, partition, folder in folders:
            if matches(topic, topics) and (first := matching.setdefault((topic, partition), folder)) != folder:
                # Such as orders-0 and orders-00.
                pass_over(folder, f"the same partition as {first.name}")
        found = [segment for folder in matching.values() for segment in _segments_in(folder, pass_over)]
    except OSError as error:
        raise UsageError(f"{error.filename or path} cannot be read: {error.strerror}") from None
    if not found and folders and not matching:
        known = few(sorted({topic for topic, _, _ in folders}))
        if topics == "*":
            raise UsageError(f"{path} has only Kafka's own topics: {known}; --topics '__*' chooses them")
        raise UsageError(f"no topic in {path} matches {topics!r}; there are {known}")
    if not found and (sentence := passed_over(path)):
        raise UsageError(f"{path} has no other log segments; {sentence}")
    if not found:
        raise UsageError(
            f"{path} has no log segments; they are files such as orders-0/00000000000000000000.log, in folders that "
            "are named after topic and partition"
        )
    return found


def passed_over(path: str | Path) -> str:
    """The folders in the log directory ``path`` that :func:`find_segments` passes over, as a sentence; empty if there
    are none.
    """
    path = local_path(path)
    return left_out(folder for folder in path.iterdir() if folder.is_dir()) if path.is_dir() else ""


def left_out_topics(path: str | Path, topics: str) -> str:
    """Kafka's own topics in the log directory ``path``, as a sentence, if all topics were meant; empty if there are
    none.
    """
    path = local_path(path)
    folders = _folders(path) if topics == "*" and path.is_dir() else ()
    own = sorted({topic for topic, _, _ in folders if topic.startswith(INTERNAL)})
    return f"left out {few(own)}, which are Kafka's own topics; --topics '{INTERNAL}*' chooses them" if own else ""


def _of_topic(segments: list[Segment], path: Path, topics: str) -> list[Segment]:
    """The segments of a file or of one partition folder, which must be of these topics if some were chosen."""
    topic = segments[0].topic
    if topics != "*" and not fnmatchcase(topic or "", topics):
        known = f"it has {topic}" if topic else "a file has a topic only in a folder such as orders-0"
        raise UsageError(f"no topic in {path} matches {topics!r}; {known}")
    return segments


def matches(topic: str, topics: str) -> bool:
    """Whether the glob chooses the topic; one of Kafka's own only if the glob begins as its name does."""
    return fnmatchcase(topic, topics) and (not topic.startswith(INTERNAL) or topics.startswith(INTERNAL))


def _folders(path: Path) -> Iterator[tuple[str, int, Path]]:
    for folder in path.iterdir():
        match = FOLDER.fullmatch(folder.name)
        if match and folder.is_dir():
            yield match["topic"], int(match["partition"]), folder


def _segments_in(folder: Path, pass_over: Callable[[Path, str], None]) -> list[Segment]:
    if folder.is_symlink():
        pass_over(folder, "a link")
        return []
    for *_, inner in sorted(_folders(folder)):
        pass_over(inner, "a partition inside another one")
    return _partition(folder, pass_over)


def _partition(folder: Path, pass_over: Callable[[Path, str], None]) -> list[Segment]:
    """The segments of a partition folder. A file that Kafka is deleting has another suffix."""
    paths = []
    for path in sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name)):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            paths.append(path)
        else:
            pass_over(path, file_kind(mode))
    following = [*(_base_offset(path) for path in paths), None][1:]
    return [_segment(path, after) for path, after in zip(paths, following, strict=True)]


def partition_of(segment: Segment) -> list[Segment]:
    """All segments in the folder of ``segment``, in order; only itself if its file is not named as Kafka names it.

    ``UsageError`` if the folder cannot be read.
    """
    if segment.base_offset is None or segment.path.is_symlink():
        return [segment]
    try:
        # They were reported when the segment was found.
        return _partition(segment.path.parent, lambda path, what: None)
    except OSError as error:
        raise UsageError(f"{error.filename or segment.path.parent} cannot be read: {error.strerror}") from None


def by_contents(segments: Sequence[Segment], *, ends: bool = False) -> list[Segment]:
    """The segments of a partition in the order of their batches.

    A segment whose batches are not those that its name allows gets the ``base_offset`` of its first batch, unless
    others have offsets of it. If another one has all of them, it is a copy, and follows that one. A segment whose
    offsets cannot be believed stays as it is named.

    Without ``ends``, only the first batch of each segment is compared with the names. ``UsageError`` if a file cannot
    be read.
    """
    before: list[Segment] = []
    made = list(segments)
    if all(_is_named_well(one, ends=ends) for one in segments):
        return made
    spans = {one.path: span for one in segments if (span := _span(one)) is not None}
    # A right name may show that the one before it is wrong.
    while made != before:
        before, made = made, sorted(_renamed(made, spans), key=_order)
        own = [one.base_offset for one in made if not one.is_copy]
        if len({*own}) < len(own):
            return before
        following = dict(pairwise(own))
        made = [one if one.is_copy else replace(one, next_offset=following.get(one.base_offset)) for one in made]
    return made


def _order(one: Segment) -> tuple[int, bool]:
    return INT64_MAX + 1 if one.base_offset is None else one.base_offset, one.is_copy


def _renamed(segments: Sequence[Segment], spans: dict[Path, tuple[int, int]]) -> Iterator[Segment]:
    """The segments with the base offsets that ``spans`` show. A copy is removed there: no other is a copy of it."""
    # No other one changes its place beside these.
    fixed = [one.base_offset or 0 for one in segments if one.path not in spans and not one.is_copy]
    for one in segments:
        if (base := one.base_offset) is not None and (span := spans.pop(one.path, None)):
            first, last = span
            is_outside = first < base or (one.next_offset is not None and first >= one.next_offset)
            is_inside = any(low <= base <= high for low, high in spans.values())
            if is_outside and is_inside and any(low <= first and last <= high for low, high in spans.values()):
                yield replace(one, base_offset=first, next_offset=first)
                continue
            is_free = not any(low <= last and first <= high for low, high in spans.values())
            is_free &= not any(min(base, first) <= at <= max(base, first) for at in fixed)
            if (is_outside or is_inside) and is_free:
                one = replace(one, base_offset=first, next_offset=None)
            spans[one.path] = span
        yield one


def _is_named_well(segment: Segment, *, ends: bool) -> bool:
    """Whether the first batch, and with ``ends`` the last one, may be in a segment of this name."""
    base, after = segment.base_offset, segment.next_offset
    with segment.open() as file:
        head = file.read(LOG_OVERHEAD)
    if base is None or len(head) < LOG_OVERHEAD:
        return True
    first, _ = FRAME.unpack(head)
    return base <= first and (after is None or (first < after and not (ends and log_end(segment)[0] > after)))


def _span(segment: Segment) -> tuple[int, int] | None:
    """The first and the last offset of a segment, as far as lengths lead; None if they cannot be believed.

    They can if they rise in two batches or more. No CRC covers a base offset, so the first and the last batch must be
    side by side with another one, unless the cleaner has left holes in between too.
    """
    number, first, last = 0, 0, -1
    # Whether the second and the last batch follow a hole, and how many batches do.
    second_apart = apart = False
    holes = 0
    with segment.open() as file:
        view = mapped(file, 0, segment.size) if segment.size else memoryview(b"")
        for number, (at, _, _) in enumerate(frames(view), 1):
            base, end = FRAME.unpack_from(view, at)[0], last_offset(view[at:])
            if not last < base <= end:
                return None
            first = base if number == 1 else first
            apart = number > 1 and base > last + 1
            second_apart |= apart and number == 2
            holes += apart
            last = end
        require_whole(view)
    inside = holes - second_apart - (apart and number > 2)
    is_sure = number > 1 and (inside or not (apart or second_apart))
    # The highest offset stands for a name that is none.
    return (first, last) if is_sure or (number and segment.base_offset == INT64_MAX) else None


def _base_offset(path: Path) -> int | None:
    """The number in the name of a segment; None if no offset is so large: then a broker cannot read the name either."""
    number = int(path.stem)
    return number if number <= INT64_MAX else None


def _segment(path: Path, next_offset: int | None) -> Segment:
    name = NAME.fullmatch(path.name)
    parent = path.absolute().parent.name
    leaving = LEAVING.fullmatch(parent)
    folder = FOLDER.fullmatch(leaving["partition"] or "" if leaving else parent) if name else None
    return Segment(
        path,
        folder["topic"] if folder else None,
        int(folder["partition"]) if folder else None,
        _base_offset(path) if name else None,
        next_offset,
        path.stat().st_size,
    )


class Whole:
    """The first ``size`` bytes of an open file, however many. They are mapped when somebody asks for them."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    @cached_property
    def mapped(self) -> Mapped:
        return Mapped(self._file, 0, self._size)

    @cached_property
    def _search(self) -> Search:
        return Search(self.mapped)

    def next_place(self, bad: int, size: int, end: int) -> int:
        """Where reading continues after the bad batch at ``bad``, at most at ``end``: see :meth:`Search.after`."""
        return next_place(self._search, self.mapped, bad, size, end)


def log_end(segment: Segment) -> tuple[int, int]:
    """The offset after the last whole batch of a segment, and the byte where that batch ends; 0 without such a batch.

    A broker may be writing the next one. ``UsageError`` if the file cannot be read.
    """
    found = None
    if segment.size:
        with segment.open() as file:
            found = last_batch(segment.path, view := mapped(file, 0, segment.size))
            require_whole(view)
    return (segment.base_offset or 0, 0) if found is None else (found[0] + 1, found[1])


def has_cleaner_checkpoint(segment: Segment) -> bool:
    """Whether the broker's log cleaner has a checkpoint for the segment's partition."""
    return (segment.topic, segment.partition) in kept_offsets(segment.path.absolute().parents[1] / CLEANER)


def lost_between(segments: Iterable[Segment]) -> Iterator[LostOffsets]:
    """The offsets between the end of each segment and the next segment of its partition.

    Partitions that the broker's cleaner has cleaned have such gaps by right, so they are left out, as are segments with
    a damaged end.
    """
    for one in segments:
        if one.next_offset is None or has_cleaner_checkpoint(one):
            continue
        end, at = log_end(one)
        if at == one.size and end < one.next_offset:
            yield Bounds(one.path).lost(at, at, end - 1, one.next_offset)
