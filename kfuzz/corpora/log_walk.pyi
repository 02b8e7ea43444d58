from collections.abc import Iterable

from typing_extensions import Buffer

from kfuzz.corpora.plan import Segment
from kfuzz.wire.policy import Policy

class IndexWalk(Policy):
    """The indexes of one segment's log and the state of its producers, as Kafka's recovery rebuilds them
    (``LogSegment.recover``). For ``records.read.reader.check_with``.

    ``base_offset`` is the number in the file's name. ``open_transactions`` are those that are open where the segment
    begins. All is right only if the whole log was read without a fatal finding.
    """

    batches: int
    control_batches: int
    records: int
    next_offset: int
    max_timestamp: int
    def __init__(
        self, base_offset: int, index_interval_bytes: int, open_transactions: Iterable[tuple[int, int]] = ()
    ) -> None: ...
    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each transaction that has no marker, in the order of the ids."""

    @property
    def producers(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """What Kafka knows after this log of each producer that wrote to it: the fields of ``snapshot.Producer``."""

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """Each leader epoch that is higher than those before it, and its first offset."""

    @property
    def offset_index(self) -> bytes: ...
    @property
    def time_index(self) -> bytes:
        """With the entry that ``onBecomeInactiveSegment`` appends."""

    @property
    def transaction_index(self) -> bytes: ...

class LogWalk(IndexWalk):
    """The same, and sums and faults of a segment whose plan is known. ``segment`` says what the plan has: the first
    offset, and the sequences, epochs and transactions of the producers. ``finish`` ends the comparison.
    """

    aborted_records: int
    crc32c: int
    def __init__(self, segment: Segment, index_interval_bytes: int) -> None: ...
    def hostile(self, data: Buffer, at: int, offsets: int) -> None:
        """Pass over a hostile batch at byte ``at`` that takes ``offsets`` offsets. The walk goes on behind it."""

    def finish(self, at: int) -> None:
        """Compare what every producer has written with the plan. ``at`` is the end of the log, in bytes."""

    @property
    def faults(self) -> list[tuple[str, str, int, int, int, int]]:
        """The first 20: code, text to format, byte offset, value found, value planned, producer id."""

    @property
    def min_timestamp(self) -> int | None: ...
    def fingerprint(self) -> str: ...
