"""The settings and state that a broker has for the partition of a Produce request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from kfuzz.errors import UsageError
from kfuzz.kafka import CODECS, INT32_MAX, INT64_MAX, Codec
from kfuzz.wire.walk.produced import ProduceRules

# The 64-bit integers. In JSON they are decimal strings.
WIDE: Final = ("first_offset", "now", "timestamp_after_max_ms", "timestamp_before_max_ms")


@dataclass(frozen=True, slots=True)
class Topic:
    """The configuration and log state of the partition of a Produce request.

    - ``compression``: the topic's codec, or "producer" to keep the client's.
    - ``timestamp_type``: whether the topic keeps the producer's timestamps or sets its own.
    - ``now``: the broker's clock (milliseconds).
    - ``timestamp_before_max_ms``, ``timestamp_after_max_ms``: how far before or after ``now`` a timestamp may be. The
      default is no limit; Kafka's own default is one hour after.
    - ``compacted``: whether each record needs a key.
    - ``first_offset``: the log end offset, which the first record gets.
    - ``leader_epoch``: the partition leader epoch that the broker writes into the batch.
    - ``max_message_bytes``, ``max_request_bytes``, ``max_record_bytes``: Kafka's ``message.max.bytes``,
      ``socket.request.max.bytes`` and ``max.decompressed.message.bytes``, with Kafka's defaults.

    Mirrors ``org.apache.kafka.storage.internals.log.LogConfig``.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, None, b"v")])])
    >>> records.check(data, role="broker", topic=records.Topic(compacted=True)).fatal.code
    'key-missing'
    """

    compression: Codec | Literal["producer"] = "producer"
    timestamp_type: Literal["create", "log-append"] = "create"
    now: int = 1_700_000_000_000
    compacted: bool = False
    first_offset: int = 0
    leader_epoch: int = 0
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = INT64_MAX
    max_message_bytes: int = 1_048_588
    max_request_bytes: int = 104_857_600
    max_record_bytes: int = INT32_MAX - 8

    def __post_init__(self) -> None:
        if self.compression not in (*CODECS, "producer"):
            raise UsageError(f"compression {self.compression!r} does not exist; take producer or {', '.join(CODECS)}")
        if self.timestamp_type not in ("create", "log-append"):
            raise UsageError(f"timestamp type {self.timestamp_type!r} does not exist; take create or log-append")
        for name in ("now", "first_offset", "leader_epoch", "timestamp_before_max_ms", "timestamp_after_max_ms"):
            if not 0 <= getattr(self, name) <= INT64_MAX:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be 0 or more")
        for name in ("max_message_bytes", "max_request_bytes", "max_record_bytes"):
            if not 0 < getattr(self, name) <= INT32_MAX:
                raise UsageError(f"{name} is {getattr(self, name)}; it must be between 1 and {INT32_MAX}")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Topic:
        """Return the topic of a vector or of the testee protocol (docs/testee-protocol.md).

        A missing field gets its default. Raises ``UsageError`` for an unknown name or a bad value.

        >>> from kfuzz import records
        >>> records.Topic.from_json({"first_offset": "40", "compression": "gzip"}).first_offset
        40
        """
        known = {known.name for known in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise UsageError(f"a topic has no field {unknown[0]}; the fields are {', '.join(sorted(known))}")
        try:
            given: dict[str, Any] = {name: int(item) if name in WIDE else item for name, item in value.items()}
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the topic {dict(value)} does not fit: {error}") from None

    def rules(self) -> ProduceRules:
        """The compiled rules that a broker applies for this topic, for one walk."""
        return ProduceRules(
            now=self.now,
            timestamp_before_max_ms=self.timestamp_before_max_ms,
            timestamp_after_max_ms=self.timestamp_after_max_ms,
            max_message_bytes=self.max_message_bytes,
            max_request_bytes=self.max_request_bytes,
            max_record_bytes=self.max_record_bytes,
            compacted=self.compacted,
            create_time=self.timestamp_type == "create",
            kept_codec=-1 if self.compression == "producer" else CODECS.index(self.compression),
        )


DEFAULT_TOPIC: Final = Topic()
