from typing_extensions import Buffer

from kfuzz.corpora.plan import Segment
from kfuzz.logs.index_walk import IndexWalk

class LogWalk(IndexWalk):
    """The same, and sums and faults of a segment whose plan is known. ``segment`` says what the plan has: the first
    offset, and the sequences, epochs and transactions of the producers. ``finish`` ends the comparison.
    """

    aborted_records: int
    crc32c: int
    def __init__(self, segment: Segment, index_interval_bytes: int) -> None: ...
    def hostile(self, data: Buffer, at: int, offsets: int) -> None:
        """Pass over a hostile batch at byte ``at`` that takes ``offsets`` offsets. The walk continues after it."""

    def finish(self, at: int) -> None:
        """Compare what every producer has written with the plan. ``at`` is the end of the log, in bytes."""

    @property
    def faults(self) -> list[tuple[str, str, int, int, int, int]]:
        """The first 20: code, text to format, byte offset, value found, value planned, producer id."""

    @property
    def min_timestamp(self) -> int | None: ...
    def fingerprint(self) -> str: ...
