"""The values that readers return and writers take."""

from __future__ import annotations

from dataclasses import dataclass, field

from kfuzz.java import wrap64
from kfuzz.kafka import Codec, TimestampType
from kfuzz.wire.record import Record

__all__ = ["Header", "Record", "RecordBatch"]

Header = tuple[bytes, bytes | None]


@dataclass(slots=True)
class RecordBatch:
    """A record batch of magic 2, or a message of magic 0 or 1 (a wrapper, where ``compression`` is not "none").

    ``base_timestamp`` and ``max_timestamp`` (milliseconds) may be None for a writer, which then takes them from the
    records.
    ``delete_horizon`` (milliseconds) stands in for the base timestamp, as in the format. For magic 0 and 1 the
    producer's
    fields are -1 and ``base_offset`` is the first record's. ``unreadable``: the batch stands in a log, or would, though
    no consumer can read its records; it has none here.

    Mirrors ``org.apache.kafka.common.record.RecordBatch``.
    """

    base_offset: int
    last_offset: int
    records: list[Record] = field(default_factory=list)
    magic: int = 2
    compression: Codec = "none"
    timestamp_type: TimestampType = "create"
    transactional: bool = False
    control: bool = False
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    partition_leader_epoch: int = -1
    delete_horizon: int | None = None
    base_timestamp: int | None = None
    max_timestamp: int | None = None
    unreadable: bool = False

    @property
    def next_offset(self) -> int:
        """The offset after the batch's last one, whether or not a record has that one."""
        return wrap64(self.last_offset + 1)
