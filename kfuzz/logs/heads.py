"""The headers of many batches at once, as numbers for numpy: an entry for each batch, of any magic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kfuzz.wire.io.layout import (
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    CONTROL,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    MESSAGE_AT,
    TRANSACTIONAL,
)

WIDTHS: Final = {1: ">i1", 2: ">i2", 4: ">i4", 8: ">i8"}
HEADER: Final = np.dtype(
    {
        "names": [name for name, _, _ in HEADER_LAYOUT],
        "formats": [WIDTHS[width] for _, _, width in HEADER_LAYOUT],
        "offsets": [at for _, at, _ in HEADER_LAYOUT],
        "itemsize": BATCH_HEADER_SIZE,
    }
)
MESSAGE: Final = np.dtype(
    {
        "names": ["offset", "attributes", "timestamp"],
        "formats": [">i8", "u1", ">i8"],
        "offsets": [0, MESSAGE_AT[1]["attributes"], MESSAGE_AT[1]["timestamp"]],
        # A message of magic 0 has no timestamp, but it is long enough to read these bytes.
        "itemsize": MESSAGE_AT[1]["timestamp"] + 8,
    }
)
MAGIC_BYTE: Final = MESSAGE_AT[1]["magic"]
FLAGS: Final = {"transactional": TRANSACTIONAL, "control": CONTROL}


class BatchHeads:
    """The headers of the batches that begin at ``places`` in ``view``, which begins at byte ``at`` of its segment.

    A batch of magic 0 or 1 is a message. A wrapper is one too: its offset is that of its last record.
    """

    def __init__(self, view: memoryview, places: Sequence[int] | npt.NDArray[np.int64], at: int) -> None:
        self.places = np.asarray(places, np.int64)
        self.at = at
        self.magic = np.frombuffer(view, np.uint8)[self.places + MAGIC_BYTE]
        self.is_new = self.magic == 2
        self.is_mixed = not self.is_new.all()
        self.new = _parts(view, self.places[self.is_new] if self.is_mixed else self.places, HEADER)
        self.old = _parts(view, self.places[~self.is_new] if self.is_mixed else self.places[:0], MESSAGE)

    def values(self, name: str, kind: Any) -> npt.NDArray[Any]:
        """A field of each batch: one of the header's own, or one that follows from the header."""
        if name == "position":
            return self.places + self.at
        if name == "magic":
            return self.magic.astype(kind)
        new = self._of_new(name)
        if not self.is_mixed:
            return np.asarray(new, kind)
        values = np.empty(len(self.places), kind)
        values[self.is_new] = new
        values[~self.is_new] = self._of_old(name)
        return values

    def _of_new(self, name: str) -> Any:
        if name in FLAGS:
            return (self.new["attributes"] & FLAGS[name]) != 0
        if name == "timestamp_type":
            return (self.new["attributes"] & LOG_APPEND_TIME) != 0
        if name == "codec":
            return self.new["attributes"] & CODEC_MASK
        if name == "last_offset":
            return self.new["base_offset"] + self.new["last_offset_delta"].astype(np.int64)
        return self.new[{"leader_epoch": "partition_leader_epoch"}.get(name, name)]

    def _of_old(self, name: str) -> Any:
        if name in (*FLAGS, "attributes"):
            return 0
        has_timestamp = self.magic[~self.is_new] == 1
        if name == "timestamp_type":
            return np.where(has_timestamp, (self.old["attributes"] & LOG_APPEND_TIME) != 0, -1)
        if name == "max_timestamp":
            return np.where(has_timestamp, self.old["timestamp"], -1)
        if name == "codec":
            return self.old["attributes"] & CODEC_MASK
        if name in ("base_offset", "last_offset"):
            return self.old["offset"]
        return -1


def _parts(view: memoryview, places: npt.NDArray[np.int64], kind: np.dtype[np.void]) -> npt.NDArray[np.void]:
    if not len(places):
        return np.empty(0, kind)
    # A header at each byte of the buffer; only those at the batches' places are copied, and turned into native numbers.
    everywhere = np.ndarray((len(view) - kind.itemsize + 1,), kind, view, strides=(1,))
    return everywhere[places].astype(kind.newbyteorder("="))
