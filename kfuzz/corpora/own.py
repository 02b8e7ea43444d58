"""The records of Kafka's own topics, by the numbers of things that a workload gives.

The records of a partition come in parts. A part has the same number of records for each of its things, so that record
``n`` of a partition, and the number of its records, follow from the numbers of things alone. Names and ids depend on
nothing else: equal topics have equal ids in all of Kafka's own topics.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any, Final

from kfuzz import messages
from kfuzz.corpora.own_things import KINDS, Things
from kfuzz.corpora.workload import Topic
from kfuzz.corpora.writers import seed_of
from kfuzz.control import (
    ControlRecord,
    ControlRecordKey,
    ControlRecordType,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    encode_control,
)
from kfuzz.java import text_hash
from kfuzz.messages.internal import encode_internal
from kfuzz.messages.jsonform import uuid_text

Sides = tuple[bytes | None, bytes | None]
# The key and the value of a record: of a thing, by its number among that thing's records, and its time in ms.
Make = Callable[[int, int, int], Sides]

OFFSETS_PER_COMMIT: Final = 1000
SESSION_MS, REBALANCE_MS = 45_000, 300_000


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a partition that follow each other: ``each`` of every one of ``things``, or ``control`` records."""

    things: Sequence[int]
    each: int
    make: Make
    control: bool = False

    @property
    def count(self) -> int:
        return len(self.things) * self.each


@dataclass(frozen=True, slots=True)
class Contents:
    """The parts of a partition, and the number of records before each of them and at the end."""

    parts: tuple[Part, ...]
    before: tuple[int, ...]

    @staticmethod
    def of(parts: Sequence[Part]) -> Contents:
        """The contents that have these parts, without empty ones."""
        kept = tuple(part for part in parts if part.count)
        return Contents(kept, tuple(accumulate((part.count for part in kept), initial=0)))

    @property
    def count(self) -> int:
        return self.before[-1]

    def run(self, offset: int) -> tuple[Part, int, int]:
        """The part of the record ``offset``, its number there, and how many records of the part begin with it."""
        at = bisect_right(self.before, offset) - 1
        return self.parts[at], offset - self.before[at], self.before[at + 1] - offset

    def sizes(self) -> Iterator[tuple[int, float]]:
        """Each part's number of records, and the mean size of keys and values of its first thing in bytes."""
        for part in self.parts:
            sample = range(min(part.each, 100))
            made = [part.make(part.things[0], at, 0) for at in sample]
            yield part.count, sum(len(side or b"") for sides in made for side in sides) / len(made)


@lru_cache(maxsize=8)
def contents_of(topic: Topic, seed: int) -> tuple[Contents, ...]:
    """The contents of each partition of a topic of Kafka's own; ``seed`` is that of its draws."""
    return tuple(Contents.of(parts) for parts in _MAKERS[topic.kind](topic.things, seed, topic.partitions))


def _picked(share: float, count: int) -> Callable[[int], bool]:
    """Whether a thing is among this share of ``count`` things, which lie at equal distances."""
    picked = round(share * count)
    return lambda thing: (thing + 1) * picked // count > thing * picked // count


def _by_hash(names: Iterator[str], partitions: int) -> list[list[int]]:
    """The numbers of these names in each partition. Mirrors ``Utils.abs(name.hashCode()) % partitions``."""
    found: list[list[int]] = [[] for _ in range(partitions)]
    for number, name in enumerate(names):
        code = text_hash(name)
        found[abs(code) % partitions if code != -(1 << 31) else 0].append(number)
    return found


def topic_name(number: int) -> str:
    """The name of a topic that records are about."""
    return f"topic-{number:06d}"


@cache
def _id(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


# ------------------------------------------------------------------------------------------- consumer offsets


def _consumer_offsets(things: Things, seed: int, partitions: int) -> Iterator[list[Part]]:
    consumers = round(things.groups * things.consumer_share)
    is_gone = _picked(things.gone_share, things.groups)
    made = _Groups(things, seed)
    places, kinds = things.topics * things.partitions, 2 + 3 * things.members
    for own in _by_hash(map(group_id, range(things.groups)), partitions):
        both = [[one for one in own if one >= consumers], [one for one in own if one < consumers]]
        gone = [[one for one in groups if is_gone(one)] for groups in both]

        def commit(at: int, place: int, ms: int, own: list[int] = own) -> Sides:
            round_, group = divmod(at, len(own))
            return made.commit(own[group], round_, place, ms)

        yield [
            Part(both[0], 1, made.classic),
            Part(both[1], kinds, made.consumer),
            Part(range(len(own) * things.changes), places, commit),
            Part([one for groups in gone for one in groups], places if things.changes else 0, made.no_commit),
            Part(gone[0], 1, lambda group, at, ms: (made.classic(group, at, ms)[0], None)),
            # What depends on others is deleted first.
            Part(gone[1], kinds, lambda group, at, ms: (made.consumer(group, kinds - 1 - at, ms)[0], None)),
        ]


def group_id(number: int) -> str:
    """The id of a group."""
    return f"group-{number:07d}"


class _Groups:
    """The records of groups. All groups read the same topics, and each member the same number of partitions."""

    def __init__(self, things: Things, seed: int) -> None:
        self.things, self.seed = things, seed
        self.names = [topic_name(one) for one in range(things.topics)]
        self.subscription = _versioned("ConsumerProtocolSubscription", {"topics": self.names})
        # What each member reads, as clients of classic groups send it, and as the broker keeps it.
        shares = [list(range(member, things.partitions, things.members)) for member in range(things.members)]
        assigned = [[{"topic": name, "partitions": share} for name in self.names] for share in shares]
        self.assignments = [_versioned("ConsumerProtocolAssignment", {"assignedPartitions": one}) for one in assigned]
        self.assigned = [[{"topicId": _id(name), "partitions": share} for name in self.names] for share in shares]

    def commit(self, group: int, round_: int, place: int, ms: int) -> Sides:
        """The commit number ``round_`` of a partition. Each is about a thousand offsets after the one before."""
        offset = round_ * OFFSETS_PER_COMMIT + seed_of(self.seed, group, place, round_) % OFFSETS_PER_COMMIT
        value = {"offset": offset, "leaderEpoch": 0, "metadata": "", "commitTimestamp": ms}
        return _record("OffsetCommit", 3, self.place(group, place), value)

    def no_commit(self, group: int, place: int, ms: int) -> Sides:
        return _record("OffsetCommit", 3, self.place(group, place), None)

    def place(self, group: int, place: int) -> dict[str, Any]:
        topic, partition = divmod(place, self.things.partitions)
        return {"group": group_id(group), "topic": self.names[topic], "partition": partition}

    def classic(self, group: int, at: int, ms: int) -> Sides:
        """A group whose members have joined once; without members, one that only commits."""
        members = [
            {
                "memberId": _member(group, one),
                "groupInstanceId": None,
                "clientId": f"client-{one}",
                "clientHost": "/127.0.0.1",
                "rebalanceTimeout": REBALANCE_MS,
                "sessionTimeout": SESSION_MS,
                "subscription": self.subscription,
                "assignment": self.assignments[one],
            }
            for one in range(self.things.members)
        ]
        value = {
            "protocolType": "consumer",
            "generation": 1,
            "protocol": "range" if members else None,
            "leader": members[0]["memberId"] if members else None,
            "currentStateTimestamp": ms,
            "members": members,
        }
        return _record("GroupMetadata", 3, {"group": group_id(group)}, value)

    def consumer(self, group: int, at: int, ms: int) -> Sides:
        """Record ``at`` of a group of KIP-848 whose members have what the assignor gave them."""
        key: dict[str, Any] = {"groupId": group_id(group)}
        members = self.things.members
        value: dict[str, Any]
        if at == 0:
            return _record("ConsumerGroupMetadata", 0, key, {"epoch": 1})
        if at == 1 + members:
            value = {"assignmentEpoch": 1, "assignmentTimestamp": ms}
            return _record("ConsumerGroupTargetAssignmentMetadata", 0, key, value)
        stage, member = divmod(at - 1 - (at > members), members)
        key["memberId"] = _member(group, member)
        if stage == 0:
            value = {
                "instanceId": None,
                "rackId": None,
                "clientId": f"client-{member}",
                "clientHost": "/127.0.0.1",
                "subscribedTopicNames": self.names,
                "subscribedTopicRegex": None,
                "classicMemberMetadata": None,
                "rebalanceTimeoutMs": REBALANCE_MS,
                "serverAssignor": "uniform",
            }
            return _record("ConsumerGroupMemberMetadata", 0, key, value)
        if stage == 1:
            value = {"topicPartitions": self.assigned[member]}
            return _record("ConsumerGroupTargetAssignmentMember", 0, key, value)
        # Each partition is the member's since the group's epoch 1.
        owned = [one | {"assignmentEpochs": [1] * len(one["partitions"])} for one in self.assigned[member]]
        value = {"memberEpoch": 1, "previousMemberEpoch": 0, "state": 0, "assignedPartitions": owned}
        return _record("ConsumerGroupCurrentMemberAssignment", 0, key, value)


def _member(group: int, member: int) -> str:
    return uuid_text(_id(f"{group} {member}"))


def _record(name: str, version: int, key: dict[str, Any], value: dict[str, Any] | None) -> Sides:
    return encode_internal("__consumer_offsets", name, version, key, value)


def _versioned(name: str, value: dict[str, Any]) -> bytes:
    return bytes(2) + messages.encode(name, 0, value)


# ------------------------------------------------------------------------------------------- cluster metadata

# Brokers have ids that Kafka's controllers of a test do not have.
FIRST_BROKER: Final = 1001
# The metadata version of Kafka 4.0 (4.0-IV3), which later releases read, and what came with it.
FEATURES: Final = {"metadata.version": 25, "group.version": 1, "transaction.version": 2}
LOWEST_FEATURES: Final = {"metadata.version": 7}


class _Cluster:
    """The records of a cluster's metadata. The replicas of partitions go round the brokers."""

    def __init__(self, things: Things) -> None:
        self.things = things

    def log(self) -> list[Part]:
        """The log, in which each partition changes its leader now and then."""
        things = self.things
        return [
            Part(range(len(FEATURES)), 1, self.feature),
            Part(range(things.brokers), 2, self.broker),
            Part(range(things.topics), 1 + things.partitions, lambda topic, at, ms: self.topic(topic, at, 0)),
            Part(range(things.topics * things.changes), things.partitions, self.change),
            Part([one for one in range(things.topics) if self.is_gone(one)], 1, self.no_topic),
        ]

    def snapshot(self, last_ms: int) -> list[Part]:
        """The state after that log, as a snapshot has it."""
        things = self.things
        header = ControlRecord(ControlRecordKey(ControlRecordType.SNAPSHOT_HEADER), SnapshotHeaderRecord(last_ms))
        footer = ControlRecord(ControlRecordKey(ControlRecordType.SNAPSHOT_FOOTER), SnapshotFooterRecord())
        topics = [one for one in range(things.topics) if not self.is_gone(one)]
        return [
            Part([0], 1, lambda thing, at, ms: encode_control(header), control=True),
            Part(range(len(FEATURES)), 1, self.feature),
            Part(range(things.brokers), 1, lambda broker, at, ms: self.broker(broker, at, ms, is_fenced=False)),
            Part(topics, 1 + things.partitions, lambda topic, at, ms: self.topic(topic, at, things.changes)),
            Part([0], 1, lambda thing, at, ms: encode_control(footer), control=True),
        ]

    def is_gone(self, topic: int) -> bool:
        return _picked(self.things.gone_share, self.things.topics)(topic)

    def feature(self, number: int, at: int, ms: int) -> Sides:
        name = list(FEATURES)[number]
        return _metadata("FeatureLevel", 0, name=name, featureLevel=FEATURES[name])

    def broker(self, broker: int, at: int, ms: int, *, is_fenced: bool = True) -> Sides:
        """The registration of a broker, then its end as a fenced one. Its epoch is the offset of the registration."""
        epoch, id = len(FEATURES) + 2 * broker, FIRST_BROKER + broker
        if at == 1:
            return _metadata("BrokerRegistrationChange", 2, brokerId=id, brokerEpoch=epoch, fenced=-1)
        name = f"broker-{id}"
        return _metadata(
            "RegisterBroker",
            3,
            brokerId=id,
            incarnationId=_id(name),
            brokerEpoch=epoch,
            endPoints=[{"name": "PLAINTEXT", "host": name, "port": 9092, "securityProtocol": 0}],
            features=[
                {"name": one, "minSupportedVersion": LOWEST_FEATURES.get(one, 0), "maxSupportedVersion": level}
                for one, level in FEATURES.items()
            ],
            rack=None,
            fenced=is_fenced,
            logDirs=[_directory(id)],
        )

    def topic(self, topic: int, at: int, changes: int) -> Sides:
        """A topic, then its partitions after so many changes of their leaders."""
        name = topic_name(topic)
        if at == 0:
            return _metadata("Topic", 0, name=name, topicId=_id(name))
        replicas = self.replicas(topic, at - 1)
        return _metadata(
            "Partition",
            2,
            partitionId=at - 1,
            topicId=_id(name),
            replicas=replicas,
            isr=replicas,
            leader=replicas[changes % len(replicas)],
            leaderEpoch=changes,
            partitionEpoch=changes,
            directories=[_directory(one) for one in replicas],
        )

    def replicas(self, topic: int, partition: int) -> list[int]:
        """The brokers that have a partition."""
        return [FIRST_BROKER + (topic + partition + one) % self.things.brokers for one in range(self.things.replicas)]

    def change(self, at: int, partition: int, ms: int) -> Sides:
        round_, topic = divmod(at, self.things.topics)
        leader = self.replicas(topic, partition)[(round_ + 1) % self.things.replicas]
        id = _id(topic_name(topic))
        return _metadata("PartitionChange", 2, partitionId=partition, topicId=id, leader=leader)

    def no_topic(self, topic: int, at: int, ms: int) -> Sides:
        return _metadata("RemoveTopic", 0, topicId=_id(topic_name(topic)))


@cache
def _directory(broker: int) -> bytes:
    return _id(f"directory of broker {broker}")


def _metadata(name: str, version: int, /, **value: Any) -> Sides:
    return encode_internal("__cluster_metadata", name, version, {}, value)


def snapshot_of(topic: Topic, last_ms: int) -> Contents | None:
    """The contents of the snapshot beside the log of a cluster's metadata; None if the workload asks for none.

    ``last_ms`` is the time of the log's last record.
    """
    wanted = topic.is_own and topic.things.snapshot
    return Contents.of(_Cluster(topic.things).snapshot(last_ms)) if wanted else None


# ------------------------------------------------------------------------------------------- transaction state

# The states of a transaction that commits, and that of an id that has had none: those of ``TransactionState``.
ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT, EMPTY = 1, 2, 4, 0
TRANSACTION_TIMEOUT_MS: Final = 900_000
# Lower producer ids are left to those that write to other topics of the workload.
FIRST_PRODUCER: Final = 1_000_000


def _transaction_state(things: Things, seed: int, partitions: int) -> Iterator[list[Part]]:
    places = [
        {"topic": topic_name(one), "partitionIds": list(range(things.partitions))} for one in range(things.topics)
    ]

    def write(number: int, state: int, ms: int) -> Sides:
        value = {
            "producerId": FIRST_PRODUCER + number,
            "producerEpoch": 0,
            "transactionTimeoutMs": TRANSACTION_TIMEOUT_MS,
            "transactionStatus": state,
            # A transaction that has ended has no partitions.
            "transactionPartitions": places if state in (ONGOING, PREPARE_COMMIT) else None if state == EMPTY else [],
            "transactionLastUpdateTimestampMs": ms,
            "transactionStartTimestampMs": -1 if state == EMPTY else ms,
            "clientTransactionVersion": 1,
        }
        key = {"transactionalId": transactional_id(number)}
        return encode_internal("__transaction_state", "TransactionLog", 1, key, value)

    count = things.transactional_ids
    is_gone, is_open = _picked(things.gone_share, count), _picked(things.open_share, count)
    for own in _by_hash(map(transactional_id, range(count)), partitions):
        states = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)

        def change(at: int, stage: int, ms: int, own: list[int] = own, states: tuple[int, ...] = states) -> Sides:
            return write(own[at % len(own)], states[stage], ms)

        yield [
            Part(own, 1, lambda number, at, ms: write(number, EMPTY, ms)),
            Part(range(len(own) * things.changes), len(states), change),
            Part([one for one in own if is_gone(one)], 1, lambda number, at, ms: (write(number, EMPTY, ms)[0], None)),
            # An id that is gone has no open transaction.
            Part(
                [one for one in own if is_open(one) and not is_gone(one)],
                1,
                lambda number, at, ms: write(number, ONGOING, ms),
            ),
        ]


def transactional_id(number: int) -> str:
    """The name of a transactional producer."""
    return f"transactional-{number:07d}"


# ------------------------------------------------------------------------------------------- share group state


def _share_group_state(things: Things, seed: int, partitions: int) -> Iterator[list[Part]]:
    places = things.topics * things.partitions

    def key(number: int) -> dict[str, Any]:
        group, place = divmod(number, places)
        topic, partition = divmod(place, things.partitions)
        return {"groupId": group_id(group), "topicId": _id(topic_name(topic)), "partition": partition}

    def names() -> Iterator[str]:
        for number in range(things.groups * places):
            one = key(number)
            yield f"{one['groupId']}:{uuid_text(one['topicId'])}:{one['partition']}"

    def snapshot(number: int, at: int, ms: int) -> Sides:
        value = {"startOffset": 0, "createTimestamp": ms, "writeTimestamp": ms, "stateBatches": []}
        return encode_internal("__share_group_state", "ShareSnapshot", 0, key(number), value)

    is_gone = _picked(things.gone_share, things.groups)
    for own in _by_hash(names(), partitions):

        def update(at: int, _: int, ms: int, own: list[int] = own) -> Sides:
            """All records below the start offset are done, and the next ones are with a consumer for the first time."""
            round_, one = divmod(at, len(own))
            start = (round_ + 1) * OFFSETS_PER_COMMIT
            batch = {"firstOffset": start, "lastOffset": start + 9, "deliveryState": 0, "deliveryCount": 1}
            value = {"startOffset": start, "deliveryCompleteCount": 0, "stateBatches": [batch]}
            return encode_internal("__share_group_state", "ShareUpdate", 0, key(own[one]), value)

        yield [
            Part(own, 1, snapshot),
            Part(range(len(own) * things.changes), 1, update),
            Part(
                [one for one in own if is_gone(one // places)], 1, lambda one, at, ms: (snapshot(one, at, ms)[0], None)
            ),
        ]


_MAKERS: Final[dict[str, Callable[[Things, int, int], Iterator[list[Part]]]]] = {
    "consumer-offsets": _consumer_offsets,
    "cluster-metadata": lambda things, seed, partitions: iter([_Cluster(things).log()]),
    "transaction-state": _transaction_state,
    "share-group-state": _share_group_state,
}
assert _MAKERS.keys() == KINDS.keys()
