"""Divides segments into slices: what a selection asks for, in parts of a given size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final, Literal, get_args

import numpy as np

from kfuzz import kafka
from kfuzz.errors import UsageError
from kfuzz.logs.indexes import TIME_ENTRY, Starts, entries, increasing
from kfuzz.logs.segments import EVERYTHING, Segment, Selection, Slice
from kfuzz.logs.transactions import last_stable_offset

# The whole log, or the part that a consumer sees.
Isolation = Literal["log"] | kafka.Isolation
ISOLATIONS: Final[tuple[Isolation, ...]] = ("log", *get_args(kafka.Isolation))


def require_isolation(isolation: str) -> None:
    """``UsageError`` unless this isolation exists."""
    if isolation not in ISOLATIONS:
        raise UsageError(f"isolation {isolation!r} does not exist; take one of {', '.join(ISOLATIONS)}")


def slices(
    segments: Sequence[Segment],
    selection: Selection = EVERYTHING,
    *,
    slice_bytes: int | None = None,
    isolation: Isolation = "log",
    cuts: bool = True,
) -> Iterator[Slice]:
    """The slices that hold the records of ``selection``, in order; they may hold others too.

    With ``slice_bytes``, a slice ends at the first index entry after so many bytes. Without ``cuts``, each segment that
    may have such records is one slice, and is not opened. In ``read_committed``, the slices of a partition end at its
    last stable offset. ``UsageError`` if a file cannot be read, and for an unknown isolation.
    """
    require_isolation(isolation)
    for _, group in groupby(segments, lambda segment: segment.path.parent):
        partition = list(group)
        stable = last_stable_offset(partition[0]) if isolation == "read_committed" else None
        for segment in partition:
            yield from _of_segment(segment, selection.below(stable), slice_bytes, stable, cuts=cuts)


def _of_segment(
    segment: Segment, selection: Selection, slice_bytes: int | None, stable: int | None, *, cuts: bool
) -> Iterator[Slice]:
    if not segment.size or not _overlaps(segment, selection):
        return
    is_small = slice_bytes is None or segment.size <= slice_bytes
    if not cuts or (selection == EVERYTHING and is_small):
        yield Slice(segment, 0, segment.size, stable)
        return
    with segment.open() as file:
        starts = Starts(segment, file)
        start, end = _bounds(segment, starts, selection)
        while start < end:
            cut = starts.next(start, slice_bytes) if slice_bytes is not None else None
            upto = end if cut is None else min(cut, end)
            yield Slice(segment, start, upto, stable)
            start = upto


def _overlaps(segment: Segment, selection: Selection) -> bool:
    """Whether the segment may hold selected offsets, by the names of the files."""
    first, last = selection.first_offset, selection.last_offset
    if first is not None and last is not None and first > last:
        return False
    if first is not None and segment.next_offset is not None and segment.next_offset <= first:
        return False
    return last is None or segment.base_offset is None or segment.base_offset <= last


def _bounds(segment: Segment, starts: Starts, selection: Selection) -> tuple[int, int]:
    start, end = 0, segment.size
    if selection.first_offset is not None:
        start = starts.before(selection.first_offset)
    if selection.min_timestamp is not None:
        offset = _offset_before(segment, selection.min_timestamp)
        start = max(start, starts.before(offset)) if offset is not None else start
    if selection.last_offset is not None:
        after = starts.after(selection.last_offset)
        end = end if after is None else after
    return start, end


def _offset_before(segment: Segment, timestamp: int) -> int | None:
    """An offset below which no record is as late as ``timestamp``, by the time index; None if it does not say."""
    if segment.base_offset is None:
        return None
    found = entries(segment.path.with_suffix(".timeindex"), TIME_ENTRY)
    timestamps, offsets = found["timestamp"].astype(np.int64), found["offset"].astype(np.int64)
    count = increasing(timestamps)
    at = int(np.searchsorted(timestamps[:count], timestamp, side="left")) - 1
    return segment.base_offset + int(offsets[at]) if at >= 0 else None
