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
    """Records of a partition that follow each other: ``each`` of every one of ``things``."""

    things: Sequence[int]
    each: int
    make: Make

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
            # Records that depend on others are deleted first.
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
        # The partitions that each member reads, as clients of classic groups send it, and as the broker keeps it.
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


_MAKERS: Final[dict[str, Callable[[Things, int, int], Iterator[list[Part]]]]] = {
    "consumer-offsets": _consumer_offsets,
}
assert _MAKERS.keys() == KINDS.keys()
