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
from typing import Any, Final

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
    "BROKER",
    "CONTROLLER",
    "CONVERSATIONS",
    "FETCH_BYTES",
    "NOBODY",
    "REBALANCE_TIMEOUT_MS",
    "STRANGER",
    "Context",
    "Conversation",
    "assignment",
    "batch",
    "fitted",
    "of_topic",
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
# The places where a conversation is held: a broker, a broker that does not know the client, the controller's port.
BROKER: Final = "broker"
STRANGER: Final = "stranger"
CONTROLLER: Final = "controller"
# The number of a broker, controller and voter that the cluster does not need.
SPARE: Final = 9
ENDPOINT: Final = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 9, "securityProtocol": 0}
METADATA: Final = "__cluster_metadata"
METADATA_ID: Final = bytes(15) + b"\1"
# Errors of brokers without delegation tokens, and of those that give none on such a connection.
TOKENLESS: Final = (61, 64)
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


def batch(producer_id: int = -1, epoch: int = -1, sequence: int = -1, *, transactional: bool = False) -> bytes:
    """A good batch of one record."""
    made = RecordBatch(
        0,
        0,
        [Record(0, TIMESTAMP_MS, b"kfuzz", b"probe")],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return records.encode([made])


def fitted(definition: Definition, version: int, values: Mapping[str, Any]) -> Message:
    """These values without the fields that the version does not have."""
    return _fitted(definition, definition.fields, version, values)


def _fitted(definition: Definition, fields: tuple[Field, ...], version: int, values: Mapping[str, Any]) -> Message:
    made = {}
    for one in fields:
        key = key_of(one.name)
        if version not in one.versions or key not in values:
            continue
        value = values[key]
        if one.type.struct is not None and value is not None:
            inner = definition.fields_of(one.type)
            if one.type.array:
                value = [_fitted(definition, inner, version, each) for each in value]
            else:
                value = _fitted(definition, inner, version, value)
        made[key] = value
    return made


@dataclass
class Context:
    """The values of a conversation. ``prefix`` begins all its names; ``deadline`` is when it must be reached.

    ``end`` leaves the state, if it was reached.
    """

    prefix: str = "kfuzz-probe"
    topic: str = "kfuzz-probe"
    topic_id: bytes = b"\1" * 16
    link: Link | None = None
    deadline: float = 0.0
    member_id: str = UUID
    generation: int = 1
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

    async def ask(self, api: str, values: Mapping[str, Any], *, allowed: tuple[int, ...] = ()) -> Message:
        """The answer to a good request. ``BrokerError`` for an error that stays, other than those ``allowed``."""
        version = self.connection.version(api)
        made = fitted(catalogue().find(f"{api}Request"), version, values)
        while True:
            answer = await self.connection.call(api, made, version)
            code, message = first_error(answer)
            if not code or code in allowed:
                return answer
            if code not in RETRIABLE or time.monotonic() > self.deadline:
                raise BrokerError(api, code, message)
            await asyncio.sleep(PAUSE_S)


Reach = Callable[[Context], Awaitable[None]]
# The good requests of a state, by API.
Asks = Callable[[Context], Mapping[str, Message]]


@dataclass(frozen=True)
class Conversation:
    """A state of a broker. ``needs`` are the APIs that ``reach`` asks."""

    name: str
    needs: tuple[str, ...]
    reach: Reach
    asks: Asks
    end: Reach | None = None
    place: str = BROKER

    @property
    def lasts(self) -> bool:
        """Whether no request can change the state."""
        return self.reach is _nothing


async def _nothing(context: Context) -> None:
    """Every broker is in this state."""


# -- topics


def of_topic(context: Context, **partition: Any) -> list[Message]:
    """Partition 0 of the topic in the forms of all APIs."""
    names = {"name": context.topic, "topic": context.topic, "topicId": context.topic_id}
    return [{**names, "partitions": [{"partition": 0, "partitionIndex": 0, **partition}]}]


def _topic_asks(context: Context) -> Mapping[str, Message]:
    named = {"name": context.topic, "topicId": context.topic_id}
    fetched = {"fetchOffset": 0, "partitionMaxBytes": FETCH_BYTES, "currentLeaderEpoch": -1, "leaderEpoch": 0}
    created = {"name": f"{context.prefix}-new", "numPartitions": 1, "replicationFactor": -1}
    return {
        "ApiVersions": {"clientSoftwareName": "kfuzz", "clientSoftwareVersion": "1"},
        "Metadata": {"topics": [named], "allowAutoTopicCreation": False},
        "DescribeTopicPartitions": {"topics": [named], "responsePartitionLimit": 100},
        "DescribeCluster": {"endpointType": 1},
        "FindCoordinator": {"key": context.group, "keyType": 0, "coordinatorKeys": [context.group]},
        "ListOffsets": {"replicaId": -1, "topics": of_topic(context, timestamp=-1), "timeoutMs": WAIT_MS},
        "OffsetForLeaderEpoch": {"replicaId": -1, "topics": of_topic(context, **fetched)},
        "Fetch": {
            "replicaId": -1,
            "maxWaitMs": WAIT_MS,
            "minBytes": 0,
            "maxBytes": FETCH_BYTES,
            "topics": of_topic(context, **fetched),
        },
        "DescribeProducers": {"topics": [{"name": context.topic, "partitionIndexes": [0]}]},
        "DeleteRecords": {"topics": of_topic(context, offset=0), "timeoutMs": WAIT_MS},
        "CreateTopics": {"topics": [created], "timeoutMs": WAIT_MS, "validateOnly": True},
        "CreatePartitions": {
            "topics": [{"name": context.topic, "count": 3}],
            "timeoutMs": WAIT_MS,
            "validateOnly": True,
        },
        "DeleteTopics": {"topics": [{"name": created["name"]}], "topicNames": [created["name"]], "timeoutMs": WAIT_MS},
        "DescribeLogDirs": {"topics": _numbered(context)},
        "AlterReplicaLogDirs": {"dirs": [{"path": f"/{NOBODY}", "topics": _numbered(context)}]},
    }


def _numbered(context: Context) -> list[Message]:
    """Partition 0 of the topic, where partitions are only numbers."""
    return [{"name": context.topic, "topic": context.topic, "topicName": context.topic, "partitions": [0]}]


def _reassignment_asks(context: Context) -> Mapping[str, Message]:
    return {
        "AlterPartitionReassignments": {"topics": of_topic(context, replicas=[context.node]), "timeoutMs": WAIT_MS},
        "ListPartitionReassignments": {
            "topics": [{"name": context.topic, "partitionIndexes": [0]}],
            "timeoutMs": WAIT_MS,
        },
        "ElectLeaders": {"electionType": 0, "topicPartitions": _numbered(context), "timeoutMs": WAIT_MS},
    }


# -- producers


def produced(context: Context, data: bytes, transactional_id: str | None = None) -> Message:
    """A Produce request with these record batches."""
    partition = {"index": 0, "records": data}
    topic = {"name": context.topic, "topicId": context.topic_id, "partitionData": [partition]}
    return {"transactionalId": transactional_id, "acks": -1, "timeoutMs": WAIT_MS * 10, "topicData": [topic]}


async def _begin_producer(context: Context, transactional_id: str | None) -> None:
    if transactional_id is not None:
        await _coordinator(context, transactional_id, TRANSACTIONS)
    answer = await context.ask(
        "InitProducerId",
        {"transactionalId": transactional_id, "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS, "producerId": -1},
    )
    context.producer_id, context.producer_epoch, context.sequence = answer["producerId"], answer["producerEpoch"], 0


async def _producer(context: Context) -> None:
    await _begin_producer(context, None)
    await context.ask("Produce", produced(context, batch(context.producer_id, context.producer_epoch, 0)))
    context.sequence = 1


def _producer_asks(context: Context) -> Mapping[str, Message]:
    data = batch(context.producer_id, context.producer_epoch, context.sequence)
    return {
        "Produce": produced(context, data),
        "InitProducerId": {"transactionalId": None, "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS},
    }


def _transactional(context: Context) -> Message:
    return {
        "transactionalId": context.transactional_id,
        "producerId": context.producer_id,
        "producerEpoch": context.producer_epoch,
    }


def _added(context: Context) -> Message:
    """The partitions of a transaction. From version 4 on, clients are refused; brokers send it in this form."""
    topics = [{"name": context.topic, "partitions": [0]}]
    old = {f"v3AndBelow{key[0].upper()}{key[1:]}": value for key, value in _transactional(context).items()}
    return {**old, "v3AndBelowTopics": topics, "transactions": [{**_transactional(context), "topics": topics}]}


async def _transaction(context: Context) -> None:
    await _begin_producer(context, context.transactional_id)
    await context.ask("AddPartitionsToTxn", _added(context))
    data = batch(context.producer_id, context.producer_epoch, 0, transactional=True)
    await context.ask("Produce", produced(context, data, context.transactional_id))
    context.sequence = 1


async def _commit(context: Context) -> None:
    await context.ask("EndTxn", {**_transactional(context), "committed": True})


def _transaction_asks(context: Context) -> Mapping[str, Message]:
    data = batch(context.producer_id, context.producer_epoch, context.sequence, transactional=True)
    offsets = of_topic(context, committedOffset=1, committedMetadata="")
    return {
        "AddPartitionsToTxn": _added(context),
        "AddOffsetsToTxn": {**_transactional(context), "groupId": context.group},
        "TxnOffsetCommit": {**_transactional(context), "groupId": context.group, "topics": offsets},
        "Produce": produced(context, data, context.transactional_id),
        "EndTxn": {**_transactional(context), "committed": True},
        "InitProducerId": {**_transactional(context), "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS},
        "DescribeTransactions": {"transactionalIds": [context.transactional_id]},
        "ListTransactions": {
            "stateFilters": ["Ongoing"],
            "producerIdFilters": [context.producer_id],
            "transactionalIdPattern": context.transactional_id,
        },
        "WriteTxnMarkers": {
            "markers": [
                {
                    **_transactional(context),
                    "transactionResult": True,
                    "topics": [{"name": context.topic, "partitionIndexes": [0]}],
                }
            ]
        },
    }


# -- classic groups


def _join(context: Context, data: bytes | None = None) -> Message:
    return {
        "groupId": context.group,
        "sessionTimeoutMs": SESSION_TIMEOUT_MS,
        "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "memberId": context.member_id,
        "protocolType": CONSUMER,
        "protocols": [{"name": ASSIGNOR, "metadata": subscription(context.topic) if data is None else data}],
    }


def _member(context: Context) -> Message:
    return {
        "groupId": context.group,
        "generationId": context.generation,
        "memberId": context.member_id,
    }


def _sync(context: Context) -> Message:
    given = [{"memberId": context.member_id, "assignment": assignment(context.topic)}]
    return {**_member(context), "protocolType": CONSUMER, "protocolName": ASSIGNOR, "assignments": given}


async def _coordinator(context: Context, key: str, kind: int = 0) -> None:
    """Wait until the broker coordinates: the first group makes it create a topic of its own."""
    await context.ask("FindCoordinator", {"key": key, "keyType": kind, "coordinatorKeys": [key]})


async def _known(context: Context) -> None:
    await _coordinator(context, context.group)
    context.member_id, context.generation = "", -1
    answer = await context.ask("JoinGroup", _join(context), allowed=(MEMBER_ID_REQUIRED,))
    context.member_id = answer["memberId"]


async def _joined(context: Context, data: bytes | None = None) -> None:
    await _known(context)
    answer = await context.ask("JoinGroup", _join(context, data))
    context.member_id, context.generation = answer["memberId"], answer["generationId"]


async def _stable(context: Context) -> None:
    await _joined(context)
    await context.ask("SyncGroup", _sync(context))


async def _odd_subscription(context: Context) -> None:
    """A group whose member said something that coordinators read only up to the topics."""
    await _joined(context, subscription(context.topic, 0) + b"\xff\xff\xff\xfe")
    await context.ask("SyncGroup", _sync(context))


def _left(context: Context) -> Message:
    one = {"memberId": context.member_id}
    return {"groupId": context.group, **one, "members": [one]}


async def _leave(context: Context) -> None:
    await context.ask("LeaveGroup", _left(context))


def _known_asks(context: Context) -> Mapping[str, Message]:
    return {"JoinGroup": _join(context), "SyncGroup": _sync(context)}


def _joined_asks(context: Context) -> Mapping[str, Message]:
    return {**_known_asks(context), "Heartbeat": _member(context)}


def _heartbeat(context: Context) -> Message:
    return {
        "groupId": context.group,
        "memberId": context.member_id,
        "memberEpoch": context.epoch,
        "rebalanceTimeoutMs": REBALANCE_TIMEOUT_MS,
        "subscribedTopicNames": [context.topic],
        "topicPartitions": [],
    }


def _offsets(context: Context, epoch: int) -> Mapping[str, Message]:
    named = {"name": context.topic, "topicId": context.topic_id, "partitionIndexes": [0]}
    group = {"groupId": context.group, "memberId": context.member_id, "memberEpoch": epoch, "topics": [named]}
    return {
        "OffsetCommit": {
            "groupId": context.group,
            "generationIdOrMemberEpoch": epoch,
            "memberId": context.member_id,
            "topics": of_topic(context, committedOffset=1, committedMetadata=""),
        },
        "OffsetFetch": {"groupId": context.group, "topics": [named], "groups": [group]},
    }


def _stable_asks(context: Context) -> Mapping[str, Message]:
    return {
        **_joined_asks(context),
        **_offsets(context, context.generation),
        "LeaveGroup": _left(context),
        "DescribeGroups": {"groups": [context.group]},
        "DeleteGroups": {"groupsNames": [context.group]},
        "ListGroups": {"statesFilter": ["Stable"], "typesFilter": ["classic"]},
        "OffsetDelete": {"groupId": context.group, "topics": of_topic(context)},
        # A consumer of the newer kind joins, which makes Kafka convert the group.
        "ConsumerGroupHeartbeat": {**_heartbeat(context), "memberId": UUID, "memberEpoch": 0},
    }


def _upgrade_asks(context: Context) -> Mapping[str, Message]:
    asked = _stable_asks(context)
    return {api: asked[api] for api in ("ConsumerGroupHeartbeat", "DescribeGroups", "JoinGroup")}


# -- groups of the newer kinds


async def _beat(api: str, context: Context) -> None:
    """Join by the first heartbeat."""
    await _coordinator(context, context.group)
    context.member_id, context.epoch = UUID, 0
    beat = _streams_beat if api == "StreamsGroupHeartbeat" else _heartbeat
    answer = await context.ask(api, beat(context))
    context.member_id, context.epoch = answer["memberId"] or UUID, answer["memberEpoch"]


async def _leave_by(api: str, context: Context) -> None:
    """Leave by the last heartbeat."""
    await context.ask(api, {**_heartbeat(context), "memberEpoch": -1})


def _consumer_group_asks(context: Context) -> Mapping[str, Message]:
    return {
        "ConsumerGroupHeartbeat": _heartbeat(context),
        "ConsumerGroupDescribe": {"groupIds": [context.group]},
        **_offsets(context, context.epoch),
        # A consumer of the classic kind joins; Kafka reads what it says of itself.
        "JoinGroup": {**_join(context), "memberId": ""},
    }


def _share_group_asks(context: Context) -> Mapping[str, Message]:
    acknowledged = {"firstOffset": 0, "lastOffset": 0, "acknowledgeTypes": [1]}
    topics = of_topic(context, acknowledgementBatches=[acknowledged])
    group = {"groupId": context.group, "memberId": context.member_id, "shareSessionEpoch": 0}
    limits = {"maxWaitMs": WAIT_MS, "minBytes": 0, "maxBytes": FETCH_BYTES, "maxRecords": 10, "batchSize": 10}
    return {
        "ShareGroupHeartbeat": _heartbeat(context),
        "ShareGroupDescribe": {"groupIds": [context.group]},
        "ShareFetch": {**group, **limits, "topics": of_topic(context)},
        "ShareAcknowledge": {**group, "shareSessionEpoch": 1, "topics": topics},
        "DescribeShareGroupOffsets": {"groups": [{"groupId": context.group, "topics": _numbered(context)}]},
        "AlterShareGroupOffsets": {
            "groupId": context.group,
            "topics": [{"topicName": context.topic, "partitions": [{"partitionIndex": 0, "startOffset": 0}]}],
        },
        "DeleteShareGroupOffsets": {"groupId": context.group, "topics": _numbered(context)},
        **_share_state_asks(context),
    }


def _share_state_asks(context: Context) -> Mapping[str, Message]:
    """Requests between brokers."""
    records = {"firstOffset": 0, "lastOffset": 0, "deliveryState": 0, "deliveryCount": 1}
    state = {"stateEpoch": 1, "leaderEpoch": 0, "startOffset": 0, "stateBatches": [records]}
    values = {"groupId": context.group, "topics": of_topic(context, **state)}
    whats = ("Initialize", "Read", "Write", "Delete")
    return {f"{what}ShareGroupState": values for what in whats} | {"ReadShareGroupStateSummary": values}


def _streams_beat(context: Context) -> Message:
    topology = {"epoch": 0, "subtopologies": [{"subtopologyId": "0", "sourceTopics": [context.topic]}]}
    # A member that joins gives its topology, and owns nothing.
    tasks = [{"subtopologyId": "0", "partitions": [0]}] if context.epoch else []
    owned = {"activeTasks": tasks, "standbyTasks": tasks, "warmupTasks": tasks}
    return {**_heartbeat(context), **owned, "topology": None if context.epoch else topology, "processId": UUID}


def _streams_asks(context: Context) -> Mapping[str, Message]:
    node = {"name": "kfuzz", "nodeType": 1, "sourceTopics": [context.topic], "stores": [], "successors": []}
    described = {"subtopologies": [{"subtopologyId": "0", "nodes": [node]}], "globalStores": []}
    member = {"groupId": context.group, "memberId": context.member_id, "topologyEpoch": 0}
    return {
        "StreamsGroupHeartbeat": _streams_beat(context),
        "StreamsGroupDescribe": {"groupIds": [context.group]},
        "StreamsGroupTopologyDescriptionUpdate": {**member, "topologyDescription": described},
    }


# -- what administrators ask


def _config_asks(context: Context) -> Mapping[str, Message]:
    place = {"resourceType": TOPIC, "resourceName": context.topic}
    config = {"name": "retention.ms", "value": "-1", "configOperation": 0}
    altered = {"resources": [{**place, "configs": [config]}], "validateOnly": True}
    return {
        "DescribeConfigs": {"resources": [{**place, "configurationKeys": None}]},
        "IncrementalAlterConfigs": altered,
        "AlterConfigs": altered,
        "ListConfigResources": {"resourceTypes": [TOPIC]},
    }


def _acl_asks(context: Context) -> Mapping[str, Message]:
    who = {"operation": 3, "permissionType": 3}
    named = {"resourceName": NOBODY, "principal": f"User:{NOBODY}", "host": "*"}
    created = {"resourceType": TOPIC, "resourcePatternType": 3, **named, **who}
    names = {"resourceNameFilter": NOBODY, "principalFilter": None, "hostFilter": None}
    found = {"resourceTypeFilter": TOPIC, "patternTypeFilter": 3, **names, **who}
    return {"CreateAcls": {"creations": [created]}, "DescribeAcls": found, "DeleteAcls": {"filters": [found]}}


def _quota_asks(context: Context) -> Mapping[str, Message]:
    entity = [{"entityType": "user", "entityName": NOBODY}]
    entry = {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}]}
    component = {"entityType": "user", "matchType": 0, "match": NOBODY}
    return {
        "AlterClientQuotas": {"entries": [entry], "validateOnly": True},
        "DescribeClientQuotas": {"components": [component], "strict": False},
    }


def _scram_asks(context: Context) -> Mapping[str, Message]:
    secret = {"iterations": 4096, "salt": b"salt-of-kfuzz", "saltedPassword": bytes(range(32))}
    return {
        "AlterUserScramCredentials": {
            "deletions": [],
            "upsertions": [{"name": NOBODY, "mechanism": SCRAM_SHA_256, **secret}],
        },
        "DescribeUserScramCredentials": {"users": [{"name": NOBODY}]},
    }


def _feature_asks(context: Context) -> Mapping[str, Message]:
    update = {"feature": NOBODY, "maxVersionLevel": 1, "upgradeType": 1, "allowDowngrade": False}
    return {"UpdateFeatures": {"timeoutMs": WAIT_MS, "featureUpdates": [update], "validateOnly": True}}


def _sasl_asks(context: Context) -> Mapping[str, Message]:
    words = b"\0kfuzz\0probe"
    return {"SaslHandshake": {"mechanism": "PLAIN"}, "SaslAuthenticate": {"authBytes": words}}


async def _telemetry(context: Context) -> None:
    answer = await context.ask("GetTelemetrySubscriptions", {"clientInstanceId": bytes(16)})
    context.client_instance, context.subscription_id = answer["clientInstanceId"], answer["subscriptionId"]


def _telemetry_asks(context: Context) -> Mapping[str, Message]:
    client = {"clientInstanceId": context.client_instance}
    pushed = {"subscriptionId": context.subscription_id, "terminating": False, "compressionType": 0}
    return {"GetTelemetrySubscriptions": client, "PushTelemetry": {**client, **pushed, "metrics": b"\x0a\x02\x08\x01"}}


async def _token(context: Context) -> None:
    answer = await context.ask(
        "CreateDelegationToken", _token_asks(context)["CreateDelegationToken"], allowed=TOKENLESS
    )
    context.hmac = bytes(answer["hmac"]) or context.hmac


def _token_asks(context: Context) -> Mapping[str, Message]:
    who = [{"principalType": "User", "principalName": NOBODY}]
    return {
        "CreateDelegationToken": {"ownerPrincipalType": None, "renewers": who, "maxLifetimeMs": -1},
        "RenewDelegationToken": {"hmac": context.hmac, "renewPeriodMs": -1},
        "ExpireDelegationToken": {"hmac": context.hmac, "expiryTimePeriodMs": 1000},
        "DescribeDelegationToken": {"owners": who},
    }


def _voter_asks(context: Context) -> Mapping[str, Message]:
    voter = {"clusterId": context.cluster, "voterId": SPARE, "voterDirectoryId": b"\4" * 16}
    return {
        "DescribeQuorum": {"topics": [{"topicName": METADATA, "partitions": [{"partitionIndex": 0}]}]},
        "AddRaftVoter": {**voter, "timeoutMs": WAIT_MS, "listeners": [ENDPOINT]},
        "RemoveRaftVoter": voter,
        "UnregisterController": {"controllerId": SPARE},
        "UnregisterBroker": {"brokerId": SPARE},
    }


# -- on the controller's port


def _management_asks(context: Context) -> Mapping[str, Message]:
    """What administrators ask a controller itself."""
    asked = _topic_asks(context)
    names = ("ApiVersions", "DescribeCluster", "DeleteTopics", "CreateTopics", "CreatePartitions")
    return {
        **{api: asked[api] for api in names},
        **{api: one for each in _MANAGED for api, one in each(context).items()},
        "Envelope": {"requestData": b"\0\x12\0\0\0\0\0\1\xff\xff", "clientHostAddress": b"\x7f\0\0\1"},
    }


async def _quorum(context: Context) -> None:
    context.cluster = (await context.ask("DescribeCluster", {"endpointType": 2}))["clusterId"]
    answer = await context.ask("DescribeQuorum", _voter_asks(context)["DescribeQuorum"])
    partition = answer["topics"][0]["partitions"][0]
    context.node, context.epoch = partition["leaderId"], partition["leaderEpoch"]


def _quorum_asks(context: Context) -> Mapping[str, Message]:
    leader = {"leaderId": context.node, "leaderEpoch": context.epoch, "currentLeaderEpoch": context.epoch}
    replica = {"replicaEpoch": context.epoch, "replicaId": SPARE, "lastOffsetEpoch": context.epoch, "lastOffset": 1}
    fetched = {"fetchOffset": 0, "lastFetchedEpoch": 0, "partitionMaxBytes": FETCH_BYTES}
    snapshot = {"snapshotId": {"endOffset": 1, "epoch": context.epoch}, "position": 0}
    partition = {**leader, **replica, **fetched, **snapshot, "partitionIndex": 0, "partition": 0}
    topic = {"name": METADATA, "topic": METADATA, "topicName": METADATA, "topicId": METADATA_ID}
    asked = {
        "clusterId": context.cluster,
        "voterId": context.node,
        "currentLeaderEpoch": context.epoch,
        "maxWaitMs": WAIT_MS,
        "maxBytes": FETCH_BYTES,
        "replicaState": {"replicaId": SPARE},
        "replicaId": SPARE,
        "topics": [{**topic, "partitions": [partition]}],
    }
    updated = {"voterId": SPARE, "listeners": [ENDPOINT], "topics": []}
    names = ("Fetch", "FetchSnapshot", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch")
    return {**_voter_asks(context), **dict.fromkeys(names, asked), "UpdateRaftVoter": {**asked, **updated}}


def _registration(context: Context) -> Message:
    features = {"metadata.version": 100, "group.version": 1, "transaction.version": 2, "share.version": 1}
    features |= {"streams.version": 1, "kraft.version": 1, "eligible.leader.replicas.version": 1}
    return {
        "brokerId": SPARE,
        "controllerId": SPARE,
        "clusterId": context.cluster,
        "incarnationId": b"\5" * 16,
        "listeners": [ENDPOINT],
        "features": [
            {"name": name, "minSupportedVersion": int(name == "metadata.version"), "maxSupportedVersion": version}
            for name, version in features.items()
        ],
        "logDirs": [b"\6" * 16],
        "previousBrokerEpoch": -1,
    }


async def _registered(context: Context) -> None:
    """A broker that has registered, but never becomes ready."""
    await _quorum(context)
    context.broker_epoch = (await context.ask("BrokerRegistration", _registration(context)))["brokerEpoch"]


def _registered_asks(context: Context) -> Mapping[str, Message]:
    broker = {"brokerId": SPARE, "brokerEpoch": context.broker_epoch}
    isr = {"newIsr": [SPARE], "newIsrWithEpochs": [broker], "leaderEpoch": 0, "partitionEpoch": 0}
    topics = of_topic(context, **isr)
    return {
        "BrokerRegistration": _registration(context),
        "ControllerRegistration": _registration(context),
        "BrokerHeartbeat": {**broker, "currentMetadataOffset": 1, "wantFence": True},
        "AllocateProducerIds": broker,
        "AlterPartition": {**broker, "topics": topics},
        "AssignReplicasToDirs": {**broker, "directories": [{"id": b"\6" * 16, "topics": topics}]},
        "UnregisterBroker": broker,
    }


_MANAGED: Final[tuple[Asks, ...]] = (
    *(_config_asks, _acl_asks, _quota_asks, _scram_asks, _feature_asks),
    *(_reassignment_asks, _token_asks),
)
_CLASSIC: Final = ("FindCoordinator", "JoinGroup")
_STABLE: Final = (*_CLASSIC, "SyncGroup")

CONVERSATIONS: Final[Mapping[str, Conversation]] = {
    one.name: one
    for one in (
        Conversation("topic", (), _nothing, _topic_asks),
        Conversation("producer", ("InitProducerId", "Produce"), _producer, _producer_asks),
        Conversation(
            "transaction",
            ("FindCoordinator", "InitProducerId", "AddPartitionsToTxn", "Produce", "EndTxn"),
            _transaction,
            _transaction_asks,
            _commit,
        ),
        Conversation("classic-group-known", _CLASSIC, _known, _known_asks),
        Conversation("classic-group-joined", _CLASSIC, _joined, _joined_asks),
        Conversation("classic-group", (*_STABLE, "LeaveGroup"), _stable, _stable_asks, _leave),
        Conversation("classic-group-odd", _STABLE, _odd_subscription, _upgrade_asks),
        Conversation(
            "consumer-group",
            ("FindCoordinator", "ConsumerGroupHeartbeat"),
            partial(_beat, "ConsumerGroupHeartbeat"),
            _consumer_group_asks,
            partial(_leave_by, "ConsumerGroupHeartbeat"),
        ),
        Conversation(
            "share-group",
            ("FindCoordinator", "ShareGroupHeartbeat"),
            partial(_beat, "ShareGroupHeartbeat"),
            _share_group_asks,
            partial(_leave_by, "ShareGroupHeartbeat"),
        ),
        Conversation("configs", (), _nothing, _config_asks),
        Conversation("acls", (), _nothing, _acl_asks),
        Conversation("quotas", (), _nothing, _quota_asks),
        Conversation("scram", (), _nothing, _scram_asks),
        Conversation("features", (), _nothing, _feature_asks),
        Conversation("telemetry", ("GetTelemetrySubscriptions",), _telemetry, _telemetry_asks),
        Conversation("sasl", (), _nothing, _sasl_asks, place=STRANGER),
        Conversation(
            "streams-group",
            ("FindCoordinator", "StreamsGroupHeartbeat"),
            partial(_beat, "StreamsGroupHeartbeat"),
            _streams_asks,
        ),
        Conversation("reassignments", (), _nothing, _reassignment_asks),
        Conversation("tokens", ("CreateDelegationToken",), _token, _token_asks),
        Conversation("voters", (), _nothing, _voter_asks),
        # Hostile requests to a controller may harm every broker, so they come last.
        Conversation("management", (), _nothing, _management_asks, place=CONTROLLER),
        Conversation(
            "registered-broker",
            ("DescribeCluster", "DescribeQuorum", "BrokerRegistration"),
            _registered,
            _registered_asks,
            place=CONTROLLER,
        ),
        Conversation("quorum", ("DescribeCluster", "DescribeQuorum"), _quorum, _quorum_asks, place=CONTROLLER),
    )
}
