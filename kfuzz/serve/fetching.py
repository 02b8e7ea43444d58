"""Answers to requests that read: Fetch, ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.kafka import INT32_MAX
from kfuzz.serve.cluster import ELEMENTS_MAX, NO_ERROR, NO_TOPIC_ID, Asked, Cluster, Values, remember
from kfuzz.serve.topics import Partition

# The longest wait in ms. New records seldom arrive, so a longer wait is useless.
WAIT_MS_MAX: Final = 100
# Like a broker's fetch.max.bytes. A client may ask for more, or name a partition many times.
RECORDS_BYTES_MAX: Final = 55 << 20
READ_COMMITTED: Final = 1
# Special timestamps in ListOffsets: the latest offset, and the latest offset in remote storage.
LATEST: Final = -1
LATEST_TIERED: Final = -5

# The topic by name and by id, and the partition.
Key = tuple[str, bytes, int]


@dataclass
class _Session:
    """A fetch session (KIP-227): what a client wants, and the offsets that it was ``sent`` last.

    Its next request has this ``epoch``.
    """

    wanted: dict[Key, Values]
    epoch: int = 1
    sent: dict[Key, tuple[int, int]] = field(default_factory=dict)

    def go_on(self, values: Values, wanted: dict[Key, Values]) -> None:
        """Take a request that changes the session."""
        self.epoch = 1 if self.epoch == INT32_MAX else self.epoch + 1
        for one in values["forgottenTopicsData"]:
            for index in one["partitions"]:
                key = one["topic"], one["topicId"], index
                self.wanted.pop(key, None)
                self.sent.pop(key, None)
        self.wanted |= wanted

    def has_news(self, key: Key, answer: Values, size: int) -> bool:
        """Whether a partition belongs in an incremental answer. Those with records wait longest the next time."""
        offsets = answer["highWatermark"], answer.get("logStartOffset", -1)
        has_news = bool(size or answer["errorCode"] or "divergingEpoch" in answer) or self.sent.get(key) != offsets
        self.sent[key] = offsets
        if size:
            self.wanted[key] = self.wanted.pop(key)
        return has_news


class Fetching:
    """Answers to consumers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._sessions: dict[int, _Session] = {}
        self._last_session = 0

    def ListOffsets(self, asked: Asked) -> tuple[Values, int]:
        committed = asked.values["isolationLevel"] == READ_COMMITTED

        def answer(partition: Partition, wanted: Values) -> Values:
            epoch = {"leaderEpoch": partition.leader_epoch} if asked.version >= 4 else {}
            return {"offset": _offset_at(partition, wanted["timestamp"], committed)} | epoch

        return self._each(asked, "name", "partitionIndex", answer), 0

    def OffsetForLeaderEpoch(self, asked: Asked) -> tuple[Values, int]:
        def answer(partition: Partition, wanted: Values) -> Values:
            epoch, end = partition.end_of_epoch(wanted["leaderEpoch"])
            return {"leaderEpoch": epoch, "endOffset": end}

        return self._each(asked, "topic", "partition", answer), 0

    def _each(self, asked: Asked, name: str, index: str, answer: Callable[[Partition, Values], Values]) -> Values:
        """Answers about each partition of a request. ``name`` and ``index``: the fields that say which it is."""
        topics = []
        for one in asked.values["topics"]:
            partitions = []
            for wanted in one["partitions"]:
                place = one[name], NO_TOPIC_ID, wanted[index], wanted["currentLeaderEpoch"]
                partition, error = self.cluster.found(asked.caller, *place)
                made = answer(partition, wanted) if partition is not None else {}
                partitions.append({index: wanted[index], "errorCode": error, **made})
            topics.append({name: one[name], "partitions": partitions})
        return {"topics": topics}

    def Fetch(self, asked: Asked) -> tuple[Values, int]:
        values = asked.values
        wanted: dict[Key, Values] = {
            (one["topic"], one["topicId"], each["partition"]): each
            for one in values["topics"]
            for each in one["partitions"]
        }
        session_id, session, error = self._session(values, wanted)
        if error:
            return {"errorCode": error}, 0
        is_incremental = session is not None and bool(session.sent)
        room, given, failed = min(values["maxBytes"], RECORDS_BYTES_MAX), 0, False
        responses: dict[tuple[str, bytes], Values] = {}
        for key, each in list((session.wanted if session else wanted).items()):
            answer = self._partition(asked, key, each, room - given, is_first=not given)
            size = len(answer["records"])
            given += size
            failed = failed or bool(answer["errorCode"])
            if session is not None and not session.has_news(key, answer, size) and is_incremental:
                continue
            name, topic_id, _ = key
            one = responses.setdefault((name, topic_id), {"topic": name, "topicId": topic_id, "partitions": []})
            one["partitions"].append(answer)
        # Like a broker, send an answer with records or an error at once, and one without records if it throttles.
        throttle_ms = 0 if given or failed else self.cluster.throttle_ms
        wait_ms = 0 if given or failed or throttle_ms else min(max(values["maxWaitMs"], 0), WAIT_MS_MAX)
        answer = {"throttleTimeMs": throttle_ms, "sessionId": session_id, "responses": list(responses.values())}
        return answer, wait_ms

    def _session(self, values: Values, wanted: dict[Key, Values]) -> tuple[int, _Session | None, int]:
        """The fetch session of a request and its id, or 0 and None, and an error.

        Mirrors ``kafka.server.FetchManager.newContext``.
        """
        session_id, epoch = values["sessionId"], values["sessionEpoch"]
        if session_id and epoch > 0:
            session = self._sessions.get(session_id)
            if session is None:
                return 0, None, ERROR_CODES["FETCH_SESSION_ID_NOT_FOUND"]
            if epoch != session.epoch:
                return 0, None, ERROR_CODES["INVALID_FETCH_SESSION_EPOCH"]
            session.go_on(values, wanted)
            self._bound()
            return session_id, session, NO_ERROR
        # A client may not know that its session is closed already.
        self._sessions.pop(session_id, None)
        if epoch or not self.cluster.fetch_sessions:
            return 0, None, NO_ERROR
        self._last_session += 1
        session = _Session(dict(wanted))
        remember(self._sessions, self._last_session, session)
        self._bound()
        return self._last_session, session, NO_ERROR

    def _bound(self) -> None:
        """Forget the oldest sessions if all have too many partitions."""
        while len(self._sessions) > 1 and sum(len(one.wanted) for one in self._sessions.values()) > ELEMENTS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def _partition(self, asked: Asked, key: Key, wanted: Values, room: int, *, is_first: bool) -> Values:
        """The answer for a partition. ``room`` is what is left in the whole answer, which may have no records yet."""
        offset, last_epoch = wanted["fetchOffset"], wanted["lastFetchedEpoch"]
        partition, error = self.cluster.found(asked.caller, *key, wanted["currentLeaderEpoch"])
        answer: Values = {
            "partitionIndex": wanted["partition"],
            "errorCode": error,
            "highWatermark": -1,
            "abortedTransactions": None,
            "records": b"",
        }
        if partition is None:
            return answer
        if partition not in asked.caller.fetched:
            asked.caller.fetched.add(partition)
            partition.connections += 1
        diverging = None
        if partition.has_epochs and last_epoch >= 0:
            epoch, end = partition.end_of_epoch(last_epoch)
            if epoch < last_epoch or end < offset:
                diverging = {"epoch": epoch, "endOffset": end}
        is_beyond = diverging is None and partition.has_epochs and offset > partition.end
        if offset < partition.start or is_beyond or (diverging and diverging["endOffset"] < 0):
            return answer | {"errorCode": ERROR_CODES["OFFSET_OUT_OF_RANGE"]}
        committed = asked.values["isolationLevel"] == READ_COMMITTED
        limit = max(min(room, wanted["partitionMaxBytes"]), 0)
        if diverging is not None:
            answer["divergingEpoch"] = diverging
            data, end = b"", offset
        else:
            data, end = partition.fetched(offset, committed=committed, room=limit)
        # The first records of an answer come in any case, or a client would never get large ones.
        if not is_first and len(data) > (room if partition.is_exact else limit):
            data = b""
        if committed or partition.aborted_always:
            answer["abortedTransactions"] = [
                {"producerId": each.producer_id, "firstOffset": each.first_offset}
                for each in partition.aborted_between(offset, end)
            ]
        return answer | {
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
