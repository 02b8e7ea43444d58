from kfuzz.wire.walk.policy import Policy

class ProduceRules(Policy):
    """The rules of a broker for the Produce request of one partition. ``Scan`` calls them.

    ``now``: the broker's clock (milliseconds). ``timestamp_before_max_ms``, ``timestamp_after_max_ms``: how far before
    or after ``now`` a timestamp may be. Sizes are in bytes. ``create_time``: whether the topic keeps the producer's
    timestamps. ``kept_codec``: the number of the topic's codec, or -1 if it keeps the producer's.

    Mirrors ``org.apache.kafka.common.requests.ProduceRequest.validateRecords`` and
    ``org.apache.kafka.storage.internals.log.LogValidator``.
    """

    def __init__(
        self,
        *,
        now: int,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        max_message_bytes: int,
        max_request_bytes: int,
        max_record_bytes: int,
        compacted: bool,
        create_time: bool,
        kept_codec: int,
    ) -> None: ...
    def keeps_codec(self, codec: int) -> bool:
        """Whether a broker stores a payload of this codec unchanged. It then checks less of the payload."""
