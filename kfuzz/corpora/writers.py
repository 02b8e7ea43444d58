"""The batches of a topic's writers in each segment of a partition. Pure functions: no segment needs those before it.

A *writer* is a producer, or the source of the records without a producer id. Its part of one segment is a ``Stream``.
In the formulas, ``k`` is the number of the segment among those that producers write to, from 0.

* Every segment of a partition except the last divides its offsets in the same way. So a producer that writes ``q``
  records in each begins segment ``k`` with its record number ``k · q``. Its epoch and sequence follow from that number.
* Such a segment holds ``m`` markers of a transactional producer. So its transactions are numbered without counting: the
  first one that ends in segment ``k`` has the number ``k · m`` in its partition, also if it began in segment ``k - 1``.
  A hash says whether a transaction is open between two segments.
* A transaction covers several partitions. Imagine the partitions repeated in a row without end: 0, 1, …, N-1, 0, 1, ….
  A producer's transaction ``t`` covers the places from ``t · s`` to ``t · s + s - 1`` of that row. So number ``j`` of
  partition ``q`` belongs to transaction ``(q + N · j) // s``. Outcome and epochs depend on ``t``, so that they are the
  same in all partitions.
* Cuts at hashed places divide the records of a segment among its transactions. So it is known, without adding up, how
  many records a producer has written when its epoch changes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

from kfuzz.corpora.workload import Topic
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX

# Kinds of streams: the kind of writer, the old magic, or vectors of the golden suite.
PLAIN, IDEMPOTENT, TRANSACTIONAL, MAGIC_0, MAGIC_1, HOSTILE = range(6)

SEQUENCES = INT32_MAX + 1
# A coordinator gives a producer a new id when its epoch reaches the largest int16 less one (isEpochExhausted).
PRODUCER_EPOCH_MAX = (1 << 15) - 2
MASK_64 = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Stream:
    """The records that one writer adds to one segment.

    - ``records`` counts data records. ``markers`` counts the transactions that end here; each marker takes one offset.
    - ``producer_epoch`` and ``first_sequence`` are those of the first batch here (-1 without a producer id).
    - ``written`` counts the writer's records in this partition before this segment.
    - ``first_transaction`` is the number, within the partition, of the first transaction that ends here.
    - ``continues``: that transaction began in the segment before. ``stays_open``: one more transaction begins here, and
      ends in the next segment.
    - ``cuts`` and ``outcomes`` are the seeds of the transactions' sizes here and of all outcomes of this producer.
    """

    kind: int
    producer_id: int = -1
    producer_epoch: int = -1
    first_sequence: int = -1
    records: int = 0
    markers: int = 0
    written: int = 0
    first_transaction: int = 0
    continues: bool = False
    stays_open: bool = False
    cuts: int = 0
    outcomes: int = 0

    @property
    def pieces(self) -> int:
        """How many transactions have records here."""
        return self.markers + self.stays_open


@dataclass(frozen=True, slots=True)
class Share:
    """A writer's part of a segment: ``number`` counts the writers of its kind, from 0."""

    kind: int
    number: int
    records: int
    markers: int = 0


def split(topic: Topic, offsets: int) -> list[Share]:
    """Divide ``offsets`` among the writers of ``topic``. The result does not depend on the segment's position.

    The records and markers of the result add up to ``offsets``; records left over from rounding have no producer id.
    """
    transactions = topic.transactions
    shares = [
        Share(IDEMPOTENT, at, records)
        for at, records in enumerate(_evenly(math.floor(offsets * topic.producers.share), topic.producers.count))
    ]
    markers = math.floor(offsets * transactions.share / (transactions.records + 1))
    for at, count in enumerate(_evenly(markers, transactions.producers)):
        shares.append(Share(TRANSACTIONAL, at, count * transactions.records, count))
    left = offsets - sum(share.records + share.markers for share in shares)
    hostile = math.floor(offsets * topic.adversarial.share)
    if topic.adversarial.share:
        shares.append(Share(HOSTILE, 0, hostile))
        left -= hostile
    for kind, share in ((MAGIC_0, topic.legacy.magic0), (MAGIC_1, topic.legacy.magic1)):
        records = min(left, math.floor(offsets * share))
        shares.append(Share(kind, 0, records))
        left -= records
    shares.append(Share(PLAIN, 0, left))
    return shares


def transaction_of(topic: Topic, partition: int, number: int) -> int:
    """The transaction that is ``number`` of its producer's in ``partition``; see the module's text."""
    return (partition + topic.partitions * number) // topic.transactions.partitions


def cut(stream: Stream, at: int) -> int:
    """The number of records of ``stream`` here before its transaction ``at``; ``at`` counts from 0 in the segment.

    Cuts are spread around even distances, so that each transaction has a record at least.
    """
    if at == 0 or at >= stream.pieces:
        return 0 if at == 0 else stream.records
    width = stream.records // stream.pieces
    return at * stream.records // stream.pieces - width // 2 + (_low(stream.cuts, at) * width >> 32)


@dataclass(frozen=True)
class Writers:
    """The writers of one topic. ``offsets`` is the size of every segment of a partition except the last."""

    topic: Topic
    workload_seed: int
    first_producer_id: int
    offsets: int

    @property
    def producer_ids(self) -> int:
        """How many producer ids the topic takes."""
        return self.topic.producers.count + self.topic.transactions.producers

    @cached_property
    def _full(self) -> list[Share]:
        return split(self.topic, self.offsets)

    @cached_property
    def _full_records(self) -> int:
        return _records(self._full)

    @cached_property
    def _crossers(self) -> list[Share]:
        """The producers that may have a transaction open between two segments."""
        if self.topic.transactions.cross_share == 0:
            return []
        return [share for share in self._full if share.markers > 0]

    @property
    def offsets_min(self) -> int:
        """The fewest offsets that the last segment may have: every transaction that is open before it ends there."""
        return max(1, len(self._crossers))

    def streams(self, partition: int, k: int, offsets: int, *, is_last: bool) -> tuple[Stream, ...]:
        """The streams of segment ``k``, which has ``offsets`` offsets. Writers that add nothing to it have none."""
        full = self._full
        here = self._last(partition, k, offsets) if is_last else full
        # A smaller last segment has the same writers in the same order.
        made = (
            self._stream(whole, share, partition, k, is_last=is_last) for whole, share in zip(full, here, strict=True)
        )
        return tuple(stream for stream in made if stream.records or stream.markers)

    def records(self, partition: int, segments: int, offsets: int) -> int:
        """How many data records ``partition`` has in its ``segments`` segments.

        The last segment has ``offsets`` offsets, the others are full. Markers are not counted.
        """
        last = self._last(partition, segments - 1, offsets)
        return (segments - 1) * self._full_records + _records(last)

    def check(self, place: str, segments: int) -> None:
        """Raise ``UsageError``, with ``place``, if an epoch passes its limit within ``segments`` segments."""
        topic = self.topic
        records = max((share.records for share in self._full if share.kind == IDEMPOTENT), default=0) * segments
        _check_epoch(f"{place}.producers.epoch_records", records, topic.producers.epoch_records, PRODUCER_EPOCH_MAX)
        markers = max((share.markers for share in self._full), default=0) * segments
        last = transaction_of(topic, topic.partitions - 1, markers)
        transactions = topic.transactions
        for key, limit in (("epoch_transactions", PRODUCER_EPOCH_MAX), ("coordinator_epoch_transactions", INT32_MAX)):
            _check_epoch(f"{place}.transactions.{key}", last, getattr(transactions, key), limit)

    # -- one segment

    def _last(self, partition: int, k: int, offsets: int) -> list[Share]:
        """The parts of the last segment: first a marker for each open transaction, then the rest as always."""
        open_before = [share.number for share in self._crossers if self._crosses(share, partition, k)]
        shares = split(self.topic, offsets - len(open_before))
        return [
            Share(share.kind, share.number, share.records, share.markers + 1)
            if share.kind == TRANSACTIONAL and share.number in open_before
            else share
            for share in shares
        ]

    def _stream(self, whole: Share, share: Share, partition: int, k: int, *, is_last: bool) -> Stream:
        kind, written = share.kind, k * whole.records
        if kind == IDEMPOTENT:
            return self._idempotent(share, written)
        if kind == TRANSACTIONAL:
            return self._transactional(whole, share, partition, k, is_last=is_last)
        return Stream(kind, records=share.records, written=written)

    def _idempotent(self, share: Share, written: int) -> Stream:
        producers = self.topic.producers
        epoch, sequence = divmod(written, producers.epoch_records) if producers.epoch_records else (0, written)
        if epoch == 0:
            sequence += producers.first_sequence
        return Stream(IDEMPOTENT, self._producer_id(share), epoch, sequence % SEQUENCES, share.records, written=written)

    def _transactional(self, whole: Share, share: Share, partition: int, k: int, *, is_last: bool) -> Stream:
        first = k * whole.markers
        epoch, written_in_epoch = self._epoch(whole, partition, k)
        if epoch == 0:
            written_in_epoch += self.topic.transactions.first_sequence
        cuts = self._cuts(whole, partition, k)
        return Stream(
            TRANSACTIONAL,
            self._producer_id(share),
            epoch,
            written_in_epoch % SEQUENCES,
            share.records,
            share.markers,
            k * whole.records,
            first,
            self._open_before(whole, k, cuts),
            not is_last and self._crosses(whole, partition, k + 1),
            cuts,
            self._outcomes[share.number],
        )

    def _epoch(self, whole: Share, partition: int, k: int) -> tuple[int, int]:
        """The epoch of the first transaction of segment ``k``, and the records written in that epoch before ``k``."""
        topic, each = self.topic, self.topic.transactions.epoch_transactions
        if each == 0 or whole.markers == 0:
            return 0, k * whole.records
        epoch = transaction_of(topic, partition, k * whole.markers) // each
        # The first transaction with this epoch in all partitions, then the first one in this partition.
        place = epoch * each * topic.transactions.partitions
        number = max(0, -((partition - place) // topic.partitions))
        began_in, at = divmod(number, whole.markers)
        written = (k - began_in) * whole.records
        if at:
            return epoch, written - cut(self._piece(whole, partition, began_in), at)
        if self._crosses(whole, partition, began_in):
            before = self._piece(whole, partition, began_in - 1)
            written += before.records - cut(before, whole.markers)
        return epoch, written

    def _piece(self, whole: Share, partition: int, k: int) -> Stream:
        """The parts of a full segment's stream that decide its cuts."""
        return Stream(
            TRANSACTIONAL,
            records=whole.records,
            markers=whole.markers,
            stays_open=self._crosses(whole, partition, k + 1),
            cuts=self._cuts(whole, partition, k),
        )

    def _producer_id(self, share: Share) -> int:
        before = self.topic.producers.count if share.kind == TRANSACTIONAL else 0
        return self.first_producer_id + before + share.number

    def _cuts(self, whole: Share, partition: int, k: int) -> int:
        return seed_of(self.workload_seed, self.topic.name, partition, k, "transactions", whole.number)

    def _crosses(self, whole: Share, partition: int, k: int) -> bool:
        """Whether a transaction of this producer is open at the start of segment ``k``."""
        return self._open_before(whole, k, self._cuts(whole, partition, k)) if self._crossers else False

    def _open_before(self, whole: Share, k: int, cuts: int) -> bool:
        return k > 0 and whole.markers > 0 and _low(cuts, 0) < threshold(self.topic.transactions.cross_share)

    @cached_property
    def _outcomes(self) -> list[int]:
        """The seed of each transactional producer's outcomes."""
        first, count = self.first_producer_id + self.topic.producers.count, self.topic.transactions.producers
        return [seed_of(self.workload_seed, self.topic.name, "outcomes", first + at) for at in range(count)]


def _check_epoch(place: str, count: int, each: int, limit: int) -> None:
    if each and count // each > limit:
        raise UsageError(
            f"{place} is {each}, so epochs would reach {count // each}, above {limit}; "
            f"give at least {-(-(count + 1) // (limit + 1))}, or 0 for one epoch"
        )


def _records(shares: list[Share]) -> int:
    return sum(share.records for share in shares if share.kind != HOSTILE)


def _evenly(total: int, parts: int) -> list[int]:
    return [total // parts + (at < total % parts) for at in range(parts)]


def seed_of(*cell: int | str) -> int:
    """The seed of one cell of the corpus: 64 bits that depend on all its names and numbers."""
    name = " ".join(["kfuzz-corpus/1", *map(str, cell)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def threshold(share: float) -> int:
    """A random number of 32 bits is below the result with probability ``share``."""
    return int(share * (1 << 32))


def _low(seed: int, at: int) -> int:
    """The low 32 bits of number ``at`` of the sequence after ``seed``, as ``kfuzz.wire.io.splitmix`` has it."""
    z = (seed + (at + 1) * 0x9E3779B97F4A7C15) & MASK_64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK_64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK_64
    return (z ^ z >> 31) & 0xFFFFFFFF
