"""Does the work of Kafka's log cleaner: keeps the records that a predicate selects and rewrites their batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final, Literal, get_args

from kfuzz.errors import EncodeError, UsageError
from kfuzz.java import wrap64
from kfuzz.kafka import NO_TIMESTAMP
from kfuzz.records.builder import Rebuilt, empty_batch, frames, rebuild
from kfuzz.records.model import Reading, Record, RecordBatch
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.wire.walk.record_list import survey

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DELETE_RETENTION_MS", "BatchRetention", "Compacted", "LegacyRewrite", "compact"]

BatchRetention = Literal["delete", "retain-empty", "delete-empty"]
LegacyRewrite = Literal["upgrade", "keep"]
RETENTIONS: Final = get_args(BatchRetention)

# Default of delete.retention.ms: how long tombstones and markers stay after the first pass sets their delete horizon.
DELETE_RETENTION_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Compacted:
    """The output of one pass, and its counters.

    - ``data``: the retained batches.
    - ``bytes_read``: how many bytes of the input the pass read. It leaves whole batches unread only if
      ``buffer_bytes`` ended the pass.
    - ``records_read``, ``records_retained``: how many records the pass looked at, and how many it kept.
    - ``max_offset``: the largest retained offset, or -1.
    - ``max_timestamp``: milliseconds, or -1.
    - ``offset_of_max_timestamp``: the last offset of the batch that has ``max_timestamp``, or -1.

    Mirrors ``org.apache.kafka.common.record.MemoryRecords.FilterResult``.
    """

    data: bytes
    bytes_read: int
    records_read: int
    records_retained: int
    max_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int


def compact(
    data: Buffer,
    retain: Callable[[RecordBatch, Record], bool],
    *,
    now_ms: int,
    delete_retention_ms: int = DELETE_RETENTION_MS,
    batch_retention: Callable[[RecordBatch], BatchRetention] = lambda batch: "delete-empty",
    marks_empty_transaction: Callable[[RecordBatch], bool] = lambda batch: False,
    legacy: LegacyRewrite = "upgrade",
    buffer_bytes: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Compacted:
    """Run one pass of the log cleaner over ``data``. It keeps the records for which ``retain(batch, record)`` is true.

    ``batch_retention`` is called first, with the batch. It returns one of three words:

    - "delete": drop the batch without looking at its records.
    - "retain-empty": if no record remains, keep the header, so that the producer's last sequence survives.
    - "delete-empty": if no record remains, drop the batch.

    A batch that loses no record is copied byte for byte, unless it needs a delete horizon. It needs one if it has none
    yet and either keeps a tombstone or ``marks_empty_transaction`` is true for it. The delete horizon is
    ``now_ms + delete_retention_ms`` and replaces the base timestamp. Rewritten batches of magic 2 keep their first and
    last offset, and so their last sequence.

    With ``legacy="upgrade"``, batches of magic 0 and 1 become magic 2, as in Kafka 4. With ``"keep"`` they keep their
    magic, as in Kafka 3. If ``buffer_bytes`` is given, the pass stops after the batch that makes the output larger
    than this, as the cleaner's buffer does. Continue at ``bytes_read``. Only one batch is in memory at a time. A
    partial tail is dropped.

    Raises ``RecordsError`` if a consumer refuses the bytes, and ``EncodeError`` if Kafka can read a batch but not write
    it again. Mirrors ``org.apache.kafka.common.record.MemoryRecords.filterTo``.

    >>> from kfuzz import records
    >>> from kfuzz.records.compaction import compact
    >>> batch = records.RecordBatch(3, 4, [records.Record(3, 1, b"a", b"old"), records.Record(4, 1, b"a", b"new")])
    >>> out = compact(records.encode([batch]), lambda batch, record: record.value == b"new", now_ms=0)
    >>> [(kept.base_offset, kept.last_offset, len(kept.records)) for kept in records.decode(out.data)]
    [(3, 4, 1)]
    """
    if legacy not in get_args(LegacyRewrite):
        raise UsageError(f"legacy is {legacy!r}; take one of {', '.join(get_args(LegacyRewrite))}")
    if buffer_bytes is not None and buffer_bytes < 0:
        raise UsageError(f"buffer_bytes is {buffer_bytes}; it must be 0 or more, or None for no bound")
    tally = _Tally()
    horizon = wrap64(now_ms + delete_retention_ms)
    for reading, raw in frames(data, limits=limits):
        batch = reading.batches[0]
        tally.bytes_read += len(raw)
        retention = batch_retention(batch)
        if retention not in RETENTIONS:
            raise UsageError(f"a batch's retention is {retention!r}; take one of {', '.join(RETENTIONS)}")
        if retention == "delete":
            continue
        tally.records_read += len(batch.records)
        retained = [record for record in batch.records if retain(batch, record)]
        if retained:
            found = survey(retained)
            stamps = marks_empty_transaction(batch) or found.tombstones > 0
            _retain(tally, reading, raw, retained, found.largest_offset, horizon if stamps else None, legacy)
        elif retention == "retain-empty":
            kept = NO_TIMESTAMP if batch.max_timestamp is None else batch.max_timestamp
            tally.add(Rebuilt(empty_batch(batch), kept, batch.last_offset), batch.last_offset, 0)
        if buffer_bytes is not None and tally.size > buffer_bytes:
            break
    return tally.result()


@dataclass(slots=True)
class _Tally:
    # Its memory becomes that of the result. A list of pieces would need as much memory again.
    made: BytesIO = field(default_factory=BytesIO)
    size: int = 0
    bytes_read: int = 0
    records_read: int = 0
    records_retained: int = 0
    max_offset: int = -1
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1

    def add(self, made: Rebuilt, max_offset: int, records: int) -> None:
        if made.max_timestamp != NO_TIMESTAMP and made.offset_of_max_timestamp < 0:
            raise EncodeError(
                f"the offset of max timestamp {made.max_timestamp} is {made.offset_of_max_timestamp}; "
                "the cleaner needs 0 or more"
            )
        if max_offset < 0:
            raise EncodeError(f"the largest retained offset is {max_offset}; the cleaner needs 0 or more")
        if made.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = made.max_timestamp, made.offset_of_max_timestamp
        self.max_offset = max(self.max_offset, max_offset)
        self.records_retained += records
        self.size += self.made.write(made.data)

    def result(self) -> Compacted:
        return Compacted(
            self.made.getvalue(),
            self.bytes_read,
            self.records_read,
            self.records_retained,
            self.max_offset,
            self.max_timestamp,
            self.offset_of_max_timestamp,
        )


def _retain(
    tally: _Tally,
    reading: Reading,
    raw: memoryview,
    retained: list[Record],
    largest_offset: int,
    new_horizon: int | None,
    legacy: LegacyRewrite,
) -> None:
    """Copy the batch if nothing changes. Otherwise build it again from the retained records."""
    batch = reading.batches[0]
    magic = batch.magic if legacy == "keep" else 2
    if magic < 2 or batch.delete_horizon is not None:
        new_horizon = None
    # KAFKA-4298: if a wrapper holds messages of another magic, Kafka repairs that by rewriting it.
    mixed = any(finding.code == "inner-magic-mismatch" for finding in reading.findings)
    if len(retained) == len(batch.records) and batch.magic == magic and new_horizon is None and not mixed:
        kept = NO_TIMESTAMP if batch.max_timestamp is None else batch.max_timestamp
        tally.add(Rebuilt(bytes(raw), kept, batch.last_offset), batch.last_offset, len(retained))
        return
    made = rebuild(
        retained,
        magic=magic,
        base_offset=batch.base_offset if batch.magic == 2 else retained[0].offset,
        compression=batch.compression,
        timestamp_type="create" if batch.timestamp_type == "none" and magic == 2 else batch.timestamp_type,
        log_append_time=batch.max_timestamp
        if batch.timestamp_type == "log-append" and batch.max_timestamp is not None
        else NO_TIMESTAMP,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
        transactional=batch.transactional,
        control=batch.control,
        partition_leader_epoch=batch.partition_leader_epoch,
        delete_horizon=batch.delete_horizon if new_horizon is None else new_horizon,
        # The last sequence is computed from the last offset. Keeping the offset keeps the sequence.
        last_offset=batch.last_offset if batch.magic == 2 else None,
    )
    tally.add(made, largest_offset, len(retained))
