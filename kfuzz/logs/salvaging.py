"""Copies the sound batches of a damaged log, with new indexes. ``kfuzz salvage`` is the verb.

A batch is kept if Apache Kafka's consumer reads it, and if a broker that loads the segment continues after it. Kept
bytes are copied as they are.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, Final, cast

from kfuzz import records
from kfuzz.annotate.listing import next_place
from kfuzz.errors import UsageError
from kfuzz.files import local_path, open_regular, open_whole, read_small, write_whole
from kfuzz.findings import Finding
from kfuzz.kafka import INDEX_INTERVAL_BYTES, INT32_MAX
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.segments import Segment, Starts, find_segments, refuse
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, leader_epoch_text
from kfuzz.logs.stored import last_offset
from kfuzz.mapped import Mapped, mapped, require_whole
from kfuzz.records.read.reader import check_with
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.walk.search import Search

# Bytes are copied in pieces of this size.
STEP_BYTES: Final = 1 << 20
NUMBER: Final = re.compile(r"-?\d+")
# Kafka's files beside the segments that are true of the copy too.
COPIED: Final = ("partition.metadata",)
COPIED_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that are not in the copy: where they begin in the segment, how many they are, and why."""

    at: int
    size: int
    reason: str


@dataclass(slots=True)
class Salvaged:
    """The result for one segment: its ``path`` and that of the copy, counts, and what was lost.

    ``first_offset`` and ``next_offset`` are those of the kept batches; both are None if there are none.
    """

    path: Path
    copy: Path
    batches: int = 0
    records: int = 0
    kept_bytes: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    lost: list[Lost] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """The number of bytes that were lost."""
        return sum(one.size for one in self.lost)


def salvage(
    path: str | Path,
    out: str | Path,
    *,
    topics: str = "*",
    on_segment: Callable[[Salvaged], None] = lambda done: None,
    pass_over: Callable[[Path, str], None] = refuse,
) -> list[Salvaged]:
    """Copy the sound batches of the log directory, partition folder or segment file ``path`` below ``out``.

    A partition becomes a folder of the same name, with new indexes and leader epochs. A file that is in no partition
    folder gets indexes if its name is that of a segment. ``on_segment`` is called after each segment. ``pass_over`` is
    that of :func:`kfuzz.logs.find_segments`.

    Raises ``UsageError`` if a file cannot be read or written, or if a copy would replace a file.
    """
    segments = find_segments(path, topics=topics, pass_over=pass_over)
    root, source = Path(out), local_path(path).resolve()
    # The copy would be in the log that it is a copy of, and a broker would find it there.
    if source.is_dir() and root.resolve().is_relative_to(source):
        raise UsageError(f"{root} is inside {path}, which is only read; name a folder outside")
    plan = [(segment, root / (_folder(segment) or "") / segment.path.name) for segment in segments]
    for segment, copy in plan:
        if copy.exists():
            raise UsageError(f"{copy} exists; name another folder with --out")
        if copy.resolve() == segment.path.resolve():
            raise UsageError(f"{copy} is the segment itself; name another folder with --out")
    done: list[Salvaged] = []
    for _, group in groupby(plan, lambda one: one[1].parent):
        done += _partition(list(group), on_segment)
    return done


def _folder(segment: Segment) -> str | None:
    return None if segment.topic is None else f"{segment.topic}-{segment.partition}"


def _partition(plan: Sequence[tuple[Segment, Path]], on_segment: Callable[[Salvaged], None]) -> Iterator[Salvaged]:
    """The segments of one partition, in order: a transaction may begin in one and end in another."""
    open_transactions: list[tuple[int, int]] = []
    epochs: list[tuple[int, int]] = []
    source, target = plan[0][0].path.parent, plan[0][1].parent
    for segment, copy in plan:
        made, walk = _copy(segment, copy, open_transactions)
        open_transactions = walk.open_transactions
        epochs += [pair for pair in walk.leader_epochs if not epochs or pair[0] > epochs[-1][0]]
        if segment.base_offset is not None:
            copy.with_suffix(".txnindex").unlink(missing_ok=True)
            for suffix, content in _indexes(walk):
                write_whole(copy.with_suffix(suffix), content)
        on_segment(made)
        yield made
    if plan[0][0].topic is not None:
        write_whole(target / LEADER_EPOCH_CHECKPOINT, leader_epoch_text(epochs))
        for name in COPIED:
            # A broker writes what is missing, and nothing good is in a link, a pipe or a large file of this name.
            with contextlib.suppress(UsageError):
                write_whole(target / name, read_small(source / name, bytes_max=COPIED_BYTES_MAX))


def _indexes(walk: IndexWalk) -> Iterator[tuple[str, bytes]]:
    yield ".index", walk.offset_index
    yield ".timeindex", walk.time_index
    if walk.transaction_index:
        yield ".txnindex", walk.transaction_index


def _copy(segment: Segment, copy: Path, open_transactions: list[tuple[int, int]]) -> tuple[Salvaged, IndexWalk]:
    """Copy the sound batches of one segment, and walk over the copy."""
    made = Salvaged(segment.path, copy)
    with segment.open() as file:
        size = os.fstat(file.fileno()).st_size
        view = mapped(file, 0, size) if size else memoryview(b"")
        kept = _sound(segment, file, view, made)
        # A broker's rules are about all batches of a segment, so they are asked of the copy. Each round leaves out
        # the batch at which a broker would stop, and those after it at which it would stop for the same reason.
        while True:
            with open_whole(copy) as out:
                _write(out, view, kept)
                require_whole(view)
            walk = IndexWalk(segment.base_offset or 0, INDEX_INTERVAL_BYTES, open_transactions)
            refused = _walked(copy, walk)
            if refused is None:
                break
            at, finding = refused
            _leave_out(kept, view, at, finding, made)
    made.lost.sort(key=lambda one: one.at)
    made.batches, made.records = walk.batches, walk.records
    made.kept_bytes = sum(end - start for start, end in kept)
    if walk.batches:
        with open_regular(copy, follow=True) as file:
            made.first_offset = int.from_bytes(file.read(8), "big", signed=True)
        made.next_offset = walk.next_offset
    return made, walk


def _sound(segment: Segment, file: IO[bytes], view: memoryview, made: Salvaged) -> list[tuple[int, int]]:
    """The stretches of ``view`` that a consumer reads. The bytes between them are added to ``made.lost``."""
    kept: list[tuple[int, int]] = []
    starts = Starts(segment, file)  # type: ignore[arg-type]
    search = Search(view)
    at, end = 0, len(view)
    while at < end:
        verdict = records.check(view[at:], findings_max=1)
        if verdict.consumed:
            kept.append((at, at + verdict.consumed))
        bad = at + verdict.consumed
        if bad == end:
            break
        # The length of a bad batch is believed if a batch follows there. Otherwise the index may know, or the bytes are
        # searched.
        known = starts.next(bad)
        size = next_frame(view, bad)[0]
        at = next_place(search, cast("Mapped", view.obj), bad, size, end if known is None else known)
        reason = verdict.fatal.message if verdict.fatal else f"the last {end - bad} bytes are not a whole batch"
        code = f" [{verdict.fatal.code}]" if verdict.fatal else ""
        if verdict.fatal is None and at < end:
            reason = f"the batch is longer than the {at - bad} bytes before the next one"
        made.lost.append(Lost(bad, at - bad, reason + code))
    return kept


def _write(out: IO[bytes], view: memoryview, kept: Sequence[tuple[int, int]]) -> None:
    for start, end in kept:
        for at in range(start, end, STEP_BYTES):
            try:
                out.write(view[at : min(at + STEP_BYTES, end)])
            except OSError:
                # The system cannot read the pages that a file has lost.
                require_whole(view)
                raise


def _walked(copy: Path, walk: IndexWalk) -> tuple[int, Finding] | None:
    """Walk over the copy. Where in it a broker that loads it would stop, and why; None if it loads all."""
    with open_regular(copy, follow=True) as file:
        size = os.fstat(file.fileno()).st_size
        if not size:
            return None
        view = mapped(file, 0, size)
        verdict = records.check(view, role="log", findings_max=1)
        if verdict.fatal is not None or verdict.consumed < size:
            finding = verdict.fatal or Finding("", "fatal", verdict.consumed, "", None, "a broker stops here")
            return verdict.consumed, finding
        check_with(view, walk)
        return None


def _leave_out(kept: list[tuple[int, int]], view: memoryview, at: int, finding: Finding, made: Salvaged) -> None:
    """Take the batch at byte ``at`` of the copy out of ``kept``, and those that follow it for the same reason."""
    i = 0
    while at >= kept[i][1] - kept[i][0]:
        at -= kept[i][1] - kept[i][0]
        i += 1
    start, end = kept[i]
    first = start + at
    is_bad = _like(finding, last_offset(view[first:]))
    reason = f"a broker that loads it stops: {finding.message} [{finding.code}]"
    rest: list[tuple[int, int]] = []
    for begin, stop in [(first, end), *kept[i + 1 :]]:
        place = begin
        while not rest and place < stop and (place == first or is_bad(last_offset(view[place:]))):
            place += next_frame(view, place)[0]
        if begin < place:
            made.lost.append(Lost(begin, place - begin, reason))
        if place < stop:
            rest.append((place, stop))
    kept[i:] = [(start, first), *rest] if start < first else rest


def _like(finding: Finding, bad: int) -> Callable[[int], bool]:
    """Whether a broker stops for the same reason at the next batch, by that batch's last offset; ``bad`` is that of the
    batch at which it stopped.
    """
    numbers = [int(one) for one in NUMBER.findall(finding.message)]
    if finding.code == "indexed-offset-not-increasing" and numbers[0] == bad:
        # It tries to index each batch until one is above the index's last entry. Another number is about times.
        return lambda offset: offset <= numbers[1]
    if finding.code == "offset-outside-segment":
        return lambda offset: not 0 <= offset - numbers[1] <= INT32_MAX
    return lambda offset: False
