"""Sends partitions: batches in their order, sent again where that may help, and transactions as in the log.

Each producer of the log becomes one producer of the replay for each partition. So partitions do not wait for each
other, and can be spread over processes. A transaction over several partitions becomes one transaction in each of them,
with the outcome that the log has there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kfuzz.client.cluster import Cluster, ClusterFailed, backoff_s
from kfuzz.client.link import Link
from kfuzz.client.protocol import (
    DUPLICATE,
    FENCED,
    LOST,
    MOVED,
    OUT_OF_ORDER,
    RETRIABLE,
    BrokerError,
    ConnectionLost,
    ProduceForm,
    error_name,
    throttle_ms,
)
from kfuzz.mapped import require_whole
from kfuzz.replay.batches import EMPTY, Batch, Left, Marker, Step, set_header
from kfuzz.replay.choices import Settings
from kfuzz.replay.history import ABORTED, ACKNOWLEDGED, COMMITTED, History
from kfuzz.replay.pace import Gap, Pace
from kfuzz.replay.report import Count, Report, TopicReport

# A broker remembers the last five batches of a producer. Only these it knows again when they come twice.
REMEMBERED: Final = 5
SEQUENCE_MASK: Final = 0x7FFFFFFF
ALL: Final = -1
# After these, a batch may have been appended.
DOUBTFUL: Final = (LOST, 7, 20)
# Instead of an error: a batch of a transaction whose producer cannot continue.
TRANSACTION_LOST: Final = "TRANSACTION_LOST"
YIELD_STEPS: Final = 100
# How long answers are waited for when a replay ends early.
DRAIN_S: Final = 10.0


@dataclass(slots=True)
class Producer:
    """A producer of the replay. ``id`` is -1 until the broker has given one.

    ``known``: whether the broker has a batch of it. ``open``: whether a transaction has begun. ``lost``: whether the
    broker refuses the rest of it.
    """

    transactional_id: str | None
    id: int = -1
    epoch: int = -1
    next_sequence: int = 0
    # The batches of its transaction, for the history.
    numbers: list[int] = field(default_factory=list)
    known: bool = False
    open: bool = False
    lost: bool = False


@dataclass(slots=True, eq=False)
class Sent:
    """A batch on its way. ``number`` counts the batches of the partition.

    ``due`` is when it was due, on the clock of ``time.monotonic``; without a rate, when it was first sent.
    ``doubtful``: whether it may have been appended though the answer was an error.
    """

    number: int
    batch: Batch
    producer: Producer | None
    due: float | None
    sequence: int = -1
    attempts: int = 0
    error: int = 0
    doubtful: bool = False


@dataclass(slots=True)
class Source:
    """The steps for one partition. ``topic`` is the broker's; ``share`` and ``gap`` are those of :class:`Pace`."""

    topic: str
    partition: int
    steps: Iterator[Step]
    share: float = 1.0
    gap: Gap | None = None


@dataclass(slots=True)
class Sender:
    """Sends one partition. ``connection`` is the number of the connection to use."""

    settings: Settings
    cluster: Cluster
    pace: Pace
    report: Report
    source: Source
    connection: int
    history: History | None = None
    passed_bytes: int = 0
    link: Link | None = None
    topic_report: TopicReport = field(init=False)
    _forms: dict[tuple[str | None, int], ProduceForm] = field(default_factory=dict)
    _producers: dict[tuple[int, bool], Producer] = field(default_factory=dict)
    _flying: int = 0
    # The producer of the batches on their way.
    _flown: Producer | None = None
    _failed: list[Sent] = field(default_factory=list)
    _change: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: int = 0
    _latest: int = 0
    # When the last batch was sent, on the clock of ``time.monotonic``; and whether nothing is left.
    sent_at: float | None = None
    ended: bool = False

    def __post_init__(self) -> None:
        self.topic_report = self.report.topic(self.source.topic)

    @property
    def place(self) -> tuple[str, int]:
        """The topic and the partition."""
        return self.source.topic, self.source.partition

    async def run(self) -> None:
        """Send the partition to its end, or to the end of the run."""
        for number, step in enumerate(self.source.steps):
            if number % YIELD_STEPS == 0:
                # Steps that send nothing wait for nothing, so nothing else would run.
                await asyncio.sleep(0)
            if isinstance(step, Batch):
                if not await self.pace.wait_for(step) or not await self._replay(step):
                    break
                self.sent_at = time.monotonic()
            elif self.pace.bounds.stopped is not None:
                break
            elif isinstance(step, Marker):
                await self._end(step)
            else:
                self._leave(step)
            self.passed_bytes += step.log_bytes
        else:
            self.ended = True
        await self._wait_for_answers()
        await self._finish()

    def _leave(self, step: Left) -> None:
        topic = self.topic_report
        count = topic.dropped if step.reason == EMPTY else topic.refused.setdefault(step.reason, Count())
        count.add(step.batches, step.records, step.log_bytes)

    # -- batches

    async def _replay(self, batch: Batch) -> bool:
        """Send the batch, or count why it is not sent. False if the replay ends before."""
        producer = None
        if batch.producer_id >= 0:
            producer = self._producer(batch.producer_id, batch.transactional)
            try:
                await self._ready(producer)
            except BrokerError as error:
                producer.lost = producer.transactional_id is not None
                self._fail(batch, error_name(error.code))
                return True
            if producer.lost:
                self._fail(batch, TRANSACTION_LOST)
                return True
        self._numbers += 1
        if self.history is not None:
            self.history.add(batch, self.pace.due or time.monotonic())
            if producer is not None and producer.transactional_id is not None:
                producer.numbers.append(self._numbers)
        return await self._send(Sent(self._numbers, batch, producer, self.pace.due))

    def _fail(self, batch: Batch, error: str) -> None:
        count = self.topic_report.failed.setdefault((self.source.partition, error), Count())
        count.add(1, batch.records, len(batch.data))

    async def _send(self, sent: Sent) -> bool:
        while True:
            if self._failed:
                await self._wait_for_answers()
                continue
            if not self._may_fly(sent):
                await self._changed()
                continue
            link = await self._link_with_room()
            if link is None:
                return False
            # While this waited, an answer may have come.
            if self._failed or not self._may_fly(sent):
                link.wake(1)
                continue
            if sent.producer is not None and sent.producer.lost:
                link.wake(1)
                self._fail(sent.batch, TRANSACTION_LOST)
                return True
            self._transmit(link, sent)
            return True

    def _may_fly(self, sent: Sent) -> bool:
        """Whether the batch may be sent before the ones on their way are answered.

        If one of these must be sent again, the broker refuses what comes after it only if both have the same producer,
        and if the broker knows this producer: it takes any sequence as the first one.
        """
        if not self._flying:
            return True
        producer = sent.producer
        if producer is not None and not producer.known:
            return False
        most = self.settings.in_flight if producer is None else min(self.settings.in_flight, REMEMBERED)
        in_order = producer is not None and producer is self._flown
        return self._flying < most and (in_order or self.settings.pipelined)

    async def _link_with_room(self) -> Link | None:
        """A connection that takes a batch now; None if the replay ends before there is one."""
        attempt = 0
        while not self.cluster.ended.is_set():
            generation, reason = self.cluster.generation, ""
            link = self.link
            if link is not None and link.lost is None:
                if link.has_room():
                    return link
                await link.room()
                continue
            if link is not None and not self.settings.acks:
                raise ClusterFailed(f"{link.address}: {link.lost}; with acks 0 nobody knows which batches arrived")
            try:
                self.link = await self.cluster.leader(*self.place, self.connection)
            except ConnectionLost as error:
                self.link, reason = None, f": {error}"
            if self.link is None:
                attempt += 1
                if attempt > self.settings.retries:
                    name = "{}-{}".format(*self.place)
                    raise ClusterFailed(f"{name} has no leader that can be reached{reason}; look at the brokers")
                await asyncio.sleep(backoff_s(attempt))
                await self.cluster.refresh_leaders(self.source.topic, generation)
        return None

    def _transmit(self, link: Link, sent: Sent) -> None:
        batch, producer = sent.batch, sent.producer
        # A socket cannot send pages that the file has lost: the link breaks, and the batch comes here again.
        require_whole(batch.data)
        if sent.due is None:
            sent.due = time.monotonic()
        # A batch that is sent again must not change.
        newest = (
            round((time.time() - time.monotonic() + sent.due) * 1000)
            if self.settings.restamp and not sent.attempts
            else None
        )
        fields = None
        if producer is not None:
            sent.sequence = producer.next_sequence
            producer.next_sequence = (producer.next_sequence + batch.records) & SEQUENCE_MASK
            fields = producer.id, producer.epoch, sent.sequence
        if fields or newest is not None:
            set_header(batch.data, fields, newest)
        acks = self.settings.acks if producer is None else ALL
        transactional_id = producer.transactional_id if producer is not None else None
        version = link.version("Produce")
        if (form := self._forms.get((transactional_id, version))) is None:
            form = ProduceForm(version, *self.place, acks, self.settings.timeout_ms, transactional_id)
            self._forms[transactional_id, version] = form
        number = link.next_number()
        pieces = form.around(number, batch.data)
        if not acks:
            link.send(number, pieces, None)
            self._acknowledged(sent, None)
            return
        self._flying += 1
        self._flown = producer
        link.send(number, pieces, lambda answer: self._answered(link, form, sent, answer))

    def _answered(self, link: Link, form: ProduceForm, sent: Sent, answer: bytes | None) -> None:
        self._flying -= 1
        self._change.set()
        sent.error = LOST
        if answer is not None and form.is_usual(answer):
            sent.error = 0
        elif answer is not None:
            # If the answer cannot be read, the link is lost.
            with contextlib.suppress(ConnectionLost):
                values = link.read("Produce", form.version, answer)
                if wait_ms := throttle_ms(values):
                    self.report.throttled_ms += wait_ms
                    link.muted_until = max(link.muted_until, time.monotonic() + wait_ms / 1000)
                try:
                    # One topic and one partition were asked for.
                    sent.error = values["responses"][0]["partitionResponses"][0]["errorCode"]
                except IndexError:
                    link.lose("the answer to Produce has no partition", "garbled")
        if sent.error in (0, DUPLICATE):
            sent.error = 0
            self._acknowledged(sent, time.monotonic())
        else:
            self._failed.append(sent)

    def _acknowledged(self, sent: Sent, now: float | None) -> None:
        topic, batch = self.topic_report, sent.batch
        if self.history is not None:
            self.history.mark([sent.number], ACKNOWLEDGED)
        if sent.producer is not None:
            sent.producer.known = True
        topic.sent.add(1, batch.records, len(batch.data))
        if batch.converted:
            topic.converted.add(1, batch.records, len(batch.data))
        if sent.number < self._latest:
            topic.reordered += batch.records
        self._latest = max(self._latest, sent.number)
        if now is not None and sent.due is not None:
            latency_us = max(1, round((now - sent.due) * 1e6))
            self.report.answered(topic, batch.records, now - self.pace.bounds.began, latency_us)

    async def _changed(self) -> None:
        """Wait for the next answer."""
        self._change.clear()
        if self._flying:
            await self._change.wait()

    # -- answers with errors

    async def _wait_for_answers(self) -> None:
        """Wait for all answers. Send again, in their order, the batches that failed."""
        while True:
            while self._flying:
                await self._changed()
            if not self._failed:
                return
            failed = sorted(self._failed, key=lambda sent: sent.number)
            self._failed = []
            # A producer continues where its first failed batch was.
            for sent in reversed(failed):
                if sent.producer is not None:
                    sent.producer.next_sequence = sent.sequence
            interrupted: set[int] = set()
            for sent in failed:
                await self._mend(sent, follows=id(sent.producer) in interrupted)
                interrupted.add(id(sent.producer))

    async def _mend(self, sent: Sent, *, follows: bool) -> None:
        """Send a batch until it is appended or cannot be. ``follows``: a batch before it had failed too."""
        producer = sent.producer
        while True:
            error = sent.error
            if producer is not None and producer.lost:
                self._fail(sent.batch, TRANSACTION_LOST)
                return
            if producer is not None and error in OUT_OF_ORDER and follows:
                # The broker refused it only because of the batch before it.
                follows = False
            elif producer is not None and producer.transactional_id is None and error in (*OUT_OF_ORDER, 47):
                # The broker has forgotten the producer: a new one begins.
                producer.id = -1
                producer.next_sequence = 0
            elif error not in RETRIABLE:
                self._refused(sent, error)
                return
            if sent.attempts >= self.settings.retries or self.cluster.ended.is_set():
                self._refused(sent, error)
                return
            sent.attempts += 1
            self.topic_report.retried[error_name(error)] += 1
            if error in DOUBTFUL and producer is None and not sent.doubtful:
                sent.doubtful = True
                self.topic_report.repeated += sent.batch.records
            if error not in OUT_OF_ORDER:
                await asyncio.sleep(backoff_s(sent.attempts))
            if error in MOVED:
                if error != LOST:
                    self.link = None
                await self.cluster.refresh_leaders(self.source.topic, self.cluster.generation)
            try:
                if producer is not None:
                    await self._ready(producer)
            except BrokerError as refused:
                self._refused(sent, refused.code)
                return
            if (link := await self._link_with_room()) is None:
                self._refused(sent, error)
                return
            sent.error = 0
            self._transmit(link, sent)
            while self._flying:
                await self._changed()
            if not sent.error:
                return
            self._failed.remove(sent)
            if producer is not None:
                producer.next_sequence = sent.sequence

    def _refused(self, sent: Sent, error: int) -> None:
        producer = sent.producer
        if producer is not None and producer.transactional_id is not None and error in FENCED | {*OUT_OF_ORDER}:
            producer.lost = True
        self._fail(sent.batch, error_name(error))

    # -- producers and transactions

    def _producer(self, log_id: int, transactional: bool) -> Producer:
        if (producer := self._producers.get((log_id, transactional))) is None:
            name = f"{self.settings.transactional_id}-{self.source.topic}-{self.source.partition}-{log_id}"
            producer = self._producers[log_id, transactional] = Producer(name if transactional else None)
        return producer

    async def _ready(self, producer: Producer) -> None:
        """Give the producer an id, and begin its transaction."""
        if producer.id < 0:
            producer.id, producer.epoch = await self.cluster.init_producer(producer.transactional_id)
            producer.known = False
        if producer.transactional_id is not None and not producer.open and not producer.lost:
            await self.cluster.add_partition(producer.transactional_id, producer.id, producer.epoch, *self.place)
            producer.open = True

    async def _end(self, marker: Marker) -> None:
        """End a transaction as the log does."""
        await self._wait_for_answers()
        producer = self._producers.get((marker.producer_id, True))
        if producer is None or not (producer.open or producer.lost):
            self.topic_report.transactions["unmatched"] += 1
            return
        await self._close(producer, "committed" if marker.commit else "aborted")

    async def _close(self, producer: Producer, how: str) -> None:
        assert producer.transactional_id is not None
        numbers, producer.numbers = producer.numbers, []
        if producer.lost:
            self.topic_report.transactions["failed"] += 1
            producer.id, producer.next_sequence, producer.open, producer.lost = -1, 0, False, False
            # With a new epoch, the broker aborts what is left of the transaction.
            with contextlib.suppress(BrokerError):
                producer.id, producer.epoch = await self.cluster.init_producer(producer.transactional_id)
                producer.known = False
            return
        try:
            await self.cluster.end_transaction(
                producer.transactional_id, producer.id, producer.epoch, commit=how == "committed"
            )
        except BrokerError as error:
            self.topic_report.transactions["failed"] += 1
            self.topic_report.failed.setdefault((self.source.partition, f"EndTxn: {error_name(error.code)}"), Count())
            producer.id, producer.next_sequence = -1, 0
        else:
            self.topic_report.transactions[how] += 1
            if self.history is not None:
                self.history.mark(numbers, COMMITTED if how == "committed" else ABORTED)
        producer.open = False

    async def _finish(self) -> None:
        """Transactions that are open in the log stay open. Those that the replay's end cuts are aborted."""
        for producer in self._producers.values():
            if producer.open and self.ended and not producer.lost:
                self.topic_report.transactions["open"] += 1
            elif producer.open or producer.lost:
                await self._close(producer, "cut")
