"""Answers to requests: bytes of a frame to bytes of a frame, without a socket.

Nothing here depends on chance or on time. Commits of consumer groups are not kept, so consumers begin at the start.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

from kfuzz.errors import EncodeError, KfuzzError, UsageError
from kfuzz.messages import decode, encode, read
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import Definition, Versions
from kfuzz.serve.topics import Topic, Topics

__all__ = ["APIS", "Answered", "Broker", "Refused", "Report", "released"]

HEAD: Final = struct.Struct(">hhi")
NODE: Final = 1
CLUSTER: Final = "kfuzz"
PARTITION: Final = 0
EPOCH: Final = 0
# The longest wait in ms. No new records ever arrive, so a longer wait is useless.
WAIT_MS_MAX: Final = 100
# Like a broker's fetch.max.bytes. A client may ask for more, or name a partition many times.
RECORDS_BYTES_MAX: Final = 55 << 20
# The elements of all arrays of a request together. One that names each topic of the suite has some ten thousand.
ELEMENTS_MAX: Final = 50_000
# The generation of every group, and the id of every producer.
GENERATION: Final = 1
PRODUCER_ID: Final = 1
# Special timestamps in ListOffsets: the latest offset, and the latest offset in remote storage.
LATEST: Final = -1
LATEST_TIERED: Final = -5

# org.apache.kafka.common.protocol.Errors
NO_ERROR: Final = 0
OFFSET_OUT_OF_RANGE: Final = 1
UNKNOWN_TOPIC_OR_PARTITION: Final = 3
TOPIC_AUTHORIZATION_FAILED: Final = 29
UNSUPPORTED_VERSION: Final = 35
FETCH_SESSION_ID_NOT_FOUND: Final = 70
UNKNOWN_TOPIC_ID: Final = 100

NO_TOPIC_ID: Final = bytes(16)
API_VERSIONS: Final = "ApiVersions"
APIS: Final = (
    # Nothing can be written. But librdkafka reads magic 2 and zstd only from a broker that also takes them.
    "Produce",
    "Fetch",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    API_VERSIONS,
    "InitProducerId",
)

Values = dict[str, Any]


class Refused(KfuzzError):
    """A request that no broker answers: the connection is to be closed. ``kind`` names what all such requests share."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


# Kinds of refusals.
WRONG_SIZE: Final = "requests of a wrong size"
NOT_OFFERED: Final = "APIs or versions that are not offered"
UNREADABLE: Final = "requests that cannot be read"
NOT_WRITTEN: Final = "answers that cannot be written"
WRITES: Final = "requests to write"


class Answered(NamedTuple):
    """An answer, and how long it is to be held back."""

    data: bytes
    wait_ms: int = 0


class Place(NamedTuple):
    """Where this broker is, as a client sees it."""

    host: str
    port: int


class Asked(NamedTuple):
    """A request: the fields of its header, and the values of its body."""

    api: str
    version: int
    client_id: str
    place: Place
    values: Values


@dataclass
class Report:
    """Counts of the clients' requests. ``reasons``: how many connections were closed, by the kind of refusal."""

    requests: Counter[str] = field(default_factory=Counter)
    connections: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def refused(self) -> int:
        """How many connections were closed because of what they sent, or did not."""
        return self.reasons.total()


@cache
def released(api: str) -> Versions:
    """The versions of an API that Kafka has released, and that kfuzz knows. ``UsageError`` for an unknown API."""
    definition = _request(api)
    low, high = definition.valid_versions.lowest, definition.valid_versions.highest
    return Versions(low, high - definition.latest_version_unstable)


@cache
def _request(api: str) -> Definition:
    return catalogue().find(f"{api}Request")


@cache
def _response(api: str) -> Definition:
    return catalogue().find(f"{api}Response")


@cache
def _by_key() -> dict[int, str]:
    return {key: api for api in APIS if (key := _request(api).api_key) is not None}


class Broker:
    """Answers requests about ``topics``. ``fetch_versions`` are the versions of Fetch that it offers."""

    def __init__(self, topics: Topics, *, fetch_versions: Versions | None = None) -> None:
        self.topics = topics
        self.versions = {api: released(api) for api in APIS}
        if fetch_versions is not None:
            known = released("Fetch")
            if not fetch_versions <= known:
                raise UsageError(f"kfuzz knows the versions {known} of Fetch; take some of them")
            self.versions["Fetch"] = fetch_versions
        self.report = Report()

    def answer(self, frame: bytes, place: Place) -> Answered:
        """The answer to a request, both without their size in front. ``Refused`` if it cannot be answered.

        ``place`` is where the client has found this broker.
        """
        if len(frame) < HEAD.size:
            raise Refused(WRONG_SIZE, f"a request of {len(frame)} bytes")
        key, version, number = HEAD.unpack_from(frame)
        api = _by_key().get(key)
        if api is None:
            raise Refused(NOT_OFFERED, f"the API with the number {key} is not offered")
        self.report.requests[api] += 1
        if version not in self.versions[api]:
            if api != API_VERSIONS:
                raise Refused(NOT_OFFERED, f"version {version} of {api} is not offered")
            # The client does not know yet what this broker has, so it gets the one version that all clients read.
            offered = {API_VERSIONS: self.versions[API_VERSIONS]}
            values = {"errorCode": UNSUPPORTED_VERSION, "apiKeys": _keys(offered)}
            return Answered(_framed(api, 0, number, values))
        asked = self._read(api, version, frame, place)
        answer, wait_ms = getattr(self, f"_{api}")(asked)
        try:
            return Answered(_framed(api, version, number, answer), wait_ms)
        except EncodeError as error:
            # A name that is not UTF-8 gets longer when it is encoded again.
            raise Refused(NOT_WRITTEN, f"the answer cannot be written: {error}") from None

    @staticmethod
    def _read(api: str, version: int, frame: bytes, place: Place) -> Asked:
        definition = _request(api)
        header_version = request_header_version(definition, version)
        header = read("RequestHeader", header_version, frame, elements_max=ELEMENTS_MAX)
        if header.message is None:
            raise Refused(UNREADABLE, f"the header cannot be read: {header.fatal}")
        try:
            # Dicts have the fields of all versions, so one function serves all of them.
            body = frame[header.consumed :]
            values = decode(definition, version, body, defaults=True, elements_max=ELEMENTS_MAX)
        except KfuzzError as error:
            raise Refused(UNREADABLE, str(error)) from None
        return Asked(api, version, header.message["clientId"] or "", place, values)

    # -- what a client must know before it reads

    def _ApiVersions(self, asked: Asked) -> tuple[Values, int]:
        return {"apiKeys": _keys(self.versions)}, 0

    def _Metadata(self, asked: Asked) -> tuple[Values, int]:
        named = asked.values["topics"]
        # Version 0 has no null, and means all topics by an empty list.
        if named is None or (asked.version == 0 and not named):
            topics = [_described(topic) for topic in self.topics]
        else:
            topics = [self._described(one["name"], one["topicId"]) for one in named]
        return {
            "brokers": [{"nodeId": NODE, "host": asked.place.host, "port": asked.place.port}],
            "clusterId": CLUSTER,
            "controllerId": NODE,
            "topics": topics,
        }, 0

    def _described(self, name: str | None, topic_id: bytes) -> Values:
        topic = self.topics.by_id.get(topic_id) if name is None else self.topics.by_name.get(name)
        if topic is not None:
            return _described(topic)
        if name is None:
            # Versions 10 and 11 have ids, but no null for the name.
            return {"errorCode": UNKNOWN_TOPIC_ID, "name": "", "topicId": topic_id}
        return {"errorCode": UNKNOWN_TOPIC_OR_PARTITION, "name": name}

    def _FindCoordinator(self, asked: Asked) -> tuple[Values, int]:
        here = {"nodeId": NODE, "host": asked.place.host, "port": asked.place.port}
        keys = asked.values["coordinatorKeys"]
        return {"coordinators": [{"key": key, **here} for key in keys]} if asked.version >= 4 else here, 0

    # -- reading

    def _found(self, name: str, topic_id: bytes, index: int) -> tuple[Topic | None, int]:
        by_id = topic_id != NO_TOPIC_ID
        topic = self.topics.by_id.get(topic_id) if by_id else self.topics.by_name.get(name)
        if topic is not None and index == PARTITION:
            return topic, NO_ERROR
        return None, UNKNOWN_TOPIC_ID if by_id and topic is None else UNKNOWN_TOPIC_OR_PARTITION

    def _ListOffsets(self, asked: Asked) -> tuple[Values, int]:
        topics = []
        for one in asked.values["topics"]:
            partitions = []
            for partition in one["partitions"]:
                topic, error = self._found(one["name"], NO_TOPIC_ID, partition["partitionIndex"])
                told: Values = {"partitionIndex": partition["partitionIndex"], "errorCode": error}
                if topic is not None:
                    told["offset"] = _offset_at(topic, partition["timestamp"])
                    if asked.version >= 4:
                        told["leaderEpoch"] = EPOCH
                partitions.append(told)
            topics.append({"name": one["name"], "partitions": partitions})
        return {"topics": topics}, 0

    def _Fetch(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        # The answers below open no session, so a client has none to continue.
        if values["sessionId"]:
            return {"errorCode": FETCH_SESSION_ID_NOT_FOUND}, 0
        room, given, failed = min(values["maxBytes"], RECORDS_BYTES_MAX), 0, False
        responses = []
        for one in values["topics"]:
            partitions = []
            for partition in one["partitions"]:
                topic, error = self._found(one["topic"], one["topicId"], partition["partition"])
                offset = partition["fetchOffset"]
                if topic is not None and offset < 0:
                    error = OFFSET_OUT_OF_RANGE
                told: Values = {"partitionIndex": partition["partition"], "errorCode": error, "highWatermark": -1}
                if topic is not None and not error:
                    data = topic.fetched(offset)
                    # The first records of an answer come in any case, or a client would never get large ones.
                    if given and given + len(data) > room:
                        data = b""
                    given += len(data)
                    told["highWatermark"] = told["lastStableOffset"] = topic.high_watermark
                    told["logStartOffset"] = 0
                    told["records"] = data
                failed = failed or bool(error)
                partitions.append(told)
            responses.append({"topic": one["topic"], "topicId": one["topicId"], "partitions": partitions})
        # Like a broker, send an answer with records or an error at once.
        wait_ms = 0 if given or failed else min(max(values["maxWaitMs"], 0), WAIT_MS_MAX)
        return {"responses": responses}, wait_ms

    def _Produce(self, asked: Asked) -> tuple[Values, int]:
        if not asked.values["acks"]:
            # With acks 0 there is no answer, so a broker reports an error by closing the connection.
            raise Refused(WRITES, "nothing can be written here")
        error = {"errorCode": TOPIC_AUTHORIZATION_FAILED, "baseOffset": -1}
        responses = [
            {
                "name": one["name"],
                "topicId": one["topicId"],
                "partitionResponses": [{"index": partition["index"], **error} for partition in one["partitionData"]],
            }
            for one in asked.values["topicData"]
        ]
        return {"responses": responses}, 0

    # -- groups: each consumer is alone in its group, and nothing is kept

    def _JoinGroup(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        member = values["memberId"] or f"{asked.client_id}-member"
        protocols = values["protocols"]
        metadata = protocols[0]["metadata"] if protocols else b""
        answer = {
            "generationId": GENERATION,
            "protocolType": values["protocolType"],
            "protocolName": protocols[0]["name"] if protocols else "",
            "leader": member,
            "memberId": member,
            "members": [{"memberId": member, "metadata": metadata}],
        }
        return answer, 0

    def _SyncGroup(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        own = (one["assignment"] for one in values["assignments"] if one["memberId"] == values["memberId"])
        answer = {
            "protocolType": values["protocolType"],
            "protocolName": values["protocolName"],
            "assignment": next(own, b""),
        }
        return answer, 0

    def _Heartbeat(self, asked: Asked) -> tuple[Values, int]:
        return {}, 0

    def _LeaveGroup(self, asked: Asked) -> tuple[Values, int]:
        gone = [
            {"memberId": one["memberId"], "groupInstanceId": one["groupInstanceId"]} for one in asked.values["members"]
        ]
        return {"members": gone}, 0

    def _OffsetFetch(self, asked: Asked) -> tuple[Values, int]:
        if asked.version < 8:
            return {"topics": _not_committed(asked.values["topics"])}, 0
        groups = [
            {"groupId": one["groupId"], "topics": _not_committed(one["topics"])} for one in asked.values["groups"]
        ]
        return {"groups": groups}, 0

    def _OffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        topics = [
            {
                "name": one["name"],
                "topicId": one["topicId"],
                "partitions": [{"partitionIndex": partition["partitionIndex"]} for partition in one["partitions"]],
            }
            for one in asked.values["topics"]
        ]
        return {"topics": topics}, 0

    def _InitProducerId(self, asked: Asked) -> tuple[Values, int]:
        return {"producerId": PRODUCER_ID, "producerEpoch": 0}, 0


def _framed(api: str, version: int, number: int, values: Values) -> bytes:
    response = _response(api)
    head = encode("ResponseHeader", response_header_version(response, version), {"correlationId": number})
    return head + encode(response, version, values)


def _keys(versions: dict[str, Versions]) -> list[Values]:
    return [
        {"apiKey": _request(api).api_key, "minVersion": both.lowest, "maxVersion": both.highest}
        for api, both in versions.items()
    ]


def _described(topic: Topic) -> Values:
    partition = {
        "partitionIndex": PARTITION,
        "leaderId": NODE,
        "leaderEpoch": EPOCH,
        "replicaNodes": [NODE],
        "isrNodes": [NODE],
    }
    return {"name": topic.name, "topicId": topic.id, "partitions": [partition]}


def _offset_at(topic: Topic, timestamp: int) -> int:
    """The high watermark for the latest offset, -1 for remote storage, otherwise 0. Timestamps are not looked up."""
    if timestamp == LATEST:
        return topic.high_watermark
    return -1 if timestamp == LATEST_TIERED else 0


def _not_committed(topics: Iterable[Values] | None) -> list[Values]:
    """Says for each requested partition that nothing was committed.

    ``None`` requests all committed offsets; there are none.
    """
    return [
        {
            # A topic has a name, an id, or both. Before version 8 the array has another struct.
            **{name: one[name] for name in ("name", "topicId") if name in one},
            "partitions": [
                {"partitionIndex": index, "committedOffset": -1, "metadata": ""} for index in one["partitionIndexes"]
            ],
        }
        for one in topics or ()
    ]
