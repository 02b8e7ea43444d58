"""Conversations with a broker: each reaches a state in which a hostile request means something.

A conversation knows the good requests of its state, which :mod:`kfuzz.probe.hostile` makes hostile. Its values are in a
:class:`Context`; those of a new one are placeholders of the right form, so that cases can be planned without a broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal

from kfuzz import records
from kfuzz.client.link import Link
from kfuzz.client.protocol import RETRIABLE, BrokerError, first_error
from kfuzz.messages import encode
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import Message
from kfuzz.messages.model import Definition, Field, key_of
from kfuzz.records import Record, RecordBatch

__all__ = [
    "BLOB_VERSION",
    "CONVERSATIONS",
    "NOBODY",
    "REBALANCE_TIMEOUT_MS",
    "TOPICS",
    "Context",
    "Conversation",
    "Place",
    "assignment",
    "batch",
    "produced",
    "subscription",
]

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
CONSUMER: Final = "consumer"
ASSIGNOR: Final = "range"
TOPIC: Final = 2
SCRAM_SHA_256: Final = 1
# The kind of coordinator in FindCoordinator.
TRANSACTIONS: Final = 1
# Where a conversation is held: at a broker, at a broker that does not know the client, at the controller's port.
Place = Literal["broker", "stranger", "controller"]
# The number of a broker, controller and voter that the cluster does not need.
SPARE: Final = 9
ENDPOINT: Final = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9, "securityProtocol": 0}
METADATA: Final = "__cluster_metadata"
METADATA_ID: Final = bytes(15) + b"\1"
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
# The values of a request's fields that the conversation itself does not give, by their names.
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
        """The group of the conversation."""
        return f"{self.prefix}-group"

    @property
    def transactional_id(self) -> str:
        """The transactional id of the conversation."""
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
        """The values of fields that mean the same in all requests, by their names."""
        return {
            **dict.fromkeys(("groupId", "groupIds", "groups", "groupsNames", "key", "coordinatorKeys"), self.group),
            **dict.fromkeys(("topic", "name", "topicName", "subscribedTopicNames"), self.topic),
            **dict.fromkeys(("partition", "partitionIndex", "index", "partitions", "partitionIndexes"), 0),
            **dict.fromkeys(("generationId", "memberEpoch", "generationIdOrMemberEpoch", "leaderEpoch"), self.epoch),
            **dict.fromkeys(
                ("transactionalId", "transactionalIds", "v3AndBelowTransactionalId"), self.transactional_id
            ),
            **dict.fromkeys(("producerId", "v3AndBelowProducerId"), self.producer_id),
            **dict.fromkeys(("producerEpoch", "v3AndBelowProducerEpoch"), self.producer_epoch),
            "topicId": self.topic_id,
            "memberId": self.member_id,
            "clusterId": self.cluster,
            "clientInstanceId": self.client_instance,
            "subscriptionId": self.subscription_id,
            "brokerEpoch": self.broker_epoch,
            "hmac": self.hmac,
            "timeoutMs": WAIT_MS,
            "maxWaitMs": WAIT_MS,
            "maxBytes": FETCH_BYTES,
            "partitionMaxBytes": FETCH_BYTES,
            "sessionTimeoutMs": SESSION_TIMEOUT_MS,
            "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
            "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS,
        }

    def good(self, api: str, version: int, others: Values) -> Message:
        """The good request of an API: each field has its value of ``others``, or of the conversation, or its default.

        Each array of structs has one element.
        """
        definition = catalogue().find(f"{api}Request")
        return _filled(definition, definition.fields, version, {**self.named(), **others}, others)

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
        key = key_of(one.name)
        if version not in one.versions:
            continue
        if one.type.struct is not None:
            inner = partial(_filled, definition, definition.fields_of(one.type), version)
            given = others.get(key, EMPTY)
            if given is EMPTY and named is others:
                # In a struct that is given, the rest has its default.
                continue
            if given is EMPTY:
                made[key] = [inner(named, others)] if one.type.array else inner(named, others)
            elif given is None:
                made[key] = None
            else:
                made[key] = [inner(each, each) for each in given] if one.type.array else inner(given, given)
        elif key in named:
            value = named[key]
            made[key] = [value] if one.type.array and not isinstance(value, list | None) else value
    return made


Reach = Callable[[Context], Awaitable[object]]


@dataclass(frozen=True)
class Conversation:
    """A state of a broker. ``needs`` are the APIs that ``reach`` asks; ``end`` leaves the state.

    ``asks``: the APIs with good requests in this state, and the values in which these differ from others.
    """

    name: str
    needs: tuple[str, ...]
    reach: Reach
    asks: Mapping[str, Others]
    end: Reach | None = None
    place: Place = "broker"

    @property
    def lasts(self) -> bool:
        """Whether no request can change the state."""
        return self.reach is _nothing

    def good(self, context: Context, api: str, version: int) -> Message:
        """The good request of an API in this state."""
        return context.good(api, version, self.asks[api](context))


async def _nothing(context: Context) -> None:
    """Every broker is in this state."""


def _with(**values: Any) -> Others:
    return lambda context: values


def _plain(*apis: str) -> Mapping[str, Others]:
    """Requests that differ in nothing."""
    return dict.fromkeys(apis, _with())


def _new(**values: Any) -> Others:
    """Values about a topic that is not there."""
    return lambda context: {
        "name": (name := f"{context.prefix}-new"),
        "topicNames": name,
        "topicId": bytes(16),
        **values,
    }


TOPICS: Final[Mapping[str, Others]] = {
    "ApiVersions": _with(clientSoftwareName="kfuzz", clientSoftwareVersion="1", clusterId=None),
    "Metadata": _with(allowAutoTopicCreation=False),
    "DescribeTopicPartitions": _with(responsePartitionLimit=100, cursor=None),
    "DescribeCluster": _with(endpointType=1),
    "FindCoordinator": _with(keyType=0),
    "ListOffsets": _with(replicaId=-1, timestamp=-1),
    "OffsetForLeaderEpoch": _with(replicaId=-1, leaderEpoch=0),
    "Fetch": _with(replicaId=-1, clusterId=None, fetchOffset=0, forgottenTopicsData=[]),
    **_plain("DescribeProducers", "DescribeLogDirs"),
    "DeleteRecords": _with(offset=0),
    "CreateTopics": _new(numPartitions=1, replicationFactor=-1, assignments=[], configs=[], validateOnly=True),
    "CreatePartitions": _with(count=3, assignments=[], validateOnly=True),
    "DeleteTopics": _new(),
    "AlterReplicaLogDirs": _with(path=f"/{NOBODY}"),
}
REASSIGNMENTS: Final[Mapping[str, Others]] = {
    "AlterPartitionReassignments": lambda context: {"replicas": context.node},
    **_plain("ListPartitionReassignments"),
    "ElectLeaders": _with(electionType=0),
}

# -- producers


def produced(data: bytes, **values: Any) -> Values:
    """The values of a Produce request with these record batches."""
    return {"transactionalId": None, "acks": -1, "timeoutMs": WAIT_MS * 10, "records": data, **values}


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


COMMITTED: Final[Values] = {"committed": True}
OFFSET: Final[Values] = {"committedOffset": 1, "committedMetadata": ""}
TRANSACTION: Final[Mapping[str, Others]] = {
    **_plain("AddPartitionsToTxn", "AddOffsetsToTxn", "InitProducerId", "DescribeTransactions"),
    "TxnOffsetCommit": _with(**OFFSET, memberId="", generationIdOrMemberEpoch=-1, generationId=-1),
    "Produce": _next_in_transaction,
    "EndTxn": _with(**COMMITTED),
    "ListTransactions": lambda context: {
        "stateFilters": "Ongoing",
        "producerIdFilters": context.producer_id,
        "transactionalIdPattern": context.transactional_id,
    },
    "WriteTxnMarkers": _with(transactionResult=True),
}

# -- classic groups


def _join(context: Context) -> Values:
    return {"protocolType": CONSUMER, "name": ASSIGNOR, "metadata": subscription(context.topic)}


def _sync(context: Context) -> Values:
    return {"protocolType": CONSUMER, "protocolName": ASSIGNOR, "assignment": assignment(context.topic)}


async def _coordinator(context: Context, key: str, kind: int = 0) -> None:
    """Wait until the broker coordinates: the first group makes it create a topic of its own."""
    await context.ask("FindCoordinator", {"key": key, "keyType": kind, "coordinatorKeys": key})


async def _known(context: Context) -> None:
    await _coordinator(context, context.group)
    context.member_id, context.epoch = "", -1
    answer = await context.ask("JoinGroup", _join(context), allowed=(MEMBER_ID_REQUIRED,))
    context.member_id = answer["memberId"]


async def _joined(context: Context, **values: Any) -> None:
    await _known(context)
    answer = await context.ask("JoinGroup", {**_join(context), **values})
    context.member_id, context.epoch = answer["memberId"], answer["generationId"]


async def _stable(context: Context, **values: Any) -> None:
    await _joined(context, **values)
    await context.ask("SyncGroup", _sync(context))


async def _odd_subscription(context: Context) -> None:
    """A group whose member said something that coordinators read only up to the topics."""
    await _stable(context, metadata=subscription(context.topic, 0) + b"\xff\xff\xff\xfe")


OFFSETS: Final[Mapping[str, Others]] = {"OffsetCommit": _with(**OFFSET), **_plain("OffsetFetch")}
KNOWN: Final[Mapping[str, Others]] = {"JoinGroup": _join, "SyncGroup": _sync}
JOINED: Final[Mapping[str, Others]] = {**KNOWN, "Heartbeat": _with()}
STABLE: Final[Mapping[str, Others]] = {
    **JOINED,
    **OFFSETS,
    **_plain("LeaveGroup", "DescribeGroups", "DeleteGroups", "OffsetDelete"),
    "ListGroups": _with(statesFilter="Stable", typesFilter="classic"),
    # A consumer of the newer kind joins, which makes Kafka convert the group.
    "ConsumerGroupHeartbeat": _with(memberId=UUID, memberEpoch=0, topicPartitions=[]),
}

# -- groups of the newer kinds


def _beat(context: Context) -> Values:
    # A member that joins gives its topology, and owns nothing.
    tasks = [{"subtopologyId": "0", "partitions": [0]}] if context.epoch else []
    topology = {"epoch": 0, "subtopologies": [{"subtopologyId": "0", "sourceTopics": [context.topic]}]}
    owned = dict.fromkeys(("activeTasks", "standbyTasks", "warmupTasks"), tasks)
    absent: Values = {name: [] for name in ("clientTags", "taskOffsets", "taskEndOffsets", "topicPartitions")}
    joins = {"topology": None if context.epoch else topology, "processId": UUID, "userEndpoint": None}
    return {**owned, **absent, **joins}


async def _join_by(api: str, context: Context) -> None:
    """Join by the first heartbeat."""
    await _coordinator(context, context.group)
    context.member_id, context.epoch = UUID, 0
    answer = await context.ask(api, _beat(context))
    context.member_id, context.epoch = answer["memberId"] or UUID, answer["memberEpoch"]


SHARE_STATE: Final[Values] = {
    **{"stateEpoch": 1, "leaderEpoch": 0, "startOffset": 0, "firstOffset": 0, "lastOffset": 0},
    **{"deliveryState": 0, "deliveryCount": 1, "deliveryCompleteCount": 0},
}
SHARE_GROUP: Final[Mapping[str, Others]] = {
    "ShareGroupHeartbeat": _beat,
    **_plain("ShareGroupDescribe", "DescribeShareGroupOffsets", "DeleteShareGroupOffsets"),
    "ShareFetch": _with(
        shareSessionEpoch=0, maxRecords=10, batchSize=10, acknowledgementBatches=[], forgottenTopicsData=[]
    ),
    "ShareAcknowledge": _with(shareSessionEpoch=1, firstOffset=0, lastOffset=0, acknowledgeTypes=1),
    "AlterShareGroupOffsets": _with(startOffset=0),
    # Requests between brokers.
    **{
        f"{what}ShareGroupState{more}": _with(**SHARE_STATE)
        for what, more in (("Initialize", ""), ("Read", ""), ("Write", ""), ("Delete", ""), ("Read", "Summary"))
    },
}
STREAMS_GROUP: Final[Mapping[str, Others]] = {
    "StreamsGroupHeartbeat": _beat,
    **_plain("StreamsGroupDescribe"),
    "StreamsGroupTopologyDescriptionUpdate": lambda context: {
        **{"topologyEpoch": 0, "subtopologyId": "0", "name": "kfuzz", "nodeType": 1, "globalStores": []},
        "sourceTopics": context.topic,
    },
}

# -- what administrators ask

CONFIG: Final[Values] = {"resourceType": TOPIC, "name": "retention.ms", "value": "-1", "configOperation": 0}
ACL: Final[Values] = {
    **{"resourceType": TOPIC, "resourceTypeFilter": TOPIC, "resourcePatternType": 3, "patternTypeFilter": 3},
    **{"resourceName": NOBODY, "resourceNameFilter": NOBODY, "principal": f"User:{NOBODY}", "principalFilter": None},
    **{"host": "*", "hostFilter": None, "operation": 3, "permissionType": 3},
}
SECRET: Final[Values] = {"iterations": 4096, "salt": b"salt-of-kfuzz", "saltedPassword": bytes(range(32))}


def _configured(context: Context) -> Values:
    return {**CONFIG, "resourceName": context.topic, "configurationKeys": None, "validateOnly": True}


CONFIGS: Final[Mapping[str, Others]] = {
    **dict.fromkeys(("DescribeConfigs", "IncrementalAlterConfigs", "AlterConfigs"), _configured),
    "ListConfigResources": _with(resourceTypes=TOPIC),
}
ACLS: Final[Mapping[str, Others]] = dict.fromkeys(("CreateAcls", "DescribeAcls", "DeleteAcls"), _with(**ACL))
QUOTAS: Final[Mapping[str, Others]] = {
    "AlterClientQuotas": _with(
        entityType="user", entityName=NOBODY, key="producer_byte_rate", value=1e9, remove=False, validateOnly=True
    ),
    "DescribeClientQuotas": _with(entityType="user", matchType=0, match=NOBODY, strict=False),
}
SCRAM: Final[Mapping[str, Others]] = {
    "AlterUserScramCredentials": _with(deletions=[], name=NOBODY, mechanism=SCRAM_SHA_256, **SECRET),
    "DescribeUserScramCredentials": _with(name=NOBODY),
}
FEATURES: Final[Mapping[str, Others]] = {
    "UpdateFeatures": _with(feature=NOBODY, maxVersionLevel=1, upgradeType=1, allowDowngrade=False, validateOnly=True)
}
TOKENS: Final[Mapping[str, Others]] = {
    "CreateDelegationToken": _with(
        ownerPrincipalType=None, principalType="User", principalName=NOBODY, maxLifetimeMs=-1
    ),
    "RenewDelegationToken": _with(renewPeriodMs=-1),
    "ExpireDelegationToken": _with(expiryTimePeriodMs=1000),
    "DescribeDelegationToken": _with(principalType="User", principalName=NOBODY),
}
VOTER: Final[Values] = {"voterId": SPARE, "voterDirectoryId": b"\4" * 16, "listeners": [ENDPOINT]}
VOTERS: Final[Mapping[str, Others]] = {
    "DescribeQuorum": _with(topicName=METADATA),
    "AddRaftVoter": _with(**VOTER),
    "RemoveRaftVoter": _with(**VOTER),
    "UnregisterController": _with(controllerId=SPARE),
    "UnregisterBroker": _with(brokerId=SPARE),
}
TELEMETRY: Final[Mapping[str, Others]] = {
    **_plain("GetTelemetrySubscriptions"),
    "PushTelemetry": _with(terminating=False, compressionType=0, metrics=b"\x0a\x02\x08\x01"),
}


async def _telemetry(context: Context) -> None:
    answer = await context.ask("GetTelemetrySubscriptions", {"clientInstanceId": bytes(16)})
    context.client_instance, context.subscription_id = answer["clientInstanceId"], answer["subscriptionId"]


async def _token(context: Context) -> None:
    answer = await context.ask("CreateDelegationToken", TOKENS["CreateDelegationToken"](context), allowed=TOKENLESS)
    context.hmac = bytes(answer["hmac"]) or context.hmac


# -- on the controller's port

MANAGEMENT: Final[Mapping[str, Others]] = {
    **{
        api: TOPICS[api]
        for api in ("ApiVersions", "DescribeCluster", "DeleteTopics", "CreateTopics", "CreatePartitions")
    },
    **CONFIGS,
    **ACLS,
    **QUOTAS,
    **SCRAM,
    **FEATURES,
    **REASSIGNMENTS,
    **TOKENS,
    "Envelope": _with(requestData=b"\0\x12\0\0\0\0\0\1\xff\xff", clientHostAddress=b"\x7f\0\0\1"),
}


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
        **dict.fromkeys(("lastOffset", "endOffset"), 1),
        **dict.fromkeys(("fetchOffset", "lastFetchedEpoch", "position"), 0),
        **{name: [] for name in ("leaderEndpoints", "preferredCandidates", "forgottenTopicsData")},
        "topicId": METADATA_ID,
        "replicaId": SPARE,
    }


QUORUM: Final[Mapping[str, Others]] = {
    **dict.fromkeys(("Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch"), _as_replica),
    "UpdateRaftVoter": lambda context: {**VOTER, "currentLeaderEpoch": context.epoch},
    **VOTERS,
}
# Every level that a cluster may be at.
FEATURES_KNOWN: Final = (
    *("metadata.version", "transaction.version", "group.version", "share.version", "streams.version"),
    *("kraft.version", "eligible.leader.replicas.version"),
)
DIRECTORY: Final = b"\6" * 16
REGISTRATION: Final[Values] = {
    "brokerId": SPARE,
    "controllerId": SPARE,
    "incarnationId": b"\5" * 16,
    "listeners": [ENDPOINT],
    "features": [
        {"name": name, "minSupportedVersion": int(name == "metadata.version"), "maxSupportedVersion": 100}
        for name in FEATURES_KNOWN
    ],
    "logDirs": DIRECTORY,
    "previousBrokerEpoch": -1,
}
REGISTERED: Final[Mapping[str, Others]] = {
    "BrokerRegistration": _with(**REGISTRATION),
    "ControllerRegistration": _with(**REGISTRATION),
    "BrokerHeartbeat": _with(brokerId=SPARE, currentMetadataOffset=1, wantFence=True),
    "AllocateProducerIds": _with(brokerId=SPARE),
    "AlterPartition": _with(brokerId=SPARE, newIsr=SPARE, leaderEpoch=0, partitionEpoch=0),
    "AssignReplicasToDirs": _with(brokerId=SPARE, id=DIRECTORY),
    "UnregisterBroker": _with(brokerId=SPARE),
}


async def _registered(context: Context) -> None:
    """A broker that has registered, but never becomes ready."""
    await _at_controller(context)
    context.broker_epoch = (await context.ask("BrokerRegistration", REGISTRATION))["brokerEpoch"]


def _group(name: str, api: str, asks: Mapping[str, Others]) -> Conversation:
    """The conversation of a group of the newer kinds, whose members join and leave by heartbeats."""

    def leave(context: Context) -> Awaitable[Message]:
        return context.ask(api, {**_beat(context), "memberEpoch": -1})

    return Conversation(name, ("FindCoordinator", api), partial(_join_by, api), asks, leave)


_CLASSIC: Final = ("FindCoordinator", "JoinGroup")
_STABLE: Final = (*_CLASSIC, "SyncGroup")
_TRANSACTIONAL: Final = ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn")
_QUORUM: Final = ("DescribeCluster", "DescribeQuorum")
_REGISTRATION: Final = (*_QUORUM, "BrokerRegistration")
_PRODUCER: Final[Mapping[str, Others]] = {
    "Produce": _next,
    "InitProducerId": _with(transactionalId=None, producerId=-1, producerEpoch=-1),
}
_UPGRADE: Final = {api: STABLE[api] for api in ("ConsumerGroupHeartbeat", "DescribeGroups", "JoinGroup")}
_CONSUMER_GROUP: Final[Mapping[str, Others]] = {
    "ConsumerGroupHeartbeat": _beat,
    **_plain("ConsumerGroupDescribe"),
    **OFFSETS,
    # A consumer of the classic kind joins; Kafka reads what it says of itself.
    "JoinGroup": lambda context: {**_join(context), "memberId": ""},
}
_SASL: Final[Mapping[str, Others]] = {
    "SaslHandshake": _with(mechanism="PLAIN"),
    "SaslAuthenticate": _with(authBytes=b"\0kfuzz\0probe"),
}

CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    one.name: one
    for one in (
        Conversation("topic", (), _nothing, TOPICS),
        Conversation("producer", ("InitProducerId", "Produce"), _producer, _PRODUCER),
        Conversation("transaction", _TRANSACTIONAL, _transaction, TRANSACTION, lambda it: it.ask("EndTxn", COMMITTED)),
        Conversation("classic-group-known", _CLASSIC, _known, KNOWN),
        Conversation("classic-group-joined", _CLASSIC, _joined, JOINED),
        Conversation("classic-group", (*_STABLE, "LeaveGroup"), _stable, STABLE, lambda it: it.ask("LeaveGroup")),
        Conversation("classic-group-odd", _STABLE, _odd_subscription, _UPGRADE),
        _group("consumer-group", "ConsumerGroupHeartbeat", _CONSUMER_GROUP),
        _group("share-group", "ShareGroupHeartbeat", SHARE_GROUP),
        _group("streams-group", "StreamsGroupHeartbeat", STREAMS_GROUP),
        Conversation("configs", (), _nothing, CONFIGS),
        Conversation("acls", (), _nothing, ACLS),
        Conversation("quotas", (), _nothing, QUOTAS),
        Conversation("scram", (), _nothing, SCRAM),
        Conversation("features", (), _nothing, FEATURES),
        Conversation("reassignments", (), _nothing, REASSIGNMENTS),
        Conversation("tokens", ("CreateDelegationToken",), _token, TOKENS),
        Conversation("telemetry", ("GetTelemetrySubscriptions",), _telemetry, TELEMETRY),
        Conversation("sasl", (), _nothing, _SASL, place="stranger"),
        # Hostile requests to a controller, and about its voters, may harm every broker. So they come last.
        Conversation("management", (), _nothing, MANAGEMENT, place="controller"),
        Conversation("registered-broker", _REGISTRATION, _registered, REGISTERED, place="controller"),
        Conversation("quorum", _QUORUM, _at_controller, QUORUM, place="controller"),
        Conversation("voters", _QUORUM, _at_broker, VOTERS),
    )
}
