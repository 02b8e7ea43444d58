"""Rules that need memory: sequences, epochs and transactions over a stream of batches.

:class:`ProducerState` is what a partition remembers of its producers, and judges each batch that is appended to it;
:class:`Fetch` is what a consumer remembers within one fetch, and hands out each batch's records or drops them. Both
take a batch in constant time and remember producers, never batches.

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
from kfuzz.wire.framing import next_frame
from kfuzz.wire.layout import BATCH_HEADER_SIZE, HEADER_AT
from kfuzz.wire.survey import in_order
from kfuzz.wire.transactions import (
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
# From this version of transactions on, each one has an epoch of its own (KIP-890).
EPOCH_PER_TRANSACTION = 2

# What else a produce request is answered with; org.apache.kafka.common.protocol.Errors.
INVALID, UNFORESEEN = "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"


def next_sequence(sequence: int, count: int = 1) -> int:
    """The sequence ``count`` records after ``sequence``: 0 follows 2³¹-1. Mirrors
    ``DefaultRecordBatch.incrementSequence``.
    """
    left = INT32_MAX - sequence
    return count - left - 1 if count > left else sequence + count


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as a fetch response tells it: whose it was, and at which offset it began."""

    producer_id: int
    first_offset: int


class CompletedTransaction(NamedTuple):
    """A transaction and the marker that ended it, which stands at ``last_offset``. Mirrors ``CompletedTxn``."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


@dataclass(frozen=True, slots=True)
class Append:
    """What became of one batch.

    ``base_offset`` and ``last_offset`` are those under which the batch stands in the log: the assigned ones, or those
    that a ``duplicate`` got when it first came; None for a ``rejected`` one. ``finding`` says what is wrong or odd,
    ``error`` is Kafka's name of the error that a refusal is answered with. ``completed`` is the transaction that a
    marker has ended; a marker without one ends nothing.
    """

    outcome: Outcome
    base_offset: int | None = None
    last_offset: int | None = None
    finding: Finding | None = None
    error: str | None = None
    completed: CompletedTransaction | None = None


class _Kept(NamedTuple):
    """One of a producer's last batches; ``BatchMetadata``."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


@dataclass(slots=True)
class _Producer:
    """What is known of one producer; ``ProducerStateEntry``. ``first_offset`` is that of its open transaction."""

    epoch: int = NONE
    coordinator_epoch: int = NONE
    first_offset: int | None = None
    kept: deque[_Kept] = field(default_factory=lambda: deque(maxlen=BATCHES_KEPT))

    def enter(self, epoch: int) -> None:
        """Go on under ``epoch``; another epoch knows nothing of the batches before."""
        if epoch != self.epoch:
            self.kept.clear()
            self.epoch = epoch


@dataclass(frozen=True, slots=True)
class _Problem:
    """Something that is wrong with a batch, and Kafka's name of the error."""

    code: str
    field: str
    found: int = 0
    allowed: int = 0
    error: str = ""
    detail: str = ""


class ProducerState:
    """What one partition remembers of its producers: sequences, epochs and open transactions.

    As ``broker`` it assigns offsets from ``log_end_offset`` on and holds each batch to every rule: data batches as they
    come from a client, control batches as they come from a transaction coordinator, whose ``transaction_version`` says
    whether each transaction has an epoch of its own (2) or not (0, 1). As ``log`` it follows batches that a broker has
    taken already: offsets stand, sequences may have gaps, and an old epoch is no more than odd.

    A batch is expected to be right by itself; what one batch shows is for :func:`kfuzz.records.check` to say. That a
    client's transaction was announced to the coordinator is not checked: no batch shows it.

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
            raise UsageError(f"role {role!r} keeps no producer state; take broker or log")
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
        # First offset and producer of each open transaction, least first. Those that ended leave when they are met.
        self._begun: list[tuple[int, int]] = []

    @property
    def last_stable_offset(self) -> int:
        """Where the oldest open transaction begins, or the end of the log: all before it is decided."""
        self._forget_ended()
        return self._begun[0][0] if self._begun else self.log_end_offset

    @property
    def open_transactions(self) -> int:
        """How many transactions have begun and not ended."""
        return self._open

    def append(self, batch: RecordBatch, *, at: int = 0, path: str = "batch[0]") -> Append:
        """Take the batch, or refuse it and leave everything as it was. Never raises for what a batch says.

        ``at`` (where the batch begins in some buffer, in bytes) and ``path`` are for the finding.
        """
        base_offset = batch.base_offset if self.role == "log" else self.log_end_offset
        last_offset = base_offset + batch.last_offset - batch.base_offset
        completed, odd = None, None
        if batch.producer_id > NONE:
            producer = self._producers.get(batch.producer_id) or _Producer()
            if earlier := self._earlier(batch, producer):
                problem = _Problem("sequence-duplicate", "base_sequence", batch.base_sequence)
                # The documents ask a broker to drop it, so that no profile takes it for a fault.
                finding = replace(self._finding(problem, at, path), severity="deviation")
                return Append("duplicate", earlier.base_offset, earlier.last_offset, finding)
            marker = _end_marker(batch) if batch.control else None
            for problem in self._problems(batch, producer, marker):
                finding = self._finding(problem, at, path)
                if finding.severity == "fatal":
                    return Append("rejected", finding=finding, error=problem.error)
                odd = odd or finding
            if isinstance(marker, EndMarker):
                completed = self._end(batch, producer, marker, base_offset)
            elif not batch.control:
                self._extend(batch, producer, base_offset, last_offset)
        self.log_end_offset = last_offset + 1
        return Append("appended", base_offset, last_offset, odd, None, completed)

    def _finding(self, problem: _Problem, at: int, path: str) -> Finding:
        place = at + HEADER_AT.get(problem.field, BATCH_HEADER_SIZE)
        note = (problem.code, problem.field, place, -1, -1, problem.found, problem.allowed, 1)
        return from_note(note, path, self.profile, self.role, problem.detail)

    # -- what is wrong

    def _earlier(self, batch: RecordBatch, producer: _Producer) -> _Kept | None:
        """The batch that a client sends again; ``ProducerStateEntry.findDuplicateBatch``."""
        if self.role == "log" or batch.control or batch.producer_epoch != producer.epoch:
            return None
        wanted = batch.base_sequence, _last_sequence(batch)
        return next((kept for kept in producer.kept if (kept.first_sequence, kept.last_sequence) == wanted), None)

    def _problems(
        self, batch: RecordBatch, producer: _Producer, marker: EndMarker | _Problem | None
    ) -> Iterator[_Problem]:
        """In the order in which Kafka looks."""
        if isinstance(marker, _Problem):
            yield marker
            return
        if batch.control and marker is None:
            # Nothing is left of a transaction that compaction has removed.
            return
        if self._is_stale(batch, producer):
            yield _Problem(
                "producer-epoch-stale", "producer_epoch", batch.producer_epoch, producer.epoch, "INVALID_PRODUCER_EPOCH"
            )
        if marker is not None:
            if marker.coordinator_epoch < producer.coordinator_epoch:
                yield _Problem(
                    "coordinator-epoch-stale",
                    "value",
                    marker.coordinator_epoch,
                    producer.coordinator_epoch,
                    "TRANSACTION_COORDINATOR_FENCED",
                )
            return
        if self.role == "broker" and (problem := _sequence_problem(batch, producer)):
            yield problem
        if producer.first_offset is not None and not batch.transactional:
            yield _Problem(
                "transaction-not-ended", "attributes", allowed=producer.first_offset, error="INVALID_TXN_STATE"
            )

    def _is_stale(self, batch: RecordBatch, producer: _Producer) -> bool:
        if not batch.control or self.role == "log" or self.transaction_version < EPOCH_PER_TRANSACTION:
            return batch.producer_epoch < producer.epoch
        if batch.producer_epoch == producer.epoch:
            # Written once more after the transaction has ended, or under the last epoch that there is.
            return producer.first_offset is not None and producer.epoch != INT16_MAX
        return batch.producer_epoch < producer.epoch

    # -- what follows from it

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
        # One that stays open must not keep all that have ended after it.
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


def _sequence_problem(batch: RecordBatch, producer: _Producer) -> _Problem | None:
    """Why a client's batch does not follow the one before; ``ProducerAppendInfo.checkSequence``."""
    if producer.epoch == NONE:
        # Nothing is known of the producer, perhaps because all that it wrote was deleted since.
        return None
    first, error = batch.base_sequence, "OUT_OF_ORDER_SEQUENCE_NUMBER"
    if batch.producer_epoch != producer.epoch:
        return _Problem("sequence-of-new-epoch", "base_sequence", first, 0, error) if first else None
    wanted = next_sequence(producer.kept[-1].last_sequence) if producer.kept else 0
    if first == wanted:
        return None
    # Half of all sequences are ahead of the wanted one, and half behind.
    behind = (first - wanted) & INT32_MAX > INT32_MAX // 2
    return _Problem("sequence-overlap" if behind else "sequence-gap", "base_sequence", first, wanted, error)


class EndMarker(NamedTuple):
    """What a control record says of its producer's transaction."""

    aborted: bool
    coordinator_epoch: int


def _end_marker(batch: RecordBatch) -> EndMarker | _Problem | None:
    """What the batch's first record says; None for a control batch that compaction has emptied."""
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
    # Of these two Kafka says so itself; over the others it stumbles.
    error = INVALID if said in (KEY_INVALID, VALUE_VERSION_NEGATIVE) else UNFORESEEN
    return _Problem("end-marker-invalid", "records[0]", error=error, detail=why)


def _int16(data: bytes) -> int:
    return int.from_bytes(data[:2], "big", signed=True)


@dataclass(frozen=True, slots=True)
class StreamReading:
    """What :func:`check_stream` found: what became of each batch, and the offset up to which all is decided."""

    appends: tuple[Append, ...]
    last_stable_offset: int

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in the order of the batches."""
        return tuple(append.finding for append in self.appends if append.finding)

    @property
    def fatal(self) -> Finding | None:
        """The first finding that refused a batch, or None."""
        return next((append.finding for append in self.appends if append.outcome == "rejected"), None)


def check_stream(
    data: Buffer,
    *,
    role: Role = "log",
    profile: Profile = "kafka",
    transaction_version: int = 0,
    limits: Limits = DEFAULT_LIMITS,
) -> StreamReading:
    """Hold the batches in ``data``, one after another, to the rules that need memory; see :class:`ProducerState`.

    As ``broker`` each batch is taken for a produce request of its own. Findings have places in ``data``.
    ``RecordsError`` where a batch is refused by itself.
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
    """What the markers of a log decide: the ``aborted`` transactions in the order of their markers, as a broker's
    transaction index lists them, and the ``last_stable_offset`` before which all is decided.
    """

    aborted: tuple[AbortedTransaction, ...]
    last_stable_offset: int


def transactions_of(batches: Iterable[RecordBatch]) -> Transactions:
    """What the markers among ``batches`` decide; ``RecordsError`` for a batch that cannot stand in a log.

    What is remembered is the producers, and of each aborted transaction whose it was and where it began.
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

    ``aborted`` are the aborted transactions as (producer id, first offset), in any order, as a fetch response tells
    them; they matter in ``read_committed`` only. Control batches are never handed out.

    Mirrors ``org.apache.kafka.clients.consumer.internals.CompletedFetch``.
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

    def take(self, batch: RecordBatch) -> list[Record]:
        """The records of ``batch`` that the consumer hands out.

        ``RecordsError`` in ``read_committed`` for a control batch whose key cannot be read.
        """
        path = f"batch[{self._batches}]"
        self._batches += 1
        handed_out: list[Record] = []
        if self.isolation == "read_committed" and self._is_aborted(batch, path):
            self._position = batch.next_offset
        else:
            handed_out, self._position = in_order(batch.records, self._position)
        # Compaction may have removed the batch's last records; nobody need ask for them again.
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
    """The batches of which a consumer in ``read_committed`` sees records: no control batches, and no aborted ones.

    With ``aborted``, as :class:`Fetch` takes them, ``log`` is what a broker has sent. Without, it is read twice, first
    by :func:`transactions_of`, and ends at the last stable offset. From bytes no more than one batch is in memory at a
    time. ``RecordsError`` for bytes that cannot be read, for a control batch that cannot be read, and for what cannot
    stand in a log; ``UsageError`` for an iterator without ``aborted``, for it cannot be read twice.
    """
    if aborted is None and isinstance(log, Iterator):
        raise UsageError("read_committed reads the batches twice; give it a list or the bytes, or aborted as well")
    try:
        view = memoryview(log)  # type: ignore[arg-type]
    except TypeError:
        yield from _committed(log, aborted, fetch_offset)  # type: ignore[arg-type]
    else:
        # Records of bytes refer to them; those of another buffer, which may change, to a copy of their batch.
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
        if fetch.take(batch):
            yield batch


def _committed_in(data: Buffer, aborted: Iterable[tuple[int, int]] | None, fetch_offset: int) -> Iterator[RecordBatch]:
    """The same from bytes. Objects are made of those batches only that are handed out."""
    last_stable_offset = None
    if aborted is None:
        aborted, last_stable_offset = _decided(data)
    choice = CommittedOnly(_in_order(aborted), fetch_offset, last_stable_offset)
    refused = yield from chosen(data, choice)
    if refused is not None:
        # For its key; this says which.
        _is_abort_marker(refused, f"batch[{choice.index}]")


def _decided(data: Buffer) -> tuple[Iterable[tuple[int, int]], int]:
    """As :func:`transactions_of`, which is asked itself where a batch is refused: it can say why."""
    decisions = Decisions()
    for _ in chosen(data, decisions):
        pass
    if decisions.refused:
        return transactions_of(read_batches(data))
    return decisions.aborted_transactions, decisions.last_stable_offset
