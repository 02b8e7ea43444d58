"""Changes a producer's batch as a broker does before it stores it: offsets, timestamps and the codec.

Where Kafka edits the batch in place, so does this module: only header bytes change, and the payload stays as the
producer compressed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfuzz.errors import EncodeError, RecordsError, UsageError
from kfuzz.findings.records import from_note
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, Codec, TimestampType
from kfuzz.records.builder import rebuild
from kfuzz.records.model import Record
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.reader import read
from kfuzz.records.read.topic import DEFAULT_TOPIC, Topic
from kfuzz.wire.io.checksum import crc32c
from kfuzz.wire.io.layout import (
    BATCH_CRC_COVERS_FROM,
    BATCH_HEADER_SIZE,
    CODEC_MASK,
    HEADER_LAYOUT,
    LOG_APPEND_TIME,
    MAGIC_AT,
    TRANSACTIONAL,
)
from kfuzz.wire.records.record_batch import parse_header
from kfuzz.wire.walk.record_list import renumbered

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.wire.records.record_batch import Header

__all__ = [
    "Appended",
    "append",
    "assign_offsets",
    "recompress",
    "set_max_timestamp",
    "set_partition_leader_epoch",
    "stamp_log_append_time",
]

AT: Final = {name: (at, width) for name, at, width in HEADER_LAYOUT}
# The attribute bits that Kafka knows. It clears all others when it rewrites the attributes.
KNOWN_BITS: Final = 0x7F


@dataclass(frozen=True, slots=True)
class Appended:
    """The bytes that a broker stored, with their place.

    - ``data``: the stored batch.
    - ``first_offset``, ``last_offset``: the offsets that the broker assigned.
    - ``max_timestamp``: the timestamp for the time index, in milliseconds; -1 if there is none.
    - ``in_place``: True if the payload is unchanged.
    - ``consumed``: the length of the producer's batch in the given bytes. A partial tail after it is dropped.

    Mirrors ``org.apache.kafka.storage.internals.log.LogValidator.ValidationResult``.
    """

    data: bytes
    first_offset: int
    last_offset: int
    max_timestamp: int
    in_place: bool
    consumed: int


def append(data: Buffer, topic: Topic = DEFAULT_TOPIC, *, limits: Limits = DEFAULT_LIMITS) -> Appended:
    """Append the batch of a Produce request (magic 2) to the log of ``topic``.

    Raises ``RecordsError`` if the broker refuses the batch. Mirrors
    ``org.apache.kafka.storage.internals.log.LogValidator.validateMessagesAndAssignOffsets``.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import append
    >>> data = records.encode([records.RecordBatch(0, 1, [records.Record(i, 1000 + i, b"k", b"v") for i in (0, 1)])])
    >>> stored = append(data, records.Topic(first_offset=40))
    >>> stored.first_offset, stored.last_offset, stored.max_timestamp, stored.in_place
    (40, 41, 1001, True)
    >>> [record.offset for record in records.iterate(stored.data)]
    [40, 41]
    """
    reading = read(data, role="broker", topic=topic, limits=limits)
    if reading.fatal is not None:
        raise RecordsError(reading.fatal)
    batch = bytes(memoryview(data).cast("B")[: reading.consumed])
    header = _header(batch)
    last_offset = wrap64(topic.first_offset + header.record_count - 1)
    source = CODECS[header.attributes & CODEC_MASK]
    target = source if topic.compression == "producer" else topic.compression
    largest = max(reading.largest_timestamp, -1)
    if source == target:
        stored = set_partition_leader_epoch(assign_offsets(batch, topic.first_offset), topic.leader_epoch)
        if topic.timestamp_type == "log-append":
            stored, largest = stamp_log_append_time(stored, topic.now), topic.now
        else:
            stored = set_max_timestamp(stored, "create", largest)
        return Appended(stored, topic.first_offset, last_offset, largest, True, reading.consumed)
    stored, largest = _rebuilt(header, reading.batches[0].records, target, topic)
    return Appended(stored, topic.first_offset, last_offset, largest, False, reading.consumed)


def assign_offsets(batch: bytes, first_offset: int) -> bytes:
    """Return the batch (magic 2) with its last offset set to ``first_offset`` + record count - 1.

    Only the base offset changes. The CRC does not cover it. Mirrors ``DefaultRecordBatch.setLastOffset``.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import assign_offsets
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> records.decode(assign_offsets(data, 40))[0].base_offset
    40
    """
    header = _header(batch)
    last_offset = first_offset + header.record_count - 1
    return _with_fields(batch, base_offset=wrap64(last_offset - header.last_offset_delta))


def set_partition_leader_epoch(batch: bytes, epoch: int) -> bytes:
    """Return the batch (magic 2) with this leader epoch. The CRC does not cover the field.

    Mirrors ``DefaultRecordBatch.setPartitionLeaderEpoch``.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import set_partition_leader_epoch
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> records.decode(set_partition_leader_epoch(data, 5))[0].partition_leader_epoch
    5
    """
    return _with_fields(batch, partition_leader_epoch=epoch)


def set_max_timestamp(batch: bytes, timestamp_type: TimestampType, max_timestamp: int) -> bytes:
    """Return the batch (magic 2) with this timestamp type and max timestamp (milliseconds), and a new CRC.

    If both are already right, the batch is returned unchanged. Otherwise unused attribute bits are cleared too.
    Mirrors ``DefaultRecordBatch.setMaxTimestamp``.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import set_max_timestamp
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> records.decode(set_max_timestamp(data, "create", 9))[0].max_timestamp
    9
    """
    if timestamp_type not in ("create", "log-append"):
        raise UsageError(f"timestamp type {timestamp_type!r} does not exist in magic 2; take create or log-append")
    header = _header(batch)
    bit = LOG_APPEND_TIME if timestamp_type == "log-append" else 0
    if header.attributes & LOG_APPEND_TIME == bit and header.max_timestamp == max_timestamp:
        return batch
    attributes = header.attributes & KNOWN_BITS & ~LOG_APPEND_TIME | bit
    changed = _with_fields(batch, attributes=attributes, max_timestamp=max_timestamp)
    crc = crc32c(memoryview(changed)[BATCH_CRC_COVERS_FROM:])
    at, width = AT["crc"]
    return changed[:at] + crc.to_bytes(width, "big") + changed[at + width :]


def stamp_log_append_time(batch: bytes, now: int) -> bytes:
    """Return the batch (magic 2) with timestamp type LogAppendTime and max timestamp ``now`` (milliseconds).

    A reader then takes ``now`` as the timestamp of every record. The records' bytes do not change.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import stamp_log_append_time
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> [record.timestamp for record in records.iterate(stamp_log_append_time(data, 1700000000000))]
    [1700000000000]
    """
    return set_max_timestamp(batch, "log-append", now)


def recompress(batch: bytes, compression: Codec, *, limits: Limits = DEFAULT_LIMITS) -> bytes:
    """Rebuild the batch (magic 2) with another codec. Its offsets, timestamps and producer fields stay the same.

    Kafka's builder drops some things: unused attribute bits, record attributes and the delete horizon. In header keys
    that are not UTF-8, U+FFFD replaces the bad bytes. Raises ``RecordsError`` if the batch cannot be read and
    ``EncodeError`` if it cannot be built.

    >>> from kfuzz import records
    >>> from kfuzz.records.appending import recompress
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")])])
    >>> records.decode(recompress(data, "gzip"))[0].compression
    'gzip'
    """
    reading = read(batch, limits=limits)
    if reading.fatal is not None:
        raise RecordsError(reading.fatal)
    if reading.batch_count != 1 or reading.consumed != len(batch) or reading.batches[0].magic != 2:
        raise UsageError("recompress takes the bytes of one batch of magic 2")
    found = reading.batches[0]
    return rebuild(
        found.records,
        magic=2,
        base_offset=found.base_offset,
        compression=compression,
        timestamp_type=found.timestamp_type,
        log_append_time=_header(batch).max_timestamp,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        base_sequence=found.base_sequence,
        transactional=found.transactional,
        control=found.control,
        partition_leader_epoch=found.partition_leader_epoch,
        last_offset=found.last_offset,
    ).data


def _rebuilt(header: Header, records: list[Record], codec: Codec, topic: Topic) -> tuple[bytes, int]:
    """The batch as LogValidator rebuilds it, and its max timestamp. Raises ``RecordsError`` if that is impossible."""
    try:
        rebuilt = rebuild(
            renumbered(records, topic.first_offset, keep_attributes=False),
            magic=2,
            base_offset=topic.first_offset,
            compression=codec,
            timestamp_type=topic.timestamp_type,
            log_append_time=topic.now,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=bool(header.attributes & TRANSACTIONAL),
            partition_leader_epoch=topic.leader_epoch,
        )
    except EncodeError as error:
        raise _refused("rebuild-refused", 0, 0, topic, str(error)) from None
    if len(rebuilt.data) > topic.max_message_bytes:
        raise _refused("batch-too-large", len(rebuilt.data), topic.max_message_bytes, topic)
    return rebuilt.data, rebuilt.max_timestamp


def _refused(code: str, found: int, allowed: int, topic: Topic, detail: str = "") -> RecordsError:
    return RecordsError(from_note((code, "", 0, -1, -1, found, allowed, 1), "batch[0]", "kafka", "broker", detail))


def _header(batch: bytes) -> Header:
    if len(batch) < BATCH_HEADER_SIZE or batch[MAGIC_AT] != 2:
        raise UsageError("these are not the bytes of a batch of magic 2; read them first")
    return parse_header(batch, 0)


def _with_fields(batch: bytes, **values: int) -> bytes:
    changed = bytearray(batch)
    for name, value in values.items():
        at, width = AT[name]
        changed[at : at + width] = value.to_bytes(width, "big", signed=True)
    return bytes(changed)
