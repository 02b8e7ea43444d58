"""Batches from one magic to another, with what is lost on the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, cast

from kfuzz.errors import EncodeError, UsageError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, NO_TIMESTAMP, Codec, TimestampType
from kfuzz.records.builder import frames, rebuild
from kfuzz.records.model import Record, RecordBatch
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.reader import decode
from kfuzz.records.writer import encode_batch
from kfuzz.wire.survey import Survey, renumbered, survey

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

# What each kind of loss means; formatted with ``count``.
LOSSES: Final[dict[LossKind, str]] = {
    "control-batch": "the control batch and its {count} records are dropped",
    "empty-batch": "the batch has no records; its offsets and sequence are dropped",
    "records-before-first-offset": "{count} records lie before the first offset asked for and are dropped",
    "headers": "{count} headers are dropped",
    "producer-state": "producer id, producer epoch and base sequence are dropped",
    "transactional": "the records are no longer marked as transactional",
    "partition-leader-epoch": "the partition leader epoch is dropped",
    "delete-horizon": "the delete horizon is dropped",
    "timestamps": "the timestamps of {count} records are dropped",
    "timestamp-type": "that the timestamps are of type log-append is dropped",
    "max-timestamp": "the max timestamp becomes that of the records",
    "offset-range": "the batch's first and last offset become those of its records",
    "offsets": "{count} records lose their offsets",
    "batch-bounds": "{count} batches become another number of batches",
    "record-attributes": "the attributes of {count} records are dropped",
    "partial-tail": "{count} bytes at the end are no whole batch and are dropped",
}


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the new format has no place for: ``kind``, how often, and in which batch of the input (from 0)."""

    kind: LossKind
    batch: int
    count: int = 1

    def __str__(self) -> str:
        return f"batch[{self.batch}]: {LOSSES[self.kind].format(count=self.count)} [{self.kind}]"


@dataclass(frozen=True, slots=True)
class Converted:
    """The new bytes, and what they lack of the old ones, in the order of the batches. ``batches`` reads the bytes."""

    data: bytes
    losses: tuple[Loss, ...]
    limits: Limits = field(default=DEFAULT_LIMITS, repr=False)

    @property
    def batches(self) -> list[RecordBatch]:
        """The batches of ``data``, read anew each time."""
        return decode(self.data, limits=self.limits)


class _Source(NamedTuple):
    """A batch and its bytes as they are; no batch where the bytes are a tail that is none.

    ``mixed``: messages inside the wrapper have another magic than it.
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
    """The batches of ``source`` (bytes, or values) in format ``magic``, each under its own offsets and timestamps.

    Down: batches of a higher magic are written again; those of ``magic`` and below are copied byte for byte. Control
    batches are left out, as are, where ``first_offset`` is given, earlier records of uncompressed batches: their
    messages stand alone then, and a client would meet offsets that it did not ask for. Up: each message of magic
    0 or 1, wrapper or not, becomes a batch. A batch keeps its codec; ``compression`` gives the converted ones another,
    which batches of zstd need on their way down, for Kafka refuses them.

    ``RecordsError`` where a consumer refuses the bytes; ``EncodeError`` where Kafka refuses to write them in the new
    format. Mirrors ``org.apache.kafka.common.record.RecordsUtil.downConvert`` of Kafka 3, and for the way up what the
    log cleaner of Kafka 4 does to older formats (``MemoryRecords.filterTo``), but for the delete horizons it sets.

    >>> from kfuzz import records
    >>> from kfuzz.records.conversion import convert
    >>> batch = records.RecordBatch(3, 3, [records.Record(3, 1, None, b"v", ((b"h", b"x"),))], producer_id=7,
    ...                             producer_epoch=0, base_sequence=0)
    >>> [loss.kind for loss in convert([batch], 1).losses]
    ['headers', 'producer-state']
    """
    _require(magic, compression)
    pieces: list[bytes | memoryview] = []
    losses: list[Loss] = []
    for i, (batch, raw, _) in enumerate(_sources(source, limits)):
        if batch is None:
            losses.append(Loss("partial-tail", i, len(raw)))
            continue
        if magic < 2 and batch.control:
            losses.append(Loss("control-batch", i, len(batch.records)))
            continue
        codec = compression or batch.compression
        if magic < 2 and codec == "zstd":
            raise EncodeError(
                f"batch[{i}] is compressed with zstd, which magic {magic} does not know; give another codec"
            )
        if batch.magic == magic or (batch.magic < magic < 2):
            pieces.append(raw)
            continue
        records = batch.records
        if magic < 2 and batch.compression == "none" and first_offset is not None:
            records = [record for record in records if record.offset >= first_offset]
        losses += _lost(batch, records, i, magic, codec)
        if records:
            pieces.append(_converted(batch, records, magic, codec))
    return Converted(b"".join(pieces), tuple(losses), limits)


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
    """What a broker made of a produce request in another format than its topic's: one batch of all records.

    Offsets count from ``base_offset``; codec, timestamp type and leader epoch are the topic's. The producer's state is
    that of the first batch. ``log_append_time`` (milliseconds) is the max timestamp where ``timestamp_type`` says so.
    ``EncodeError`` where the broker refuses. Mirrors ``LogValidator.convertAndAssignOffsetsNonCompressed`` and
    ``buildRecordsAndAssignOffsets`` of Kafka 3, without the checks that need no conversion.

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
    if compression == "zstd" and magic < 2:
        raise UsageError(f"compression zstd does not exist in magic {magic}; take none, gzip, snappy or lz4")


def _require_appendable(batches: list[RecordBatch], i: int, magic: int, timestamp_type: TimestampType) -> None:
    """What the broker asks of the newest of ``batches``, ``batch[i]``; ``LogValidator.validateBatch`` and more."""
    first, batch = batches[0], batches[-1]
    if batch.magic != first.magic:
        raise EncodeError(f"batch[{i}] has magic {batch.magic}, the first batch {first.magic}; they must be the same")
    if i > 0 and (batch.magic == 2 or first.compression != "none" or batch.compression != "none"):
        raise EncodeError("there are several batches; of magic 2, or compressed, there may be only one")
    if batch.control:
        raise EncodeError(f"batch[{i}] is a control batch; clients may not append those")
    span = wrap64(batch.last_offset - batch.base_offset + 1)
    if batch.magic == 2 and (span <= 0 or span != len(batch.records)):
        raise EncodeError(
            f"batch[{i}] has {len(batch.records)} records from offset {batch.base_offset} to {batch.last_offset}; "
            f"a producer's batch has one for each"
        )
    if batch.producer_id != -1 and batch.base_sequence < 0:
        raise EncodeError(f"batch[{i}] has base sequence {batch.base_sequence}; it must be 0 or more")
    if magic < 2 and (batch.transactional or batch.producer_id != -1):
        raise EncodeError(f"batch[{i}] has a producer id; magic {magic} cannot carry it")
    # Kafka lets the type pass where the topic's is create and the timestamp is one.
    unstamped = any(record.timestamp in (None, NO_TIMESTAMP) for record in batch.records)
    if batch.timestamp_type == "log-append" and (timestamp_type != "create" or unstamped):
        raise EncodeError(f"batch[{i}] has timestamps of type log-append; a producer may not set that")


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
        if batch.producer_id != -1 or batch.producer_epoch != -1 or batch.base_sequence != -1:
            yield Loss("producer-state", i)
        if batch.transactional:
            yield Loss("transactional", i)
        if batch.partition_leader_epoch != -1:
            yield Loss("partition-leader-epoch", i)
        if batch.delete_horizon is not None:
            yield Loss("delete-horizon", i)
        if (batch.base_offset, batch.last_offset) != (batch.records[0].offset, batch.records[-1].offset):
            yield Loss("offset-range", i)
        if codec == "none" and len(records) > 1:
            yield Loss("batch-bounds", i)
        if magic == 1 and codec != "none" and records and records[0].offset < 0:
            # Below 0 a reader cannot count back from the wrapper's offset to the first message's.
            yield Loss("offsets", i, len(records))
    is_whole = len(records) == len(batch.records)
    if magic > 0 and batch.timestamp_type == "create" and batch.max_timestamp is not None and is_whole:
        largest = found.largest_timestamp
        if batch.max_timestamp != largest:
            yield Loss("max-timestamp", i)


def _lost_by_records(batch: RecordBatch, found: Survey, i: int, magic: int) -> Iterator[Loss]:
    """What the records themselves lose, whatever becomes of their batch."""
    if found.headers and magic < 2:
        yield Loss("headers", i, found.headers)
    if found.attributes and batch.magic == 2:
        yield Loss("record-attributes", i, found.attributes)
    if magic == 0 and batch.magic > 0:
        if found.timestamps:
            yield Loss("timestamps", i, found.timestamps)
        if batch.timestamp_type == "log-append":
            yield Loss("timestamp-type", i)
