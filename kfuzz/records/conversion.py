"""Convert batches from one magic to another, and report what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from kfuzz.errors import EncodeError, UsageError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, NO_TIMESTAMP, Codec, TimestampType, codecs_of
from kfuzz.records.builder import frames, rebuild
from kfuzz.records.model import Record, RecordBatch
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.reader import decode
from kfuzz.records.writer import encode_batch
from kfuzz.wire.walk.record_list import Survey, renumbered, survey

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["LOSSES", "Converted", "Loss", "LossKind", "convert", "convert_appended"]

LossKind = Literal[
    "control-batch",
    "empty-batch",
    "records-before-first-offset",
    "headers",
    "producer-state",
    "transactional",
    "partition-leader-epoch",
    "delete-horizon",
    "timestamps",
    "timestamp-type",
    "max-timestamp",
    "offset-range",
    "offsets",
    "batch-bounds",
    "record-attributes",
    "partial-tail",
]

# The meaning of each kind of loss; formatted with ``count``.
LOSSES: Final[dict[LossKind, str]] = {
    "control-batch": "the control batch and its {count} records are dropped",
    "empty-batch": "the batch has no records; its offsets and sequence are dropped",
    "records-before-first-offset": "{count} records lie before the requested first offset and are dropped",
    "headers": "{count} headers are dropped",
    "producer-state": "producer id, producer epoch and base sequence are dropped",
    "transactional": "the records are no longer marked as transactional",
    "partition-leader-epoch": "the partition leader epoch is dropped",
    "delete-horizon": "the delete horizon is dropped",
    "timestamps": "the timestamps of {count} records are dropped",
    "timestamp-type": "the timestamp type log-append is dropped",
    "max-timestamp": "the max timestamp becomes that of the records",
    "offset-range": "the batch's first and last offset become those of its records",
    "offsets": "{count} records lose their offsets",
    "batch-bounds": "the number of batches changes from {count}",
    "record-attributes": "the attributes of {count} records are dropped",
    "partial-tail": "{count} bytes at the end are not a whole batch and are dropped",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the new format cannot hold: its ``kind``, the index of the input batch, and how many cases."""

    kind: LossKind
    batch: int
    count: int = 1

    def __str__(self) -> str:
        return f"batch[{self.batch}]: {LOSSES[self.kind].format(count=self.count)} [{self.kind}]"


@dataclass(frozen=True, slots=True)
class Converted:
    """The new bytes, and what was lost, in the order of the batches."""

    data: bytes
    losses: tuple[Loss, ...]
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False)

    @property
    def batches(self) -> list[RecordBatch]:
        """The batches in ``data``. Each access reads them again."""
        return decode(self.data, limits=self.limits)


class _Source(NamedTuple):
    """A batch and its original bytes. For a partial tail, ``batch`` is None.

    ``mixed``: the wrapper holds messages of another magic than its own.
    """

    batch: RecordBatch | None
    raw: bytes | memoryview
    mixed: bool = False


def convert(
    source: Buffer | Iterable[RecordBatch],
    magic: int,
    *,
    compression: Codec | None = None,
    first_offset: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Converted:
    """Convert the batches of ``source`` (bytes or ``RecordBatch`` objects) to ``magic``. Offsets and timestamps stay.

    Down to magic 0 or 1:

    - Batches of a higher magic are rewritten. The others are copied byte for byte.
    - Control batches are dropped.
    - With ``first_offset``, earlier records of uncompressed batches are dropped. Each record becomes a message of its
      own, so a client would otherwise see offsets that it did not ask for.
    - Kafka refuses batches with zstd, so give another ``compression`` for them.

    Up to magic 2: each message of magic 0 or 1 becomes a batch. So does each wrapper.

    A converted batch keeps its codec unless ``compression`` names another.

    Raises ``RecordsError`` if a consumer refuses the bytes, and ``EncodeError`` if Kafka refuses to write them in the
    new format. Mirrors ``org.apache.kafka.common.record.RecordsUtil.downConvert`` of Kafka 3. Conversion up mirrors the
    log cleaner of Kafka 4 (``MemoryRecords.filterTo``), except that no delete horizons are set.

    >>> from kfuzz import records
    >>> from kfuzz.records.conversion import convert
    >>> batch = records.RecordBatch(3, 3, [records.Record(3, 1, None, b"v", ((b"h", b"x"),))], producer_id=7,
    ...                             producer_epoch=0, base_sequence=0)
    >>> [loss.kind for loss in convert([batch], 1).losses]
    ['headers', 'producer-state']
    """
    _require(magic, compression)
    # Its memory becomes that of the result. A list of pieces would need as much memory again.
    made = BytesIO()
    losses: list[Loss] = []
    for i, (batch, raw, _) in enumerate(_sources(source, limits)):
        if batch is None:
            losses.append(Loss("partial-tail", i, len(raw)))
            continue
        if magic < 2 and batch.control:
            losses.append(Loss("control-batch", i, len(batch.records)))
            continue
        codec = compression or batch.compression
        if codec not in codecs_of(magic):
            raise EncodeError(
                f"batch[{i}] is compressed with {codec}, which magic {magic} does not know; give another codec"
            )
        if batch.magic == magic or (batch.magic < magic < 2):
            made.write(raw)
            continue
        records = batch.records
        if magic < 2 and batch.compression == "none" and first_offset is not None:
            records = [record for record in records if record.offset >= first_offset]
        losses += _lost(batch, records, i, magic, codec)
        if records:
            made.write(_converted(batch, records, magic, codec))
    return Converted(made.getvalue(), tuple(losses), limits)


def convert_appended(
    source: Buffer | Iterable[RecordBatch],
    magic: int,
    *,
    base_offset: int,
    compression: Codec = "none",
    timestamp_type: TimestampType = "create",
    log_append_time: int = NO_TIMESTAMP,
    partition_leader_epoch: int = -1,
    limits: Limits = DEFAULT_LIMITS,
) -> Converted:
    """Convert a Produce request to the topic's format, as a Kafka 3 broker did: all records go into one batch.

    - Offsets count up from ``base_offset``.
    - ``compression``, ``timestamp_type`` and ``partition_leader_epoch`` are the topic's.
    - The producer fields come from the first batch.
    - ``log_append_time`` (milliseconds) is the max timestamp if ``timestamp_type`` is "log-append".

    Raises ``EncodeError`` if the broker refuses the request. Mirrors
    ``LogValidator.convertAndAssignOffsetsNonCompressed`` and ``buildRecordsAndAssignOffsets`` of Kafka 3, without the
    checks that also apply when nothing is converted.

    >>> from kfuzz import records
    >>> from kfuzz.records.conversion import convert_appended
    >>> old = records.RecordBatch(9, 9, [records.Record(9, 1, None, b"v")], magic=1)
    >>> convert_appended([old, old], 2, base_offset=50).batches[0].last_offset
    51
    """
    _require(magic, compression)
    batches: list[RecordBatch] = []
    losses: list[Loss] = []
    for i, (batch, raw, mixed) in enumerate(_sources(source, limits)):
        if batch is None:
            losses.append(Loss("partial-tail", i, len(raw)))
            continue
        if mixed:
            raise EncodeError(f"batch[{i}] holds messages of another magic than its own")
        batches.append(batch)
        _require_appendable(batches, i, magic, timestamp_type)
    if not batches:
        raise EncodeError("there is no batch to append")
    first = batches[0]
    records = [record for batch in batches for record in batch.records]
    stamped = renumbered(records, wrap64(base_offset), keep_attributes=True)
    made = rebuild(
        stamped,
        magic=magic,
        base_offset=base_offset,
        compression=compression,
        timestamp_type="none" if magic == 0 else timestamp_type,
        log_append_time=log_append_time,
        producer_id=first.producer_id,
        producer_epoch=first.producer_epoch,
        base_sequence=first.base_sequence,
        transactional=first.transactional,
        partition_leader_epoch=partition_leader_epoch,
    )
    moved = sum(old.offset != new.offset for old, new in zip(records, stamped, strict=True))
    if moved:
        losses.append(Loss("offsets", 0, moved))
    if len(batches) != 1:
        losses.append(Loss("batch-bounds", 0, len(batches)))
    for i, batch in enumerate(batches):
        losses += _lost_by_records(batch, survey(batch.records), i, magic)
    return Converted(made.data, tuple(losses), limits)


# ------------------------------------------------------------------------------------------------- requests


def _require(magic: int, compression: Codec | None) -> None:
    if magic not in (0, 1, 2):
        raise UsageError(f"magic {magic} does not exist; take 0, 1 or 2")
    if compression is not None and compression not in CODECS:
        raise UsageError(f"compression {compression!r} does not exist; take one of {', '.join(CODECS)}")
    if compression is not None and compression not in codecs_of(magic):
        known = ", ".join(codecs_of(magic))
        raise UsageError(f"compression {compression} does not exist in magic {magic}; take one of {known}")


def _require_appendable(batches: list[RecordBatch], i: int, magic: int, timestamp_type: TimestampType) -> None:
    """Check the last of ``batches`` (``batch[i]``) as the broker does; ``LogValidator.validateBatch`` and more."""
    first, batch = batches[0], batches[-1]
    if batch.magic != first.magic:
        raise EncodeError(f"batch[{i}] has magic {batch.magic}, the first batch {first.magic}; they must be the same")
    if i > 0 and (batch.magic == 2 or first.compression != "none" or batch.compression != "none"):
        raise EncodeError("there are several batches; if they are compressed or of magic 2, only one is allowed")
    if batch.control:
        raise EncodeError(f"batch[{i}] is a control batch; clients may not append control batches")
    span = wrap64(batch.last_offset - batch.base_offset + 1)
    if batch.magic == 2 and (span <= 0 or span != len(batch.records)):
        raise EncodeError(
            f"batch[{i}] has {len(batch.records)} records from offset {batch.base_offset} to {batch.last_offset}; "
            f"a producer's batch has one record for each offset"
        )
    if batch.producer_id != -1 and batch.base_sequence < 0:
        raise EncodeError(f"batch[{i}] has base sequence {batch.base_sequence}; it must be 0 or more")
    if magic < 2 and (batch.transactional or batch.producer_id != -1):
        raise EncodeError(f"batch[{i}] has a producer id; magic {magic} cannot carry it")
    # Kafka accepts this type only if the topic's type is create and each record has a timestamp.
    unstamped = any(record.timestamp in (None, NO_TIMESTAMP) for record in batch.records)
    if batch.timestamp_type == "log-append" and (timestamp_type != "create" or unstamped):
        raise EncodeError(f"batch[{i}] has timestamps of type log-append; a producer may not set this type")


def _sources(source: Buffer | Iterable[RecordBatch], limits: Limits) -> Iterator[_Source]:
    try:
        view = memoryview(cast("Buffer", source)).cast("B")
    except TypeError:
        for batch in cast("Iterable[RecordBatch]", source):
            yield _Source(batch, encode_batch(batch))
        return
    end = 0
    for reading, raw in frames(view, limits=limits):
        mixed = any(finding.code == "inner-magic-mismatch" for finding in reading.findings)
        yield _Source(reading.batches[0], raw, mixed)
        end += len(raw)
    if end < len(view):
        yield _Source(None, view[end:])


# ------------------------------------------------------------------------------------------------- one batch


def _converted(batch: RecordBatch, records: list[Record], magic: int, codec: Codec) -> bytes:
    log_append = batch.timestamp_type == "log-append" and batch.max_timestamp is not None
    return rebuild(
        records,
        magic=magic,
        without_headers=magic < 2,
        base_offset=records[0].offset,
        compression=codec,
        timestamp_type="create" if batch.timestamp_type == "none" else batch.timestamp_type,
        log_append_time=batch.max_timestamp if log_append and batch.max_timestamp is not None else NO_TIMESTAMP,
    ).data


def _lost(batch: RecordBatch, records: list[Record], i: int, magic: int, codec: Codec) -> Iterator[Loss]:
    if not batch.records:
        yield Loss("empty-batch", i)
        return
    if len(records) < len(batch.records):
        yield Loss("records-before-first-offset", i, len(batch.records) - len(records))
    found = survey(records)
    yield from _lost_by_records(batch, found, i, magic)
    if batch.magic == 2:
        lost: dict[LossKind, bool] = {
            "producer-state": (batch.producer_id, batch.producer_epoch, batch.base_sequence) != (-1, -1, -1),
            "transactional": batch.transactional,
            "partition-leader-epoch": batch.partition_leader_epoch != -1,
            "delete-horizon": batch.delete_horizon is not None,
            "offset-range": (batch.base_offset, batch.last_offset)
            != (batch.records[0].offset, batch.records[-1].offset),
            "batch-bounds": codec == "none" and len(records) > 1,
        }
        yield from (Loss(kind, i) for kind, is_lost in lost.items() if is_lost)
        if magic == 1 and codec != "none" and records and records[0].offset < 0:
            # With offsets below 0, a reader cannot compute the first message's offset from the wrapper's.
            yield Loss("offsets", i, len(records))
    is_whole = len(records) == len(batch.records)
    if magic > 0 and batch.timestamp_type == "create" and batch.max_timestamp is not None and is_whole:
        largest = found.largest_timestamp
        if batch.max_timestamp != largest:
            yield Loss("max-timestamp", i)


def _lost_by_records(batch: RecordBatch, found: Survey, i: int, magic: int) -> Iterator[Loss]:
    """The losses of the records, apart from their batch's fields."""
    if found.headers and magic < 2:
        yield Loss("headers", i, found.headers)
    if found.attributes and batch.magic == 2:
        yield Loss("record-attributes", i, found.attributes)
    if magic == 0 and batch.magic > 0:
        if found.timestamps:
            yield Loss("timestamps", i, found.timestamps)
        if batch.timestamp_type == "log-append":
            yield Loss("timestamp-type", i)
