"""Groups, transactional ids, share groups and remote logs, as a broker has them that loads Kafka's own topics.

The latest value of each key counts, and only these are decoded. The fields of Kafka's records keep their names, and
have the JSON form of messages.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from kfuzz.errors import UsageError
from kfuzz.files import local_path, map_regular
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.latest import Keyed, Latest
from kfuzz.logs.producers import Notes, end_offset
from kfuzz.logs.reading import FINDING, read_slice, schema
from kfuzz.logs.segments import EVERYTHING, Segment, Selection, find_segments
from kfuzz.logs.slicing import slices
from kfuzz.logs.stored import METADATA
from kfuzz.logs.transactions import last_stable_offset
from kfuzz.messages.internal import decode_internal
from kfuzz.wire.walk.transactions import COMMIT, end_marker

GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SHARES, REMOTE = "__share_group_state", "__remote_log_metadata"
NAMES: Final = ("offset", "key", "value", "producer_id", "transactional", "control", "leader_epoch")
ROWS: Final = schema(NAMES, mode="tolerant")
# How entries of the metadata and numbers in records are named.
FIXED: Final = json.loads(Path(__file__).with_name("kafka_records.json").read_text())
# The records about a group and its members.
OF_GROUP: Final = re.compile(r"(Consumer|Share|Streams)Group(Metadata|TargetAssignmentMetadata|\w*Member\w*)")

Value = dict[str, Any]


def partitions_of(path: str | Path, topics: str, notes: Notes, *, required: bool = True) -> list[list[Segment]]:
    """The segments of each partition of these topics in a log directory, or in one of its folders.

    ``UsageError`` if there are none, unless they are not ``required``.
    """
    if local_path(path).is_file():
        raise UsageError(f"{path} is a file, and a partition may have more of them; name its folder")
    try:
        found = find_segments(path, topics=topics, pass_over=notes.skip)
    except UsageError:
        if required:
            raise
        return []
    return [list(group) for _, group in groupby(found, lambda one: one.path.parent)]


def partitions_with_own(path: str | Path, topics: str, own: str, notes: Notes) -> list[list[Segment]]:
    """As :func:`partitions_of`; if all topics are meant, those of Kafka's ``own`` topics are there too, once each."""
    found = partitions_of(path, own, notes, required=False) if topics == "*" else []
    return found + [one for one in partitions_of(path, topics, notes, required=not found) if one not in found]


def rows(segments: Sequence[Segment], notes: Notes, selection: Selection = EVERYTHING) -> Iterator[tuple[Any, ...]]:
    """The records with the selected offsets of a partition, with the columns ``NAMES``.

    Damage is noted, also beside these offsets, and reading continues after it.
    """
    first, last = selection.first_offset or 0, INT64_MAX if selection.last_offset is None else selection.last_offset
    for part in slices(segments, selection):
        # With a selection, the reader would report only the damage that may be within it.
        for batch in read_slice(part, ROWS):
            if batch.column(FINDING).null_count:
                found = zip(*(batch.column(name).to_pylist() for name in NAMES), strict=True)
                yield from (row for row in found if first <= row[0] <= last)
            else:
                sentence = str(batch.column(FINDING)[0])
                is_tail = sentence.endswith("[file-truncated]") and part.segment.next_offset is None
                notes.damage(f"damage: {sentence}", is_tail=is_tail)


def latest(segments: Sequence[Segment], notes: Notes) -> Iterator[tuple[bytes, bytes]]:
    """The latest value of each key of a partition; keys whose latest value is null are left out."""
    return ((key, value) for key, _, value in Latest(_that_count(segments, notes)).by("row") if value is not None)


def _that_count(segments: Sequence[Segment], notes: Notes) -> Iterator[Keyed]:
    """The records that count: those of a transaction from its COMMIT marker on, unless a later record has the key.

    Mirrors ``OffsetMetadataManager.replay`` and ``replayEndTransactionMarker``.
    """
    pending: dict[int, dict[bytes, Keyed]] = defaultdict(dict)
    for offset, key, value, producer, is_transactional, is_control, _ in rows(segments, notes):
        counting: Iterable[Keyed] = ()
        if is_control:
            ended = pending.pop(producer, {})
            counting = ended.values() if ended and end_marker(key, value)[0] == COMMIT else ()
        elif key is None:
            notes[f"a record of {segments[0].topic} is left out: the key is null"] += 1
        elif is_transactional and value is not None:
            pending[producer][key] = key, offset, value
        else:
            counting = [(key, offset, value)]
        for one in counting:
            yield one
            for waiting in pending.values():
                if one[0] in waiting and (one[2] is None or waiting[one[0]][1] < one[1]):
                    del waiting[one[0]]
    for producer, waiting in pending.items():
        if waiting:
            notes[f"records of the open transaction of producer {producer}, which do not count yet"] += len(waiting)


def decoded(
    topic: str, pairs: Iterable[tuple[bytes | None, bytes | None]], notes: Notes
) -> Iterator[tuple[str, Value, Value | None]]:
    """The name, the key and the value of each record. A record without a key has its value in place of it.

    Unknown ones and bad ones are noted.
    """
    for key, value in pairs:
        record = decode_internal(topic, key, value)
        sides = [side for side in (record.key, record.value) if side is not None]
        if errors := [f"{side.name} {side.error}" for side in sides if side.error]:
            notes[f"a record of {topic} is left out: {errors[0].strip()}"] += 1
        elif sides:
            name = sides[0].name.removesuffix("Key").removesuffix("Record")
            yield name, sides[0].values or {}, sides[1].values if len(sides) > 1 else None


def named(field: str, value: Any) -> Any:
    """The name of a number in this field of a record; other values stay as they are."""
    return FIXED["numbers"].get(field, {}).get(str(value), value)


class Beside:
    """The logs beside a segment's partition, for the ends of logs and the names of topic ids."""

    def __init__(self, of: Segment, notes: Notes) -> None:
        self._ends: dict[tuple[str, int], tuple[int | None, int | None]] = {}
        self._notes = notes
        # Some directories have only Kafka's own topics.
        found = partitions_of(of.path.parent.absolute().parent, "*", notes, required=False)
        self.partitions = {(str(one[0].topic), one[0].partition or 0): one for one in found}

    def end(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """The end offset and the last stable offset of a partition; None if its log is not there."""
        place = topic, partition
        if place in self.partitions and place not in self._ends:
            end, stable = end_offset(self.partitions[place]), last_stable_offset(self.partitions[place][0])
            self._ends[place] = end, end if stable is None else stable
        return self._ends.get(place, (None, None))

    def lags(self, topic: str, partition: int, offset: int) -> list[int | None]:
        """How many offsets follow, up to the end of a partition and up to its last stable offset."""
        ends = self.end(topic, partition)
        if ends[0] is not None and offset > ends[0]:
            self._notes[
                f"{topic}-{partition} ends at {ends[0]}, before an offset that a group has; its log was cut off, made "
                "again, or copied before its groups"
            ] += 1
        return [None if end is None else max(end - offset, 0) for end in ends]

    @cached_property
    def topics(self) -> dict[str, str]:
        """The names of topics by their ids, as ``partition.metadata`` has them."""
        paths = {topic: one[0].path.with_name("partition.metadata") for (topic, _), one in self.partitions.items()}
        kinds = {
            topic: METADATA.read(path, map_regular(path), "kafka") for topic, path in paths.items() if path.is_file()
        }
        return {one.facts.get("topic_id", ""): topic for topic, one in kinds.items()}


def transactional_ids(partitions: Sequence[Sequence[Segment]], notes: Notes) -> tuple[dict[int, Value], bool]:
    """The transactional ids in these partitions of ``__transaction_state``, by producer id; and whether no partition of
    the topic is missing between them.
    """
    found: dict[int, Value] = {}
    for segments in partitions:
        for _, key, value in decoded(TRANSACTIONS, latest(segments, notes), notes):
            value = value or {}
            places = value["transactionPartitions"] or ()
            found[int(value["producerId"])] = key | {
                "state": named("transactionStatus", value["transactionStatus"]),
                "partitions": [[one["topic"], partition] for one in places for partition in one["partitionIds"]],
            }
    return found, [one[0].partition for one in partitions] == list(range(len(partitions)))


# ------------------------------------------------------------------------------------------- groups


def groups(path: str | Path, notes: Notes, now_ms: int) -> dict[str, list[Value]]:
    """The groups and their committed offsets in the partitions of ``__consumer_offsets``, with lags.

    An offset that its client let expire before ``now_ms`` is left out. The states of groups are those that a broker
    gives them when it loads the partition.
    """
    made: dict[str, Value] = {}
    offsets: list[Value] = []
    partitions = partitions_of(path, GROUPS, notes)
    beside = Beside(partitions[0][0], notes)
    for segments in partitions:
        for name, key, value in decoded(GROUPS, latest(segments, notes), notes):
            value = value or {}
            if 0 <= int(value.get("expireTimestamp", -1)) < now_ms:
                notes["offsets that expired are left out"] += 1
                continue
            group_id = key.get("group", key.get("groupId"))
            new: Value = {"group": group_id, "type": "classic", "epoch": None, "members": {}, "lag": None}
            group = made.setdefault(str(group_id), new)
            if name in ("OffsetCommit", "LegacyOffsetCommit"):
                place = key["topic"], key["partition"]
                lags = beside.lags(*place, int(value["offset"]))
                offsets.append(key | value | {"end": beside.end(*place)[0], "lag": lags[0], "stableLag": lags[1]})
                if lags[0] is not None:
                    group["lag"] = (group["lag"] or 0) + lags[0]
            elif name == "GroupMetadata":
                group |= {"epoch": value["generation"], "members": {one["memberId"]: one for one in value["members"]}}
            elif kind := OF_GROUP.fullmatch(name):
                group["type"] = kind[1].lower()
                of = group["members"].setdefault(key["memberId"], key) if "memberId" in key else group
                of |= value
    found = [one | {"state": _state(one), "members": list(one["members"].values())} for _, one in sorted(made.items())]
    return {"groups": found, "offsets": sorted(offsets, key=lambda one: (one["group"], one["topic"], one["partition"]))}


def _state(group: Value) -> str:
    """Mirrors ``ClassicGroup``, ``ConsumerGroup.maybeUpdateGroupState`` and ``ShareGroup``."""
    if not group["members"]:
        return "Empty"
    if group["type"] in ("classic", "share"):
        return "Stable"
    epoch = group.get("assignmentEpoch", 0)
    if (group["epoch"] or 0) > epoch:
        return "Assigning"
    stable = all(one.get("state") == 0 and one["memberEpoch"] == epoch for one in group["members"].values())
    return "Stable" if stable else "Reconciling"


# ------------------------------------------------------------------------------------------- share groups


def shares(path: str | Path, notes: Notes) -> list[Value]:
    """The states of share groups and partitions in ``__share_group_state``.

    A snapshot replaces what came before it; the updates after it change it, and their ``stateBatches`` follow its own.
    Mirrors ``ShareCoordinatorShard.handleShareUpdate``.
    """
    partitions = partitions_of(path, SHARES, notes)
    beside = Beside(partitions[0][0], notes)
    found: dict[tuple[str, ...], Value] = {}
    for segments in partitions:
        pairs = ((row[1], row[2]) for row in rows(segments, notes) if not row[5])
        for name, key, value in decoded(SHARES, pairs, notes):
            place = tuple(map(str, key.values()))
            if value is None:
                found.pop(place, None)
            elif name == "ShareSnapshot" or place not in found:
                found[place] = key | value
            else:
                before = found[place]
                kept = {name: one for name, one in value.items() if int(one if name != "stateBatches" else 0) != -1}
                found[place] = before | kept | {"stateBatches": before["stateBatches"] + value["stateBatches"]}
    for one in found.values():
        one["topic"] = beside.topics.get(one["topicId"], one["topicId"])
        one["end"], _ = beside.end(one["topic"], one["partition"])
        start, complete = int(one["startOffset"]), one["deliveryCompleteCount"]
        is_known = min(start, complete) >= 0
        one["lag"] = beside.lags(one["topic"], one["partition"], start + complete)[0] if is_known else None
        one["stateBatches"] = [batch for batch in one["stateBatches"] if int(batch["lastOffset"]) >= start]
    return [found[place] for place in sorted(found)]


# ------------------------------------------------------------------------------------------- remote logs


def remote(path: str | Path, notes: Notes) -> list[Value]:
    """The segments in remote storage that ``__remote_log_metadata`` names, by partition and offset."""
    found: dict[str, Value] = {}
    for segments in partitions_of(path, REMOTE, notes):
        pairs = ((None, row[2]) for row in rows(segments, notes) if not row[5])
        for name, value, _ in decoded(REMOTE, pairs, notes):
            if name == "RemotePartitionDeleteMetadata":
                place = value["topicIdPartition"]
                notes[f"remote segments of {place['name']}-{place['partition']} are being deleted, or were"] += 1
                continue
            id = value.pop("remoteLogSegmentId", {"id": value.get("segmentId"), "topicIdPartition": {}})
            found[id["id"]] = found.get(id["id"], {}) | value | id["topicIdPartition"] | {"segment": id["id"]}
    made = [{field: named(field, value) for field, value in one.items()} for one in found.values()]
    order = sorted(made, key=lambda one: (one.get("name", ""), one.get("partition", 0), int(one.get("startOffset", 0))))
    return [one for one in order if one["remoteLogSegmentState"] != "deleted"]
