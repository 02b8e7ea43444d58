from kfuzz.wire.policy import Policy

class SegmentRules(Policy):
    """What a broker asks of a log segment that it reads as it starts after a crash; ``Scan`` puts the questions.

    The segment begins at its first batch's offset. ``index_interval_bytes``: how far entries of its index lie apart.

    Mirrors ``org.apache.kafka.storage.internals.log.LogSegment.recover``, ``ProducerStateManager`` as recovery drives
    it, and then what a broker asks of the log: where it ends (``LogSegment.readNextOffset``) and where it starts
    (``LogSegment.read``).
    """

    def __init__(self, index_interval_bytes: int) -> None: ...
    @property
    def wants_start(self) -> bool:
        """Whether a broker opens the wrapper that the scan stopped at, to see where it begins."""

    def starts_at(self, offset: int | None) -> None:
        """The answer: the offset of the wrapper's first message, or None where it cannot be told."""
