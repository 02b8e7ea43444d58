"""A whole probe: topics, one vector after another, and what to do when the broker fails.

Each vector has a partition of its own, because it may make the log unreadable. A topic has a number of partitions. It
is deleted before the next one is created, so that a probe needs little room. After a failure, such as a lost
connection, the broker must accept a good batch, or it counts as ended; then the rest goes to a new topic.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.cluster import Cluster, ClusterFailed
from kfuzz.client.link import connected, why
from kfuzz.client.protocol import BrokerError, ConnectionLost
from kfuzz.conformance.broker.settings import MAX_MESSAGE_BYTES, OF_BROKERS, OF_TOPICS, by_settings, handshake_of
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.matrix import Places, Run, column_of
from kfuzz.conformance.judge.runner import cells
from kfuzz.conformance.protocol.lines import Handshake
from kfuzz.conformance.protocol.peer import Question
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX
from kfuzz.probe.asking import Place, ask, is_transactional
from kfuzz.probe.conversations import batch
from kfuzz.probe.judging import BROKER, STORAGE_ERROR, cell_of, checked_name, limit_notes, with_limit
from kfuzz.probe.observed import Observed
from kfuzz.probe.settings import Ended, Settings

T = TypeVar("T")
PARTITIONS: Final = 64
# A broker that is silent so often would make a probe endless.
SILENT_MAX: Final = 20
PAUSE_S: Final = 0.2
DELETE_TIMEOUT_S: Final = 10.0
# Answers that nothing but the vector can have caused.
SOUND: Final = ("accepted", "rejected")
# Errors from a broker that asks the coordinator first, for a transaction that was never begun.
NO_TRANSACTION: Final = (
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "TRANSACTION_ABORTABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "CONCURRENT_TRANSACTIONS",
    # Kafka's broker returns this error if it cannot reach the coordinator.
    "NOT_ENOUGH_REPLICAS",
)
# Answers must not depend on the clock, and many partitions must fit on the disk.
BASE: Final = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": "9223372036854775807",
    "segment.index.bytes": "65536",
}
Config = dict[str, str]


@dataclass(frozen=True, slots=True)
class Probed:
    """``run`` has the judgements. ``ended`` says why the probe ended early; empty if it did not."""

    run: Run
    ended: str = ""


def probe(
    cases: Sequence[Case],
    settings: Settings,
    *,
    places: Places,
    name: str = "",
    whole: bool = False,
    publish: bool = False,
    on_progress: Callable[[int], None] = lambda done: None,
    on_notice: Callable[[str], None] = lambda text: None,
) -> Probed:
    """Ask the broker at ``settings.bootstrap`` about ``cases``, which :func:`cases_for_broker` makes.

    ``name``: ``NAME@VERSION`` of the broker, which names its file of expected outcomes in ``places``. ``whole``: the
    cases are the whole suite. ``publish``: reports withhold what is not public.

    Raises ``UsageError`` if the broker cannot be reached or is on another machine, lets no client create topics, or
    refuses a good batch. Whatever it does with a vector is an outcome.
    """
    handshake = handshake_of(checked_name(name) if name else BROKER)
    # A bad file of expected outcomes is found before the broker is asked.
    places.load(handshake.label)
    peer = ProbedBroker(settings, handshake, on_notice)
    found: dict[tuple[str, str], Cell] = {}
    for case, cell in cells(peer, cases, peer.oracle):
        found[case.key] = cell
        on_progress(len(found))
    asked = [case for case in cases if case.key in found]
    notes = [*peer.notes, *limit_notes(asked, peer.max_message_bytes)]
    whole = whole and len(asked) == len(cases)
    column = column_of(handshake, found, asked, places=places, whole=whole, publish=publish, notes=notes)
    # The sentence may name a vector whose outcome is withheld.
    ended = "the probe ended early" if peer.ended and publish else peer.ended
    return Probed(Run(tuple(asked), (replace(column, stopped=ended),), ()), ended)


class ProbedBroker:
    """A running broker as a peer: each question gets a partition of its own. Its topics are removed at the end.

    ``notes`` are remarks about the whole probe, ``ended`` says why it ended early. ``max_message_bytes`` is the
    broker's own limit; None if it does not report it.
    """

    def __init__(
        self, settings: Settings, handshake: Handshake, on_notice: Callable[[str], None] = lambda text: None
    ) -> None:
        self.handshake = handshake
        self.notes: list[str] = []
        self.ended = ""
        self.max_message_bytes: int | None = None
        self._settings = settings
        self._on_notice = on_notice
        self._cluster: Cluster
        self._base: Config = dict(BASE)
        self._token = secrets.token_hex(4)
        self._numbers = 0
        self._topics: list[str] = []
        # The current topic, and its partitions that are still free.
        self._topic = ""
        self._free: list[int] = []
        self._silent = 0
        self._knows_limit = False
        self._deadline = time.monotonic() + settings.duration_s
        # The last observation waits, because the next question may show that the broker ended after it.
        self._held: tuple[Question[Any], Observed] | None = None
        # Finished observations; None is the end.
        self._observed: asyncio.Queue[tuple[Question[Any], Observed] | None]

    def oracle(self, case: Case, handshake: Handshake, seen: Observed) -> Cell:
        """The judgement on one vector, by the broker's own limits."""
        return cell_of(with_limit(case, self.max_message_bytes), seen)

    def answers(self, questions: Iterable[Question[T]]) -> Iterator[tuple[Question[T], Observed]]:
        """Ask one question after another, and return what the broker did with each; see :func:`probe`.

        It continues only while the caller waits for an observation.
        """
        self._observed = asyncio.Queue()
        with asyncio.Runner() as runner:
            work = runner.get_loop().create_task(self._work(list(questions)))
            work.add_done_callback(lambda _: self._observed.put_nowait(None))
            try:
                while (one := runner.run(self._observed.get())) is not None:
                    yield one
                work.result()
            finally:
                work.cancel()
                runner.run(asyncio.wait([work]))

    async def _work(self, questions: Sequence[Question[Any]]) -> None:
        """Ask all questions, as far as the broker and the time allow. Removes the topics, whatever happens."""
        self._cluster = Cluster(self._settings, permit=self._settings.permit)
        try:
            await self._cluster.open()
            try:
                async with asyncio.timeout(self._deadline - time.monotonic()) as whole:
                    await self._ask_all(questions)
            except Ended as ended:
                self.ended = str(ended)
            except TimeoutError:
                if not whole.expired():
                    raise
                self.ended = f"{self._settings.duration_s:g} s are over, and not all vectors were asked; add --duration"
            self._release()
        except (ConnectionLost, BrokerError, ClusterFailed) as error:
            raise UsageError(f"{error}; look at the broker") from None
        finally:
            await self._drop()
            await self._cluster.close()

    async def _ask_all(self, questions: Sequence[Question[Any]]) -> None:
        names = " or ".join(OF_BROKERS.values())
        for settings, asked in by_settings(questions, OF_BROKERS):
            if not settings:
                for config, those in by_settings(asked, OF_TOPICS):
                    await self._group(config, those)
                continue
            for one in asked:
                self._leave_out(one, f"needs another {names}, which a client cannot set")

    # -- topics

    async def _group(self, config: Config, left: Sequence[Question[Any]]) -> None:
        self._topic = ""
        for number, question in enumerate(left):
            try:
                await self._place(config, len(left) - number)
            except BrokerError as error:
                if not config:
                    raise
                for one in left[number:]:
                    self._leave_out(one, f"needs a topic with other settings: {error}")
                return
            if not self._knows_limit and MAX_MESSAGE_BYTES not in config:
                await self._learn_limit()
            await self._one(question, config)
        await self._drop()

    async def _learn_limit(self) -> None:
        """Ask the broker once for its ``max.message.bytes``, which judgements depend on."""
        self._knows_limit = True
        value = await self._cluster.config(self._topic, MAX_MESSAGE_BYTES) or ""
        if value.isascii() and value.isdigit() and len(value) <= len(str(INT32_MAX)) and 0 < int(value) <= INT32_MAX:
            self.max_message_bytes = int(value)

    async def _place(self, config: Config, wanted: int) -> Place:
        """A free partition. It is taken when it is used."""
        if not self._topic or not self._free:
            await self._drop()
            await self._create(config, min(wanted, PARTITIONS))
        return Place(self._topic, self._free[0])

    async def _create(self, config: Config, count: int) -> None:
        """Create the next topic. Its partition 0 is for good batches."""
        self._numbers += 1
        topic = f"{self._settings.prefix}-{self._token}-{self._numbers}"
        self._topics.append(topic)
        try:
            await self._cluster.create({topic: (count + 1, self._base | config)})
        except BrokerError:
            # With these settings, topics were created before.
            if not self._base or self._numbers > 1:
                raise
            # Not every broker knows Kafka's settings.
            await self._cluster.create({topic: (count + 1, config)})
            self._base = {}
            self.notes.append("the broker refuses topics with " + " and ".join(BASE) + ", so defaults were used")
        self._topic, self._free = topic, list(range(1, count + 1))
        seen = await ask(self._cluster, Place(topic, 0), batch(round(time.time() * 1000)))
        if seen.outcome == "rejected" and self._numbers == 1:
            raise UsageError(f"{self._settings.bootstrap} refuses a good batch: {seen.error}; look at the broker")
        if seen.outcome != "accepted" and not config:
            raise Ended(f"the broker accepts no good batch: {seen.error or seen.outcome}")

    async def _drop(self) -> None:
        """Delete the topics, unless they are to be kept."""
        self._topic = ""
        names, self._topics = self._topics, []
        if self._settings.keep or not names:
            return
        try:
            async with asyncio.timeout(DELETE_TIMEOUT_S):
                await self._cluster.delete(names)
        except (ConnectionLost, BrokerError, ClusterFailed, UsageError, TimeoutError) as error:
            # A broker that keeps everything in memory forgets its topics when it restarts.
            if not (isinstance(error, BrokerError) and error.code == ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION"]):
                self.notes.append(f"{', '.join(names)} may still be there: {error or 'no answer in time'}")

    # -- vectors

    async def _one(self, question: Question[Any], config: Config) -> None:
        try:
            seen = await self._ask(question)
        except (ConnectionLost, ClusterFailed) as error:
            # Nothing was sent, so the broker ended after it had answered the vector before.
            if self._held is None:
                raise
            last, _ = self._held
            await self._recovered(last, Observed("gone", text=str(error)), config)
            self._settle(last, Observed("gone", text="after its answer"))
            seen = await self._ask(question)
        if "silent" in (seen.outcome, seen.fetch):
            # A busy machine may be slow once. The vector gets another partition of another topic.
            self._on_notice(f"{question.request['id']}: no answer; asked again")
            seen = await self._recovered(question, seen, config)
            if seen.outcome != "gone":
                await self._place(config, 1)
                seen = await self._ask(question)
        if seen.outcome not in SOUND or seen.fetch or seen.error == STORAGE_ERROR:
            seen = await self._recovered(question, seen, config)
        self._settle(question, seen)
        if "silent" in (seen.outcome, seen.fetch):
            self._silent += 1
            if self._silent == SILENT_MAX:
                raise Ended(f"{SILENT_MAX} vectors got no answer; raise --timeout, or choose fewer vectors")

    async def _ask(self, question: Question[Any]) -> Observed:
        data = bytes.fromhex(question.request["hex"])
        seen = await ask(self._cluster, Place(self._topic, self._free.pop(0)), data)
        transactional = seen.outcome == "rejected" and is_transactional(data)
        if transactional and seen.error in NO_TRANSACTION:
            return Observed("not judged", text=f"asks for the transaction before it looks at the batch: {seen.error}")
        return seen

    async def _recovered(self, question: Question[Any], seen: Observed, config: Config) -> Observed:
        """Wait until the broker works again, and return the final observation. The next vector gets a new topic.

        ``Ended`` if it does not work again in time.
        """
        address, timeout_s = self._settings.bootstrap, self._settings.timeout_ms / 1000
        deadline = time.monotonic() + timeout_s
        was_away = False
        while True:
            try:
                async with asyncio.timeout(timeout_s):
                    (await connected(address, self._settings.permit)).close()
                await self._create(config, 1)
                return Observed("gone", text=seen.text) if was_away else seen
            except OSError as error:
                was_away, failure = True, f"{address} cannot be reached: {why(error)}"
            except (Ended, ConnectionLost, BrokerError, ClusterFailed) as error:
                was_away, failure = was_away or isinstance(error, ConnectionLost), str(error)
            if time.monotonic() > deadline:
                self._topic = ""
                self._settle(question, Observed("gone", text=seen.text))
                raise Ended(f"the broker does not work any more since {question.request['id']}: {failure}")
            await asyncio.sleep(PAUSE_S)

    def _settle(self, question: Question[Any], seen: Observed) -> None:
        """Keep what was observed, in place of an earlier observation of the same question."""
        if self._held is not None and self._held[0] is not question:
            self._release()
        self._held = question, seen

    def _release(self) -> None:
        if self._held is not None:
            self._observed.put_nowait(self._held)
            self._held = None

    def _leave_out(self, question: Question[Any], why: str) -> None:
        self._observed.put_nowait((question, Observed("not judged", text=why)))
