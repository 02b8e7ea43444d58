"""What a broker asks of a Produce request and of a log segment, over parsed headers and rows; it returns notes.

The consumer's rules are the parse loops' own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from kfuzz.errors import UsageError
from kfuzz.java import wrap64
from kfuzz.kafka import CODECS, INDEX_INTERVAL_BYTES, INT32_MAX, INT64_MAX, NO_PRODUCER_ID, NO_TIMESTAMP, Codec
from kfuzz.records.model import Record
from kfuzz.wire.layout import (
    BATCH_HEADER_SIZE,
    BATCH_LENGTH_MIN,
    CONTROL,
    DELETE_HORIZON,
    HEADER_AT,
    HEADER_UP_TO_MAGIC,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC_AT,
    TRANSACTIONAL,
)

if TYPE_CHECKING:
    from kfuzz.wire.report import Note

__all__ = [
    "DEFAULT_TOPIC",
    "EndMarker",
    "Header",
    "NoMarker",
    "Row",
    "Segment",
    "Topic",
    "end_marker",
    "is_tail",
    "produced_batch",
    "produced_header",
    "produced_records",
    "request",
    "rows_of",
]


# What a topic has in JSON as a decimal string, being a 64-bit integer.
WIDE: Final = ("first_offset", "now", "timestamp_after_max_ms", "timestamp_before_max_ms")


@dataclass(frozen=True, slots=True)
class Topic:
    """What a broker's configuration and the log say of the partition that a Produce request is for.

    ``compression``: the topic's codec, or "producer" to keep the client's. ``now``: the broker's clock (milliseconds).
    ``timestamp_before_max_ms``, ``timestamp_after_max_ms``: how far from it a timestamp may lie; unbounded by default,
    where Kafka's default is an hour after. ``first_offset``: the log's end offset. Sizes are in bytes, with Kafka's
    defaults: ``message.max.bytes``, ``socket.request.max.bytes``, ``max.decompressed.message.bytes``.

    Mirrors ``org.apache.kafka.storage.internals.log.LogConfig``.
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
        """The topic of a vector or of the testee protocol (docs/testee-protocol.md); what is left out has its default.

        ``UsageError`` where a name or a value does not fit.
        """
        known = {known.name for known in fields(cls)}
        if unknown := sorted(set(value) - known):
            raise UsageError(f"a topic has no {unknown[0]}; known are {', '.join(sorted(known))}")
        try:
            given: dict[str, Any] = {name: int(item) if name in WIDE else item for name, item in value.items()}
            return cls(**given)
        except (TypeError, ValueError) as error:
            raise UsageError(f"the topic {dict(value)} does not fit: {error}") from None


DEFAULT_TOPIC: Final = Topic()


class Header(NamedTuple):
    """The fields of a batch of magic 2, in the order of ``HEADER_LAYOUT``."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int


class Row(NamedTuple):
    """What a broker looks at in a record. ``size``: the bytes behind its length, as the length claims."""

    offset: int
    timestamp: int
    has_key: bool
    size: int


def rows_of(records: Iterable[Record]) -> list[Row]:
    """The rows of records without a codec, whose size a broker does not ask for."""
    return [Row(record.offset, record.timestamp or 0, record.key is not None, 0) for record in records]


def _note(
    code: str, name: str = "", at: int = 0, found: int = 0, allowed: int = 0, *, record: int = -1, count: int = 1
) -> Note:
    return (code, name, at, record, -1, found, allowed, count)


def _field_note(code: str, name: str, at: int, found: int, allowed: int = 0) -> Note:
    """A note on a field of the batch header at byte ``at``."""
    return _note(code, name, at + HEADER_AT[name], found, allowed)


# --- a Produce request ----------------------------------------------------------------------------------------------


def request(size: int, batches: int, topic: Topic) -> list[Note]:
    """What is wrong with a request of ``size`` bytes that holds ``batches`` whole batches.

    Mirrors ``org.apache.kafka.common.requests.ProduceRequest.validateRecords``.
    """
    notes = []
    if size > topic.max_request_bytes:
        notes.append(_note("request-too-large", found=size, allowed=topic.max_request_bytes))
    if batches != 1:
        notes.append(_note("batch-count-not-one", found=batches))
    return notes


def produced_batch(base_offset: int, magic: int, size: int, at: int, topic: Topic) -> list[Note]:
    """What is wrong with a batch of ``size`` bytes at byte ``at``, before its CRC is looked at.

    Mirrors ``ProduceRequest.validateRecords`` and ``UnifiedLog.analyzeAndValidateRecords``.
    """
    if magic != 2:
        return [_note("magic-not-produced", "magic", at + MAGIC_AT, magic, 2)]
    notes = []
    if base_offset != 0:
        notes.append(_note("base-offset-not-zero", "base_offset", at, base_offset))
    if size > topic.max_message_bytes:
        notes.append(
            _note("batch-too-large", "batch_length", at + HEADER_AT["batch_length"], size, topic.max_message_bytes)
        )
    return notes


def produced_header(header: Header, at: int) -> list[Note]:
    """What is wrong with the header of a batch at byte ``at`` whose CRC is right.

    Mirrors ``LogValidator.validateBatch`` for what a client appends; the rest are the documents' rules for producers.
    """
    notes = []
    count = header.record_count
    if count == 0:
        notes.append(_field_note("record-count-zero", "record_count", at, count))
    elif count > 0 and header.last_offset_delta != count - 1:
        delta = header.last_offset_delta
        notes.append(_field_note("last-offset-delta-not-count", "last_offset_delta", at, delta, count - 1))
    if header.attributes & CONTROL:
        notes.append(_field_note("control-batch-produced", "attributes", at, header.attributes & 0xFFFF))
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        notes.append(
            _field_note("base-sequence-negative", "base_sequence", at, header.base_sequence, header.producer_id)
        )
    return notes + _documented_header(header, at)


def _documented_header(header: Header, at: int) -> list[Note]:
    """What the documents ask of a producer and Kafka's broker does not look at."""
    notes = []
    if header.attributes & LOG_APPEND_TIME:
        notes.append(_field_note("timestamp-type-not-create", "attributes", at, header.attributes & 0xFFFF))
    if header.attributes & DELETE_HORIZON:
        notes.append(_field_note("delete-horizon-produced", "attributes", at, header.attributes & 0xFFFF))
    if header.producer_id <= NO_PRODUCER_ID:
        if header.attributes & TRANSACTIONAL:
            notes.append(_field_note("transactional-without-id", "producer_id", at, header.producer_id))
        for name, found in (
            ("producer_id", header.producer_id),
            ("producer_epoch", header.producer_epoch),
            ("base_sequence", header.base_sequence),
        ):
            if found != -1:
                notes.append(_field_note("producer-fields-without-id", name, at, found, -1))
                break
    return notes


def produced_records(header: Header, rows: Sequence[Row], at: int, topic: Topic, *, skimmed: bool) -> list[Note]:
    """What is wrong with the records of a batch whose header is fine; ``at`` is where the first one begins.

    ``skimmed``: the batch is compressed by the topic's codec, so that the broker passes over keys and values and wants
    to store the payload as it is. Mirrors ``LogValidator.validateRecord`` and its caller.
    """
    notes = _Counted()
    log_append = bool(header.attributes & LOG_APPEND_TIME)
    earliest = topic.now - topic.timestamp_before_max_ms
    latest = topic.now + topic.timestamp_after_max_ms
    for i, row in enumerate(rows):
        if row.size > topic.max_record_bytes:
            notes.add("record-too-large", "length", at, row.size, topic.max_record_bytes, record=i)
        if topic.compacted and not row.has_key:
            notes.add("key-missing", "key", at, record=i)
        elif topic.timestamp_type == "create" and row.timestamp != NO_TIMESTAMP:
            if not _is_near(row.timestamp, topic):
                limit = earliest if row.timestamp < topic.now else latest
                notes.add("timestamp-out-of-range", "timestamp_delta", at, row.timestamp, limit, record=i)
        elif log_append:
            notes.add("log-append-time-produced", "timestamp_delta", at, row.timestamp, record=i)
        if row.offset != wrap64(header.base_offset + i):
            code = "compressed-offset-delta-not-index" if skimmed else "offset-delta-not-index"
            notes.add(code, "offset_delta", at, row.offset, i, record=i)
    if rows and not log_append and header.max_timestamp != (largest := max(row.timestamp for row in rows)):
        # Its place is the header's, not the payload's: the caller knows where that is.
        notes.add("max-timestamp-not-maximum", "", at, header.max_timestamp, largest)
    return notes.notes


def _is_near(timestamp: int, topic: Topic) -> bool:
    """Whether the broker's clock allows the timestamp; the difference wraps, as in Kafka."""
    difference = wrap64(topic.now - timestamp)
    return difference <= topic.timestamp_before_max_ms and wrap64(-difference) <= topic.timestamp_after_max_ms


class _Counted:
    """Notes of many records: the first of each code, and how often it came."""

    def __init__(self) -> None:
        self._notes: dict[str, Note] = {}

    def add(self, code: str, name: str, at: int, found: int = 0, allowed: int = 0, *, record: int = -1) -> None:
        known = self._notes.get(code)
        self._notes[code] = (
            (*known[:7], known[7] + 1) if known else _note(code, name, at, found, allowed, record=record)
        )

    @property
    def notes(self) -> list[Note]:
        return list(self._notes.values())


# --- a segment ------------------------------------------------------------------------------------------------------

ABORT: Final = 0
COMMIT: Final = 1
# FileLogInputStream reads a header of this size and looks at nothing where no more than that is left.
FILE_HEADER_BYTES: Final = HEADER_UP_TO_MAGIC


@dataclass(slots=True)
class _Producer:
    """One producer's state: where its open transaction began, if it has one."""

    transaction_from: int | None = None


@dataclass(slots=True)
class Lookup:
    """A search for the batch that holds an offset; feed it batches until it is ``done``.

    Where a batch begins matters only to a search that has not ended before it, and a wrapper must be opened for it: one
    that cannot be ends the search ``lost_at`` its byte.

    Mirrors ``org.apache.kafka.common.record.internal.FileRecords.searchForOffsetFromPosition``.
    """

    target: int
    done: bool = False
    lost_at: int | None = None

    def batch(self, begins: int | None, at: int) -> None:
        """Look at the batch at byte ``at``, which ``begins`` at an offset, if that can be told."""
        if begins is None:
            self.lost_at = at
        self.done = begins is None or begins >= self.target


@dataclass(slots=True)
class Segment:
    """A segment that a broker reads as it starts after a crash; it begins at its first batch's offset.

    Feed it each batch in order. Mirrors ``org.apache.kafka.storage.internals.log.LogSegment.recover`` with
    ``index.interval.bytes`` at its default, ``ProducerStateManager`` as recovery drives it, and then what a broker asks
    of the log: where it ends (``LogSegment.readNextOffset``) and where it starts (``LogSegment.read``).
    """

    base_offset: int | None = None
    bytes_read: int = 0
    indexed_bytes: int = 0
    indexed_offset: int | None = None
    last_offset: int | None = None
    # Of where the segment begins, and of the last entry in its offset index, if it has one.
    lookups: list[Lookup] = field(default_factory=list)
    max_timestamp: int = NO_TIMESTAMP
    offset_of_max_timestamp: int = -1
    # The time index's last entry; an empty index's is the segment's begin.
    timed: tuple[int, int] | None = None
    leader_epoch: int | None = None
    producers: dict[int, _Producer] = field(default_factory=dict)
    # First offsets of the transactions that are open in the partition, whoever began them.
    open_transactions: set[int] = field(default_factory=set)
    aborted_up_to: int | None = None

    def batch(
        self,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
        size: int,
        at: int,
        begins: Callable[[], int | None] | None = None,
    ) -> list[Note]:
        """What speaks against a batch of ``size`` bytes with these offsets at byte ``at``, its CRC being right.

        ``begins`` tells the offset of a wrapper's first message, or None where it cannot be told.
        """
        if self.base_offset is None:
            self.base_offset = max(0, base_offset)
            self.lookups = [Lookup(self.base_offset)]
        notes = []
        # The difference wraps, as in Kafka.
        if not 0 <= wrap64(last_offset - self.base_offset) <= INT32_MAX:
            notes.append(_note("offset-outside-segment", "last_offset_delta", at, last_offset, self.base_offset))
        if self.last_offset is not None and last_offset <= self.last_offset:
            notes.append(_note("offset-not-increasing", "base_offset", at, last_offset, self.last_offset))
        self.last_offset = last_offset
        if max_timestamp > self.max_timestamp:
            self.max_timestamp, self.offset_of_max_timestamp = max_timestamp, last_offset
        if self.bytes_read - self.indexed_bytes > INDEX_INTERVAL_BYTES:
            if self.indexed_offset is not None and last_offset <= self.indexed_offset:
                notes.append(
                    _note("indexed-offset-not-increasing", "base_offset", at, last_offset, self.indexed_offset)
                )
            self.indexed_offset = last_offset
            self.indexed_bytes = self.bytes_read
            self.lookups[1:] = [Lookup(last_offset)]
            notes += self._index_time(at)
        self.bytes_read += size
        if going_on := [lookup for lookup in self.lookups if not lookup.done]:
            first = base_offset if begins is None else begins()
            for lookup in going_on:
                lookup.batch(first, at)
        return notes

    def end(self, at: int) -> list[Note]:
        """What speaks against the segment when its last batch was read."""
        return self._index_time(at) or self._opened(at)

    def _opened(self, at: int) -> list[Note]:
        """What a broker stumbles over that has read all: it looks for the end behind the index, then for the start."""
        if self.base_offset is None or self.last_offset is None:
            return []
        behind_index = self.lookups[-1]
        for lookup in (behind_index, self.lookups[0]):
            if lookup.lost_at is not None:
                return [_note("wrapper-start-unknown", "value", lookup.lost_at)]
            end = wrap64(self.last_offset + 1)
            is_found = lookup.done or self.last_offset >= lookup.target
            if lookup is behind_index and is_found and end < self.base_offset:
                return [_note("log-end-overflow", at=at, found=end, allowed=self.base_offset)]
        return []

    def _index_time(self, at: int) -> list[Note]:
        timestamp, offset = self.timed or (NO_TIMESTAMP, 0)
        if self.timed is not None and self.offset_of_max_timestamp < offset:
            return [_note("indexed-offset-not-increasing", "base_offset", at, self.offset_of_max_timestamp, offset)]
        if self.max_timestamp > timestamp:
            self.timed = (self.max_timestamp, self.offset_of_max_timestamp)
        return []

    def leader(self, header: Header, at: int) -> list[Note]:
        """What speaks against the leader epoch of a batch of magic 2: an epoch begins at an offset."""
        epoch = header.partition_leader_epoch
        if epoch < 0 or (self.leader_epoch is not None and epoch <= self.leader_epoch):
            return []
        self.leader_epoch = epoch
        if header.base_offset < 0:
            return [_note("leader-epoch-offset-negative", "base_offset", at, header.base_offset, epoch)]
        return []

    def producer(self, header: Header, first: Record | None, at: int) -> list[Note]:
        """What speaks against the batch as its producer's next; ``first`` is the first record of a control batch."""
        if header.producer_id <= NO_PRODUCER_ID:
            return []
        producer = self.producers.setdefault(header.producer_id, _Producer())
        if header.attributes & CONTROL:
            return [] if first is None else self._end(header, producer, first, at)
        if producer.transaction_from is not None and not header.attributes & TRANSACTIONAL:
            return [_field_note("transaction-not-ended", "attributes", at, 0, producer.transaction_from)]
        if producer.transaction_from is None and header.attributes & TRANSACTIONAL:
            producer.transaction_from = header.base_offset
            self.open_transactions.add(header.base_offset)
        return []

    def _end(self, header: Header, producer: _Producer, marker: Record, at: int) -> list[Note]:
        ends = end_marker(marker)
        if isinstance(ends, NoMarker):
            return [_note("end-marker-invalid", "records[0].key", at + BATCH_HEADER_SIZE)]
        began, producer.transaction_from = producer.transaction_from, None
        if began is None:
            return []
        in_order = not ends.aborted or self.aborted_up_to is None or self.aborted_up_to < header.base_offset
        if ends.aborted:
            self.aborted_up_to = header.base_offset
        if not in_order or began not in self.open_transactions:
            return [_note("end-marker-invalid", "base_offset", at, header.base_offset)]
        self.open_transactions.remove(began)
        return []


class EndMarker(NamedTuple):
    """What a control record says of its producer's transaction."""

    aborted: bool
    coordinator_epoch: int


class NoMarker(NamedTuple):
    """Why a control record does not end a transaction, and whether Kafka answers that with an error it foresees."""

    why: str
    foreseen: bool


def end_marker(marker: Record) -> EndMarker | NoMarker:
    """Whether the control record commits or aborts a transaction.

    Mirrors ``org.apache.kafka.common.record.EndTransactionMarker.deserialize``: higher versions are read as version 0.
    """
    key, value = marker.key, marker.value
    if key is None:
        return NoMarker("its key is null", False)
    if len(key) < 4 or key[0] & 0x80:
        return NoMarker(f"its key is {key[:8].hex()}", True)
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in (ABORT, COMMIT):
        return NoMarker(f"its type is {kind}", False)
    if value is None:
        return NoMarker("its value is null", False)
    if len(value) >= 2 and value[0] & 0x80:
        return NoMarker(f"its value's version is {int.from_bytes(value[:2], 'big', signed=True)}", True)
    if len(value) < 6:
        return NoMarker(f"its value has {len(value)} bytes", False)
    return EndMarker(kind == ABORT, int.from_bytes(value[2:6], "big", signed=True))


def is_tail(length: int, left: int) -> bool:
    """Whether the last ``left`` bytes of a segment are a partial tail, ``length`` being the batch length in them.

    Mirrors ``org.apache.kafka.common.record.FileLogInputStream``, which is less eager to complain than the stream that
    a consumer reads.
    """
    return left <= FILE_HEADER_BYTES or BATCH_LENGTH_MIN[0] <= length > left - LOG_OVERHEAD
