"""Copies the sound batches of a damaged log, with the files that a broker needs. ``kfuzz salvage`` is the verb.

A batch is kept if Apache Kafka's consumer reads it, and if a broker that loads the segment continues after it. Kept
bytes are copied as they are. A lost marker would change what kept records mean; :mod:`kfuzz.logs.meaning` writes it
again if the original's indexes and snapshots show how the transaction ended.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate, groupby
from pathlib import Path
from typing import IO, Final, cast

import numpy as np

from kfuzz import records
from kfuzz.annotate.listing import next_place
from kfuzz.errors import UsageError
from kfuzz.files import local_path, map_regular, open_whole, read_small, require_writable, write_whole
from kfuzz.findings import Finding
from kfuzz.kafka import INDEX_INTERVAL_BYTES, INT32_MAX, INT64_MAX
from kfuzz.logs.index_walk import IndexWalk
from kfuzz.logs.indexes import ABORTED_ENTRY, Starts
from kfuzz.logs.log_facts import LogFacts
from kfuzz.logs.lost import NOT_INCREASING, OFFSET_CODES, OUTSIDE, Bounds, LostOffsets, is_torn_abort, join
from kfuzz.logs.meaning import Aborted, Change, Marker, Original, by_producer, changes, lost_aborts, lost_commits
from kfuzz.logs.segments import (
    Segment,
    by_contents,
    find_segments,
    has_cleaner_checkpoint,
    log_end,
    partition_of,
    refuse,
)
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, checkpoint_text, encode, follow, opened_of, snapshot_name
from kfuzz.logs.stored import (
    CLEAN_SHUTDOWN,
    LOG_START,
    META_PROPERTIES,
    METADATA_NAME,
    OFFSET,
    RECOVERY_POINT,
    REPLICATION,
    last_offset,
    read_stored,
)
from kfuzz.mapped import Mapped, mapped, require_whole
from kfuzz.records.read.reader import BatchHeader, check_with, headers
from kfuzz.wire.io.layout import CONTROL
from kfuzz.wire.records.framing import frames, next_frame
from kfuzz.wire.walk.search import Search

# Bytes are copied in pieces of this size.
STEP_BYTES: Final = 1 << 20
COPIED_BYTES_MAX: Final = 4096
# The mark of a clean shutdown. The broker's epoch is not known.
SHUT_DOWN: Final = '{"version":0,"brokerEpoch":-1}'


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that are not in the copy: where they begin in the segment, how many they are, and why."""

    at: int
    size: int
    reason: str


@dataclass(slots=True)
class _Kept:
    """A segment while it is copied to ``target``: the stretches of its bytes that are kept, and new bytes between them,
    each with its place twice. ``left_out`` has the first and last offsets of sound batches that do not fit.
    """

    segment: Segment
    target: Path
    made: Salvaged
    size: int
    stretches: list[tuple[int, int]]
    added: list[tuple[int, int, bytes]] = field(default_factory=list)
    left_out: list[tuple[int, int]] = field(default_factory=list)

    @property
    def bounds(self) -> Bounds:
        """The offsets that the segment may have."""
        return Bounds.between(self.segment.path, self.segment.base_offset, self.segment.next_offset)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest offset that the segment may have, and the one after the highest."""
        low, following = self.segment.base_offset, self.segment.next_offset
        if low is None:
            return 0, INT64_MAX + 1
        return low, min(low + INT32_MAX + 1, INT64_MAX + 1 if following is None else following)

    def view(self) -> memoryview:
        """The bytes of the segment."""
        with self.segment.open() as file:
            return mapped(file, 0, self.size) if self.size else memoryview(b"")


@dataclass(slots=True)
class Salvaged:
    """The result for one segment: its ``path`` and that of the copy, counts, and what was lost.

    ``is_left_out``: this segment is not copied, because another one has all its offsets.
    ``first_offset`` and ``next_offset`` are those of the kept batches; both are None if there are none. ``gaps`` has
    the offsets of the lost bytes; losses side by side are one gap. ``markers`` were lost and are written again.
    ``changes`` are the kept records whose transactions end differently now. ``is_stray``: the partition of this
    segment, its first one, has a ``partition.metadata`` that Kafka refuses, and the copy has none.
    """

    path: Path
    copy: Path
    batches: int = 0
    records: int = 0
    kept_bytes: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    lost: list[Lost] = field(default_factory=list)
    gaps: list[LostOffsets] = field(default_factory=list)
    markers: list[Marker] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    is_left_out: bool = False
    is_stray: bool = False

    @property
    def lost_bytes(self) -> int:
        """The number of bytes that were lost."""
        return sum(one.size for one in self.lost)


def salvage(
    path: str | Path,
    out: str | Path,
    *,
    topics: str = "*",
    dry_run: bool = False,
    on_segment: Callable[[Salvaged], None] = lambda done: None,
    pass_over: Callable[[Path, str], None] = refuse,
) -> list[Salvaged]:
    """Copy the sound batches of the log directory, partition folder or segment file ``path`` below ``out``.

    A partition becomes a folder of the same name, with new indexes, leader epochs and producer snapshots, so that a
    broker loads it without a rebuild. If ``path`` is a broker's directory, the copy has its checkpoints and the mark of
    a clean shutdown. A file that is in no partition folder gets indexes if its name is that of a segment.
    ``on_segment`` is called for each segment when its partition is done. ``pass_over`` is that of
    :func:`kfuzz.logs.find_segments`. ``dry_run`` writes nothing below ``out``; it needs room for a partition in the
    system's folder for temporary files.

    Raises ``UsageError`` if a file cannot be read or written, or if a copy would replace a file.
    """
    found = find_segments(path, topics=topics, pass_over=pass_over)
    segments = [one for _, group in groupby(found, lambda one: one.path.parent) for one in _in_order(list(group))]
    root, source = Path(out), local_path(path).resolve()
    # The copy would be in the log that it is a copy of, and a broker would find it there.
    if source.is_dir() and root.resolve().is_relative_to(source):
        raise UsageError(f"{root} is inside {path}, which is only read; name a folder outside")
    plan = [(segment, root / (_folder(segment) or "") / segment.name) for segment in segments]
    for segment, copy in plan:
        if copy.exists() and not segment.is_copy:
            raise UsageError(f"{copy} exists; name another folder with --out")
        require_writable(copy)
    done: list[Salvaged] = []
    ends: dict[tuple[str, int], int] = {}
    for _, group in groupby(plan, lambda one: one[1].parent):
        with tempfile.TemporaryDirectory(prefix="kfuzz-salvage-") if dry_run else contextlib.nullcontext("") as place:
            parts = [(segment, copy, Path(place) / copy.name if place else copy) for segment, copy in group]
            made, end = _partition([one for one in parts if not one[0].is_copy])
        made += [_left_out(segment, copy) for segment, copy, _ in parts if segment.is_copy]
        ends[parts[0][0].topic or "", parts[0][0].partition or 0] = end
        for one in made:
            on_segment(one)
        done += made
    # The files of another broker, with its other partitions, stay as they are.
    if not dry_run and (source / META_PROPERTIES).is_file() and not (root / META_PROPERTIES).exists():
        _broker_files(source, root, ends)
    return done


def _in_order(partition: list[Segment]) -> list[Segment]:
    """The segments of a partition, each where its batches belong; also one whose name is above the highest offset."""
    # In a partition, no other name is without an offset.
    named = [
        one if one.base_offset is not None or not one.topic else replace(one, base_offset=INT64_MAX)
        for one in partition
    ]
    made = by_contents(named, ends=True)
    if any(one.base_offset == INT64_MAX for one in made):
        # Its batches do not show where it belongs.
        made = by_contents(partition, ends=True)
    if len(made) == 1:
        # It may have been named alone.
        beside = [one.base_offset or 0 for one in by_contents(partition_of(made[0]), ends=True) if not one.is_copy]
        low = made[0].base_offset or 0
        made = [replace(made[0], next_offset=min((one for one in beside if one > low), default=None))]
    return made


def _left_out(segment: Segment, copy: Path) -> Salvaged:
    """The result for a segment whose offsets are all in another one."""
    offsets = f"{segment.base_offset} to {log_end(segment)[0] - 1}"
    reason = f"another segment has its offsets too: {offsets}; to copy this one instead, name it alone"
    return Salvaged(segment.path, copy, lost=[Lost(0, segment.size, reason)], is_left_out=True)


def _folder(segment: Segment) -> str | None:
    return None if segment.topic is None else f"{segment.topic}-{segment.partition}"


def _partition(plan: Sequence[tuple[Segment, Path, Path]]) -> tuple[list[Salvaged], int]:
    """The segments of one partition, in order: a transaction may begin in one and end in another. Each is copied to the
    last of its paths. Returns the results and the offset after the last one.
    """
    parts = [_copy(*one) for one in plan]
    first, target = plan[0][0], plan[0][2].parent
    original = Original.of(first)
    producers, before = dict(original.producers), sorted(opened_of(original.producers.values()).items())
    walks, aborted = _walks(parts, before)
    left_out = sorted(one for part in parts for one in part.left_out)
    for part in parts:
        part.made.gaps = list(_gaps(part, left_out))
    _add_missing(parts, walks, original)
    gaps = [(number, gap) for number, part in enumerate(parts) for gap in part.made.gaps]
    marked: dict[int, list[int]] = defaultdict(list)
    if gaps:
        torn = [one for number, gap in gaps for one in _torn_aborts(parts[number], number, gap)]
        original.is_whole &= not torn
        aborts = [*lost_aborts(original, gaps), *torn]
        _add(parts, [one for one in aborts if one.offset in one.gap])
        walks, aborted = _walks(parts, before)
        opened = dict(walks[-1].open_transactions)
        _add(parts, lost_commits(original, gaps, aborted, opened, {one.offset for one in aborts}))
        walks, aborted = _walks(parts, before)
        opened = dict(walks[-1].open_transactions)
        for head in (head for part in parts for head in headers(map_regular(part.target))):
            if head.attributes & CONTROL:
                marked[head.producer_id].append(head.last_offset)
    epochs: list[tuple[int, int]] = []
    ends = [*(part.segment.base_offset or 0 for part in parts[1:]), walks[-1].next_offset]
    for part, walk, end in zip(parts, walks, ends, strict=True):
        part.made.batches, part.made.records = walk.batches, walk.records
        part.made.markers.sort(key=lambda one: one.offset)
        if walk.batches:
            part.made.first_offset = OFFSET.unpack_from(map_regular(part.target))[0]
            part.made.next_offset = walk.next_offset
            if gaps:
                part.made.changes = changes(map_regular(part.target), original, aborted, opened, marked, gaps)
        if part.segment.base_offset is not None:
            part.target.with_suffix(".txnindex").unlink(missing_ok=True)
            indexes = {".index": walk.offset_index, ".timeindex": walk.time_index, ".txnindex": walk.transaction_index}
            for suffix, content in indexes.items():
                if content or suffix != ".txnindex":
                    write_whole(part.target.with_suffix(suffix), content)
        epochs += [pair for pair in walk.leader_epochs if not epochs or pair[0] > epochs[-1][0]]
        follow(producers, walk.producers)
        if first.topic is not None and part in parts[-2:]:
            # A broker looks for them where its active segment begins, and at the end of the log.
            write_whole(target / snapshot_name(end - 1), encode(producers.values()))
    if first.topic is not None:
        write_whole(target / LEADER_EPOCH_CHECKPOINT, checkpoint_text(epochs))
        metadata = read_stored(first.path.with_name(METADATA_NAME))
        parts[0].made.is_stray = metadata is not None and metadata.is_refused
        if not parts[0].made.is_stray:
            _take(METADATA_NAME, first.path.parent, target)
    reduce(join, (part.made.gaps for part in parts))
    return [part.made for part in parts], walks[-1].next_offset


def _add(parts: Sequence[_Kept], markers: Iterable[Marker]) -> None:
    """Write the markers into the copies, if a batch of their producer is kept before them."""
    wanted: dict[int, list[Marker]] = defaultdict(list)
    for marker in markers:
        wanted[marker.producer_id].append(marker)
    found: dict[Marker, BatchHeader] = {}
    for part in parts if wanted else ():
        for head in headers(map_regular(part.target)):
            found |= {one: head for one in wanted.get(head.producer_id, ()) if head.last_offset < one.offset}
    for marker, head in found.items():
        part = parts[marker.segment]
        part.made.markers.append(marker)
        part.added.append((marker.gap.at, marker.gap.at, marker.encode(head)))
    for part in (parts[number] for number in sorted({marker.segment for marker in found})):
        _write(part, part.view())


def _add_missing(parts: Sequence[_Kept], walks: Sequence[IndexWalk], original: Original) -> None:
    """Add the offsets that are missing after the end of a segment to its gaps: another segment, or the end of the log,
    was lost.
    """
    for part, walk in zip(parts, walks, strict=True):
        bounds = part.bounds
        gaps = part.made.gaps
        if bounds.base is None or (gaps and gaps[-1].end == part.size):
            continue
        gap = bounds.missing(part.size, walk.next_offset - 1)
        if gap is None or (gap.last is not None and _is_cleaned(parts)):
            continue
        gaps.append(gap)
        known = {*bounds.beside(".index"), *bounds.beside(".txnindex"), *bounds.indexed()}
        if gap.last is not None and not any(walk.next_offset <= one <= gap.last for one in known):
            # A transaction may have ended there.
            original.is_whole = False


def _is_cleaned(parts: Sequence[_Kept]) -> bool:
    """Whether a log was compacted: by a broker's checkpoint, or because offsets are missing in sound bytes."""
    if has_cleaner_checkpoint(parts[0].segment):
        return True
    facts = LogFacts(INT64_MAX)
    for part in parts:
        for start, end in part.stretches:
            facts.begin_segment(0)
            check_with(part.view()[start:end], facts)
    return facts.is_cleaned


def _torn_aborts(part: _Kept, number: int, gap: LostOffsets) -> Iterator[Marker]:
    """The ABORT markers that can be recognised in lost bytes, if the segment has no transaction index."""
    if part.segment.path.with_suffix(".txnindex").exists():
        return
    lost = part.view()[gap.at : gap.end]
    for at, size, _ in frames(lost):
        head = next(headers(lost[at : at + size]))
        if is_torn_abort(lost[at:], head):
            yield Marker(number, gap, head.base_offset, head.producer_id, True)


def _walks(parts: Sequence[_Kept], opened: list[tuple[int, int]]) -> tuple[list[IndexWalk], Aborted]:
    """Walk over the copies; ``opened`` are the transactions that are open before. Returns the walks, and all aborted
    transactions.
    """
    walks = []
    for part in parts:
        walk = IndexWalk(part.segment.base_offset or 0, INDEX_INTERVAL_BYTES, opened)
        check_with(map_regular(part.target), walk)
        opened = walk.open_transactions
        walks.append(walk)
    return walks, by_producer(np.frombuffer(walk.transaction_index, ABORTED_ENTRY) for walk in walks)


def _broker_files(source: Path, root: Path, ends: dict[tuple[str, int], int]) -> None:
    """Write the files of the broker's directory ``source`` that are not about one partition. ``ends`` has the offset at
    which each copied partition ends.
    """
    write_whole(root / RECOVERY_POINT, checkpoint_text([(*key, end) for key, end in ends.items()]))
    for name in (REPLICATION, LOG_START):
        found = stored.entries() if (stored := read_stored(source / name)) else ()
        rows = {row[:2]: min(row[2], ends[row[:2]]) for _, row in found if row[:2] in ends}
        write_whole(root / name, checkpoint_text([(*key, offset) for key, offset in rows.items()]))
    _take(META_PROPERTIES, source, root)
    write_whole(root / CLEAN_SHUTDOWN, SHUT_DOWN)


def _take(name: str, source: Path, target: Path) -> None:
    """Copy a small file of a broker."""
    # A broker writes what is missing, and nothing good is in a link, a pipe or a large file of this name.
    with contextlib.suppress(UsageError):
        write_whole(target / name, read_small(source / name, bytes_max=COPIED_BYTES_MAX))


def _copy(segment: Segment, copy: Path, target: Path) -> _Kept:
    """Copy the sound batches of one segment to ``target``."""
    made = Salvaged(segment.path, copy)
    with segment.open() as file:
        size = os.fstat(file.fileno()).st_size
        part = _Kept(segment, target, made, size, [])
        view = part.view()
        part.stretches += _sound(segment, file, view, made)
        # A broker's rules are about all batches of a segment, so they are asked of the copy. Each round leaves out
        # the batch at which a broker would stop, and those after it at which it would stop for the same reason.
        _write(part, view)
        while refused := _refused(target, *part.limits):
            _leave_out(part, view, *refused)
            _write(part, view)
    made.lost.sort(key=lambda one: one.at)
    made.kept_bytes = sum(end - start for start, end in part.stretches)
    return part


def _gaps(part: _Kept, left_out: Sequence[tuple[int, int]]) -> Iterator[LostOffsets]:
    """The offsets that are lost between the kept stretches of a segment.

    ``left_out`` has the offsets of the batches that are left out in any segment of the partition, sorted. Where kept
    batches do not have them, they are lost too, and the stretch is divided. At the end of a log, they are believed only
    if they go on from there.
    """
    bounds, view = part.bounds, part.view()
    bases = {base for base, _ in left_out}
    highest = list(accumulate((last for _, last in left_out), max))
    pieces = _batches(part, view) if left_out else part.stretches
    part.stretches = []
    before: int | None = None
    at = 0
    for start, end in [*pieces, (part.size, part.size)]:
        after = next(headers(view[start:end])).base_offset if start < end else None
        gap = bounds.lost(at, start, before, after)
        first = gap.first or 0
        is_lost = first in bases
        if gap.last is not None:
            number = bisect_left(left_out, (gap.last + 1,))
            is_lost = not gap.is_empty and number > 0 and highest[number - 1] >= first
        if is_divided := start > at or is_lost:
            yield gap
        if start < end:
            part.stretches.append((start if is_divided or not part.stretches else part.stretches.pop()[0], end))
            [(place, _, _)] = deque(frames(view[:end], start), maxlen=1)
            before, at = last_offset(view[place:]), end


def _batches(part: _Kept, view: memoryview) -> list[tuple[int, int]]:
    """Where each kept batch begins and ends."""
    return [(at, at + size) for start, end in part.stretches for at, size, _ in frames(view[:end], start)]


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


def _write(part: _Kept, view: memoryview) -> None:
    with open_whole(part.target) as out:
        for start, end, added in sorted([*((*one, b"") for one in part.stretches), *part.added]):
            piece = memoryview(added) if added else view[start:end]
            for at in range(0, len(piece), STEP_BYTES):
                try:
                    out.write(piece[at : at + STEP_BYTES])
                except OSError:
                    # The system cannot read the pages that a file has lost.
                    require_whole(view)
                    raise
        require_whole(view)


def _refused(copy: Path, low: int, high: int) -> tuple[int, Finding] | None:
    """Where in the copy a broker that loads it would stop, or offsets fall, are there twice or are not those from
    ``low`` on and below ``high``, and why; None if it is sound.
    """
    data = map_regular(copy)
    verdict = records.check(data, role="log")
    if verdict.fatal is not None:
        return verdict.consumed, verdict.fatal
    if verdict.consumed < len(data):
        return verdict.consumed, Finding("", "fatal", verdict.consumed, "", None, "a broker stops here")
    if falls := next((one for one in verdict.findings if one.code == NOT_INCREASING), None):
        return falls.at, falls
    # Offsets rise, so only the first batch can begin too low, and the last one end too high.
    view = memoryview(data)
    for at in (0, *deque((at for at, _, _ in frames(data)), maxlen=1)) if data else ():
        base, last = _span(view[at:])
        if base < low or last >= high:
            return at, Finding(OUTSIDE, "fatal", at, "", None, f"{base} to {last}")
    return None


def _span(batch: memoryview) -> tuple[int, int]:
    """The first and the last offset of a batch, by its header."""
    return OFFSET.unpack_from(batch)[0], last_offset(batch)


def _leave_out(part: _Kept, view: memoryview, at: int, finding: Finding) -> None:
    """Leave out the batch at byte ``at`` of the copy. If its offset is the reason, leave out the fewest batches after
    which offsets rise.
    """
    batches = _batches(part, view)
    sums = list(accumulate(end - start for start, end in batches))
    number = bisect_left(sums, at + 1)
    kept = set(range(len(batches))) - {number}
    spans = [_span(view[start:]) for start, _ in batches]
    low, high = part.limits
    fitting = _fitting([*spans, (high, high)], low) if finding.code in OFFSET_CODES else ()
    is_misfit = finding.code in OFFSET_CODES and len(fitting) < len(batches)
    if is_misfit:
        kept = set(fitting)
        part.left_out += [span for i, span in enumerate(spans) if i not in kept]
    part.stretches.clear()

    def kind(i: int) -> tuple[bool, str, int]:
        # Of places side by side, the end differs from the sum of sizes by the same number of bytes.
        code = NOT_INCREASING if low <= spans[i][0] and spans[i][1] < high else OUTSIDE
        return i in kept, code if is_misfit and i not in kept else "", batches[i][1] - sums[i]

    for (is_kept, code, _), group in groupby(range(len(batches)), kind):
        places = list(group)
        start, end = batches[places[0]][0], batches[places[-1]][1]
        if is_kept:
            part.stretches.append((start, end))
        elif code:
            offsets = f"{spans[places[0]][0]} to {spans[places[-1]][1]}"
            part.made.lost.append(Lost(start, end - start, f"its offsets do not fit: {offsets} [{code}]"))
        else:
            reason = f"a broker that loads it stops: {finding.message} [{finding.code}]"
            part.made.lost.append(Lost(start, end - start, reason))


def _fitting(spans: Sequence[tuple[int, int]], low: int) -> set[int]:
    """The places of the spans of offsets to keep: as many as possible, each of which begins after the end of the last.

    The first one begins at ``low`` or above. The last of ``spans`` is not a batch: it stands for the end of the
    segment. Of two choices with as many spans, this takes the one in which more of them are side by side.
    """
    # The best lists that end at an offset: how many spans they have, how many side by side, and the place of the last.
    best: dict[int, tuple[int, int, int]] = {low - 1: (0, 0, -1)}
    # The ends of lists that are better than all that end earlier.
    ends = [low - 1]
    before: dict[int, int] = {}
    for i, (base, last) in enumerate(spans):
        number = bisect_left(ends, base)
        if not number or last < base:
            continue
        count, joined, before[i] = best[ends[number - 1]]
        if base - 1 in best and best[base - 1][:2] >= (count, joined - 1):
            count, joined, before[i] = best[base - 1]
            joined += 1
        made = count + 1, joined, i
        if last in best and best[last][:2] >= made[:2]:
            continue
        best[last] = made
        at = bisect_left(ends, last)
        if at and best[ends[at - 1]][:2] >= made[:2]:
            continue
        stop = next((k for k in range(at, len(ends)) if best[ends[k]][:2] > made[:2]), len(ends))
        ends[at:stop] = [last]
    found: set[int] = set()
    i = before.get(len(spans) - 1, -1)
    while i >= 0:
        found.add(i)
        i = before[i]
    return found
