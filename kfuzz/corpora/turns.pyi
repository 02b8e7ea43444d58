from kfuzz.corpora.plan import Segment

def opened(segment: Segment) -> dict[int, int]:
    """The first offsets of the transactions that are open at the start of ``segment``, by producer id.

    This repeats how the writers of the segment before it took turns; it takes 1 to 4 % of that segment's time.
    """

class Writers:
    """How the writers of ``segment`` take turns, without the contents of the records."""

    def __init__(self, segment: Segment) -> None: ...
    def open_at_end(self) -> dict[int, int]:
        """The first offsets of the transactions that are open at the segment's end, by producer id. Call it once."""

    def aborted(self) -> list[tuple[int, int, int, int]]:
        """The aborted transactions that end in the segment: producer id, first offset, marker, last stable offset.

        Call this once, and then not ``open_at_end``. Compaction changes nothing of it.
        """
