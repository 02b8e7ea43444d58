"""A conversation with a real broker in requests that kfuzz encodes, kept as bytes and values (docs/real-broker.md).

``converse`` sends the requests of a transactional producer and of a consumer, in every version that both the broker and
the latest catalogue have. ``Exchange.flaws`` lists the parts of a response that kfuzz cannot read or would encode
differently.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Any, Final, NamedTuple

from kfuzz import __version__, records
from kfuzz.conformance.broker.real import BrokerFailed
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message, MessageReading, encode, read
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import Definition, Versions
from kfuzz.text import foreign_text

__all__ = ["SETTINGS", "TOPIC", "Connection", "Conversation", "Exchange", "converse", "error_codes", "exchange_of"]

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

_API_VERSIONS: Final = "ApiVersions"
_SIZE: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")
_ANSWER_TIMEOUT_S: Final = 60
_READY_TIMEOUT_S: Final = 60
_POLL_S: Final = 0.02
_MOST_BYTES: Final = 16 * 1024 * 1024
_PIECE_BYTES: Final = 1 << 20
_MOST_ELEMENTS: Final = 500_000
_CLIENT_ID: Final = "kfuzz"
_TIMEOUT_MS: Final = 30_000
_TIMESTAMP_MS: Final = 1_700_000_000_000
_LATEST_TIMESTAMP: Final = -1
_READ_COMMITTED: Final = 1
_OF_TRANSACTION: Final = 1
_UNSUPPORTED_VERSION: Final = 35
# Errors while a leader or coordinator is not ready, or the transaction before is not finished:
# UNKNOWN_TOPIC_OR_PARTITION, LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, COORDINATOR_LOAD_IN_PROGRESS,
# COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT_TRANSACTIONS, UNKNOWN_TOPIC_ID.
_NOT_YET: Final = frozenset({3, 5, 6, 14, 15, 16, 51, 100})
# From this version on, Produce adds its partition to the transaction itself; EndTxn ends such a transaction from its
# version below.
_PRODUCE_ADDS_FROM: Final = 12
_END_OF_ADDED_FROM: Final = 5
_RECORDS_IN_BATCH: Final = 3
# Without zstd, because Produce 3 and Fetch 4 do not support it.
_CODECS: Final = records.CODECS[:-1]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request of ``version`` and its response, as whole frames with their sizes in front.

    ``header`` and ``body`` are kfuzz's readings of the response; ``body_version`` is the version of the body.
    """

    api: str
    version: int
    request: bytes
    response: bytes
    header_version: int
    header: MessageReading
    body_version: int
    body: MessageReading

    @property
    def values(self) -> Message:
        """The response's values; ``BrokerFailed`` if kfuzz cannot read it."""
        if self.body.message is None:
            why = self.header.fatal or self.body.fatal
            raise BrokerFailed(f"the response to {self.api} {self.version} cannot be read: {why}")
        return self.body.message

    def flaws(self) -> list[str]:
        """The reasons why the response is not decoded perfectly, including findings of any severity; should be empty.

        The values, encoded again, must give exactly the bytes that were received.
        """
        # The body after the header is expected.
        flaws = [str(one) for one in self.header.findings if one.code != "bytes-after-message"]
        flaws += [str(one) for one in self.body.findings]
        if self.header.message is None or self.body.message is None:
            return flaws
        if self.header.message["correlationId"] != (sent := _correlation_id(self.request)):
            flaws.append(f"it answers request {self.header.message['correlationId']}, not {sent}")
        again = _frame(
            encode("ResponseHeader", self.header_version, self.header.message),
            encode(f"{self.api}Response", self.body_version, self.body.message),
        )
        if again != self.response:
            flaws.append(f"its values are encoded as {again.hex()}; the response is {self.response.hex()}")
        return flaws


def exchange_of(api: str, version: int, request: bytes, response: bytes) -> Exchange:
    """The exchange with these frames. A bad response raises nothing; ``UsageError`` for an unknown API or version."""
    definition = catalogue().find(f"{api}Response")
    header_version = response_header_version(definition, version)
    header = read("ResponseHeader", header_version, response[_SIZE.size :], elements_max=_MOST_ELEMENTS)
    data = response[_SIZE.size + header.consumed :]
    body_version = 0 if api == _API_VERSIONS and _is_too_new(definition, version, data) else version
    # If the header is refused, the position of the body is unknown.
    body = MessageReading(0)
    if header.fatal is None:
        body = read(definition, body_version, data, elements_max=_MOST_ELEMENTS)
    return Exchange(api, version, request, response, header_version, header, body_version, body)


def _is_too_new(response: Definition, version: int, body: bytes) -> bool:
    """Whether the ApiVersions response is in version 0: the broker, or kfuzz, does not know this ``version``."""
    return version not in response.valid_versions or body.startswith(_ERROR_CODE.pack(_UNSUPPORTED_VERSION))


def error_codes(values: Any) -> Iterator[int]:
    """All error codes in a message's values, at any depth, that are not 0."""
    if isinstance(values, list):
        for value in values:
            yield from error_codes(value)
    elif isinstance(values, dict):
        for name, value in values.items():
            if name.lower().endswith("errorcode"):
                if value:
                    yield value
            else:
                yield from error_codes(value)


def _frame(header: bytes, body: bytes) -> bytes:
    return _SIZE.pack(len(header) + len(body)) + header + body


def _correlation_id(request: bytes) -> int:
    """The correlation id comes after the frame's size, the API key and the version."""
    return int.from_bytes(request[8:12], "big", signed=True)


# --- one connection -------------------------------------------------------------------------------------------------


class Connection:
    """A connection to a broker on ``port`` of the loopback address. Use it in a ``with`` block.

    It sends one request at a time. ``BrokerFailed`` if the broker does not answer.
    """

    def __init__(self, port: int) -> None:
        self._correlation_ids = count(1)
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), _ANSWER_TIMEOUT_S)
        except OSError as error:
            raise BrokerFailed(f"no broker answers on 127.0.0.1:{port}: {error}") from None
        self._deadline = 0.0

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, values: Message) -> Exchange:
        """Send a request and read the response.

        ApiVersions may have any version; one that kfuzz does not know is encoded like the newest known version.
        ``UsageError`` for an unknown API or version, ``EncodeError`` if the values do not fit; then nothing is sent.
        """
        definition = catalogue().find(f"{api}Request")
        header = {
            "requestApiKey": definition.api_key,
            "requestApiVersion": version,
            "correlationId": next(self._correlation_ids),
            "clientId": _CLIENT_ID,
        }
        known = min(version, definition.valid_versions.highest) if api == _API_VERSIONS else version
        request = _frame(
            encode("RequestHeader", request_header_version(definition, version), header),
            encode(definition, known, values),
        )
        self._deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        try:
            self._socket.settimeout(_ANSWER_TIMEOUT_S)
            self._socket.sendall(request)
            response = self._response()
        except (OSError, EOFError) as error:
            raise BrokerFailed(f"no answer to {api} {version}: {error}") from None
        return exchange_of(api, version, request, response)

    def _response(self) -> bytes:
        size = self._exactly(_SIZE.size)
        (length,) = _SIZE.unpack(size)
        if not 0 <= length <= _MOST_BYTES:
            raise EOFError(f"a response of {length} bytes; the limit is {_MOST_BYTES}")
        return size + self._exactly(length)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            # The whole answer has to come in time, not only the next byte.
            if (left_s := self._deadline - time.monotonic()) <= 0:
                raise EOFError(f"only {len(data)} of {size} bytes within {_ANSWER_TIMEOUT_S} s")
            self._socket.settimeout(left_s)
            piece = self._socket.recv(min(size - len(data), _PIECE_BYTES))
            if not piece:
                raise EOFError(f"the broker closed the connection after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)


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
    """Talk to a fresh broker with :data:`SETTINGS` on ``port`` of the loopback address.

    Sends about a hundred requests: ApiVersions, CreateTopics, Metadata, FindCoordinator, InitProducerId,
    AddPartitionsToTxn, Produce, EndTxn, ListOffsets and Fetch. ``BrokerFailed`` if the broker does not answer or does
    not get ready.
    """
    with Connection(port) as connection:
        talk = _Talk(connection)
        talk.ask_for_versions()
        topic_id = talk.make_topic()
        talk.look_around()
        talk.produce(topic_id)
        talk.transact(topic_id)
        talk.consume(topic_id)
        return talk.said


class _Talk:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.said = Conversation()
        # The end of the topic's only partition; control batches count too.
        self.end_offset = 0

    def ask(self, api: str, version: int, values: Message) -> Message:
        """Ask until nothing says "not ready yet"; keep only the last exchange and return its values."""
        asked = self._until(
            lambda: self.connection.ask(api, version, values),
            lambda exchange: _NOT_YET.isdisjoint(error_codes(exchange.values)),
        )
        self.said.exchanges.append(asked)
        return asked.values

    def versions(self, api: str) -> Versions:
        return self.said.common[api]

    def _until(self, ask: Callable[[], Exchange], ready: Callable[[Exchange], bool]) -> Exchange:
        deadline = time.monotonic() + _READY_TIMEOUT_S
        while not ready(asked := ask()):
            if time.monotonic() > deadline:
                said = foreign_text(asked.values)
                raise BrokerFailed(f"after {_READY_TIMEOUT_S} s it still answers {asked.api} with {said}")
            time.sleep(_POLL_S)
        return asked

    def ask_for_versions(self) -> None:
        """Ask first in a version that no broker knows, as a newer client would; then in all common versions."""
        us = {"clientSoftwareName": _CLIENT_ID, "clientSoftwareVersion": __version__}
        newest = catalogue().find("ApiVersionsRequest").valid_versions.highest
        self._learn(self.ask(_API_VERSIONS, newest + 1, us))
        for version in self.versions(_API_VERSIONS):
            self._learn(self.ask(_API_VERSIONS, version, us))

    def _learn(self, answer: Message) -> None:
        offered = {one["apiKey"]: Versions(one["minVersion"], one["maxVersion"]) for one in answer["apiKeys"]}
        for definition in catalogue().messages.values():
            if definition.kind == "request" and definition.api_key in offered:
                api = definition.name.removesuffix("Request")
                self.said.common[api] = offered[definition.api_key] & definition.valid_versions

    def make_topic(self) -> bytes:
        """Create one topic per version; return the id of the last one, :data:`TOPIC`."""
        versions = self.versions("CreateTopics")
        for version in versions:
            name = TOPIC if version == versions.highest else f"{TOPIC}-{version}"
            topic = {"name": name, "numPartitions": 1, "replicationFactor": 1, "configs": _ONE_SEGMENT}
            answer = self.ask("CreateTopics", version, {"topics": [topic]})
        topic_id: bytes = answer["topics"].find(name=TOPIC)["topicId"]
        return topic_id

    def look_around(self) -> None:
        for version in self.versions("Metadata"):
            authorized = {"includeTopicAuthorizedOperations": True} if version >= 8 else {}
            self.ask("Metadata", version, {"topics": [{"name": TOPIC}], **authorized})
        for version in self.versions("FindCoordinator"):
            self.ask("FindCoordinator", version, _coordinator_wanted(version))

    def init(self, version: int, transactional_id: str | None) -> _Producer:
        answer = self.ask(
            "InitProducerId", version, {"transactionalId": transactional_id, "transactionTimeoutMs": _TIMEOUT_MS}
        )
        return _Producer(transactional_id, answer["producerId"], answer["producerEpoch"])

    def produce(self, topic_id: bytes) -> None:
        """Send one batch in each version, from one idempotent producer."""
        producer = self.init(self.versions("InitProducerId").highest, None)
        for number, version in enumerate(self.versions("Produce")):
            self.append(version, topic_id, producer, number * _RECORDS_IN_BATCH)

    def append(self, version: int, topic_id: bytes, producer: _Producer, sequence: int) -> None:
        batch = _batch(len(self.said.batches), producer, sequence)
        partition = {"index": 0, "records": batch}
        values = {
            "transactionalId": producer.transactional_id,
            "acks": -1,
            "timeoutMs": _TIMEOUT_MS,
            "topicData": [{"name": TOPIC, "topicId": topic_id, "partitionData": [partition]}],
        }
        self.ask("Produce", version, values)
        self.said.batches.append(batch)
        self.end_offset += _RECORDS_IN_BATCH

    def transact(self, topic_id: bytes) -> None:
        """Run a transaction in each version; commit every other one and abort the rest."""
        apis = [self.versions(api) for api in ("InitProducerId", "AddPartitionsToTxn", "EndTxn")]
        for version in range(min(one.lowest for one in apis), max(one.highest for one in apis) + 1):
            init, add, end = (min(max(version, one.lowest), one.highest) for one in apis)
            producer = self.init(init, f"{TOPIC}-{version}")
            self.ask("AddPartitionsToTxn", add, _partitions_added(add, producer))
            newest = self.versions("Produce").highest
            produce = newest if end >= _END_OF_ADDED_FROM else min(newest, _PRODUCE_ADDS_FROM - 1)
            self.append(produce, topic_id, producer, 0)
            self.end(end, producer, committed=version % 2 == 0)

    def end(self, version: int, producer: _Producer, *, committed: bool) -> None:
        values = {
            "transactionalId": producer.transactional_id,
            "producerId": producer.id,
            "producerEpoch": producer.epoch,
            "committed": committed,
        }
        self.ask("EndTxn", version, values)
        self.said.transactions.append(committed)
        self.end_offset += 1
        # The broker answers before it has written the marker, so wait for the marker.
        newest = self.versions("ListOffsets").highest
        self._until(
            lambda: self.connection.ask("ListOffsets", newest, _end_wanted(newest)),
            lambda exchange: exchange.values["topics"][0]["partitions"][0]["offset"] == self.end_offset,
        )

    def consume(self, topic_id: bytes) -> None:
        for version in self.versions("ListOffsets"):
            self.ask("ListOffsets", version, _end_wanted(version))
        for version in self.versions("Fetch"):
            self.ask("Fetch", version, _all_wanted(topic_id))


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
