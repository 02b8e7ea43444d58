from kfuzz.wire.walk.policy import Choice

# The results of ``end_marker``: how the control record ends a transaction, or why it does not.
ABORT: int
COMMIT: int
NO_KEY: int
KEY_INVALID: int
TYPE_OTHER: int
NO_VALUE: int
VALUE_VERSION_NEGATIVE: int
VALUE_SHORT: int

def end_marker(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """How a control record ends its producer's transaction (a constant from above), and the coordinator's epoch.

    The epoch is -1 if it ends none. Mirrors ``org.apache.kafka.common.record.EndTransactionMarker.deserialize``, which
    reads higher versions as version 0.
    """

def control_type(key: bytes | None) -> int | None:
    """The type in a control record's key. None if the key is null, too short, or its version is negative.

    Mirrors ``org.apache.kafka.common.record.ControlRecordType.parseTypeId``.
    """

class Decisions(Choice):
    """Follows the transactions of a log by the rules that a broker applies to each batch of its own log.

    It picks no batch, and refuses the first batch that is invalid in a log. Mirrors
    ``org.apache.kafka.storage.internals.log.ProducerStateManager``.
    """

    @property
    def refused(self) -> bool:
        """Whether the last batch was refused."""

    @property
    def aborted_transactions(self) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction, in the order of their markers."""

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or the end of the log if none is open."""

class Aborted:
    """The producers with an aborted transaction that has begun and not ended, while a consumer reads a log.

    ``transactions`` are pairs of producer id and first offset, ordered by first offset. Mirrors
    ``org.apache.kafka.clients.consumer.internals.CompletedFetch.consumeAbortedTransactionsUpTo``.
    """

    def __init__(self, transactions: list[tuple[int, int]]) -> None: ...
    def reach(self, last_offset: int) -> None:
        """Advance to a batch with this last offset. All transactions with a first offset up to it begin."""

    def end(self, producer_id: int) -> None:
        """End the producer's transaction, if it has one."""

    def __contains__(self, producer_id: int) -> bool: ...

class CommittedOnly(Choice):
    """Picks the batches from which a consumer in ``read_committed`` at offset ``position`` gets records.

    It stops before the first batch at or after ``last_stable_offset``. It refuses a control batch whose key cannot be
    read.
    """

    def __init__(self, aborted: Aborted, position: int, last_stable_offset: int | None = None) -> None: ...
    @property
    def index(self) -> int:
        """The index of the last judged batch, counted from 0."""
