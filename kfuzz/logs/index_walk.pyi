from collections.abc import Iterable

from kfuzz.wire.walk.policy import Policy

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
    # Where the stretch of the log begins that is read next, in bytes.
    from_at: int
    max_timestamp: int
    def __init__(
        self, base_offset: int, index_interval_bytes: int, open_transactions: Iterable[tuple[int, int]] = ()
    ) -> None: ...
    @property
    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each transaction that has no marker, in the order of the ids."""

    @property
    def producers(self) -> list[tuple[int, int, int, int, int, int, int, int]]:
        """Kafka's state, after this log, of each producer that wrote to it: the fields of ``snapshot.Producer``."""

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
