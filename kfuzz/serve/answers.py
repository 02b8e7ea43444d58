"""Answers to requests: bytes of a frame to bytes of a frame, without a socket.

Nothing here depends on chance or on time.
"""

from __future__ import annotations

import struct
from functools import cache, partial
from typing import Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.errors import EncodeError, KfuzzError, UsageError
from kfuzz.messages import decode, encode, read
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.headers import request_header_version, response_header_version
from kfuzz.messages.model import Versions
from kfuzz.serve.cluster import ELEMENTS_MAX, Answered, Asked, Caller, Cluster, Handler, Held, Refused, Report, Values
from kfuzz.serve.fetching import Fetching
from kfuzz.serve.groups import Groups
from kfuzz.serve.producing import Producing
from kfuzz.serve.topics import Topic, Topics

HEAD: Final = struct.Struct(">hhi")
CLUSTER_ID: Final = "kfuzz"

API_VERSIONS: Final = "ApiVersions"
# The versions of ApiVersions that an older broker offers.
FALLBACK: Final = {API_VERSIONS: Versions(0, 3)}
APIS: Final = (
    "Produce",
    "Fetch",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "ConsumerGroupHeartbeat",
    API_VERSIONS,
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "TxnOffsetCommit",
)

# Kinds of refusals.
WRONG_SIZE: Final = "requests of a wrong size"
NOT_OFFERED: Final = "APIs or versions that are not offered"
UNREADABLE: Final = "requests that cannot be read"
NOT_WRITTEN: Final = "answers that cannot be written"


def released(api: str) -> Versions:
    """The versions of an API that Kafka has released, and that kfuzz knows. ``UsageError`` for an unknown API."""
    definition = catalogue().find(f"{api}Request")
    low, high = definition.valid_versions.lowest, definition.valid_versions.highest
    return Versions(low, high - definition.latest_version_unstable)


@cache
def _by_key() -> dict[int | None, str]:
    return {catalogue().find(f"{api}Request").api_key: api for api in APIS}


class Broker:
    """Answers requests about ``topics``. ``fetch_versions`` are the versions of Fetch that it offers.

    It stands for all brokers of its :attr:`cluster`: the connection of a request says which one was asked.
    """

    def __init__(self, topics: Topics, *, fetch_versions: Versions | None = None) -> None:
        self.cluster = Cluster(topics)
        self.versions = {api: released(api) for api in APIS}
        if fetch_versions is not None:
            known = released("Fetch")
            if not fetch_versions <= known:
                raise UsageError(f"kfuzz knows the versions {known} of Fetch; take some of them")
            self.versions["Fetch"] = fetch_versions
        self.report = Report()
        self._groups = Groups(self.cluster)
        parts = (self, Fetching(self.cluster), Producing(self.cluster), self._groups)
        self._handlers: dict[str, Handler] = {
            api: next(getattr(part, api) for part in parts if hasattr(part, api)) for api in APIS
        }

    def answer(self, frame: bytes, caller: Caller) -> Answered:
        """The answer to a request, both without their size in front. ``Refused`` if it cannot be answered."""
        if len(frame) < HEAD.size:
            raise Refused(WRONG_SIZE, f"a request of {len(frame)} bytes")
        key, version, number = HEAD.unpack_from(frame)
        api = _by_key().get(key)
        if api is None:
            raise Refused(NOT_OFFERED, f"the API with the number {key} is not offered")
        self.report.requests[api] += 1
        if version not in self.offered(api) and api != API_VERSIONS:
            if version in self.versions[api]:
                self.cluster.not_offered = self.cluster.not_offered or f"version {version} of {api}"
            raise Refused(NOT_OFFERED, f"version {version} of {api} is not offered")
        if api == API_VERSIONS and self._is_unsupported(version, caller):
            # The client does not know yet what this broker has, so it gets the one version that all clients read.
            offered = FALLBACK if self.cluster.api_versions_fallback else {api: self.offered(api)}
            values = {"errorCode": ERROR_CODES["UNSUPPORTED_VERSION"], "apiKeys": _keys(offered)}
            return Answered(_framed(api, 0, number, values))
        answer, wait_ms = self._handlers[api](self._read(api, version, frame, caller))
        if isinstance(answer, Held):
            if answer.values is None:
                return Answered(None, later=partial(_framed_later, api, version, number, answer))
            answer = answer.values
        if answer is None:
            return Answered(None, wait_ms)
        return Answered(_framed(api, version, number, answer), wait_ms, answer.get("throttleTimeMs", 0))

    def offered(self, api: str) -> Versions:
        """The versions of an API that a client may use."""
        both = self.versions[api]
        return Versions(both.lowest, min(both.highest, self.cluster.versions.get(api, both.highest)))

    def _is_unsupported(self, version: int, caller: Caller) -> bool:
        """Whether a version of ApiVersions is too new. A client that only has older ones falls back once, too."""
        if not self.cluster.api_versions_fallback:
            return version not in self.offered(API_VERSIONS)
        had_fallen_back, caller.has_fallen_back = caller.has_fallen_back, True
        return version > FALLBACK[API_VERSIONS].highest or (version > 0 and not had_fallen_back)

    def gone(self, caller: Caller) -> None:
        """Say that a connection is closed."""
        self._groups.gone(caller)

    @staticmethod
    def _read(api: str, version: int, frame: bytes, caller: Caller) -> Asked:
        definition = catalogue().find(f"{api}Request")
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
        return Asked(api, version, header.message["clientId"] or "", caller, values)

    # -- what a client must know before it reads or writes

    def ApiVersions(self, asked: Asked) -> tuple[Values, int]:
        offered = {api: self.offered(api) for api in APIS}
        return {"apiKeys": _keys(offered | (FALLBACK if self.cluster.api_versions_fallback else {}))}, 0

    def Metadata(self, asked: Asked) -> tuple[Values, int]:
        named = asked.values["topics"]
        nodes = self.cluster.nodes(asked.caller)
        ids = [node["nodeId"] for node in nodes]
        # Version 0 has no null, and means all topics by an empty list.
        if named is None or (asked.version == 0 and not named):
            topics = [_described(topic, ids) for topic in self.cluster.topics if not topic.error]
        else:
            topics = [self._described(one["name"], one["topicId"], ids) for one in named]
        return {"brokers": nodes, "clusterId": CLUSTER_ID, "controllerId": ids[0], "topics": topics}, 0

    def _described(self, name: str | None, topic_id: bytes, nodes: list[int]) -> Values:
        topics = self.cluster.topics
        topic = topics.by_id.get(topic_id) if name is None else topics.by_name.get(name)
        if topic is not None:
            return _described(topic, nodes)
        if name is None:
            # Versions 10 and 11 have ids, but no null for the name.
            return {"errorCode": ERROR_CODES["UNKNOWN_TOPIC_ID"], "name": "", "topicId": topic_id}
        return {"errorCode": ERROR_CODES["UNKNOWN_TOPIC_OR_PARTITION"], "name": name}

    def FindCoordinator(self, asked: Asked) -> tuple[Values, int]:
        nodes = {node["nodeId"]: node for node in self.cluster.nodes(asked.caller)}

        def place(key: str) -> Values:
            return nodes[self.cluster.coordinator(key)]

        if asked.version < 4:
            return place(asked.values["key"]), 0
        return {"coordinators": [{"key": key, **place(key)} for key in asked.values["coordinatorKeys"]]}, 0


def _framed(api: str, version: int, number: int, values: Values) -> bytes:
    response = catalogue().find(f"{api}Response")
    head = encode("ResponseHeader", response_header_version(response, version), {"correlationId": number})
    try:
        return head + encode(response, version, values)
    except EncodeError as error:
        # A name that is not UTF-8 gets longer when it is encoded again.
        raise Refused(NOT_WRITTEN, f"the answer cannot be written: {error}") from None


async def _framed_later(api: str, version: int, number: int, held: Held) -> bytes:
    return _framed(api, version, number, await held.taken())


def _keys(versions: dict[str, Versions]) -> list[Values]:
    return [
        {"apiKey": catalogue().find(f"{api}Request").api_key, "minVersion": both.lowest, "maxVersion": both.highest}
        for api, both in versions.items()
    ]


def _described(topic: Topic, nodes: list[int]) -> Values:
    if topic.error:
        return {"errorCode": topic.error, "name": topic.name}
    partitions = [
        {
            "partitionIndex": index,
            "leaderId": partition.leader,
            "leaderEpoch": partition.leader_epoch,
            "replicaNodes": nodes,
            "isrNodes": nodes,
        }
        for index, partition in enumerate(topic.partitions)
    ]
    return {"name": topic.name, "topicId": topic.id, "partitions": partitions}
