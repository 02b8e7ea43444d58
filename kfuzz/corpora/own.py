"""The records of Kafka's own topics, by the numbers of things that a workload gives.

The records of a partition come in parts. A part has the same number of records for each of its things, so that record
``n`` of a partition, and the number of its records, follow from the numbers of things alone. Names and ids depend on
nothing else: equal topics have equal ids in all of Kafka's own topics.

``own_records.json`` has the version of each record that Kafka 4 writes, and the fields that are always the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

from kfuzz import control, messages
from kfuzz.control import ControlRecordType
from kfuzz.corpora.own_things import Things
from kfuzz.corpora.partitioners import partition_of
from kfuzz.corpora.workload import Topic
from kfuzz.corpora.writers import seed_of
from kfuzz.java import text_hash
from kfuzz.messages.internal import encode_internal
from kfuzz.messages.jsonform import uuid_text

Sides = tuple[bytes | None, bytes | None]
# The key and the value of a record: of a thing, by its number among that thing's records, and its time in ms.
Make = Callable[[int, int, int], Sides]
# The facts about a segment in remote storage, by the number of its partition and its own.
Measured = Callable[[int, int], Mapping[str, Any]]

FIXED: Final[dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("own_records.json").read_text())
# The names of topics, groups and transactional producers, by their numbers.
topic_name, group_id, transactional_id = "topic-{:06d}".format, "group-{:07d}".format, "transactional-{:07d}".format
OFFSETS_PER_CHANGE: Final = 1000
# Other ids than those of brokers and producers that a test starts.
FIRST_BROKER, FIRST_PRODUCER = 1001, 1_000_000
# The first one leads.
CONTROLLERS: Final = (901, 902, 903)
# States of ``TransactionState``.
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4
# Of ``RemoteLogSegmentState``.
DELETE_STARTED: Final = 2


@dataclass(frozen=True, slots=True)
class Part:
    """Records of a partition that follow each other: ``each`` of every one of ``things``."""

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
            made = [part.make(part.things[0], at, 0) for at in range(min(part.each, 100))]
            yield part.count, sum(len(side or b"") for sides in made for side in sides) / len(made)


@lru_cache(maxsize=8)
def contents_of(topic: Topic, seed: int, measured: Measured = lambda number, index: {}) -> tuple[Contents, ...]:
    """The contents of each partition of a topic of Kafka's own; ``seed`` is that of its draws.

    Without ``measured``, the records of segments in remote storage lack their sizes and so on.

    Things are hashed to partitions by their names, as ``Utils.abs(name.hashCode()) % partitions``; those in bytes, as a
    producer hashes keys.
    """
    names, parts = _MAKERS[topic.kind](topic.things, seed, measured)
    found: list[list[int]] = [[] for _ in range(topic.partitions)]
    for number, name in enumerate(names):
        if isinstance(name, bytes):
            partition = partition_of("murmur2", name, topic.partitions) or 0
        else:
            code = text_hash(name)
            partition = abs(code) % topic.partitions if code != -(1 << 31) else 0
        found[partition].append(number)
    return tuple(Contents.of(parts(own)) for own in found)


# The names of the things, and the parts of the partition that has some of them.
Made = tuple[Iterable[str | bytes], Callable[[list[int]], list[Part]]]


def _rounds(things: Sequence[int], rounds: int, each: int, make: Callable[[int, int, int, int], Sides]) -> Part:
    """Records of all things once, then of all of them again; ``make`` gets the number of the round too."""

    def one(number: int, at: int, ms: int) -> Sides:
        round_, place = divmod(number, len(things))
        return make(things[place], at, ms, round_)

    return Part(range(len(things) * rounds), each, one)


def _gone(make: Make) -> Make:
    """Tombstones for these records."""
    return lambda thing, at, ms: (make(thing, at, ms)[0], None)


def _picked(share: float, count: int, of: Iterable[int]) -> list[int]:
    """Those of some things that are among this share of all ``count`` things. These lie at equal distances."""
    picked = round(share * count)
    return [thing for thing in of if (thing + 1) * picked // count > thing * picked // count]


def _write(name: str, key: dict[str, Any], /, **value: Any) -> Sides:
    fixed = FIXED[name]
    return encode_internal(fixed["topic"], name, fixed["version"], key, fixed["value"] | value)


@cache
def _id(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=16).digest()


# ------------------------------------------------------------------------------------------- consumer offsets


def _consumer_offsets(things: Things, seed: int, measured: Measured) -> Made:
    """All groups read the same topics, and each member about the same number of partitions."""
    names = [topic_name(one) for one in range(things.topics)]
    members, places = range(things.members), things.topics * things.partitions
    kinds = 2 + 3 * things.members
    shares = [list(range(member, things.partitions, things.members)) for member in members]
    # The partitions that a member reads: as the broker keeps it, and as clients of classic groups send it.
    assigned = [[{"topicId": _id(name), "partitions": share} for name in names] for share in shares]
    sent = [[{"topic": name, "partitions": share} for name in names] for share in shares]
    assignments = [_versioned("ConsumerProtocolAssignment", assignedPartitions=one) for one in sent]
    subscription = _versioned("ConsumerProtocolSubscription", topics=names)

    def commit(group: int, place: int, ms: int, round_: int = 0) -> Sides:
        topic, partition = divmod(place, things.partitions)
        key = {"group": group_id(group), "topic": names[topic], "partition": partition}
        offset = round_ * OFFSETS_PER_CHANGE + seed_of(seed, group, place, round_) % OFFSETS_PER_CHANGE
        return _write("OffsetCommit", key, offset=offset, commitTimestamp=ms)

    def classic(group: int, at: int, ms: int) -> Sides:
        """A group whose members have joined once; without members, one that only commits."""
        found = [
            FIXED["member of GroupMetadata"]["value"]
            | {"memberId": _member(group, one), "clientId": f"client-{one}"}
            | {"subscription": subscription, "assignment": assignments[one]}
            for one in members
        ]
        leads = {"protocol": "range", "leader": found[0]["memberId"]} if found else {"protocol": None, "leader": None}
        return _write("GroupMetadata", {"group": group_id(group)}, currentStateTimestamp=ms, members=found, **leads)

    def consumer(group: int, at: int, ms: int) -> Sides:
        """Record ``at`` of a group of KIP-848 whose members have what the assignor gave them."""
        key: dict[str, Any] = {"groupId": group_id(group)}
        if at == 0:
            return _write("ConsumerGroupMetadata", key)
        if at == 1 + things.members:
            return _write("ConsumerGroupTargetAssignmentMetadata", key, assignmentTimestamp=ms)
        stage, member = divmod(at - 1 - (at > things.members), things.members)
        key["memberId"], own = _member(group, member), assigned[member]
        if stage == 0:
            client = f"client-{member}"
            return _write("ConsumerGroupMemberMetadata", key, clientId=client, subscribedTopicNames=names)
        if stage == 1:
            return _write("ConsumerGroupTargetAssignmentMember", key, topicPartitions=own)
        # Each partition is the member's since the group's epoch 1.
        owned = [one | {"assignmentEpochs": [1] * len(shares[member])} for one in own]
        return _write("ConsumerGroupCurrentMemberAssignment", key, assignedPartitions=owned)

    def parts(own: list[int]) -> list[Part]:
        consumers = round(things.groups * things.consumer_share)
        old, new = [one for one in own if one >= consumers], [one for one in own if one < consumers]
        gone = [_picked(things.gone_share, things.groups, groups) for groups in (own, old, new)]
        return [
            Part(old, 1, classic),
            Part(new, kinds, consumer),
            _rounds(own, things.changes, places, commit),
            Part(gone[0], places if things.changes else 0, _gone(commit)),
            Part(gone[1], 1, _gone(classic)),
            # Records that need others are deleted first.
            Part(gone[2], kinds, _gone(lambda group, at, ms: consumer(group, kinds - 1 - at, ms))),
        ]

    return map(group_id, range(things.groups)), parts


def _member(group: int, member: int) -> str:
    return uuid_text(hashlib.blake2b(b"%d %d" % (group, member), digest_size=16).digest())


def _versioned(name: str, **value: Any) -> bytes:
    return bytes(2) + messages.encode(name, 0, value)


# ------------------------------------------------------------------------------------------- cluster metadata


class Cluster:
    """The records of a cluster's metadata, and of their snapshot. The replicas of partitions go round the brokers."""

    def __init__(self, things: Things) -> None:
        self.things = things
        # The features of all brokers, at the level of Kafka 4.0, which later releases read.
        self.features = FIXED["RegisterBroker"]["value"]["features"]
        self.gone = _picked(things.gone_share, things.topics, range(things.topics))

    def log(self) -> list[Part]:
        """The log of one controller's epoch, in which the leaders of all partitions change now and then."""
        topics, partitions = range(self.things.topics), self.things.partitions
        voters = tuple(map(control.LeaderChangeVoter, CONTROLLERS))
        change = control.LeaderChangeMessage(CONTROLLERS[0], voters, voters)
        leader = _control(ControlRecordType.LEADER_CHANGE, change)
        return [
            Part([0], 1, lambda thing, at, ms: leader, control=True),
            Part(range(len(self.features)), 1, self.feature),
            Part(range(self.things.brokers), 2, self.broker),
            Part(topics, 1 + partitions, lambda topic, at, ms: self.topic(topic, at, 0)),
            _rounds(topics, self.things.changes, partitions, self.change),
            Part(self.gone, 1, lambda topic, at, ms: _write("RemoveTopic", {}, topicId=_id(topic_name(topic)))),
        ]

    def snapshot(self, last_ms: int) -> list[Part]:
        """The state after that log, as a snapshot has it."""
        left = sorted(set(range(self.things.topics)) - set(self.gone))
        header = _control(ControlRecordType.SNAPSHOT_HEADER, control.SnapshotHeaderRecord(last_ms))
        footer = _control(ControlRecordType.SNAPSHOT_FOOTER, control.SnapshotFooterRecord())
        return [
            Part([0], 1, lambda thing, at, ms: header, control=True),
            Part(range(len(self.features)), 1, self.feature),
            Part(range(self.things.brokers), 1, lambda broker, at, ms: self.broker(broker, at, ms, fenced=False)),
            Part(left, 1 + self.things.partitions, lambda topic, at, ms: self.topic(topic, at, self.things.changes)),
            Part([0], 1, lambda thing, at, ms: footer, control=True),
        ]

    def feature(self, number: int, at: int, ms: int) -> Sides:
        one = self.features[number]
        return _write("FeatureLevel", {}, name=one["name"], featureLevel=one["maxSupportedVersion"])

    def broker(self, broker: int, at: int, ms: int, *, fenced: bool = True) -> Sides:
        """The registration of a broker, then its end as a fenced one. Its epoch is the offset of the registration."""
        id = FIRST_BROKER + broker
        which = {"brokerId": id, "brokerEpoch": 1 + len(self.features) + 2 * broker}
        if at == 1:
            return _write("BrokerRegistrationChange", {}, **which)
        name = f"broker-{id}"
        ends = [{"name": "PLAINTEXT", "host": name, "port": 9092, "securityProtocol": 0}]
        ids = {"incarnationId": _id(name), "logDirs": [_id(f"directory of {name}")]}
        return _write("RegisterBroker", {}, endPoints=ends, fenced=fenced, **which, **ids)

    def topic(self, topic: int, at: int, changes: int) -> Sides:
        """A topic, then its partitions after so many changes of their leaders."""
        name = topic_name(topic)
        if at == 0:
            return _write("Topic", {}, name=name, topicId=_id(name))
        brokers = self.replicas(topic, at - 1)
        return _write(
            "Partition",
            {},
            partitionId=at - 1,
            topicId=_id(name),
            replicas=brokers,
            isr=brokers,
            leader=brokers[changes % len(brokers)],
            leaderEpoch=changes,
            partitionEpoch=changes,
            directories=[_id(f"directory of broker-{one}") for one in brokers],
        )

    def replicas(self, topic: int, partition: int) -> list[int]:
        """The brokers that have a partition."""
        return [FIRST_BROKER + (topic + partition + one) % self.things.brokers for one in range(self.things.replicas)]

    def change(self, topic: int, partition: int, ms: int, round_: int) -> Sides:
        leader = self.replicas(topic, partition)[(round_ + 1) % self.things.replicas]
        return _write("PartitionChange", {}, partitionId=partition, topicId=_id(topic_name(topic)), leader=leader)


def _control(kind: ControlRecordType, value: Any) -> Sides:
    return control.encode_control(control.ControlRecord(control.ControlRecordKey(kind), value))


# ------------------------------------------------------------------------------------------- other coordinators


def _transaction_state(things: Things, seed: int, measured: Measured) -> Made:
    partitions = list(range(things.partitions))
    places = [{"topic": topic_name(one), "partitionIds": partitions} for one in range(things.topics)]
    count = things.transactional_ids
    stages = (ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT)

    def write(number: int, state: int, ms: int) -> Sides:
        # A transaction that has ended has no partitions.
        return _write(
            "TransactionLog",
            {"transactionalId": transactional_id(number)},
            producerId=FIRST_PRODUCER + number,
            transactionStatus=state,
            transactionPartitions=None if state == EMPTY else [] if state == COMPLETE_COMMIT else places,
            transactionLastUpdateTimestampMs=ms,
            transactionStartTimestampMs=-1 if state == EMPTY else ms,
        )

    def parts(own: list[int]) -> list[Part]:
        gone = _picked(things.gone_share, count, own)
        picked = round(things.gone_share * count)
        # The ids that are left, by their numbers among all of those.
        left = {one - one * picked // count: one for one in sorted(set(own) - set(gone))}
        is_open = [left[one] for one in _picked(things.open_share, count - picked, left)]
        return [
            Part(own, 1, lambda number, at, ms: write(number, EMPTY, ms)),
            _rounds(own, things.changes, len(stages), lambda number, at, ms, round_: write(number, stages[at], ms)),
            Part(gone, 1, _gone(write)),
            Part(is_open, 1, lambda number, at, ms: write(number, ONGOING, ms)),
        ]

    return map(transactional_id, range(count)), parts


def _share_group_state(things: Things, seed: int, measured: Measured) -> Made:
    places = things.topics * things.partitions

    def key(number: int) -> dict[str, Any]:
        group, place = divmod(number, places)
        topic, partition = divmod(place, things.partitions)
        return {"groupId": group_id(group), "topicId": _id(topic_name(topic)), "partition": partition}

    def name(number: int) -> str:
        one = key(number)
        return f"{one['groupId']}:{uuid_text(one['topicId'])}:{one['partition']}"

    def snapshot(number: int, at: int, ms: int) -> Sides:
        return _write("ShareSnapshot", key(number), createTimestamp=ms, writeTimestamp=ms, stateBatches=[])

    def update(number: int, at: int, ms: int, round_: int) -> Sides:
        """All records below the start offset are done, and the next ones are with a consumer for the first time."""
        start = (round_ + 1) * OFFSETS_PER_CHANGE
        batch = {"firstOffset": start, "lastOffset": start + 9, "deliveryState": 0, "deliveryCount": 1}
        return _write("ShareUpdate", key(number), startOffset=start, stateBatches=[batch])

    def parts(own: list[int]) -> list[Part]:
        groups = set(_picked(things.gone_share, things.groups, range(things.groups)))
        gone = [one for one in own if one // places in groups]
        return [Part(own, 1, snapshot), _rounds(own, things.changes, 1, update), Part(gone, 1, _gone(snapshot))]

    return map(name, range(things.groups * places)), parts


class Remote:
    """Ids of topics and of their segments in remote storage. The partitions of all topics have numbers."""

    def __init__(self, things: Things, seed: int) -> None:
        self.things, self.seed = things, seed

    def place(self, number: int) -> dict[str, Any]:
        """A partition as records name it. The id of a topic is the broker's if the workload has it."""
        topic, partition = divmod(number, self.things.partitions)
        name, ids = topic_name(topic), self.things.ids
        id = base64.urlsafe_b64decode(f"{ids[topic]}==") if topic < len(ids) else _id(name)
        return {"name": name, "id": id, "partition": partition}

    def segment_id(self, number: int, index: int) -> bytes:
        """The id of segment ``index`` of a partition."""
        return _id(f"segment {index} of {number} {self.seed}")

    def gone(self, numbers: Iterable[int]) -> list[int]:
        """Those of some partitions that were deleted."""
        return _picked(self.things.gone_share, self.things.topics * self.things.partitions, numbers)


def _remote_log_metadata(things: Things, seed: int, measured: Measured) -> Made:
    """All segments of a partition but the last are copied, one after the other."""
    remote, copies = Remote(things, seed), 2 * things.segments

    def name(number: int) -> bytes:
        """The bytes that ``RemoteLogMetadataTopicPartitioner`` hashes: a hash of the id's halves and the partition."""
        place, code = remote.place(number), 1
        for half in struct.unpack(">QQ", place["id"])[::-1]:
            code = 31 * code + (half ^ half >> 32)
        return struct.pack(">I", 31 * code + number % things.partitions & 0xFFFFFFFF)

    def segment(number: int, at: int, ms: int, *, first_state: int = 0) -> Sides:
        """The beginning of a copy, or its end; with a higher ``first_state``, those of a deletion."""
        index, state = at // 2, at % 2 + first_state
        id = {"topicIdPartition": remote.place(number), "id": remote.segment_id(number, index)}
        which = {"remoteLogSegmentId": id, "eventTimestampMs": ms, "remoteLogSegmentState": state}
        if state:
            return _write("RemoteLogSegmentMetadataUpdate", {}, **which)
        return _write("RemoteLogSegmentMetadata", {}, **which, **measured(number, index))

    def gone(number: int, at: int, ms: int) -> Sides:
        """The mark of a deletion, its beginning, the deletions of segments, and its end."""
        if 2 <= at < 2 + copies:
            return segment(number, at - 2, ms, first_state=DELETE_STARTED)
        which = {"topicIdPartition": remote.place(number), "remotePartitionDeleteState": min(at, 2)}
        return _write("RemotePartitionDeleteMetadata", {}, eventTimestampMs=ms, **which)

    def parts(own: list[int]) -> list[Part]:
        return [Part(own, copies, segment), Part(remote.gone(own), 3 + copies, gone)]

    return map(name, range(things.topics * things.partitions)), parts


_MAKERS: Final[dict[str, Callable[[Things, int, Measured], Made]]] = {
    "consumer-offsets": _consumer_offsets,
    # The metadata have one partition.
    "cluster-metadata": lambda things, seed, measured: ([], lambda own: Cluster(things).log()),
    "transaction-state": _transaction_state,
    "share-group-state": _share_group_state,
    "remote-log-metadata": _remote_log_metadata,
}
