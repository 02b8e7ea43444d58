from kfuzz.wire.walk.policy import Policy

class SegmentRules(Policy):
    """The rules of a broker that reads a log segment when it starts after a crash. ``Scan`` calls them.

    ``also`` is asked about each batch that the rules accept; the scan stops where it returns False.

    The offset of the first batch counts as the segment's base offset. ``index_interval_bytes``: the distance between
    index entries, in bytes.

    Mirrors ``org.apache.kafka.storage.internals.log.LogSegment.recover`` with its calls to ``ProducerStateManager``.
    Then it mirrors how a broker finds the end of the log (``LogSegment.readNextOffset``) and its start
    (``LogSegment.read``).
    """

    def __init__(self, index_interval_bytes: int, also: Policy | None = None) -> None: ...
    @property
    def wants_start(self) -> bool:
        """Whether a broker opens the wrapper at which the scan stopped, to find its first offset."""

    def starts_at(self, offset: int | None) -> None:
        """Give the offset of that wrapper's first message, or None if it is unknown."""
