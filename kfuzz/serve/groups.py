"""Answers about consumer groups: each consumer is alone in its group, and nothing is kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kfuzz.serve.cluster import Asked, Cluster, Values

__all__ = ["Groups"]

# The generation of every group.
GENERATION: Final = 1


class Groups:
    """The coordinator of consumer groups."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def JoinGroup(self, asked: Asked) -> tuple[Values, int]:
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

    def SyncGroup(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        own = (one["assignment"] for one in values["assignments"] if one["memberId"] == values["memberId"])
        answer = {
            "protocolType": values["protocolType"],
            "protocolName": values["protocolName"],
            "assignment": next(own, b""),
        }
        return answer, 0

    def Heartbeat(self, asked: Asked) -> tuple[Values, int]:
        return {}, 0

    def LeaveGroup(self, asked: Asked) -> tuple[Values, int]:
        gone = [
            {"memberId": one["memberId"], "groupInstanceId": one["groupInstanceId"]} for one in asked.values["members"]
        ]
        return {"members": gone}, 0

    def OffsetFetch(self, asked: Asked) -> tuple[Values, int]:
        if asked.version < 8:
            return {"topics": _not_committed(asked.values["topics"])}, 0
        groups = [
            {"groupId": one["groupId"], "topics": _not_committed(one["topics"])} for one in asked.values["groups"]
        ]
        return {"groups": groups}, 0

    def OffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        topics = [
            {
                "name": one["name"],
                "topicId": one["topicId"],
                "partitions": [{"partitionIndex": partition["partitionIndex"]} for partition in one["partitions"]],
            }
            for one in asked.values["topics"]
        ]
        return {"topics": topics}, 0

    def TxnOffsetCommit(self, asked: Asked) -> tuple[Values, int]:
        return self.OffsetCommit(asked)


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
