"""The brokers of a cluster: where partitions and coordinators are, and connections to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.address import Access, Address
from kfuzz.client.link import Link, Permit
from kfuzz.client.protocol import MOVED, RETRIABLE, BrokerError, ConnectionLost, error_name, first_error
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.messages.codec import Message
from kfuzz.text import foreign_text
from kfuzz.units import counted

Answer = TypeVar("Answer")
BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
EXPIRE_S: Final = 0.5
# The number of the connection for all requests except batches.
CONTROL: Final = -1
# The first address that the user gave; others have lower numbers. The brokers' own numbers begin at 0.
BOOTSTRAP: Final = -1
TRANSACTION: Final = 1
# The number of topics among the things that have settings.
TOPIC: Final = 2
# The most that a controller creates by one request: topics, settings and partitions are a record each.
CREATED_MAX: Final = 10_000
# More brokers than any cluster has. Each of them may be tried.
BROKERS_MAX: Final = 10_000
# Producers never get the last one: a new leader does not know its offsets yet.
AGAIN: Final = RETRIABLE | {ERROR_CODES["OFFSET_NOT_AVAILABLE"]}
# How many topics a sentence names.
NAMED_MAX: Final = 10
# Without this setting the broker deletes records older than a week, and most corpora are older.
KEPT: Final = {"retention.ms": "-1"}


class ClusterFailed(KfuzzError):
    """The brokers cannot be worked with any longer; the text says why."""


def backoff_s(attempt: int) -> float:
    """How long to wait before an attempt, which counts from 1."""
    return float(min(BACKOFF_S * 2 ** (attempt - 1), BACKOFF_S_MAX))


@dataclass(eq=False)
class Cluster:
    """The brokers of the cluster of ``settings.bootstrap``. Close it at the end.

    ``count_reconnect`` is called for each connection that is opened again. ``permit`` is called with each address
    and what its name stands for, before a connection to it is opened, and may raise.
    """

    settings: Access
    count_reconnect: Callable[[], None] = lambda: None
    permit: Permit = lambda address, hosts: None

    def __post_init__(self) -> None:
        self._reconnects = 0
        given = (self.settings.bootstrap, *self.settings.others)
        self._addresses: dict[int, Address] = {BOOTSTRAP - at: address for at, address in enumerate(given)}
        self._leaders: dict[tuple[str, int], int] = {}
        self._coordinators: dict[str, int] = {}
        self._links: dict[tuple[int, int], Link] = {}
        self._locks: dict[tuple[int, int], asyncio.Lock] = {}
        self._metadata = asyncio.Lock()
        # How often the leaders were asked for; for :meth:`refresh_leaders`.
        self.generation = 0
        # Set by :meth:`end`.
        self.ended = asyncio.Event()
        self._expiry: asyncio.Task[None] | None = None
        # The error after which a request was repeated the last time, for a sentence.
        self.trouble = ""
        self._has_waited = False

    async def open(self) -> None:
        """Connect to the first broker that can be reached; ``UsageError`` if none can."""
        self._expiry = asyncio.create_task(self._expire())
        failures = []
        for broker in sorted(self._addresses, reverse=True):
            try:
                await self._new(broker, CONTROL).open()
                return
            except (ConnectionLost, BrokerError) as error:
                failures.append(str(error))
                del self._links[broker, CONTROL]
                if len(failures) < len(self._addresses):
                    self._waits(f"{error}; the next broker is tried")
        raise UsageError(f"{'; '.join(failures)}; is a broker running there, and does it expect TLS or a user?")

    def end(self) -> None:
        """The work is over: nobody waits any longer before a batch is sent. Requests still work."""
        self.ended.set()
        for (_, number), link in self._links.items():
            if number != CONTROL:
                link.wake()

    async def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        for link in self._links.values():
            link.close()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_S)
            for link in list(self._links.values()):
                link.expire()

    # -- connections

    def _new(self, broker: int, number: int) -> Link:
        settings = self.settings
        self._links[broker, number] = link = Link(
            self._addresses[broker],
            settings.security,
            timeout_ms=settings.timeout_ms,
            in_flight=settings.in_flight,
            permit=self.permit,
        )
        return link

    async def link(self, broker: int, number: int = CONTROL) -> Link:
        """A connection to a broker. One that was lost is opened again, once in a call.

        ``ConnectionLost`` if that fails, ``ClusterFailed`` if it has been done too often.
        """
        place = broker, number
        async with self._locks.setdefault(place, asyncio.Lock()):
            old = self._links.get(place)
            if old is not None:
                if old.lost is None and old.address == self._addresses[broker]:
                    return old
                self._reconnects += 1
                if self._reconnects > self.settings.reconnects:
                    raise ClusterFailed(
                        f"{old.address}: {old.lost or 'the broker has another address'}, after {self._reconnects - 1} "
                        "connections were opened again; look at the broker, or allow more with --reconnects"
                    )
                self.count_reconnect()
                old.close()
            link = self._new(broker, number)
            await link.open()
            return link

    async def _any(self) -> Link:
        """A connection to any broker that answers; ``ConnectionLost`` if none does.

        A cluster may have many brokers that cannot be reached, so no other is tried after the time for one answer.
        """
        for (_, number), link in self._links.items():
            if number == CONTROL and link.lost is None and link.offered:
                return link
        lost = ConnectionLost("no broker is known")
        deadline = time.monotonic() + self.settings.timeout_ms / 1000
        for broker in sorted(self._addresses):
            if time.monotonic() > deadline:
                break
            try:
                return await self.link(broker)
            except ConnectionLost as error:
                lost = error
        raise lost

    async def _ask_any(self, api: str, values: Message) -> Message:
        """The answer of any broker."""
        return await (await self._any()).call(api, values)

    async def until_done(
        self,
        what: str,
        ask: Callable[[], Awaitable[Message]],
        moved: Callable[[], object] = lambda: None,
    ) -> Message:
        """The values of an answer without an error.

        ``ask`` makes a coroutine that asks. ``moved`` is called if the answer says that it is the wrong broker. Raises
        ``BrokerError`` for an error that cannot be retried, or that stays after ``settings.retries``; after the end of
        the work, also for one that stays for the time of an answer.
        """
        attempt, begun_s = 0, time.monotonic()
        while True:
            try:
                values = await ask()
                code, message = first_error(values)
            except ConnectionLost as error:
                values, code, message = {}, MOVED[0], str(error)
            if not code:
                return values
            if code in MOVED:
                moved()
            attempt += 1
            if code not in AGAIN or self._is_over(attempt, begun_s):
                raise BrokerError(what, code, message)
            if not values:
                self._waits(f"{message}; {what} is tried again")
            self.trouble = f"; the last answer was {what}: {error_name(code)}"
            await asyncio.sleep(backoff_s(attempt))

    def _is_over(self, attempt: int, begun_s: float) -> bool:
        """Whether a request that began at this time has had enough attempts."""
        settings = self.settings
        again_ms = settings.timeout_ms if self.ended.is_set() else settings.again_ms
        is_late = again_ms is not None and time.monotonic() - begun_s > again_ms / 1000
        return attempt > settings.retries or is_late

    def _waits(self, sentence: str) -> None:
        if not self._has_waited:
            self._has_waited = True
            self.settings.on_wait(sentence)

    # -- topics and leaders

    async def prepare(self, wanted: Mapping[str, int]) -> None:
        """Make sure that the topics have at least so many partitions. ``UsageError`` if they do not.

        With ``settings.create``, missing topics are created.
        """
        found = await self._refresh(wanted)
        missing = [name for name in wanted if name not in found]
        if missing and self.settings.create:
            try:
                await self.create({name: (wanted[name], KEPT) for name in missing})
            except BrokerError as error:
                raise UsageError(f"{error}; create them yourself") from None
            found = await self._refresh(wanted)
            missing = [name for name in missing if name not in found]
        if missing:
            raise UsageError(
                f"{self.settings.bootstrap} has no topic {_named(missing)}; create it, or add --create, or send to "
                "another topic with --topic"
            )
        for name, count in wanted.items():
            if found[name] < count:
                raise UsageError(
                    f"topic {name} of {self.settings.bootstrap} has {counted(found[name], 'partition')}, but needs "
                    f"{count}; add partitions, or send to another topic with --topic"
                )

    async def create(self, wanted: Mapping[str, tuple[int, Mapping[str, str]]]) -> list[str]:
        """Create topics with so many partitions and these settings, and wait a moment until they have leaders.

        A topic that exists already stays as it is; returns the names of these. ``BrokerError`` if the broker refuses.
        """
        requests: list[list[Message]] = []
        left = 0
        for name, (count, configs) in wanted.items():
            if (cost := 1 + count + len(configs)) > left:
                requests.append([])
                left = CREATED_MAX
            left -= cost
            settings = [{"name": key, "value": value} for key, value in configs.items()]
            replicas = {"numPartitions": count, "replicationFactor": self.settings.replication}
            requests[-1].append({"name": name, **replicas, "configs": settings})
        existing: list[str] = []

        async def ask(topics: list[Message]) -> Message:
            answer = await self._ask_any("CreateTopics", {"topics": topics, "timeoutMs": self.settings.timeout_ms})
            # Somebody else may have been faster.
            known = [one for one in answer["topics"] if one["errorCode"] == ERROR_CODES["TOPIC_ALREADY_EXISTS"]]
            existing.extend(one["name"] for one in known)
            answer["topics"] = [one for one in answer["topics"] if one not in known]
            return answer

        for topics in requests:
            await self.until_done("the topics cannot be created", partial(ask, topics))
        for attempt in range(1, self.settings.retries + 2):
            await self._refresh(wanted)
            if all((name, at) in self._leaders for name, (count, _) in wanted.items() for at in range(count)):
                break
            await asyncio.sleep(backoff_s(attempt))
        return existing

    async def delete(self, names: Iterable[str]) -> None:
        """Delete topics, once. ``ConnectionLost``, ``BrokerError`` or ``UsageError`` if that cannot be done."""
        values = {"topicNames": list(names), "timeoutMs": self.settings.timeout_ms}
        code, message = first_error(await self._ask_any("DeleteTopics", values))
        if code:
            raise BrokerError("the topics cannot be deleted", code, message)

    async def config(self, topic: str, name: str) -> str | None:
        """The value of a topic's setting; None if the broker does not report it."""
        resource = {"resourceType": TOPIC, "resourceName": topic, "configurationKeys": [name]}
        try:
            answer = await self._ask_any("DescribeConfigs", {"resources": [resource]})
        except (UsageError, ConnectionLost):
            return None
        found = (one["value"] for result in answer["results"] for one in result["configs"] or () if one["name"] == name)
        return next(found, None)

    async def topics(self) -> dict[str, int]:
        """All topics that the brokers show, and how many partitions they have."""
        return await self._refresh(None)

    async def _refresh(self, names: Collection[str] | None) -> dict[str, int]:
        """Ask where the partitions of topics are, or of all topics; the number of partitions by topic."""
        topics = None if names is None else [{"name": name} for name in names]
        values = {"topics": topics, "allowAutoTopicCreation": False}
        attempt, begun_s = 0, time.monotonic()
        while True:
            try:
                answer = await self._ask_any("Metadata", values)
                break
            except ConnectionLost as error:
                attempt += 1
                if self._is_over(attempt, begun_s):
                    raise ClusterFailed(f"{error}; the brokers cannot be asked") from None
                self._waits(f"{error}; the brokers are asked again")
                await asyncio.sleep(backoff_s(attempt))
        for one in answer["brokers"]:
            self._learn(one["nodeId"], one["host"], one["port"])
        found: dict[str, int] = {}
        leaders: dict[tuple[str, int], int] = {}
        for topic in answer["topics"]:
            # Nobody has asked for another one, for one twice, or for one without a name.
            if (name := topic["name"]) in found or name is None or (names is not None and name not in names):
                continue
            if topic["errorCode"] and topic["errorCode"] not in RETRIABLE:
                raise UsageError(f"topic {name}: {error_name(topic['errorCode'])}; check the name and the permissions")
            # With an error, it is not there, or about to be created.
            if topic["partitions"] or not topic["errorCode"]:
                found[name] = len(topic["partitions"])
            for partition in topic["partitions"]:
                if partition["leaderId"] in self._addresses and partition["leaderId"] >= 0:
                    leaders[name, partition["partitionIndex"]] = partition["leaderId"]
        self._leaders = {one: at for one, at in self._leaders.items() if not found.get(one[0])} | leaders
        self.generation += 1
        return found

    def _learn(self, broker: int, host: str | None, port: int) -> None:
        """Remember where a broker is. The user's own address has a number below 0."""
        if broker < 0:
            return
        self._addresses[broker] = Address.advertised(host, port)
        if len(self._addresses) > BROKERS_MAX:
            raise ClusterFailed(f"{self.settings.bootstrap} names more than {BROKERS_MAX} brokers; look at it")

    async def refresh_leaders(self, topic: str, generation: int) -> None:
        """Ask for the leaders of a topic, unless somebody has done so since ``generation``."""
        async with self._metadata:
            if self.generation == generation:
                await self._refresh({topic})

    async def leader(self, topic: str, partition: int, number: int) -> Link | None:
        """A connection to the leader of a partition; None if the partition has none now."""
        broker = self._leaders.get((topic, partition))
        return None if broker is None else await self.link(broker, number)

    # -- producers and transactions

    async def init_producer(self, transactional_id: str | None) -> tuple[int, int]:
        """A new producer's id and epoch. ``BrokerError`` if the brokers refuse it."""
        values = {
            "transactionalId": transactional_id,
            "transactionTimeoutMs": self.settings.transaction_timeout_ms,
        }
        try:
            answer = await self._coordinated(transactional_id, "InitProducerId", values)
        except BrokerError as error:
            if error.code == ERROR_CODES["INVALID_TRANSACTION_TIMEOUT"]:
                raise ClusterFailed(
                    f"the brokers refuse a transaction timeout of {self.settings.transaction_timeout_ms} ms; give a "
                    "lower one with --transaction-timeout"
                ) from None
            raise
        return answer["producerId"], answer["producerEpoch"]

    async def add_partition(self, id: str, producer_id: int, epoch: int, topic: str, partition: int) -> None:
        """Make a partition part of the producer's transaction, which begins if there is none."""
        values = {
            "v3AndBelowTransactionalId": id,
            "v3AndBelowProducerId": producer_id,
            "v3AndBelowProducerEpoch": epoch,
            "v3AndBelowTopics": [{"name": topic, "partitions": [partition]}],
        }
        await self._coordinated(id, "AddPartitionsToTxn", values)

    async def end_transaction(self, id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Commit or abort the producer's transaction."""
        values = {"transactionalId": id, "producerId": producer_id, "producerEpoch": epoch, "committed": commit}
        await self._coordinated(id, "EndTxn", values)

    async def _coordinated(self, id: str | None, api: str, values: Message) -> Message:
        """Ask the coordinator of a transactional id, or any broker if there is no id."""

        if id is None:
            return await self.until_done(api, partial(self._ask_any, api, values))

        async def ask() -> Message:
            link = await self.link(await self._coordinator(id))
            return await link.call(api, values)

        return await self.until_done(api, ask, lambda: self._coordinators.pop(id, None))

    async def _coordinator(self, id: str) -> int:
        if id not in self._coordinators:
            ask = partial(self._ask_any, "FindCoordinator", {"key": id, "keyType": TRANSACTION})
            answer = await self.until_done("FindCoordinator", ask)
            if answer["nodeId"] < 0:
                raise BrokerError("FindCoordinator", ERROR_CODES["COORDINATOR_NOT_AVAILABLE"])
            self._learn(answer["nodeId"], answer["host"], answer["port"])
            self._coordinators[id] = answer["nodeId"]
        return self._coordinators[id]


async def asked(settings: Access, ask: Callable[[Cluster], Awaitable[Answer]]) -> Answer:
    """The answer of ``ask``, over connections that are closed at its end."""
    cluster = Cluster(settings)
    try:
        await cluster.open()
        return await ask(cluster)
    finally:
        await cluster.close()


def _named(names: Sequence[str]) -> str:
    """Some names of topics, for a sentence."""
    rest = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return foreign_text(", ".join(names[:NAMED_MAX])) + rest
