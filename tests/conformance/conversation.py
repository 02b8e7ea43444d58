"""A conversation with a real broker over kfuzz's own client, kept as bytes and values.

``converse`` sends the requests of a transactional producer and of a consumer, in every version that both the broker and
the latest catalogue have. ``Exchange.flaws`` lists the parts of an answer that kfuzz cannot read or would encode
differently.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from kfuzz import __version__, records
from kfuzz.client.address import PLAIN, Address
from kfuzz.client.link import Link
from kfuzz.client.protocol import API_VERSIONS, RETRIABLE, first_error, request
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, MessageReading, encode, read
from kfuzz.messages.headers import response_header_version
from kfuzz.messages.model import Versions

T = TypeVar("T")
# A single broker needs these settings to coordinate groups and transactions. With partition verification on, it also
# checks that a batch's partition belongs to an open transaction.
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.partition.verification.enable": "true",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
TOPIC: Final = "exchange"
# A Fetch returns data from one segment, so keep everything in one. Without this setting the broker would start a new
# segment, because the timestamps of our records and of the markers are far apart.
_ONE_SEGMENT: Final = [{"name": "segment.ms", "value": str((1 << 63) - 1)}]

_READY_TIMEOUT_S: Final = 60
_POLL_S: Final = 0.02
_MOST_BYTES: Final = 16 * 1024 * 1024
_TIMEOUT_MS: Final = 60_000
_TIMESTAMP_MS: Final = 1_700_000_000_000
_LATEST_TIMESTAMP: Final = -1
_READ_COMMITTED: Final = 1
_OF_TRANSACTION: Final = 1
# From this version on, Produce adds its partition to the transaction itself; EndTxn ends such a transaction from its
# version below.
_PRODUCE_ADDS_FROM: Final = 12
_END_OF_ADDED_FROM: Final = 5
_RECORDS_IN_BATCH: Final = 3
# Without zstd, because Produce 3 and Fetch 4 do not support it.
_CODECS: Final = records.CODECS[:-1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The answer to a request of ``version``, without its size in front, and kfuzz's readings of its parts.

    ``body_version`` is 0 for the answer to an ApiVersions request that is too new.
    """

    api: str
    version: int
    number: int
    answer: bytes
    header: MessageReading
    body_version: int
    body: MessageReading

    @property
    def values(self) -> Message:
        """The answer's values."""
        assert self.body.message is not None, self.header.fatal or self.body.fatal
        return self.body.message

    def flaws(self) -> list[str]:
        """The reasons why the answer is not decoded perfectly, including findings of any severity; should be empty.

        The values, encoded again, must give exactly the bytes that were received.
        """
        # The body after the header is expected.
        flaws = [str(one) for one in self.header.findings if one.code != "bytes-after-message"]
        flaws += [str(one) for one in self.body.findings]
        if self.header.message is None or self.body.message is None:
            return flaws
        if self.header.message["correlationId"] != self.number:
            flaws.append(f"it answers request {self.header.message['correlationId']}, not {self.number}")
        response = catalogue().find(f"{self.api}Response")
        again = encode("ResponseHeader", response_header_version(response, self.version), self.header.message)
        again += encode(response, self.body_version, self.body.message)
        if again != self.answer:
            flaws.append(f"its values are encoded as {again.hex()}; the answer is {self.answer.hex()}")
        return flaws


def exchange_of(api: str, version: int, number: int, answer: bytes) -> Exchange:
    """The exchange with this answer to the request ``number``. A bad answer raises nothing."""
    definition = catalogue().find(f"{api}Response")
    header = read("ResponseHeader", response_header_version(definition, version), answer)
    body_version = version if version in definition.valid_versions else 0
    # If the header is refused, the position of the body is unknown.
    body = read(definition, body_version, answer[header.consumed :]) if header.fatal is None else MessageReading(0)
    return Exchange(api, version, number, answer, header, body_version, body)


# --- the conversation -----------------------------------------------------------------------------------------------


class _Producer(NamedTuple):
    """A producer. ``transactional_id`` is None if it is only idempotent."""

    transactional_id: str | None
    id: int
    epoch: int


@dataclass(slots=True)
class Conversation:
    """The exchanges in their order.

    ``common``: by API, the versions that both the broker and kfuzz have. ``batches``: the batches that were produced,
    as they were sent. Each of the last ones has a transaction of its own, and ``transactions`` says whether that was
    committed.
    """

    exchanges: list[Exchange] = field(default_factory=list)
    common: dict[str, Versions] = field(default_factory=dict)
    batches: list[bytes] = field(default_factory=list)
    transactions: list[bool] = field(default_factory=list)

    def of(self, api: str) -> list[Exchange]:
        """The exchanges of one API."""
        return [exchange for exchange in self.exchanges if exchange.api == api]


def converse(port: int) -> Conversation:
    """Talk to a fresh broker with :data:`SETTINGS` on ``port`` of the loopback address, in about a hundred requests."""

    async def talk(link: Link) -> Conversation:
        one = _Talk(link)
        await one.ask_for_versions()
        topic_id = await one.make_topic()
        await one.look_around()
        await one.produce(topic_id)
        await one.transact(topic_id)
        await one.consume(topic_id)
        return one.said

    return asyncio.run(_connected(port, talk))


def start_producers(port: int, transactional_ids: Sequence[str | None]) -> list[tuple[int, int]]:
    """Start a producer for each of the ids, one after the other; the ids and epochs that the broker gives them."""

    async def start(link: Link) -> list[tuple[int, int]]:
        given = []
        for id in transactional_ids:
            said = await link.call("InitProducerId", {"transactionalId": id, "transactionTimeoutMs": _TIMEOUT_MS})
            assert not said["errorCode"]
            given.append((said["producerId"], said["producerEpoch"]))
        return given

    return asyncio.run(_connected(port, start))


async def _connected(port: int, talk: Callable[[Link], Awaitable[T]]) -> T:
    link = Link(Address("127.0.0.1", port), PLAIN, in_flight=1, timeout_ms=_TIMEOUT_MS)
    await link.open()
    try:
        return await talk(link)
    finally:
        link.close()


class _Talk:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.said = Conversation()
        # The end of the topic's only partition; control batches count too.
        self.end_offset = 0

    async def ask(self, api: str, version: int, values: Message) -> Message:
        """Ask until nothing says "not ready yet"; keep only the last exchange and return its values."""
        asked = await self._until(api, version, values, lambda said: first_error(said)[0] not in RETRIABLE)
        self.said.exchanges.append(asked)
        return asked.values

    async def _until(self, api: str, version: int, values: Message, ready: Callable[[Message], bool]) -> Exchange:
        newest = catalogue().find(f"{api}Request").valid_versions.highest
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while True:
            number = self.link.next_number()
            frame = request(api, min(version, newest), number, values)
            # ApiVersions may have any version; one that kfuzz does not know is encoded like the newest one.
            frame = frame[:6] + version.to_bytes(2, "big") + frame[8:]
            asked = exchange_of(api, version, number, await self.link.answer(number, [frame]))
            if ready(asked.values):
                return asked
            assert time.monotonic() < deadline, f"it still answers {api} with {asked.values}"
            await asyncio.sleep(_POLL_S)

    def versions(self, api: str) -> Versions:
        return self.said.common[api]

    async def ask_for_versions(self) -> None:
        """Ask first in a version that no broker knows, as a newer client would; then in all common versions."""
        us = {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": __version__}
        newest = catalogue().find("ApiVersionsRequest").valid_versions.highest
        self._learn(await self.ask(API_VERSIONS, newest + 1, us))
        for version in self.versions(API_VERSIONS):
            self._learn(await self.ask(API_VERSIONS, version, us))

    def _learn(self, answer: Message) -> None:
        offered = {one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}
        for definition in catalogue().messages.values():
            if definition.kind == "request" and definition.api_key in offered:
                api = definition.name.removesuffix("Request")
                self.said.common[api] = offered[definition.api_key] & definition.valid_versions

    async def make_topic(self) -> bytes:
        """Create one topic per version; return the id of the last one, :data:`TOPIC`."""
        versions = self.versions("CreateTopics")
        for version in versions:
            name = TOPIC if version == versions.highest else f"{TOPIC}-{version}"
            topic = {"name": name, "numPartitions": 1, "replicationFactor": 1, "configs": _ONE_SEGMENT}
            answer = await self.ask("CreateTopics", version, {"topics": [topic]})
        topic_id: bytes = answer["topics"].find(name=TOPIC)["topicId"]
        return topic_id

    async def look_around(self) -> None:
        for version in self.versions("Metadata"):
            authorized = {"includeTopicAuthorizedOperations": True} if version >= 8 else {}
            await self.ask("Metadata", version, {"topics": [{"name": TOPIC}], **authorized})
        for version in self.versions("FindCoordinator"):
            await self.ask("FindCoordinator", version, _coordinator_wanted(version))

    async def init(self, version: int, transactional_id: str | None) -> _Producer:
        answer = await self.ask(
            "InitProducerId", version, {"transactionalId": transactional_id, "transactionTimeoutMs": _TIMEOUT_MS}
        )
        return _Producer(transactional_id, answer["producerId"], answer["producerEpoch"])

    async def produce(self, topic_id: bytes) -> None:
        """Send one batch in each version, from one idempotent producer."""
        producer = await self.init(self.versions("InitProducerId").highest, None)
        for number, version in enumerate(self.versions("Produce")):
            await self.append(version, topic_id, producer, number * _RECORDS_IN_BATCH)

    async def append(self, version: int, topic_id: bytes, producer: _Producer, sequence: int) -> None:
        batch = _batch(len(self.said.batches), producer, sequence)
        partition = {"index": 0, "records": batch}
        values = {
            "transactionalId": producer.transactional_id,
            "acks": -1,
            "timeoutMs": _TIMEOUT_MS,
            "topicData": [{"name": TOPIC, "topicId": topic_id, "partitionData": [partition]}],
        }
        await self.ask("Produce", version, values)
        self.said.batches.append(batch)
        self.end_offset += _RECORDS_IN_BATCH

    async def transact(self, topic_id: bytes) -> None:
        """Run a transaction in each version; commit every other one and abort the rest."""
        apis = [self.versions(api) for api in ("InitProducerId", "AddPartitionsToTxn", "EndTxn")]
        for version in range(min(one.lowest for one in apis), max(one.highest for one in apis) + 1):
            init, add, end = (min(max(version, one.lowest), one.highest) for one in apis)
            producer = await self.init(init, f"{TOPIC}-{version}")
            await self.ask("AddPartitionsToTxn", add, _partitions_added(add, producer))
            newest = self.versions("Produce").highest
            produce = newest if end >= _END_OF_ADDED_FROM else min(newest, _PRODUCE_ADDS_FROM - 1)
            await self.append(produce, topic_id, producer, 0)
            await self.end(end, producer, committed=version % 2 == 0)

    async def end(self, version: int, producer: _Producer, *, committed: bool) -> None:
        values = {
            "transactionalId": producer.transactional_id,
            "producerId": producer.id,
            "producerEpoch": producer.epoch,
            "committed": committed,
        }
        await self.ask("EndTxn", version, values)
        self.said.transactions.append(committed)
        self.end_offset += 1
        # The broker answers before it has written the marker, so wait for the marker.
        newest = self.versions("ListOffsets").highest
        await self._until(
            "ListOffsets",
            newest,
            _end_wanted(newest),
            lambda said: said["topics"][0]["partitions"][0]["offset"] == self.end_offset,
        )

    async def consume(self, topic_id: bytes) -> None:
        for version in self.versions("ListOffsets"):
            await self.ask("ListOffsets", version, _end_wanted(version))
        for version in self.versions("Fetch"):
            await self.ask("Fetch", version, _all_wanted(topic_id))


def _coordinator_wanted(version: int) -> Message:
    """Asks for the coordinator of a transaction; in version 0, which knows only groups, for that of a group."""
    if version == 0:
        return {"key": TOPIC}
    return {"keyType": _OF_TRANSACTION, **({"key": TOPIC} if version < 4 else {"coordinatorKeys": [TOPIC]})}


def _partitions_added(version: int, producer: _Producer) -> Message:
    topics = [{"name": TOPIC, "partitions": [0]}]
    if version < 4:
        return {
            "v3AndBelowTransactionalId": producer.transactional_id,
            "v3AndBelowProducerId": producer.id,
            "v3AndBelowProducerEpoch": producer.epoch,
            "v3AndBelowTopics": topics,
        }
    transaction = {
        "transactionalId": producer.transactional_id,
        "producerId": producer.id,
        "producerEpoch": producer.epoch,
        "topics": topics,
    }
    return {"transactions": [transaction]}


def _end_wanted(version: int) -> Message:
    isolation = {"isolationLevel": _READ_COMMITTED} if version >= 2 else {}
    partition = {"partitionIndex": 0, "timestamp": _LATEST_TIMESTAMP}
    return {"replicaId": -1, **isolation, "topics": [{"name": TOPIC, "partitions": [partition]}]}


def _all_wanted(topic_id: bytes) -> Message:
    partition = {"partition": 0, "fetchOffset": 0, "partitionMaxBytes": _MOST_BYTES // 2}
    return {
        "maxWaitMs": _TIMEOUT_MS,
        "minBytes": 1,
        "maxBytes": _MOST_BYTES // 2,
        "isolationLevel": _READ_COMMITTED,
        "topics": [{"topic": TOPIC, "topicId": topic_id, "partitions": [partition]}],
    }


def _batch(number: int, producer: _Producer, sequence: int) -> bytes:
    """A batch of three records, some with nulls and headers; each batch has the next codec."""
    text = f"batch {number}".encode()
    made = [
        records.Record(0, _TIMESTAMP_MS, text, b"value"),
        records.Record(1, _TIMESTAMP_MS + 1, text, None, [(b"header", text), (b"none", None)]),
        records.Record(2, _TIMESTAMP_MS + 2, None, text * number),
    ]
    batch = records.RecordBatch(
        0,
        _RECORDS_IN_BATCH - 1,
        made,
        compression=_CODECS[number % len(_CODECS)],
        transactional=producer.transactional_id is not None,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
    )
    return records.encode([batch])
