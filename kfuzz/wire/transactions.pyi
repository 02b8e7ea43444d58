from kfuzz.wire.policy import Choice

# What ``end_marker`` says of a control record: how it ends its producer's transaction, or why it ends none.
ABORT: int
COMMIT: int
NO_KEY: int
KEY_INVALID: int
TYPE_OTHER: int
NO_VALUE: int
VALUE_VERSION_NEGATIVE: int
VALUE_SHORT: int

def end_marker(key: bytes | None, value: bytes | None) -> tuple[int, int]:
    """What a control record says of its producer's transaction, and the coordinator's epoch where it ends one.

    Mirrors ``org.apache.kafka.common.record.EndTransactionMarker.deserialize``: higher versions are read as version 0.
    """

def control_type(key: bytes | None) -> int | None:
    """The type in a control record's key; None where the key is null, too short or of a version below 0.

    Mirrors ``org.apache.kafka.common.record.ControlRecordType.parseTypeId``.
    """

class Decisions(Choice):
    """What the markers of a log decide, by the rules that a broker holds to each batch of its own log.

    It picks no batch, and refuses the first one that cannot stand in a log. Mirrors
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
        """Where the oldest open transaction begins, or the end of the log."""

class Aborted:
    """The producers whose aborted transaction has begun and not ended, as a consumer goes through a log.

    ``transactions`` are pairs of producer and first offset, in the order of first offsets. Mirrors
    ``org.apache.kafka.clients.consumer.internals.CompletedFetch.consumeAbortedTransactionsUpTo``.
    """

    def __init__(self, transactions: list[tuple[int, int]]) -> None: ...
    def reach(self, last_offset: int) -> None:
        """Go on to a batch with this last offset: the transactions up to there begin."""

    def end(self, producer_id: int) -> None:
        """The producer's transaction ends, if it has one."""

    def __contains__(self, producer_id: int) -> bool: ...

class CommittedOnly(Choice):
    """Picks the batches of which a consumer in ``read_committed`` at offset ``position`` sees records.

    It ends before the first batch from ``last_stable_offset`` on, and refuses a control batch whose key cannot be read.
    """

    def __init__(self, aborted: Aborted, position: int, last_stable_offset: int | None = None) -> None: ...
    @property
    def index(self) -> int:
        """The number of the last batch that it was asked about, from 0 on."""
