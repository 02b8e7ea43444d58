from typing_extensions import Buffer

from kfuzz.logs.index_walk import IndexWalk

class LogFacts(IndexWalk):
    """Facts about a partition's log for :mod:`kfuzz.logs.whole`, segment after segment.

    ``batches``, ``records`` and ``transaction_index`` are those of the segment so far; producers, open transactions and
    leader epochs those of the log. It stops the walk about every ``step_bytes``, so that the caller can act.
    """

    first_offset: int
    """The first offset of the segment; -1 before its first batch."""
    first_last_offset: int
    """The last offset of its first batch."""
    is_cleaned: bool
    """Whether offsets are missing inside a segment: between batches, or in one. The log cleaner leaves such holes."""
    epoch_fell_at: int
    """The base offset of the log's first batch with a lower leader epoch than one before it; -1 if there is none."""
    stops_at_each: bool
    """Whether the walk stops at each batch."""
    fallen_epoch: int
    epoch_before: int
    def __init__(self, step_bytes: int) -> None: ...
    def begin_segment(self, base_offset: int, entries: Buffer = b"") -> None:
        """Begin with the segment that has this offset in its name. All its walks are over parts of one buffer.

        ``entries`` are those of its offset index.
        """

    @property
    def recent(self) -> list[tuple[int, int, int]]:
        """Base offset, last offset and end in bytes of the last batches of the segment, at most three."""

    @property
    def misplaced(self) -> int:
        """The first entry at whose position no batch with its last offset begins, or -1; when the walk is over."""

def first_fall(entries: Buffer, size: int, at: int, width: int, may_repeat: bool) -> int:
    """The number of the first of the ``entries`` whose field is not above that of the one before, or not below it if it
    ``may_repeat``.

    -1 if there is none. Entries have ``size`` bytes; the signed field at byte ``at`` of each has 4 or 8.
    """
