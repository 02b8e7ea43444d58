"""Answers to requests that read: Fetch, ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import Final

from kfuzz.serve.cluster import NO_TOPIC_ID, Asked, Cluster, Values
from kfuzz.serve.topics import Partition

__all__ = ["WAIT_MS_MAX", "Fetching"]

# The longest wait in ms. New records seldom arrive, so a longer wait is useless.
WAIT_MS_MAX: Final = 100
# Like a broker's fetch.max.bytes. A client may ask for more, or name a partition many times.
RECORDS_BYTES_MAX: Final = 55 << 20
READ_COMMITTED: Final = 1
# Special timestamps in ListOffsets: the latest offset, and the latest offset in remote storage.
LATEST: Final = -1
LATEST_TIERED: Final = -5

OFFSET_OUT_OF_RANGE: Final = 1
FETCH_SESSION_ID_NOT_FOUND: Final = 70


class Fetching:
    """Answers to consumers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def ListOffsets(self, asked: Asked) -> tuple[Values, int]:
        topics = []
        committed = asked.values["isolationLevel"] == READ_COMMITTED
        for one in asked.values["topics"]:
            partitions = []
            for wanted in one["partitions"]:
                index, epoch = wanted["partitionIndex"], wanted["currentLeaderEpoch"]
                partition, error = self.cluster.found(asked.caller, one["name"], NO_TOPIC_ID, index, epoch)
                told: Values = {"partitionIndex": index, "errorCode": error}
                if partition is not None:
                    told["offset"] = _offset_at(partition, wanted["timestamp"], committed)
                    if asked.version >= 4:
                        told["leaderEpoch"] = partition.leader_epoch
                partitions.append(told)
            topics.append({"name": one["name"], "partitions": partitions})
        return {"topics": topics}, 0

    def Fetch(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        # The answers below open no session, so a client has none to continue.
        if values["sessionId"]:
            return {"errorCode": FETCH_SESSION_ID_NOT_FOUND}, 0
        room, given, failed = min(values["maxBytes"], RECORDS_BYTES_MAX), 0, False
        responses = []
        for one in values["topics"]:
            partitions = []
            for wanted in one["partitions"]:
                told = self._partition(asked, one, wanted, room - given, is_first=not given)
                given += len(told.get("records") or b"")
                failed = failed or bool(told["errorCode"])
                partitions.append(told)
            responses.append({"topic": one["topic"], "topicId": one["topicId"], "partitions": partitions})
        # Like a broker, send an answer with records or an error at once.
        wait_ms = 0 if given or failed else min(max(values["maxWaitMs"], 0), WAIT_MS_MAX)
        return {"responses": responses}, wait_ms

    def _partition(self, asked: Asked, one: Values, wanted: Values, room: int, *, is_first: bool) -> Values:
        """The answer for a partition. ``room`` is what is left in the whole answer, which may have no records yet."""
        index, offset = wanted["partition"], wanted["fetchOffset"]
        partition, error = self.cluster.found(
            asked.caller, one["topic"], one["topicId"], index, wanted["currentLeaderEpoch"]
        )
        told: Values = {"partitionIndex": index, "errorCode": error, "highWatermark": -1, "abortedTransactions": None}
        if partition is None:
            return told
        if offset < partition.start:
            return told | {"errorCode": OFFSET_OUT_OF_RANGE}
        committed = asked.values["isolationLevel"] == READ_COMMITTED
        limit = max(min(room, wanted["partitionMaxBytes"]), 0)
        data, end = partition.fetched(offset, committed=committed, room=limit)
        # The first records of an answer come in any case, or a client would never get large ones.
        if not is_first and len(data) > (room if partition.is_exact else limit):
            data = b""
        if committed:
            told["abortedTransactions"] = [
                {"producerId": each.producer_id, "firstOffset": each.first_offset}
                for each in partition.aborted_between(offset, end)
            ]
        return told | {
            "highWatermark": partition.high_watermark,
            "lastStableOffset": partition.last_stable_offset,
            "logStartOffset": partition.start,
            "records": data,
        }


def _offset_at(partition: Partition, timestamp: int, committed: bool) -> int:
    """The latest offset, -1 for remote storage, otherwise the first one. Timestamps are not looked up."""
    if timestamp == LATEST:
        return partition.last_stable_offset if committed else partition.high_watermark
    return -1 if timestamp == LATEST_TIERED else partition.start
