"""The coordinator of consumer groups.

Members are known by the connections on which they join. Committed offsets are kept as long as a group has members, so
a new consumer begins at the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.messages import check
from kfuzz.messages.catalogues import catalogue
from kfuzz.serve.cluster import NO_ERROR, Asked, Caller, Cluster, Held, Values, remember

# How often members of the newer kind of group send a heartbeat.
HEARTBEAT_MS: Final = 1000
# How long the broker waits for a member that comes back after its connection is lost. Kafka waits until the session
# times out, which would hold up the group's next consumer here. librdkafka connects again only twice a second.
RETURN_S_MAX: Final = 3.0
# The same for a member that has sent no request with its id. If the answer to its first JoinGroup was lost, its client
# does not know the id and cannot come back.
FIRST_RETURN_S_MAX: Final = 0.5
# Kafka's default of offset.metadata.max.bytes. Kafka also compares it with the number of characters.
METADATA_MAX: Final = 4096
# The type of groups whose members write messages of Kafka's consumer protocol for each other.
CONSUMERS: Final = "consumer"


@dataclass
class _Member:
    caller: Caller
    instance_id: str | None
    protocols: list[Values]
    # How long it has for joining again; not positive if it did not say.
    rebalance_ms: int = 0
    # The answers that this member waits for.
    join: Held | None = None
    sync: Held | None = None
    assignment: bytes = b""
    # Whether it has sent a request with its id.
    has_spoken: bool = False


@dataclass
class _Group:
    """A group. Its first member leads it."""

    protocol_type: str = ""
    protocol: str = ""
    generation: int = 0
    members: dict[str, _Member] = field(default_factory=dict)
    # How many members there were ever, for their ids.
    numbered: int = 0
    # Whether all members have to join again, and whether the leader has said who gets what.
    is_joining: bool = False
    is_assigned: bool = False
    offsets: dict[tuple[str, int], tuple[int, str]] = field(default_factory=dict)

    def refusal(self, caller: Caller, member_id: str, generation: int) -> int:
        """The error for a request that is not from a member of this generation; otherwise 0."""
        member = self.members.get(member_id)
        if member is None:
            return ERROR_CODES["UNKNOWN_MEMBER_ID"]
        # A client may come back on another connection.
        member.caller, member.has_spoken = caller, True
        return NO_ERROR if generation == self.generation else ERROR_CODES["ILLEGAL_GENERATION"]

    def new_id(self, asked: Asked) -> str:
        """The id of another member."""
        self.numbered += 1
        return f"{asked.client_id}-member-{self.numbered}"

    def common(self, protocols: list[Values]) -> str | None:
        """The first of these protocols that all members have."""
        theirs = [{each["name"] for each in member.protocols} for member in self.members.values()]
        return next((each["name"] for each in protocols if all(each["name"] in names for names in theirs)), None)

    def rejoin(self) -> None:
        """Make all members join again, and begin the next generation when they have."""
        self.is_joining, self.is_assigned = True, False
        for member in self.members.values():
            if member.sync is not None:
                member.sync.give({"errorCode": ERROR_CODES["REBALANCE_IN_PROGRESS"]})
                member.sync = None
        # All may have left while one waited for its assignment.
        if not self.members or not all(member.join for member in self.members.values()):
            return
        self.is_joining = False
        self.generation += 1
        leader, first = next(iter(self.members.items()))
        self.protocol = self.common(first.protocols) or ""
        everyone = [
            {
                "memberId": each_id,
                "groupInstanceId": each.instance_id,
                "metadata": next((one["metadata"] for one in each.protocols if one["name"] == self.protocol), b""),
            }
            for each_id, each in self.members.items()
        ]
        for member_id, member in self.members.items():
            assert member.join is not None
            member.join.give(
                {
                    "generationId": self.generation,
                    "protocolType": self.protocol_type,
                    "protocolName": self.protocol,
                    "leader": leader,
                    "memberId": member_id,
                    "members": everyone if member_id == leader else [],
                }
            )
            member.join = None

    def drop(self, gone: Iterable[str]) -> None:
        """Remove members; the others have to join again."""
        found = [member_id for member_id in gone if self.members.pop(member_id, None)]
        if found and self.members:
            self.rejoin()

    def of(self, caller: Caller) -> list[str]:
        """The members that were last seen on a connection."""
        return [member_id for member_id, member in self.members.items() if member.caller is caller]

    def forget(self, caller: Caller) -> None:
        """Forget the member of a client that has another one now: it will not come back."""
        for former in self.of(caller):
            del self.members[former]

    def lose(self, caller: Caller, member_id: str) -> None:
        """Remove a member of a lost connection, unless it came back on another one."""
        if member_id in self.of(caller):
            self.drop([member_id])

    def expire(self) -> None:
        """Remove the members that have not joined again in time."""
        self.drop([member_id for member_id, member in self.members.items() if self.is_joining and not member.join])


class Groups:
    """Answers about consumer groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._groups: dict[str, _Group] = {}

    def gone(self, caller: Caller) -> None:
        """Remove the members of a connection that is closed now, unless they come back on another one."""
        for name, group in self._groups.items():
            # A client leaves a coordinator that has moved, but not its group.
            if self.cluster.coordinator(name) != caller.node_id:
                continue
            for member_id in group.of(caller):
                after_s = RETURN_S_MAX if group.members[member_id].has_spoken else FIRST_RETURN_S_MAX
                asyncio.get_running_loop().call_later(after_s, group.lose, caller, member_id)

    def _group(self, asked: Asked, name: str) -> tuple[_Group, int]:
        error = ERROR_CODES["NOT_COORDINATOR"] if self.cluster.is_elsewhere(asked, name) else NO_ERROR
        if name not in self._groups and not error:
            remember(self._groups, name, _Group())
        return self._groups.get(name) or _Group(), error

    def _look_at(self, group: _Group, name: str, *messages: bytes) -> None:
        """Note the first message that other members cannot read. A broker only passes them on."""
        cluster = self.cluster
        if cluster.reads_groups and group.protocol_type == CONSUMERS:
            faults = (_fault(name, data) for data in messages)
            cluster.unreadable = cluster.unreadable or next(filter(None, faults), "")

    def JoinGroup(self, asked: Asked) -> tuple[Values | Held, int]:
        values = asked.values
        member_id, protocols, instance_id = values["memberId"], values["protocols"], values["groupInstanceId"]
        group, error = self._group(asked, values["groupId"])
        if member_id and member_id not in group.members:
            error = error or ERROR_CODES["UNKNOWN_MEMBER_ID"]
        elif not set(group.members) <= {member_id} and group.common(protocols) is None:
            error = error or ERROR_CODES["INCONSISTENT_GROUP_PROTOCOL"]
        if error:
            return {"errorCode": error, "memberId": member_id}, 0
        if not member_id:
            group.forget(asked.caller)
            member_id = group.new_id(asked)
        group.protocol_type = values["protocolType"]
        self._look_at(group, "ConsumerProtocolSubscription", *(one["metadata"] for one in protocols))
        rebalance_ms = values["sessionTimeoutMs" if asked.version == 0 else "rebalanceTimeoutMs"]
        held = Held(group.expire)
        has_spoken = bool(values["memberId"])
        group.members[member_id] = _Member(
            asked.caller, instance_id, protocols, rebalance_ms, held, has_spoken=has_spoken
        )
        # As in Kafka, the member with the most time decides.
        longest_ms = max(one.rebalance_ms for one in group.members.values())
        if longest_ms > 0:
            held.wait_s = longest_ms / 1000
        group.rejoin()
        return held, 0

    def SyncGroup(self, asked: Asked) -> tuple[Values | Held, int]:
        values = asked.values
        group, error = self._group(asked, values["groupId"])
        error = error or group.refusal(asked.caller, values["memberId"], values["generationId"])
        if error or group.is_joining:
            return {"errorCode": error or ERROR_CODES["REBALANCE_IN_PROGRESS"]}, 0
        group.members[values["memberId"]].sync = held = Held(group.rejoin)
        if values["memberId"] == next(iter(group.members)):
            given = {one["memberId"]: one["assignment"] for one in values["assignments"]}
            self._look_at(group, "ConsumerProtocolAssignment", *filter(None, given.values()))
            for member_id, member in group.members.items():
                member.assignment = given.get(member_id, b"")
            group.is_assigned = True
        for member in group.members.values():
            if group.is_assigned and member.sync is not None:
                member.sync.give(
                    {
                        "protocolType": group.protocol_type,
                        "protocolName": group.protocol,
                        "assignment": member.assignment,
                    }
                )
                member.sync = None
        return held, 0

    def Heartbeat(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        group, error = self._group(asked, values["groupId"])
        error = error or group.refusal(asked.caller, values["memberId"], values["generationId"])
        return {"errorCode": error or (ERROR_CODES["REBALANCE_IN_PROGRESS"] if group.is_joining else NO_ERROR)}, 0

    def LeaveGroup(self, asked: Asked) -> tuple[Values, int]:
        group, error = self._group(asked, asked.values["groupId"])
        one = {"memberId": asked.values["memberId"], "groupInstanceId": None}
        members = []
        for each in [one] if asked.version < 3 else asked.values["members"]:
            unknown = NO_ERROR if each["memberId"] in group.members else ERROR_CODES["UNKNOWN_MEMBER_ID"]
            answer = {"memberId": each["memberId"], "groupInstanceId": each["groupInstanceId"]}
            members.append(answer | {"errorCode": unknown})
        if not error:
            group.drop(one["memberId"] for one in members)
        if asked.version < 3:
            return {"errorCode": error or members[0]["errorCode"]}, 0
        return {"errorCode": error, "members": members}, 0

    def ConsumerGroupHeartbeat(self, asked: Asked) -> tuple[Values, int]:
        """Groups of the newer kind (KIP-848). A member gets all partitions of its topics, also if there are others."""
        values = asked.values
        group, error = self._group(asked, values["groupId"])
        member_id, epoch, names = values["memberId"], values["memberEpoch"], values["subscribedTopicNames"]
        if epoch == 0 and not error:
            group.forget(asked.caller)
            member_id = member_id or group.new_id(asked)
            group.generation = 1
            group.members[member_id] = _Member(asked.caller, values["instanceId"], [])
        error = error or (group.refusal(asked.caller, member_id, 1) if epoch >= 0 else NO_ERROR)
        if error:
            return {"errorCode": error}, 0
        answer: Values = {"memberId": member_id, "memberEpoch": min(epoch, 1) or 1, "heartbeatIntervalMs": HEARTBEAT_MS}
        if epoch < 0:
            group.drop([member_id])
        elif names is not None:
            topics = [self.cluster.topics.by_name[name] for name in names if name in self.cluster.topics.by_name]
            given = [{"topicId": one.id, "partitions": list(range(len(one.partitions)))} for one in topics]
            answer["assignment"] = {"topicPartitions": given}
        return answer, 0

    # -- offsets

    def OffsetFetch(self, asked: Asked) -> tuple[Values, int]:
        if asked.version >= 8:
            groups = [{"groupId": one["groupId"], **self._committed(asked, one)} for one in asked.values["groups"]]
            return {"groups": groups}, 0
        return self._committed(asked, asked.values), 0

    def _committed(self, asked: Asked, wanted: Values) -> Values:
        group, error = self._group(asked, wanted["groupId"])
        topics = []
        # A null requests all committed offsets, which no consumer needs.
        for one in wanted["topics"] or ():
            partitions = []
            for index in one["partitionIndexes"]:
                offset, metadata = group.offsets.get((self.cluster.name_of(one), index), (-1, ""))
                said = {"committedOffset": offset, "metadata": metadata, "errorCode": error}
                partitions.append({"partitionIndex": index, **said})
            # A topic has a name, an id, or both. Before version 8 the array has another struct.
            topics.append({key: one[key] for key in ("name", "topicId") if key in one} | {"partitions": partitions})
        return {"topics": topics} | ({"errorCode": error} if asked.version >= 2 else {})

    def OffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        group, error = self._group(asked, values["groupId"])
        if not error and values["memberId"]:
            error = group.refusal(asked.caller, values["memberId"], values["generationIdOrMemberEpoch"])
        topics = []
        for one in values["topics"]:
            name, errors = self.cluster.name_of(one), []
            for each in one["partitions"]:
                metadata = each["committedMetadata"] or ""
                is_large = len(metadata) > METADATA_MAX
                errors.append(ERROR_CODES["OFFSET_METADATA_TOO_LARGE"] if is_large and not error else error)
                if not errors[-1] and group.members and name in self.cluster.topics.by_name:
                    remember(group.offsets, (name, each["partitionIndex"]), (each["committedOffset"], metadata))
            topics.append(_acknowledged(one, errors) | {"topicId": one["topicId"]})
        return {"topics": topics}, 0

    def TxnOffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        # These offsets are not kept.
        _, error = self._group(asked, asked.values["groupId"])
        return {"topics": [_acknowledged(one, repeat(error)) for one in asked.values["topics"]]}, 0


def _fault(name: str, data: bytes) -> str:
    """Why a message of the consumer protocol cannot be read; empty if it can."""
    version = int.from_bytes(data[:2], signed=True)
    if len(data) < 2 or version < 0:
        return f"{name} has no version"
    # A reader takes a newer version for the newest that it knows.
    verdict = check(name, min(version, catalogue().find(name).valid_versions.highest), data[2:])
    return f"version {version} of {verdict.fatal}" if verdict.fatal else ""


def _acknowledged(topic: Values, errors: Iterable[int]) -> Values:
    """The answer for the offsets of a topic, with the error of each partition."""
    partitions = [
        {"partitionIndex": one["partitionIndex"], "errorCode": error}
        for one, error in zip(topic["partitions"], errors, strict=False)
    ]
    return {"name": topic["name"], "partitions": partitions}
