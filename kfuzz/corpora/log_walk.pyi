from typing import Final

from kfuzz.corpora.plan import Segment
from kfuzz.wire.policy import Policy

# What a fault is about: a base offset, a base sequence, a producer that the plan lacks, or the marker of a transaction
# that did not begin.
OFFSET: Final[int]
SEQUENCE: Final[int]
PRODUCER: Final[int]
TRANSACTION: Final[int]

class LogWalk(Policy):
    """Sums, indexes and faults of one segment's log, for ``records.read.reader.check_with``.

    The indexes are those that Kafka's recovery rebuilds (``LogSegment.recover``). All is right only if the whole log
    was read without a finding. ``segment`` says what the plan has: the first offset and the producers' sequences.
    """

    batches: int
    control_batches: int
    records: int
    next_offset: int
    max_timestamp: int
    crc32c: int
    def __init__(self, segment: Segment, index_interval_bytes: int) -> None: ...
    @property
    def faults(self) -> list[tuple[int, int, int, int, int]]:
        """The first 20: what it is about, the byte offset, the value found, the value planned, the producer id."""

    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each transaction that has no marker, in the order of the ids."""

    @property
    def producers(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """What Kafka knows after this log of each producer that wrote to it: the fields of ``snapshot.Producer``."""

    @property
    def min_timestamp(self) -> int | None: ...
    @property
    def offset_index(self) -> bytes: ...
    @property
    def time_index(self) -> bytes:
        """With the entry that ``onBecomeInactiveSegment`` appends."""

    @property
    def transaction_index(self) -> bytes: ...
    def fingerprint(self) -> str: ...
