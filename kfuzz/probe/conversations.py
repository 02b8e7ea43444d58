"""Conversations with a broker: each reaches a state in which a hostile request means something.

A conversation knows the good requests of its state, which :mod:`kfuzz.probe.hostile` makes hostile. Its values are in a
:class:`Context`; those of a new one are placeholders of the right form, so that cases can be planned without a broker.
"""

from __future__ import annotations

import asyncio
import time
import tomllib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from kfuzz import records
from kfuzz.client.link import Link
from kfuzz.client.protocol import RETRIABLE, BrokerError, first_error
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Definition, Field, key_of
from kfuzz.records import Record, RecordBatch

PAUSE_S: Final = 0.05
# The least that a broker of Kafka allows by default.
SESSION_TIMEOUT_MS: Final = 6000
# Less than a probe waits for an answer, so that a group that cannot rebalance is seen as one.
REBALANCE_TIMEOUT_MS: Final = 1000
TRANSACTION_TIMEOUT_MS: Final = 60_000
# How long a request lets a broker wait.
WAIT_MS: Final = 200
FETCH_BYTES: Final = 1 << 20
TIMESTAMP_MS: Final = 1_700_000_000_000
# The version of a blob is in its first two bytes. Kafka reads at least the part that version 0 has.
BLOB_VERSION: Final = 3
MEMBER_ID_REQUIRED: Final = 79
ASSIGNOR: Final = "range"
# The kind of coordinator in FindCoordinator.
TRANSACTIONS: Final = 1
# Where a conversation is held: at a broker, at a broker that does not know the client, at the controller's port.
Place = Literal["broker", "stranger", "controller"]
# The number of a broker, controller and voter that the cluster does not need.
SPARE: Final = 9
ENDPOINT: Final = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9, "securityProtocol": 0}
METADATA: Final = "__cluster_metadata"
# Errors of brokers without delegation tokens, and of those that give none on such a connection.
TOKENLESS: Final = (61, 64)
# No values.
EMPTY: Final[Mapping[str, Any]] = {}
# A name that nobody has.
NOBODY: Final = "kfuzz-nobody"
# Kafka makes client ids of telemetry, and member ids of share groups, of this form.
UUID: Final = "q83vASNFZ4mrze8BI0VniQ"


def subscription(topic: str, version: int = BLOB_VERSION) -> bytes:
    """The bytes with which a member of a classic group of consumers describes itself in JoinGroup."""
    return version.to_bytes(2, "big") + encode("ConsumerProtocolSubscription", version, {"topics": [topic]})


def assignment(topic: str, version: int = BLOB_VERSION) -> bytes:
    """The bytes that the leader of a classic group of consumers gives a member in SyncGroup: partition 0."""
    values = {"assignedPartitions": [{"topic": topic, "partitions": [0]}]}
    return version.to_bytes(2, "big") + encode("ConsumerProtocolAssignment", version, values)


def batch(timestamp_ms: int = TIMESTAMP_MS, **fields: Any) -> bytes:
    """A good batch of one record, with these fields of a ``RecordBatch``."""
    return records.encode([RecordBatch(0, 0, [Record(0, timestamp_ms, b"kfuzz", b"probe")], **fields)])


Values = Mapping[str, Any]
# Every level that a cluster may be at.
FEATURES_KNOWN: Final = (
    *("metadata.version", "transaction.version", "group.version", "share.version", "streams.version"),
    *("kraft.version", "eligible.leader.replicas.version"),
)
DIRECTORY: Final = b"\6" * 16
# The good values of fields in all requests, by their names, as far as they do not depend on the conversation.
FIELDS: Final[Values] = {
    **dict.fromkeys(("acks", "replicaId", "timestamp", "replicationFactor"), -1),
    **dict.fromkeys(("maxLifetimeMs", "renewPeriodMs", "previousBrokerEpoch"), -1),
    **dict.fromkeys(("partition", "partitionIndex", "index", "partitions", "partitionIndexes"), 0),
    **dict.fromkeys(("offset", "fetchOffset", "startOffset", "firstOffset", "lastOffset", "position"), 0),
    **dict.fromkeys(("leaderEpoch", "partitionEpoch", "topologyEpoch", "deliveryState", "deliveryCompleteCount"), 0),
    # The kinds of coordinators, elections, matches, changes of settings, and compression.
    **dict.fromkeys(("keyType", "electionType", "matchType", "configOperation", "compressionType"), 0),
    **dict.fromkeys(("committedOffset", "endOffset", "currentMetadataOffset", "stateEpoch", "deliveryCount"), 1),
    **dict.fromkeys(("numPartitions", "shareSessionEpoch", "acknowledgeTypes", "maxVersionLevel", "nodeType"), 1),
    # The kinds of endpoints and upgrades, and SCRAM-SHA-256.
    **dict.fromkeys(("endpointType", "upgradeType", "mechanism"), 1),
    # Topics, among the things that have settings and permissions.
    **dict.fromkeys(("resourceType", "resourceTypeFilter", "resourceTypes"), 2),
    # The literal pattern, to read, allowed; and so many partitions.
    **dict.fromkeys(("resourcePatternType", "patternTypeFilter", "operation", "permissionType", "count"), 3),
    **dict.fromkeys(("maxRecords", "batchSize"), 10),
    **dict.fromkeys(("brokerId", "controllerId", "voterId", "newIsr"), SPARE),
    **dict.fromkeys(("timeoutMs", "maxWaitMs"), WAIT_MS),
    **dict.fromkeys(("maxBytes", "partitionMaxBytes"), FETCH_BYTES),
    **dict.fromkeys(("allowAutoTopicCreation", "allowDowngrade", "remove", "strict", "terminating"), False),
    **dict.fromkeys(("validateOnly", "committed", "transactionResult", "wantFence"), True),
    **dict.fromkeys(("configurationKeys", "principalFilter", "hostFilter", "ownerPrincipalType"), None),
    **dict.fromkeys(("resourceName", "resourceNameFilter", "entityName", "match", "feature", "principalName"), NOBODY),
    **dict.fromkeys(("id", "logDirs"), DIRECTORY),
    "authBytes": b"\0kfuzz\0probe",
    "clientHostAddress": b"\x7f\0\0\1",
    "clientSoftwareName": "kfuzz",
    "clientSoftwareVersion": "1",
    "committedMetadata": "",
    "entityType": "user",
    "expiryTimePeriodMs": 1000,
    "host": "*",
    "incarnationId": b"\5" * 16,
    "iterations": 4096,
    "metrics": b"\x0a\x02\x08\x01",
    "path": f"/{NOBODY}",
    "principal": f"User:{NOBODY}",
    "principalType": "User",
    "processId": UUID,
    "protocolName": ASSIGNOR,
    "protocolType": "consumer",
    "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
    "requestData": b"\0\x12\0\0\0\0\0\1\xff\xff",
    "responsePartitionLimit": 100,
    "salt": b"salt-of-kfuzz",
    "saltedPassword": bytes(range(32)),
    "sessionTimeoutMs": SESSION_TIMEOUT_MS,
    "stateFilters": "Ongoing",
    "statesFilter": "Stable",
    "subtopologyId": "0",
    "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS,
    "typesFilter": "classic",
    "value": "-1",
}
# The good values of structs, of which a request else has one with good values.
STRUCTS: Final[Values] = {
    **dict.fromkeys(("cursor", "userEndpoint"), None),
    **{name: [] for name in ("clientTags", "taskOffsets", "taskEndOffsets", "globalStores", "deletions")},
    **{name: [] for name in ("forgottenTopicsData", "leaderEndpoints", "preferredCandidates")},
    "listeners": [ENDPOINT],
    "features": [
        {"name": name, "minSupportedVersion": int(name == "metadata.version"), "maxSupportedVersion": 100}
        for name in FEATURES_KNOWN
    ],
}
# The values of a request's fields that differ from those in other requests, by their names.
Others = Callable[["Context"], Values]


@dataclass
class Context:
    """The values of a conversation. ``prefix`` begins all its names; ``deadline`` is when it must be reached."""

    prefix: str = "kfuzz-probe"
    topic: str = "kfuzz-probe"
    topic_id: bytes = b"\1" * 16
    link: Link | None = None
    deadline: float = 0.0
    member_id: str = UUID
    # Of a group's member, or of the quorum.
    epoch: int = 1
    producer_id: int = 1000
    producer_epoch: int = 0
    sequence: int = 0
    client_instance: bytes = b"\2" * 16
    subscription_id: int = 1
    node: int = 1
    cluster: str = "kfuzz"
    broker_epoch: int = 1
    hmac: bytes = b"\3" * 32

    @property
    def group(self) -> str:
        return f"{self.prefix}-group"

    @property
    def transactional_id(self) -> str:
        return f"{self.prefix}-transactions"

    def stranger(self) -> Context:
        """A context with the same values but names of its own, which the broker has never seen."""
        return replace(self, prefix=f"{self.prefix}-early")

    @property
    def connection(self) -> Link:
        """The connection for good requests."""
        assert self.link is not None
        return self.link

    def named(self) -> Values:
        """The values of fields that mean the same in all requests of the conversation, by their names."""
        return {
            **dict.fromkeys(("groupId", "groupIds", "groups", "groupsNames", "key", "coordinatorKeys"), self.group),
            **dict.fromkeys(("topic", "name", "topicName", "subscribedTopicNames", "sourceTopics"), self.topic),
            **dict.fromkeys(("generationId", "memberEpoch", "generationIdOrMemberEpoch"), self.epoch),
            **dict.fromkeys(("transactionalId", "transactionalIds"), self.transactional_id),
            **dict.fromkeys(("v3AndBelowTransactionalId", "transactionalIdPattern"), self.transactional_id),
            **dict.fromkeys(("producerId", "v3AndBelowProducerId", "producerIdFilters"), self.producer_id),
            **dict.fromkeys(("producerEpoch", "v3AndBelowProducerEpoch"), self.producer_epoch),
            "topicId": self.topic_id,
            "memberId": self.member_id,
            "clusterId": self.cluster,
            "clientInstanceId": self.client_instance,
            "subscriptionId": self.subscription_id,
            "brokerEpoch": self.broker_epoch,
            "hmac": self.hmac,
            "replicas": self.node,
            "metadata": subscription(self.topic),
            "assignment": assignment(self.topic),
        }

    def good(self, api: str, version: int, others: Values) -> Message:
        """The good request of an API: each field has its value of ``others``, or of the conversation, or its default.

        Each array of structs has one element.
        """
        definition = catalogue().find(f"{api}Request")
        named = {**FIELDS, **self.named(), **others}
        return _filled(definition, definition.fields, version, named, {**STRUCTS, **others})

    async def ask(self, api: str, others: Values = EMPTY, *, allowed: tuple[int, ...] = ()) -> Message:
        """The answer to a good request. ``BrokerError`` for an error that stays, other than those ``allowed``."""
        version = self.connection.version(api)
        made = self.good(api, version, others)
        while True:
            answer = await self.connection.call(api, made, version)
            code, message = first_error(answer)
            if not code or code in allowed:
                return answer
            if code not in RETRIABLE or time.monotonic() > self.deadline:
                raise BrokerError(api, code, message)
            await asyncio.sleep(PAUSE_S)


def _filled(definition: Definition, fields: tuple[Field, ...], version: int, named: Values, others: Values) -> Message:
    made: Message = {}
    for one in fields:
        if version not in one.versions:
            continue
        key, is_array = key_of(one.name), one.type.array
        inner = partial(_filled, definition, definition.fields_of(one.type), version) if one.type.struct else None
        if inner is None:
            if key in named:
                value = named[key]
                made[key] = [value] if is_array and not isinstance(value, list | None) else value
        elif (given := others.get(key, EMPTY)) is None:
            made[key] = None
        elif given is not EMPTY:
            made[key] = [inner(each, each) for each in given] if is_array else inner(given, given)
        elif named is not others:
            # In a struct that is given, the rest has its default.
            made[key] = [inner(named, others)] if is_array else inner(named, others)
    return made


Reach = Callable[[Context], Awaitable[object]]


async def _nothing(context: Context) -> None:
    """Every broker is in this state."""


class State(NamedTuple):
    """A state of a broker, and how to ``reach`` it; ``end`` leaves it.

    ``others``: the values in which the good requests of some APIs differ in this state.
    """

    reach: Reach = _nothing
    others: Mapping[str, Others] = EMPTY
    end: Reach | None = None


@dataclass(frozen=True)
class Conversation:
    """A conversation in a state of a broker, as ``conversations.toml`` describes it."""

    name: str
    state: State
    asks: Sequence[str]
    needs: Sequence[str] = ()
    place: Place = "broker"

    @property
    def lasts(self) -> bool:
        """Whether no request can change the state."""
        return self.state.reach is _nothing

    def good(self, context: Context, api: str, version: int) -> Message:
        """The good request of an API in this state."""
        others = self.state.others.get(api) or OTHERS.get(api, _with())
        return context.good(api, version, others(context))


def _with(**values: Any) -> Others:
    return lambda context: values


def _ask(api: str) -> Reach:
    return lambda context: context.ask(api)


def _new(context: Context) -> Values:
    """Values about a topic that is not there."""
    name = f"{context.prefix}-new"
    return {"name": name, "topicNames": name, "topicId": bytes(16), "assignments": [], "configs": []}


# -- producers


def produced(data: bytes, **values: Any) -> Values:
    """The values of a Produce request with these record batches."""
    return {"transactionalId": None, "timeoutMs": WAIT_MS * 10, "records": data, **values}


async def _begin_producer(context: Context, **values: Any) -> None:
    answer = await context.ask("InitProducerId", {"producerId": -1, "producerEpoch": -1, **values})
    context.producer_id, context.producer_epoch, context.sequence = answer["producerId"], answer["producerEpoch"], 0


def _batch(context: Context, *, transactional: bool = False) -> bytes:
    producer = {"producer_id": context.producer_id, "producer_epoch": context.producer_epoch}
    return batch(**producer, base_sequence=context.sequence, transactional=transactional)


def _next(context: Context) -> Values:
    return produced(_batch(context))


async def _producer(context: Context) -> None:
    await _begin_producer(context, transactionalId=None)
    await context.ask("Produce", _next(context))
    context.sequence = 1


def _next_in_transaction(context: Context) -> Values:
    return produced(_batch(context, transactional=True), transactionalId=context.transactional_id)


async def _transaction(context: Context) -> None:
    await _coordinator(context, context.transactional_id, TRANSACTIONS)
    await _begin_producer(context)
    await context.ask("AddPartitionsToTxn")
    await context.ask("Produce", _next_in_transaction(context))
    context.sequence = 1


# -- classic groups


JOIN: Final[Values] = {"name": ASSIGNOR}


async def _coordinator(context: Context, key: str, kind: int = 0) -> None:
    """Wait until the broker coordinates: the first group makes it create a topic of its own."""
    await context.ask("FindCoordinator", {"key": key, "keyType": kind, "coordinatorKeys": key})


async def _known(context: Context) -> None:
    await _coordinator(context, context.group)
    context.member_id, context.epoch = "", -1
    answer = await context.ask("JoinGroup", JOIN, allowed=(MEMBER_ID_REQUIRED,))
    context.member_id = answer["memberId"]


async def _joined(context: Context, **values: Any) -> None:
    await _known(context)
    answer = await context.ask("JoinGroup", {**JOIN, **values})
    context.member_id, context.epoch = answer["memberId"], answer["generationId"]


async def _stable(context: Context, **values: Any) -> None:
    await _joined(context, **values)
    await context.ask("SyncGroup")


async def _odd_subscription(context: Context) -> None:
    """A group whose member said something that coordinators read only up to the topics."""
    await _stable(context, metadata=subscription(context.topic, 0) + b"\xff\xff\xff\xfe")


# -- groups of the newer kinds


def _beat(context: Context) -> Values:
    # A member that joins gives its topology, and owns nothing.
    tasks = [{"subtopologyId": "0", "partitions": [0]}] if context.epoch else []
    topology = {"epoch": 0, "subtopologies": [{"subtopologyId": "0", "sourceTopics": [context.topic]}]}
    owned = dict.fromkeys(("activeTasks", "standbyTasks", "warmupTasks"), tasks)
    return {**owned, "topicPartitions": [], "topology": None if context.epoch else topology}


async def _join_by(api: str, context: Context) -> None:
    """Join by the first heartbeat."""
    await _coordinator(context, context.group)
    context.member_id, context.epoch = UUID, 0
    answer = await context.ask(api, _beat(context))
    context.member_id, context.epoch = answer["memberId"] or UUID, answer["memberEpoch"]


# -- other states


async def _telemetry(context: Context) -> None:
    answer = await context.ask("GetTelemetrySubscriptions", {"clientInstanceId": bytes(16)})
    context.client_instance, context.subscription_id = answer["clientInstanceId"], answer["subscriptionId"]


async def _token(context: Context) -> None:
    answer = await context.ask("CreateDelegationToken", allowed=TOKENLESS)
    context.hmac = bytes(answer["hmac"]) or context.hmac


async def _quorum(endpoint: int, context: Context) -> None:
    context.cluster = (await context.ask("DescribeCluster", {"endpointType": endpoint}))["clusterId"]
    answer = await context.ask("DescribeQuorum", {"topicName": METADATA})
    partition = answer["topics"][0]["partitions"][0]
    context.node, context.epoch = partition["leaderId"], partition["leaderEpoch"]


_at_broker, _at_controller = partial(_quorum, 1), partial(_quorum, 2)


def _as_replica(context: Context) -> Values:
    """A request from a replica of the metadata log that is not a voter."""
    return {
        **dict.fromkeys(("name", "topic", "topicName"), METADATA),
        **dict.fromkeys(("currentLeaderEpoch", "replicaEpoch", "lastOffsetEpoch", "epoch"), context.epoch),
        **dict.fromkeys(("voterId", "leaderId"), context.node),
        **{"lastOffset": 1, "lastFetchedEpoch": 0, "leaderEpoch": context.epoch, "replicaId": SPARE},
        "topicId": bytes(15) + b"\1",
    }


async def _registered(context: Context) -> None:
    """A broker that has registered, but never becomes ready."""
    await _at_controller(context)
    context.broker_epoch = (await context.ask("BrokerRegistration"))["brokerEpoch"]


VOTER: Final[Values] = {"voterDirectoryId": b"\4" * 16}
# The values in which the requests of an API differ from others, in all states.
OTHERS: Final[Mapping[str, Others]] = {
    **dict.fromkeys(("ApiVersions", "Fetch"), _with(clusterId=None)),
    **dict.fromkeys(("CreateTopics", "DeleteTopics"), _new),
    "CreatePartitions": _with(assignments=[]),
    **dict.fromkeys(
        ("DescribeConfigs", "IncrementalAlterConfigs", "AlterConfigs"),
        lambda context: {"resourceName": context.topic, "name": "retention.ms"},
    ),
    "AlterClientQuotas": _with(key="producer_byte_rate", value=1e9),
    **dict.fromkeys(("AlterUserScramCredentials", "DescribeUserScramCredentials"), _with(name=NOBODY)),
    "SaslHandshake": _with(mechanism="PLAIN"),
    "DescribeQuorum": _with(topicName=METADATA),
    **dict.fromkeys(("AddRaftVoter", "RemoveRaftVoter"), _with(**VOTER)),
    "JoinGroup": _with(**JOIN),
    "TxnOffsetCommit": _with(memberId="", generationIdOrMemberEpoch=-1),
    **dict.fromkeys(("ConsumerGroupHeartbeat", "ShareGroupHeartbeat", "StreamsGroupHeartbeat"), _beat),
    "ShareFetch": _with(shareSessionEpoch=0, acknowledgementBatches=[]),
    "StreamsGroupTopologyDescriptionUpdate": _with(name="kfuzz"),
}
# A consumer of the newer kind joins a classic group, which makes Kafka convert it.
UPGRADE: Final = {"ConsumerGroupHeartbeat": _with(memberId=UUID, memberEpoch=0, topicPartitions=[])}


def _group(api: str, **others: Others) -> State:
    """The state of a group of the newer kinds, whose members join and leave by heartbeats."""

    def leave(context: Context) -> Awaitable[Message]:
        return context.ask(api, {**_beat(context), "memberEpoch": -1})

    return State(partial(_join_by, api), others, leave)


PRODUCER: Final = {"Produce": _next, "InitProducerId": _with(transactionalId=None, producerId=-1, producerEpoch=-1)}
# A consumer of the classic kind joins; Kafka reads what it says of itself.
DOWNGRADE: Final = {"JoinGroup": _with(**JOIN, memberId="")}
AS_REPLICA: Final[Mapping[str, Others]] = {
    **dict.fromkeys(("Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch"), _as_replica),
    "UpdateRaftVoter": lambda context: {**VOTER, "currentLeaderEpoch": context.epoch},
}
# The states of conversations by their names. Every broker is in that of the others.
STATES: Final[Mapping[str, State]] = {
    "producer": State(_producer, PRODUCER),
    "transaction": State(_transaction, {"Produce": _next_in_transaction}, _ask("EndTxn")),
    "classic-group-known": State(_known),
    "classic-group-joined": State(_joined),
    "classic-group": State(_stable, UPGRADE, _ask("LeaveGroup")),
    "classic-group-odd": State(_odd_subscription, UPGRADE),
    "consumer-group": _group("ConsumerGroupHeartbeat", **DOWNGRADE),
    "share-group": _group("ShareGroupHeartbeat"),
    "streams-group": _group("StreamsGroupHeartbeat"),
    "tokens": State(_token),
    "telemetry": State(_telemetry),
    "registered-broker": State(_registered),
    "quorum": State(_at_controller, AS_REPLICA),
    "voters": State(_at_broker),
}
_ASKED: Final[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("conversations.toml").read_text())
CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    name: Conversation(name, STATES.get(name, State()), **asked) for name, asked in _ASKED.items()
}
