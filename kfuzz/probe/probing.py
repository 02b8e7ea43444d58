"""A whole probe: topics, one vector after another, and what to do when the broker fails.

Each vector has a partition of its own, because it may make the log unreadable. A topic has a number of partitions. It
is deleted before the next one is created, so that a probe needs little room. After a failure, such as a lost
connection, the broker must accept a good batch, or it counts as ended; then the rest goes to a new topic.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz import records
from kfuzz.client.address import Address
from kfuzz.client.cluster import Cluster, ClusterFailed
from kfuzz.client.link import SILENT, are_of_this_machine, connected, why
from kfuzz.client.protocol import BrokerError, ConnectionLost
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.matrix import Places, Run, judged
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX
from kfuzz.probe.asking import Place, ask, is_transactional
from kfuzz.probe.judging import BROKER, STORAGE_ERROR, cell_of, checked_name, depends_on_limit, handshake_of, with_limit
from kfuzz.probe.observed import ACCEPTED, GONE, NOT_JUDGED, REFUSED, Observed
from kfuzz.probe.settings import Settings
from kfuzz.records import Record, RecordBatch
from kfuzz.records.read.topic import DEFAULT_TOPIC
from kfuzz.vectors.model import TOPIC

__all__ = ["Probed", "probe"]

PARTITIONS: Final = 64
UNKNOWN_TOPIC: Final = 3
# A broker that is silent so often would make a probe endless.
SILENT_MAX: Final = 20
PAUSE_S: Final = 0.2
DELETE_TIMEOUT_S: Final = 10.0
# Answers that nothing but the vector can have caused.
SOUND: Final = (ACCEPTED, REFUSED)
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
MAX_MESSAGE_BYTES: Final = "max.message.bytes"
# The fields of a vector's topic, and Kafka's settings for them.
SETTINGS: Final = {
    "compacted": "cleanup.policy",
    "compression": "compression.type",
    "max_message_bytes": MAX_MESSAGE_BYTES,
    "timestamp_before_max_ms": "message.timestamp.before.max.ms",
    "timestamp_type": "message.timestamp.type",
}
WORDS: Final = {
    "True": "compact",
    "False": "delete",
    "none": "uncompressed",
    "create": "CreateTime",
    "log-append": "LogAppendTime",
}
# A client cannot set these of a broker.
OF_THE_BROKER: Final = {"max_request_bytes": "socket.request.max.bytes"}

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
    label = checked_name(name) if name else BROKER
    # A bad file of expected outcomes is found before the broker is asked.
    places.load(handshake_of(label).label)
    worker = _Worker(settings, on_progress, on_notice)
    asyncio.run(worker.work(cases))
    asked = [case for case in cases if case.key in worker.cells]
    whole = whole and len(asked) == len(cases)
    column = judged(
        handshake_of(label), worker.cells, asked, places=places, whole=whole, publish=publish, notes=worker.notes
    )
    return Probed(Run(tuple(asked), (column,), ()), worker.ended)


class _Ended(Exception):
    """The probe cannot continue; the text says why."""


@dataclass
class _Worker:
    settings: Settings
    on_progress: Callable[[int], None]
    on_notice: Callable[[str], None]
    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    ended: str = ""

    def __post_init__(self) -> None:
        self.cluster: Cluster
        self.base: Config = dict(BASE)
        self.token = secrets.token_hex(4)
        self.numbers = 0
        self.topics: list[str] = []
        # The current topic, and its partitions that are still free.
        self.topic = ""
        self.free: list[int] = []
        self.silent = 0
        self.last: Case | None = None
        # The broker's, if it is not Kafka's default.
        self.max_message_bytes: int | None = None
        self.knows_limit = False
        self.deadline = time.monotonic() + self.settings.duration_s

    async def work(self, cases: Sequence[Case]) -> None:
        """Ask about all cases, as far as the broker and the time allow. Removes the topics, whatever happens."""
        self.cluster = Cluster(self.settings, lambda: None, self._permit)
        try:
            await self.cluster.open()
            try:
                async with asyncio.timeout(self.deadline - time.monotonic()) as whole:
                    for config, those in _by_config(cases):
                        await self._group(config, those)
            except _Ended as ended:
                self.ended = str(ended)
            except TimeoutError:
                if not whole.expired():
                    raise
                self.ended = f"{self.settings.duration_s:g} s are over, and not all vectors were asked; add --duration"
        except (ConnectionLost, BrokerError, ClusterFailed) as error:
            raise UsageError(f"{error}; look at the broker") from None
        finally:
            await self._drop()
            await self.cluster.close()

    def _permit(self, address: Address, hosts: Sequence[str]) -> None:
        if not self.settings.open_to_others and not are_of_this_machine(hosts):
            raise UsageError(f"{address} is not this machine; add --yes if hostile bytes may go there")

    # -- topics

    async def _group(self, config: Config | None, cases: Sequence[Case]) -> None:
        left = list(cases)
        if config is None:
            names = " or ".join(OF_THE_BROKER.values())
            for case in left:
                self._settle(case, Observed(NOT_JUDGED, text=f"needs another {names}, which a client cannot set"))
            return
        self.topic = ""
        for number, case in enumerate(left):
            try:
                await self._place(config, len(left) - number)
            except BrokerError as error:
                if not config:
                    raise
                for one in left[number:]:
                    self._settle(one, Observed(NOT_JUDGED, text=f"needs a topic with other settings: {error}"))
                return
            if not self.knows_limit and MAX_MESSAGE_BYTES not in config:
                await self._learn_limit(cases)
            await self._one(case, config)
        await self._drop()

    async def _learn_limit(self, cases: Sequence[Case]) -> None:
        """Ask the broker once for its ``max.message.bytes``, and note what the judgements depend on."""
        self.knows_limit = True
        told = await self.cluster.config(self.topic, MAX_MESSAGE_BYTES) or ""
        known = told.isascii() and told.isdigit() and len(told) <= len(str(INT32_MAX)) and 0 < int(told) <= INT32_MAX
        default = DEFAULT_TOPIC.max_message_bytes
        if known and int(told) != default:
            self.max_message_bytes = int(told)
            self.notes.append(f"the broker's {MAX_MESSAGE_BYTES} is {told}, and it is judged by that")
        elif not known and any(map(depends_on_limit, cases)):
            self.notes.append(
                f"the broker does not report its {MAX_MESSAGE_BYTES}, so it is judged by Kafka's default of {default}"
            )

    async def _place(self, config: Config, wanted: int) -> Place:
        """A free partition. It is taken when it is used."""
        if not self.topic or not self.free:
            await self._drop()
            await self._create(config, min(wanted, PARTITIONS))
        return Place(self.topic, self.free[0])

    async def _create(self, config: Config, count: int) -> None:
        """Create the next topic. Its partition 0 is for good batches."""
        self.numbers += 1
        topic = f"{self.settings.prefix}-{self.token}-{self.numbers}"
        self.topics.append(topic)
        try:
            await self.cluster.create({topic: count + 1}, self.base | config)
        except BrokerError:
            # With these settings, topics were created before.
            if not self.base or self.numbers > 1:
                raise
            # Not every broker knows Kafka's settings.
            await self.cluster.create({topic: count + 1}, config)
            self.base = {}
            self.notes.append("the broker refuses topics with " + " and ".join(BASE) + ", so defaults were used")
        self.topic, self.free = topic, list(range(1, count + 1))
        seen = await ask(self.cluster, Place(topic, 0), _good())
        if seen.outcome == REFUSED and self.numbers == 1:
            raise UsageError(f"{self.settings.bootstrap} refuses a good batch: {seen.error}; look at the broker")
        if seen.outcome != ACCEPTED and not config:
            raise _Ended(f"the broker accepts no good batch: {seen.error or seen.outcome}")

    async def _drop(self) -> None:
        """Delete the topics, unless they are to be kept."""
        self.topic = ""
        names, self.topics = self.topics, []
        if self.settings.keep or not names:
            return
        try:
            async with asyncio.timeout(DELETE_TIMEOUT_S):
                await self.cluster.delete(names)
        except (ConnectionLost, BrokerError, ClusterFailed, UsageError, TimeoutError) as error:
            # A broker that keeps everything in memory forgets its topics when it restarts.
            if not (isinstance(error, BrokerError) and error.code == UNKNOWN_TOPIC):
                self.notes.append(f"{', '.join(names)} may still be there: {error or 'no answer in time'}")

    # -- vectors

    async def _one(self, case: Case, config: Config) -> None:
        try:
            seen = await self._ask(case)
        except (ConnectionLost, ClusterFailed) as error:
            # Nothing was sent, so the broker ended after it had answered the vector before.
            if self.last is None:
                raise
            await self._recovered(self.last, Observed(GONE, text=str(error)), config)
            self._settle(self.last, Observed(GONE, text="after its answer"))
            seen = await self._ask(case)
        self.last = case
        if SILENT in (seen.outcome, seen.fetch):
            # A busy machine may be slow once. The vector gets another partition of another topic.
            self.on_notice(f"{case.vector.id}: no answer; asked again")
            seen = await self._recovered(case, seen, config)
            if seen.outcome != GONE:
                await self._place(config, 1)
                seen = await self._ask(case)
        if seen.outcome not in SOUND or seen.fetch or seen.error == STORAGE_ERROR:
            seen = await self._recovered(case, seen, config)
        self._settle(case, seen)
        if SILENT in (seen.outcome, seen.fetch):
            self.silent += 1
            if self.silent == SILENT_MAX:
                raise _Ended(f"{SILENT_MAX} vectors got no answer; raise --timeout, or choose fewer vectors")

    async def _ask(self, case: Case) -> Observed:
        place = Place(self.topic, self.free.pop(0))
        seen = await ask(self.cluster, place, case.vector.data)
        transactional = seen.outcome == REFUSED and is_transactional(case.vector.data)
        if transactional and seen.error in NO_TRANSACTION:
            return Observed(NOT_JUDGED, text=f"asks for the transaction before it looks at the batch: {seen.error}")
        return seen

    async def _recovered(self, case: Case, seen: Observed, config: Config) -> Observed:
        """Wait until the broker works again, and return the final observation. The next vector gets a new topic.

        ``_Ended`` if it does not work again in time.
        """
        deadline = time.monotonic() + self.settings.timeout_ms / 1000
        was_away = False
        while True:
            try:
                was_away = await self._is_away() or was_away
                await self._create(config, 1)
                break
            except (_Ended, ConnectionLost, BrokerError, ClusterFailed) as error:
                was_away = was_away or isinstance(error, ConnectionLost)
                if time.monotonic() > deadline:
                    self.topic = ""
                    self._settle(case, Observed(GONE, text=seen.text))
                    raise _Ended(f"the broker does not work any more since {case.vector.id}: {error}") from None
                await asyncio.sleep(PAUSE_S)
        return Observed(GONE, text=seen.text) if was_away else seen

    async def _is_away(self) -> bool:
        """Wait until the broker listens. Return whether it had stopped listening.

        ``ConnectionLost`` if it stays away longer than the timeout.
        """
        address = self.settings.bootstrap
        deadline = time.monotonic() + self.settings.timeout_ms / 1000
        was_away = False
        while True:
            try:
                async with asyncio.timeout(self.settings.timeout_ms / 1000):
                    (await connected(address, self._permit)).close()
                return was_away
            except OSError as error:
                was_away = True
                if time.monotonic() > deadline:
                    raise ConnectionLost(f"{address} cannot be reached: {why(error)}") from None
                await asyncio.sleep(PAUSE_S)

    def _settle(self, case: Case, seen: Observed) -> None:
        self.cells[case.key] = cell_of(with_limit(case, self.max_message_bytes), seen)
        self.on_progress(len(self.cells))


def _good() -> bytes:
    """A batch that every broker accepts."""
    now_ms = round(time.time() * 1000)
    return records.encode([RecordBatch(0, 0, [Record(0, now_ms, b"kfuzz", b"probe")])])


def _by_config(cases: Sequence[Case]) -> Iterator[tuple[Config | None, list[Case]]]:
    """The cases by the settings that their topic needs, those without any first; None if no client can make it."""
    wanted: dict[Any, list[Case]] = {(): []}
    for case in cases:
        topic = case.vector.options.get(TOPIC, {})
        config = {
            SETTINGS[name]: WORDS.get(str(value), str(value)) for name, value in topic.items() if name in SETTINGS
        }
        key = None if topic.keys() & OF_THE_BROKER.keys() else tuple(sorted(config.items()))
        wanted.setdefault(key, []).append(case)
    return ((None if key is None else dict(key), those) for key, those in wanted.items() if those)
