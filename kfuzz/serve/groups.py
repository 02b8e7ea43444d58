"""The coordinator of consumer groups of the classic kind.

Members are known by the connections on which they join. Committed offsets are kept as long as a group has members, so
a new consumer begins at the start.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kfuzz.serve.cluster import CODES, NO_ERROR, Asked, Caller, Cluster, Held, Values, remember

__all__ = ["Groups"]


@dataclass
class _Member:
    caller: Caller
    instance_id: str | None
    protocols: list[Values]
    # The answers that this member waits for.
    join: Held | None = None
    sync: Held | None = None
    assignment: bytes = b""


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

    def refusal(self, member_id: str, generation: int) -> int:
        """The error for a request that is not from a member of this generation; otherwise 0."""
        if member_id not in self.members:
            return CODES["UNKNOWN_MEMBER_ID"]
        return NO_ERROR if generation == self.generation else CODES["ILLEGAL_GENERATION"]

    def common(self, protocols: list[Values]) -> str | None:
        """The first of these protocols that all members have."""
        theirs = [{each["name"] for each in member.protocols} for member in self.members.values()]
        return next((each["name"] for each in protocols if all(each["name"] in names for names in theirs)), None)

    def rejoin(self) -> None:
        """Make all members join again."""
        self.is_joining, self.is_assigned = True, False
        for member in self.members.values():
            if member.sync is not None:
                member.sync.give({"errorCode": CODES["REBALANCE_IN_PROGRESS"]})
                member.sync = None
        self.complete()

    def complete(self) -> None:
        """Begin the next generation if all members have joined."""
        if not self.is_joining or not all(member.join for member in self.members.values()):
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
        if not self.members:
            self.offsets.clear()
        elif found:
            self.rejoin()

    def expire(self) -> None:
        """Remove the members that have not joined again in time."""
        self.drop([member_id for member_id, member in self.members.items() if self.is_joining and not member.join])


class Groups:
    """Answers about consumer groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._groups: dict[str, _Group] = {}

    def gone(self, caller: Caller) -> None:
        """Remove the members that joined on a connection which is closed now."""
        for group in self._groups.values():
            group.drop([member_id for member_id, member in group.members.items() if member.caller is caller])

    def _group(self, asked: Asked, name: str) -> tuple[_Group, int]:
        error = CODES["NOT_COORDINATOR"] if self.cluster.is_elsewhere(asked, name) else NO_ERROR
        if name not in self._groups and not error:
            remember(self._groups, name, _Group())
        return self._groups.get(name) or _Group(), error

    def JoinGroup(self, asked: Asked) -> tuple[Values | Held, int]:
        values = asked.values
        member_id, protocols, instance_id = values["memberId"], values["protocols"], values["groupInstanceId"]
        group, error = self._group(asked, values["groupId"])
        if member_id and member_id not in group.members:
            error = error or CODES["UNKNOWN_MEMBER_ID"]
        elif not set(group.members) <= {member_id} and group.common(protocols) is None:
            error = error or CODES["INCONSISTENT_GROUP_PROTOCOL"]
        if error:
            return {"errorCode": error, "memberId": member_id}, 0
        for each_id, each in list(group.members.items()):
            # A static member that has started again takes the place of the one before.
            if instance_id is not None and each.instance_id == instance_id and each_id != member_id:
                del group.members[each_id]
        if not member_id:
            group.numbered += 1
            member_id = f"{asked.client_id}-member-{group.numbered}"
        group.protocol_type = values["protocolType"]
        held = Held(group.expire)
        group.members[member_id] = _Member(asked.caller, instance_id, protocols, join=held)
        group.rejoin()
        return held, 0

    def SyncGroup(self, asked: Asked) -> tuple[Values | Held, int]:
        values = asked.values
        group, error = self._group(asked, values["groupId"])
        error = error or group.refusal(values["memberId"], values["generationId"])
        if error or group.is_joining:
            return {"errorCode": error or CODES["REBALANCE_IN_PROGRESS"]}, 0
        group.members[values["memberId"]].sync = held = Held(group.rejoin)
        if values["memberId"] == next(iter(group.members)):
            given = {one["memberId"]: one["assignment"] for one in values["assignments"]}
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
        error = error or group.refusal(values["memberId"], values["generationId"])
        return {"errorCode": error or (CODES["REBALANCE_IN_PROGRESS"] if group.is_joining else NO_ERROR)}, 0

    def LeaveGroup(self, asked: Asked) -> tuple[Values, int]:
        group, error = self._group(asked, asked.values["groupId"])
        one = [{"memberId": asked.values["memberId"], "groupInstanceId": None}]
        leaving = one if asked.version < 3 else asked.values["members"]
        members = []
        for each in leaving:
            [member_id, instance_id] = each["memberId"], each["groupInstanceId"]
            if instance_id is not None and not member_id:
                same = (key for key, member in group.members.items() if member.instance_id == instance_id)
                member_id = next(same, "")
            unknown = NO_ERROR if member_id in group.members else CODES["UNKNOWN_MEMBER_ID"]
            members.append({"memberId": member_id, "groupInstanceId": instance_id, "errorCode": unknown})
        if not error:
            group.drop(one["memberId"] for one in members)
        if asked.version < 3:
            return {"errorCode": error or members[0]["errorCode"]}, 0
        return {"errorCode": error, "members": members}, 0

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
            error = group.refusal(values["memberId"], values["generationIdOrMemberEpoch"])
        topics = []
        for one in values["topics"]:
            name = self.cluster.name_of(one)
            for each in one["partitions"]:
                if not error and group.members and name in self.cluster.topics.by_name:
                    place = name, each["partitionIndex"]
                    group.offsets[place] = each["committedOffset"], each["committedMetadata"] or ""
            topics.append(_acknowledged(one, error) | {"topicId": one["topicId"]})
        return {"topics": topics}, 0

    def TxnOffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        # These offsets are not kept.
        _, error = self._group(asked, asked.values["groupId"])
        return {"topics": [_acknowledged(one, error) for one in asked.values["topics"]]}, 0


def _acknowledged(topic: Values, error: int) -> Values:
    """The answer for the offsets of a topic."""
    indexes = [one["partitionIndex"] for one in topic["partitions"]]
    return {"name": topic["name"], "partitions": [{"partitionIndex": one, "errorCode": error} for one in indexes]}
