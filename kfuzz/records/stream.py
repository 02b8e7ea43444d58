"""Rules that span several batches: sequences, epochs and transactions.

:class:`ProducerState` stores what a partition remembers about its producers, and judges each appended batch.
:class:`Fetch` stores what a consumer remembers during one fetch, and returns the records that it hands out. Both need
constant time for each batch. They store producers, not batches.

>>> from kfuzz import records
>>> from kfuzz.records.stream import ProducerState
>>> batch = records.RecordBatch(0, 0, [records.Record(0, 1, None, b"v")], producer_id=4, base_sequence=0)
>>> state = ProducerState()
>>> [state.append(batch).outcome, state.append(batch).outcome]
['appended', 'duplicate']
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from kfuzz.errors import RecordsError, UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.findings.records import from_note
from kfuzz.kafka import INT32_MAX, ISOLATIONS, Isolation, Role
from kfuzz.records.model import Record, RecordBatch
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.reader import batches as read_batches
from kfuzz.records.read.reader import chosen
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, HEADER_AT
from kfuzz.wire.records.framing import next_frame
from kfuzz.wire.walk.record_list import in_order
from kfuzz.wire.walk.transactions import (
    ABORT,
    KEY_INVALID,
    NO_KEY,
    NO_VALUE,
    TYPE_OTHER,
    VALUE_SHORT,
    VALUE_VERSION_NEGATIVE,
    Aborted,
    CommittedOnly,
    Decisions,
    control_type,
    end_marker,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "ISOLATIONS",
    "AbortedTransaction",
    "Append",
    "CompletedTransaction",
    "Fetch",
    "Isolation",
    "ProducerState",
    "StreamReading",
    "Transactions",
    "check_stream",
    "next_sequence",
    "read_committed",
    "transactions_of",
]

Outcome = Literal["appended", "duplicate", "rejected"]

NONE = -1
INT16_MAX = (1 << 15) - 1
# ProducerStateEntry.NUM_BATCHES_TO_RETAIN: as many requests as a producer may have in flight.
BATCHES_KEPT = 5
# From this transaction version on, each transaction has its own producer epoch (KIP-890).
EPOCH_PER_TRANSACTION = 2

# Other error codes in a Produce response; org.apache.kafka.common.protocol.Errors.
INVALID, UNFORESEEN = "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"


def next_sequence(sequence: int, count: int = 1) -> int:
    """Return the sequence ``count`` records after ``sequence``. 0 follows 2³¹-1.

    Mirrors ``DefaultRecordBatch.incrementSequence``.

    >>> from kfuzz.records.stream import next_sequence
    >>> next_sequence(2147483647)
    0
    """
    left = INT32_MAX - sequence
    return count - left - 1 if count > left else sequence + count


class AbortedTransaction(NamedTuple):
    """An aborted transaction as a fetch response lists it: its producer, and the offset at which it began."""

    producer_id: int
    first_offset: int


class CompletedTransaction(NamedTuple):
    """A transaction that a marker has ended. ``last_offset`` is the marker's offset. Mirrors ``CompletedTxn``."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Append:
    """The result of appending one batch.

    - ``outcome``: ``appended``, ``duplicate`` or ``rejected``.
    - ``base_offset``, ``last_offset``: the batch's offsets in the log. A duplicate gets the offsets of the original.
      None for a rejected batch.
    - ``finding``: what is wrong or unusual, or None.
    - ``error``: for a rejected batch, the name of Kafka's error code.
    - ``completed``: the transaction that a marker has ended, or None.
    """

    outcome: Outcome
    base_offset: int | None = None
    last_offset: int | None = None
    finding: Finding | None = None
    error: str | None = None
    completed: CompletedTransaction | None = None


class _Kept(NamedTuple):
    """One of a producer's last batches. Mirrors ``BatchMetadata``."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class _Producer:
    """One producer's state. ``first_offset`` is where its open transaction began. Mirrors ``ProducerStateEntry``."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    first_offset: int | None = None
    kept: deque[_Kept] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def enter(self, epoch: int) -> None:
        """Switch to ``epoch``. A new epoch forgets the earlier batches."""
        if epoch != self.epoch:
            self.kept.clear()
            self.epoch = epoch


@dataclass(frozen=True, slots=True)
class _Violation:
    """A rule that a batch breaks, and the name of Kafka's error code."""

    code: str
    field: str
    found: int = 0
    allowed: int = 0
    error: str = ""
    detail: str = ""


class ProducerState:
    """The state of one partition's producers: sequences, epochs and open transactions.

    - With role ``broker`` it checks every rule and assigns offsets, starting at ``log_end_offset``. It treats data
      batches as sent by a client, and control batches as sent by a transaction coordinator.
    - With role ``log`` it follows batches that a broker has already accepted. Their offsets stay, sequences may have
      gaps, and a stale epoch is only a deviation.
    - ``transaction_version`` is the coordinator's. In version 2 each transaction has its own producer epoch; in 0 and 1
      it does not.

    Each batch must be valid by itself; use :func:`kfuzz.records.check` for that. A real broker also checks that the
    client registered its transaction with the coordinator. No batch shows this, so it is not checked here.

    Mirrors ``ProducerStateManager``, ``ProducerAppendInfo`` and ``UnifiedLog.analyzeAndValidateProducerState``.
    """

    def __init__(
        self,
        *,
        role: Role = "broker",
        profile: Profile = "kafka",
        log_end_offset: int = 0,
        transaction_version: int = 0,
    ) -> None:
        if role not in ("broker", "log"):
            raise UsageError(f"role {role!r} has no producer state; take broker or log")
        if profile not in PROFILES:
            raise UsageError(f"profile {profile!r} does not exist; take one of {', '.join(PROFILES)}")
        if transaction_version not in (0, 1, 2):
            raise UsageError(f"transaction_version is {transaction_version}; it must be 0, 1 or 2")
        self.role: Role = role
        self.profile: Profile = profile
        self.log_end_offset = log_end_offset
        self.transaction_version = transaction_version
        self._producers: dict[int, _Producer] = {}
        self._open = 0
        # A heap with the first offset and producer of each open transaction. Ended ones are removed lazily.
        self._begun: list[tuple[int, int]] = []

    @property
    def last_stable_offset(self) -> int:
        """The first offset of the oldest open transaction, or the log end offset if none is open.

        Every transaction before it has ended.
        """
        self._forget_ended()
        return self._begun[0][0] if self._begun else self.log_end_offset

    @property
    def open_transactions(self) -> int:
        """The number of transactions that have begun and not ended."""
        return self._open

    def append(self, batch: RecordBatch, *, at: int = 0, path: str = "batch[0]") -> Append:
        """Append the batch, or reject it and change nothing. The contents of a batch never raise an error.

        ``at`` (where the batch begins in some buffer, in bytes) and ``path`` give the finding its place.

        >>> from kfuzz import records
        >>> from kfuzz.records.stream import ProducerState
        >>> state = ProducerState()
        >>> def send(base_sequence):
        ...     batch = records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")], producer_id=4,
        ...                                 producer_epoch=0, base_sequence=base_sequence)
        ...     return state.append(batch)
        >>> send(0).outcome, send(2).outcome, send(2).error
        ('appended', 'rejected', 'OUT_OF_ORDER_SEQUENCE_NUMBER')
        """
        base_offset = batch.base_offset if self.role == "log" else self.log_end_offset
        last_offset = base_offset + batch.last_offset - batch.base_offset
        completed, odd = None, None
        if batch.producer_id > NONE:
            producer = self._producers.get(batch.producer_id) or _Producer()
            if earlier := self._earlier(batch, producer):
                violation = _Violation("sequence-duplicate", "base_sequence", batch.base_sequence)
                # By the documents, a broker drops a duplicate, so it is not fatal in any profile.
                finding = replace(self._finding(violation, at, path), severity="deviation")
                return Append("duplicate", earlier.base_offset, earlier.last_offset, finding)
            marker = _end_marker(batch) if batch.control else None
            for violation in self._violations(batch, producer, marker):
                finding = self._finding(violation, at, path)
                if finding.severity == "fatal":
                    return Append("rejected", finding=finding, error=violation.error)
                odd = odd or finding
            if isinstance(marker, EndMarker):
                completed = self._end(batch, producer, marker, base_offset)
            elif not batch.control:
                self._extend(batch, producer, base_offset, last_offset)
        self.log_end_offset = last_offset + 1
        return Append("appended", base_offset, last_offset, odd, None, completed)

    def _finding(self, violation: _Violation, at: int, path: str) -> Finding:
        place = at + HEADER_AT.get(violation.field, BATCH_HEADER_SIZE)
        note = (violation.code, violation.field, place, -1, -1, violation.found, violation.allowed, 1)
        return from_note(note, path, self.profile, self.role, violation.detail)

    # -- checks

    def _earlier(self, batch: RecordBatch, producer: _Producer) -> _Kept | None:
        """The stored batch that a client sends again. Mirrors ``ProducerStateEntry.findDuplicateBatch``."""
        if self.role == "log" or batch.control or batch.producer_epoch != producer.epoch:
            return None
        wanted = batch.base_sequence, _last_sequence(batch)
        return next((kept for kept in producer.kept if (kept.first_sequence, kept.last_sequence) == wanted), None)

    def _violations(
        self, batch: RecordBatch, producer: _Producer, marker: EndMarker | _Violation | None
    ) -> Iterator[_Violation]:
        """All violations, in the order of Kafka's checks."""
        if isinstance(marker, _Violation):
            yield marker
            return
        if batch.control and marker is None:
            # Compaction has removed the marker's record, so there is nothing to check.
            return
        if self._is_stale(batch, producer):
            yield _Violation(
                "producer-epoch-stale", "producer_epoch", batch.producer_epoch, producer.epoch, "INVALID_PRODUCER_EPOCH"
            )
        if marker is not None:
            if marker.coordinator_epoch < producer.coordinator_epoch:
                yield _Violation(
                    "coordinator-epoch-stale",
                    "value",
                    marker.coordinator_epoch,
                    producer.coordinator_epoch,
                    "TRANSACTION_COORDINATOR_FENCED",
                )
            return
        if self.role == "broker" and (violation := _sequence_violation(batch, producer)):
            yield violation
        if producer.first_offset is not None and not batch.transactional:
            yield _Violation(
                "transaction-not-ended", "attributes", allowed=producer.first_offset, error="INVALID_TXN_STATE"
            )

    def _is_stale(self, batch: RecordBatch, producer: _Producer) -> bool:
        if not batch.control or self.role == "log" or self.transaction_version < EPOCH_PER_TRANSACTION:
            return batch.producer_epoch < producer.epoch
        if batch.producer_epoch == producer.epoch:
            # Allowed: a marker that is repeated after the transaction ended, or the highest possible epoch.
            return producer.first_offset is not None and producer.epoch != INT16_MAX
        return batch.producer_epoch < producer.epoch

    # -- state changes

    def _extend(self, batch: RecordBatch, producer: _Producer, base_offset: int, last_offset: int) -> None:
        producer.enter(batch.producer_epoch)
        producer.kept.append(_Kept(batch.base_sequence, _last_sequence(batch), base_offset, last_offset))
        if batch.transactional and producer.first_offset is None:
            producer.first_offset = base_offset
            self._open += 1
            heapq.heappush(self._begun, (base_offset, batch.producer_id))
        self._producers[batch.producer_id] = producer

    def _end(
        self, batch: RecordBatch, producer: _Producer, marker: EndMarker, base_offset: int
    ) -> CompletedTransaction | None:
        producer.enter(batch.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        self._producers[batch.producer_id] = producer
        if producer.first_offset is None:
            return None
        completed = CompletedTransaction(batch.producer_id, producer.first_offset, base_offset, marker.aborted)
        producer.first_offset = None
        self._open -= 1
        self._forget_ended()
        return completed

    def _forget_ended(self) -> None:
        while self._begun and not self._is_open(self._begun[0]):
            heapq.heappop(self._begun)
        # A transaction that stays open for long must not keep all later, ended ones in memory.
        if len(self._begun) > 2 * self._open + 16:
            self._begun = [begun for begun in self._begun if self._is_open(begun)]
            heapq.heapify(self._begun)

    def _is_open(self, begun: tuple[int, int]) -> bool:
        first_offset, producer_id = begun
        return self._producers[producer_id].first_offset == first_offset


def _last_sequence(batch: RecordBatch) -> int:
    if batch.base_sequence == NONE:
        return NONE
    return next_sequence(batch.base_sequence, batch.last_offset - batch.base_offset)


def _sequence_violation(batch: RecordBatch, producer: _Producer) -> _Violation | None:
    """Why a client's batch does not follow the previous one. Mirrors ``ProducerAppendInfo.checkSequence``."""
    if producer.epoch == NONE:
        # The producer is unknown. Perhaps retention has deleted all of its batches.
        return None
    first, error = batch.base_sequence, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    if batch.producer_epoch != producer.epoch:
        return _Violation("sequence-of-new-epoch", "base_sequence", first, 0, error) if first else None
    wanted = next_sequence(producer.kept[-1].last_sequence) if producer.kept else 0
    if first == wanted:
        return None
    # Sequences wrap around: half of them count as above the wanted one, and half as below it.
    is_below = (first - wanted) & INT32_MAX > INT32_MAX // 2
    return _Violation("sequence-overlap" if is_below else "sequence-gap", "base_sequence", first, wanted, error)


class EndMarker(NamedTuple):
    """The end of a producer's transaction, as a control record states it."""

    aborted: bool
    coordinator_epoch: int


def _end_marker(batch: RecordBatch) -> EndMarker | _Violation | None:
    """The marker in the batch's first record, or why it is invalid. None if compaction has removed all records."""
    if not batch.records:
        return None
    key, value = batch.records[0].key, batch.records[0].value
    said, coordinator_epoch = end_marker(key, value)
    if said >= 0:
        return EndMarker(said == ABORT, coordinator_epoch)
    why = {
        NO_KEY: "its key is null",
        KEY_INVALID: f"its key is {(key or b'')[:8].hex()}",
        TYPE_OTHER: f"its type is {_int16((key or b'')[2:])}",
        NO_VALUE: "its value is null",
        VALUE_VERSION_NEGATIVE: f"its value's version is {_int16(value or b'')}",
        VALUE_SHORT: f"its value has {len(value or b'')} bytes",
    }[said]
    # Kafka checks for these two itself. The others cause an unexpected exception in it.
    error = INVALID if said in (KEY_INVALID, VALUE_VERSION_NEGATIVE) else UNFORESEEN
    return _Violation("end-marker-invalid", "records[0]", error=error, detail=why)


def _int16(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


@dataclass(frozen=True, slots=True)
class StreamReading:
    """The result of :func:`check_stream`: ``appends`` has one entry for each batch.

    Every transaction before ``last_stable_offset`` has ended.
    """

    appends: tuple[Append, ...]
    last_stable_offset: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the batches."""
        return tuple(append.finding for append in self.appends if append.finding)

    @property
    def fatal(self) -> Finding | None:
        """The finding of the first rejected batch, or None."""
        return next((append.finding for append in self.appends if append.outcome == "rejected"), None)


def check_stream(
    data: Buffer,
    *,
    role: Role = "log",
    profile: Profile = "kafka",
    transaction_version: int = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> StreamReading:
    """Check the batches in ``data`` against the rules that span several batches; see :class:`ProducerState`.

    With role ``broker``, each batch counts as one Produce request. The findings' offsets count from the start of
    ``data``. Raises ``RecordsError`` if a batch is invalid by itself.

    >>> from kfuzz import records
    >>> def batch(base_sequence):
    ...     return records.RecordBatch(0, 0, [records.Record(0, 1, b"k", b"v")], producer_id=4, producer_epoch=0,
    ...                                base_sequence=base_sequence)
    >>> reading = records.check_stream(records.encode([batch(0), batch(2)]), role="broker")
    >>> [append.outcome for append in reading.appends], reading.fatal.code
    (['appended', 'rejected'], 'sequence-gap')
    """
    view = memoryview(data).cast("B")
    state = ProducerState(role=role, profile=profile, transaction_version=transaction_version)
    appends: list[Append] = []
    at = 0
    for batch in read_batches(view, profile=profile, limits=limits):
        appends.append(state.append(batch, at=at, path=f"batch[{len(appends)}]"))
        at += next_frame(view, at)[0]
    return StreamReading(tuple(appends), state.last_stable_offset)


# --- reading --------------------------------------------------------------------------------------------------------


class Transactions(NamedTuple):
    """The transactions of a log.

    - ``aborted``: the aborted transactions in the order of their markers, as in a broker's transaction index.
    - ``last_stable_offset``: every transaction before this offset has ended.
    """

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int


def transactions_of(batches: Iterable[RecordBatch]) -> Transactions:
    """Find the aborted transactions and the last stable offset of a log. Raises ``RecordsError`` for an invalid batch.

    It stores only the state of each producer, and the producer and first offset of each aborted transaction.

    >>> from kfuzz import records
    >>> from kfuzz.records.stream import transactions_of
    >>> batch = records.RecordBatch(3, 3, [records.Record(3, 1, b"k", b"v")], producer_id=4, producer_epoch=0,
    ...                             base_sequence=0, transactional=True)
    >>> transactions_of([batch])
    Transactions(aborted=(), last_stable_offset=3)
    """
    state = ProducerState(role="log")
    aborted = []
    for index, batch in enumerate(batches):
        append = state.append(batch, path=f"batch[{index}]")
        if append.outcome == "rejected" and append.finding:
            raise RecordsError(append.finding)
        if append.completed and append.completed.aborted:
            aborted.append(AbortedTransaction(append.completed.producer_id, append.completed.first_offset))
    return Transactions(tuple(aborted), state.last_stable_offset)


class Fetch:
    """One fetch of a consumer: which records it hands out, and where the next fetch begins.

    ``aborted`` has the aborted transactions of the fetch response as pairs (producer id, first offset), in any order.
    Only isolation ``read_committed`` uses them. Records of control batches are never handed out.

    Mirrors ``org.apache.kafka.clients.consumer.internals.CompletedFetch``.

    >>> from kfuzz import records
    >>> from kfuzz.records.stream import Fetch
    >>> fetch = Fetch(fetch_offset=1)
    >>> batch = records.RecordBatch(0, 2, [records.Record(i, 1, b"k", b"v") for i in (0, 1, 2)])
    >>> [record.offset for record in fetch.records_of(batch)], fetch.next_offset
    ([1, 2], 3)
    """

    def __init__(
        self,
        *,
        isolation: Isolation = "read_uncommitted",
        aborted: Iterable[tuple[int, int]] = (),
        fetch_offset: int = 0,
    ) -> None:
        if isolation not in ISOLATIONS:
            raise UsageError(f"isolation {isolation!r} does not exist; take one of {', '.join(ISOLATIONS)}")
        self.isolation: Isolation = isolation
        # Where the next fetch begins.
        self.next_offset = fetch_offset
        self._position = fetch_offset
        self._batches = 0
        self._aborted = _in_order(aborted)

    def records_of(self, batch: RecordBatch) -> list[Record]:
        """Return the records of ``batch`` that the consumer hands out.

        In ``read_committed``, a control batch whose key cannot be read raises ``RecordsError``.
        """
        path = f"batch[{self._batches}]"
        self._batches += 1
        handed_out: list[Record] = []
        if self.isolation == "read_committed" and self._is_aborted(batch, path):
            self._position = batch.next_offset
        else:
            handed_out, self._position = in_order(batch.records, self._position)
        # Compaction may have removed the batch's last records. The next fetch must not ask for them again.
        self.next_offset = batch.next_offset
        return [] if batch.control else handed_out

    def _is_aborted(self, batch: RecordBatch, path: str) -> bool:
        if batch.producer_id <= NONE:
            return False
        self._aborted.reach(batch.last_offset)
        if _is_abort_marker(batch, path):
            self._aborted.end(batch.producer_id)
            return False
        return batch.transactional and batch.producer_id in self._aborted


def _in_order(aborted: Iterable[tuple[int, int]]) -> Aborted:
    return Aborted(sorted(aborted, key=lambda transaction: transaction[1]))


def _is_abort_marker(batch: RecordBatch, path: str) -> bool:
    if not batch.control or not batch.records:
        return False
    key = batch.records[0].key
    kind = control_type(key)
    if kind is None:
        shown = "null" if key is None else key[:8].hex()
        note = ("end-marker-invalid", "records[0].key", BATCH_HEADER_SIZE, -1, -1, 0, 0, 1)
        raise RecordsError(from_note(note, path, "kafka", "log", f"its key is {shown}"))
    return kind == ABORT


def read_committed(
    log: Buffer | Iterable[RecordBatch], aborted: Iterable[tuple[int, int]] | None = None, *, fetch_offset: int = 0
) -> Iterator[RecordBatch]:
    """Yield the batches that a consumer in ``read_committed`` sees: no control batches and no aborted ones.

    - With ``aborted`` (pairs of producer id and first offset), ``log`` is the answer to a fetch.
    - Without it, ``log`` is read twice. The first pass finds the aborted transactions; the second ends at the last
      stable offset.

    If ``log`` is bytes, only one batch is in memory at a time. Raises ``RecordsError`` for bytes or control batches
    that cannot be read, and for batches that are invalid in a log. Raises ``UsageError`` for an iterator without
    ``aborted``, because it cannot be read twice.

    >>> from kfuzz import records
    >>> batch = records.RecordBatch(3, 3, [records.Record(3, 1, b"k", b"v")], producer_id=4, producer_epoch=0,
    ...                             base_sequence=0, transactional=True)
    >>> data = records.encode([batch])
    >>> len(list(records.read_committed(data, aborted=[]))), len(list(records.read_committed(data, aborted=[(4, 3)])))
    (1, 0)
    """
    if aborted is None and isinstance(log, Iterator):
        raise UsageError("read_committed reads the batches twice; give it a list or the bytes, or aborted as well")
    try:
        view = memoryview(log)  # type: ignore[arg-type]
    except TypeError:
        yield from _committed(log, aborted, fetch_offset)  # type: ignore[arg-type]
    else:
        # Records point into ``bytes`` objects. Any other buffer may change, so records point into a copy of the batch.
        yield from _committed_in(log if isinstance(log, bytes) else view, aborted, fetch_offset)


def _committed(
    log: Iterable[RecordBatch], aborted: Iterable[tuple[int, int]] | None, fetch_offset: int
) -> Iterator[RecordBatch]:
    last_stable_offset = None
    if aborted is None:
        aborted, last_stable_offset = transactions_of(log)
    fetch = Fetch(isolation="read_committed", aborted=aborted, fetch_offset=fetch_offset)
    for batch in log:
        if last_stable_offset is not None and batch.base_offset >= last_stable_offset:
            return
        if fetch.records_of(batch):
            yield batch


def _committed_in(data: Buffer, aborted: Iterable[tuple[int, int]] | None, fetch_offset: int) -> Iterator[RecordBatch]:
    """The same from bytes. Only the batches that are yielded become objects."""
    last_stable_offset = None
    if aborted is None:
        aborted, last_stable_offset = _decided(data)
    choice = CommittedOnly(_in_order(aborted), fetch_offset, last_stable_offset)
    refused = yield from chosen(data, choice)
    if refused is not None:
        # The batch was refused for its key. This raises an error that shows the key.
        _is_abort_marker(refused, f"batch[{choice.index}]")


def _decided(data: Buffer) -> tuple[Iterable[tuple[int, int]], int]:
    """A fast :func:`transactions_of`. If a batch is refused, the slow one runs and raises an error with the reason."""
    decisions = Decisions()
    for _ in chosen(data, decisions):
        pass
    if decisions.refused:
        return transactions_of(read_batches(data))
    return decisions.aborted_transactions, decisions.last_stable_offset
