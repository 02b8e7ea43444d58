"""Kafka's indexes, and the places in a segment where batches begin.

The offset index has an entry for about every 4 KiB of the log. An entry is used only if the log has a batch with that
last offset at that place. So a damaged index makes reading slower, and never wrong. The time index cannot be checked in
this way.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from kfuzz.errors import NotRegular, UsageError
from kfuzz.files import open_regular, read_most
from kfuzz.logs.segments import FRAME, Segment, Whole
from kfuzz.logs.stored import DELTA, INDEXES, last_offset
from kfuzz.wire.io.layout import HEADER_AT, HEADER_UP_TO_MAGIC, MAGIC_AT

OFFSET_ENTRY, TIME_ENTRY, ABORTED_ENTRY = (
    np.dtype([(name, f">i{width}") for name, width in INDEXES[suffix]])
    for suffix in (".index", ".timeindex", ".txnindex")
)
# Kafka's default is 10 MiB.
INDEX_BYTES_MAX: Final = 16 << 20
DELTA_AT: Final = HEADER_AT["last_offset_delta"]


class Starts:
    """Places in a segment where batches begin, from its offset index. ``file`` is the open segment."""

    def __init__(self, segment: Segment, file: BinaryIO) -> None:
        self.file = file
        self._whole = Whole(file, segment.size)
        self.offsets: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.positions: npt.NDArray[np.int64] = np.empty(0, np.int64)
        if segment.base_offset is not None:
            found = entries(segment.path.with_suffix(".index"), OFFSET_ENTRY)
            positions = found["position"].astype(np.int64)
            offsets = found["offset"].astype(np.int64)
            # A broker makes the index of its active segment as large as it may become: zeros follow the entries.
            count = increasing(positions, offsets)
            self.positions = positions[:count]
            self.offsets = offsets[:count] + segment.base_offset

    def before(self, offset: int) -> int:
        """A place before which all offsets are lower than ``offset``; 0 if no entry helps."""
        at = self._nearest(int(np.searchsorted(self.offsets, offset, side="right")) - 1, -1)
        return 0 if at is None else int(self.positions[at])

    def after(self, offset: int) -> int | None:
        """A place from which on all offsets are higher than ``offset``; None if no entry helps."""
        at = self._nearest(int(np.searchsorted(self.offsets, offset, side="left")), 1)
        return None if at is None else self.next(int(self.positions[at]))

    def next(self, position: int, distance: int = 0) -> int | None:
        """The first place after ``position`` and at least ``distance`` from it; None if there is none."""
        at = self._nearest(int(np.searchsorted(self.positions, position + max(distance, 1), side="left")), 1)
        return None if at is None else int(self.positions[at])

    def resume(self, bad: int, size: int, end: int) -> int:
        """Where reading continues after the bad batch at ``bad``, at most at ``end``: see :meth:`Search.after`.

        The search ends at the next batch that the index knows. A ``size`` that leads beyond it is wrong.
        """
        known = self.next(bad)
        end = end if known is None else min(known, end)
        return self._whole.next_place(bad, size if bad + size <= end else 0, end)

    def _nearest(self, at: int, step: int) -> int | None:
        """The first entry from ``at`` on that holds."""
        places = range(at, len(self.positions) if step > 0 else -1, step)
        return next(filter(self._holds, places), None)

    def _holds(self, at: int) -> bool:
        """Whether a batch with the entry's offset as its last begins at the entry's position."""
        # A damaged index may have any number.
        if self.positions[at] < 0:
            return False
        self.file.seek(int(self.positions[at]))
        head = self.file.read(DELTA_AT + DELTA.size)
        if len(head) < DELTA_AT + DELTA.size:
            return False
        _, length = FRAME.unpack_from(head)
        return bool(
            last_offset(head) == self.offsets[at] and length >= HEADER_UP_TO_MAGIC - FRAME.size and head[MAGIC_AT] <= 2
        )


def entries(path: Path, entry: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """The entries of an index file, at most those in its first ``INDEX_BYTES_MAX`` bytes; none without such a file.

    A larger index is used up to there, as one that was written only so far.
    """
    data = b""
    if os.path.lexists(path):
        try:
            with open_regular(path) as file:
                data = read_most(file, INDEX_BYTES_MAX)
        except NotRegular:
            pass
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return np.frombuffer(data, entry, count=len(data) // entry.itemsize)


def increasing(*columns: npt.NDArray[np.int64]) -> int:
    """The number of leading entries that increase in all ``columns``."""
    falls = np.flatnonzero(np.any([np.diff(column) <= 0 for column in columns], axis=0))
    return int(falls[0]) + 1 if len(falls) else len(columns[0])
