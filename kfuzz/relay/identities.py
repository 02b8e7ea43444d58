"""The values that mean the same in two runs of one conversation: ids, epochs, offsets and addresses.

The values of a recorded and of a fresh frame are walked side by side. So it is learned which fresh id a recorded one
became, and recorded frames can be sent to somebody who only knows the fresh ids. An id must keep its meaning: anything
else is a difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kfuzz import records
from kfuzz.client.address import Address
from kfuzz.relay.addresses import HOST, PORT
from kfuzz.replay.batches import PRODUCER as PRODUCER_FIELDS
from kfuzz.replay.batches import PRODUCER_AT, set_producer
from kfuzz.wire.records.framing import frames

__all__ = ["MEMBER", "Difference", "Identities", "Kind", "Scope"]

# The recorded things that a value belongs to: "topic", "partition", "producer", "member", "group".
Scope = dict[str, Any]
Difference = tuple[str, Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that fields identify.

    - ``scope``: one id means different things in different scopes.
    - ``counts``: two values are as far from each other as in the record.
    - ``stays``: what was learned first is right. Otherwise a fresh value that nobody expects is a difference once.
    - ``unset``: means that there is none, as negative numbers and empty values always do.
    """

    name: str
    scope: tuple[str, ...] = ()
    counts: bool = False
    stays: bool = False
    unset: int = -1


PRODUCER: Final = Kind("producer")
PRODUCER_EPOCH: Final = Kind("producer epoch", ("producer",), counts=True)
MEMBER: Final = Kind("member")
GENERATION: Final = Kind("generation", ("group", "member"), counts=True)
GROUP_EPOCH: Final = Kind("group epoch", ("group",), counts=True)
TOPIC: Final = Kind("topic")
SESSION: Final = Kind("session", unset=0)
NODE: Final = Kind("node", stays=True)
CLUSTER: Final = Kind("cluster")
TELEMETRY: Final = Kind("telemetry")
LEADER_EPOCH: Final = Kind("leader epoch", ("topic", "partition"), counts=True)
OFFSET: Final = Kind("offset", ("topic", "partition"), counts=True)
# A log may begin with records that the record does not know.
LOG_START: Final = Kind("log start", ("topic", "partition"))

KINDS: Final[Mapping[str, Kind]] = {
    name: kind
    for kind, names in {
        PRODUCER: ("producerId", "v3AndBelowProducerId", "ongoingTxnProducerId"),
        PRODUCER_EPOCH: ("producerEpoch", "v3AndBelowProducerEpoch", "ongoingTxnProducerEpoch"),
        MEMBER: ("memberId", "leader"),
        GENERATION: ("generationId", "memberEpoch", "generationIdOrMemberEpoch"),
        GROUP_EPOCH: ("groupEpoch", "assignmentEpoch"),
        TOPIC: ("topicId",),
        SESSION: ("sessionId",),
        NODE: (
            *("nodeId", "brokerId", "leaderId", "controllerId", "preferredReadReplica"),
            *("replicaNodes", "isrNodes", "offlineReplicas", "replicas", "brokerIds"),
        ),
        CLUSTER: ("clusterId",),
        TELEMETRY: ("clientInstanceId", "subscriptionId"),
        LEADER_EPOCH: (
            *("leaderEpoch", "currentLeaderEpoch", "partitionLeaderEpoch"),
            *("lastFetchedEpoch", "committedLeaderEpoch", "epoch"),
        ),
        OFFSET: (
            *("offset", "baseOffset", "firstOffset", "lastOffset", "startOffset", "endOffset", "fetchOffset"),
            *("highWatermark", "lastStableOffset", "committedOffset", "currentTxnStartOffset"),
        ),
        LOG_START: ("logStartOffset",),
    }.items()
    for name in names
}
SCOPES: Final[Mapping[str, str]] = {
    "name": "topic",
    "topic": "topic",
    "topicName": "topic",
    "partition": "partition",
    "partitionIndex": "partition",
    "partitionId": "partition",
    "index": "partition",
    "producerId": "producer",
    "v3AndBelowProducerId": "producer",
    "memberId": "member",
    "groupId": "group",
}
TOPIC_ID: Final = "topicId"
RECORDS: Final = "records"
# Times of the broker, and what it draws at random.
MASKED: Final = frozenset(
    {
        *("throttleTimeMs", "logAppendTimeMs", "timestamp", "issueTimestampMs", "expiryTimestampMs", "maxTimestampMs"),
        *("lastTimestamp", "transactionStartTimeMs", "finalizedFeaturesEpoch", "sessionLifetimeMs"),
        *("authBytes", "tokenId", "hmac"),
    }
)
# Fields by which the elements of a list are found. The first that an element has counts.
KEYS: Final = (
    *("name", "topic", "topicName", "topicId", "groupId", "key", "apiKey", "feature", "resourceName"),
    *("transactionalId", "memberId", "nodeId", "brokerId", "partition", "partitionIndex", "index", "producerId"),
)
EMPTY: Final = (None, "", b"", bytes(16))


class Identities:
    """Finds the fresh ids for recorded ones. Only ids of ``kinds`` may differ; None: all of them.

    ``masks_times``: the times of records may differ too, because a fresh client makes them.
    """

    def __init__(self, kinds: frozenset[Kind] | None = None, *, masks_times: bool = False) -> None:
        self._masks_times = masks_times
        self.addresses: dict[tuple[str, int], Address] = {}
        self._kinds = frozenset(KINDS.values()) if kinds is None else kinds
        self._known: dict[tuple[Any, ...], dict[Any, Any]] = {}
        # The names of recorded topics, by their ids.
        self._topics: dict[bytes, str] = {}

    # -- one value

    def _kind(self, name: str) -> Kind | None:
        kind = KINDS.get(name)
        return kind if kind in self._kinds else None

    def _fresh(self, kind: Kind, scope: Scope, old: Any) -> Any:
        """The fresh value of a recorded one; None if it is not known."""
        known = self._known.get(_place(kind, scope), {})
        if old in known or not (kind.counts and known):
            return known.get(old)
        near = max((one for one in known if one < old), default=min(known))
        fresh = known[near] + old - near
        return fresh if fresh >= 0 else None

    def _is_same(self, kind: Kind, scope: Scope, old: Any, new: Any) -> bool:
        """Whether a fresh value is what the record makes one expect. It is learned."""
        if not (_is_id(kind, old) and _is_id(kind, new)):
            return bool(old == new)
        expected = self._fresh(kind, scope, old)
        if expected is None or (expected != new and not kind.stays):
            self._known.setdefault(_place(kind, scope), {})[old] = new
        return expected is None or expected == new

    def _entered(self, scope: Scope, struct: Mapping[str, Any]) -> Scope:
        """The scope of the fields of a recorded struct."""
        inner = dict(scope)
        topic_id = struct.get(TOPIC_ID)
        if isinstance(topic_id, bytes) and any(topic_id):
            inner["topic"] = self._topics.get(topic_id, topic_id)
        for name, what in SCOPES.items():
            value = struct.get(name)
            if isinstance(value, str | int) and value != "":
                inner[what] = value
                if what == "topic" and isinstance(value, str) and isinstance(topic_id, bytes):
                    self._topics[topic_id] = value
        return inner

    # -- recorded values become fresh ones

    def translated(self, values: Any, scope: Scope) -> Any:
        """Recorded values with fresh ids. Equal to ``values`` if nothing differs."""
        if isinstance(values, list):
            return [self.translated(one, scope) for one in values]
        if not isinstance(values, dict):
            return values
        inner = self._entered(scope, values)
        made: dict[str, Any] = {}
        for name, value in values.items():
            kind = self._kind(name)
            if kind is not None and isinstance(value, list):
                made[name] = [self._translated(kind, inner, one) for one in value]
            elif kind is not None:
                made[name] = self._translated(kind, inner, value)
            elif name == RECORDS and isinstance(value, bytes):
                made[name] = self._with_producers(value)
            else:
                made[name] = self.translated(value, inner)
        if HOST in made and PORT in made and (found := self.addresses.get((made[HOST], made[PORT]))):
            made[HOST], made[PORT] = found.host, found.port
        return made

    def _translated(self, kind: Kind, scope: Scope, old: Any) -> Any:
        fresh = self._fresh(kind, scope, old) if _is_id(kind, old) else None
        return old if fresh is None else fresh

    def _with_producers(self, data: bytes) -> bytes:
        """Record batches with fresh producer ids and epochs."""
        made = bytearray(data)
        view = memoryview(made)
        for at, size, magic in frames(data):
            if magic == 2:
                producer_id, epoch, sequence = PRODUCER_FIELDS.unpack_from(view, at + PRODUCER_AT)
                scope = {"producer": producer_id}
                fresh = (
                    self._translated(PRODUCER, scope, producer_id),
                    self._translated(PRODUCER_EPOCH, scope, epoch),
                )
                if fresh != (producer_id, epoch):
                    set_producer(view[at : at + size], *fresh, sequence)
        return bytes(made)

    # -- a recorded and a fresh message

    def scope(self, values: Any) -> Scope:
        """The scope of a response: what its recorded request was about."""
        return self._entered({}, values) if isinstance(values, dict) else {}

    def differences(self, old: Any, new: Any, scope: Scope, path: str = "") -> Iterator[Difference]:
        """Where a fresh message differs from a recorded one: the path, the recorded and the fresh value.

        Ids are learned on the way.
        """
        if isinstance(old, dict) and isinstance(new, dict):
            yield from self._of_structs(old, new, self._entered(scope, old), path)
        elif isinstance(old, list) and isinstance(new, list):
            if len(old) != len(new):
                yield f"{path} (its length)", len(old), len(new)
            for at, one, other in self._pairs(old, new, scope):
                yield from self.differences(one, other, scope, f"{path}[{at}]")
        elif old != new:
            yield path, old, new

    def _of_structs(self, old: dict[str, Any], new: dict[str, Any], scope: Scope, path: str) -> Iterator[Difference]:
        for name in old | new:
            one, other = old.get(name), new.get(name)
            inner = f"{path}.{name}" if path else name
            kind = self._kind(name)
            if name in (HOST, PORT) and old.get(HOST) and new.get(HOST):
                if name == PORT:
                    address = Address.advertised(new[HOST], new.get(PORT, 0))
                    self.addresses.setdefault((old[HOST], old.get(PORT, 0)), address)
            elif name in MASKED and _is_masked(one) and _is_masked(other):
                continue
            elif kind is not None and isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
                for at, (first, second) in enumerate(zip(one, other, strict=True)):
                    if not self._is_same(kind, scope, first, second):
                        yield f"{inner}[{at}]", first, second
            elif kind is not None and not isinstance(one, list):
                if not self._is_same(kind, scope, one, other):
                    yield inner, one, other
            elif name == RECORDS and isinstance(one, bytes) and isinstance(other, bytes):
                yield from self.differences(self._batches(one), self._batches(other), scope, inner)
            else:
                yield from self.differences(one, other, scope, inner)

    def _pairs(self, old: list[Any], new: list[Any], scope: Scope) -> Iterator[tuple[int, Any, Any]]:
        """The elements of two lists that belong together: those with the same key, then the others in their order.

        The number is that of the fresh element.
        """
        there: dict[Any, list[int]] = {}
        for at, one in enumerate(new):
            there.setdefault(_key(one), []).append(at)
        left: list[Any] = []
        used: set[int] = set()
        for one in old:
            key = _key(self.translated(one, scope)) if isinstance(one, dict) else None
            places = there.get(key) if key is not None else None
            if places:
                at = places.pop(0)
                used.add(at)
                yield at, one, new[at]
            else:
                left.append(one)
        others = (number for number in range(len(new)) if number not in used)
        for number, one in zip(others, left, strict=False):
            yield number, one, new[number]

    def _batches(self, data: bytes) -> Any:
        """Batches as values whose names are those of messages; the bytes if they cannot be read."""
        reading = records.read(data)
        if reading.fatal is not None:
            return data
        return [_batch(one, masks_time=self._masks_times) for one in reading.batches]


def _place(kind: Kind, scope: Scope) -> tuple[Any, ...]:
    return (kind.name, *map(scope.get, kind.scope))


def _is_id(kind: Kind, value: Any) -> bool:
    """Whether a value is an id. Negative numbers, empty values and the kind's own one mean that there is none."""
    if isinstance(value, int):
        return value >= 0 and value != kind.unset
    return isinstance(value, str | bytes) and not kind.counts and value not in EMPTY


def _is_masked(value: Any) -> bool:
    """Whether a time of the broker is one; -1 is none."""
    return not isinstance(value, int) or value >= 0


def _key(element: Any) -> Any:
    """The field by which an element of a list is found, and its value; None if it has none."""
    if not isinstance(element, dict):
        return None
    found = ((name, element[name]) for name in KEYS if element.get(name) not in EMPTY)
    return next((one for one in found if isinstance(one[1], str | int | bytes)), None)


def _batch(batch: records.RecordBatch, *, masks_time: bool) -> dict[str, Any]:
    # The broker sets the times of control records, and of batches with its own time. Markers name its coordinator.
    is_masked = masks_time or batch.control or batch.timestamp_type == "log-append"
    time = "timestamp" if is_masked else "createTime"
    return {
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "magic": batch.magic,
        "partitionLeaderEpoch": batch.partition_leader_epoch,
        "producerId": batch.producer_id,
        "producerEpoch": batch.producer_epoch,
        "baseSequence": batch.base_sequence,
        "compression": batch.compression,
        "timestampType": batch.timestamp_type,
        "transactional": batch.transactional,
        "control": batch.control,
        "records": [
            {
                "offset": one.offset,
                time: one.timestamp,
                "recordKey": one.key,
                "value": None if batch.control else one.value,
                "headers": [[key, value] for key, value in one.headers],
            }
            for one in batch.records
        ],
    }
