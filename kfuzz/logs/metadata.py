"""The KRaft metadata of a cluster at an offset: a snapshot, and the records of the log after it.

Mirrors the classes of ``org.apache.kafka.image``, and ``MetadataBatchLoader`` for the transactions of the log.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kfuzz.control import LeaderChangeMessage, VotersRecord, decode_control
from kfuzz.errors import KfuzzError, RecordsError, UsageError
from kfuzz.logs.internal_topics import FIXED, decoded, named, partitions_of, rows
from kfuzz.logs.producers import Notes
from kfuzz.logs.segments import Selection, find_segments
from kfuzz.messages.internal import SNAPSHOT

TOPIC: Final = "__cluster_metadata"
# The records that put an entry into a section of the picture, with the section and the fields that name the entry.
# Records that take one away have the same fields.
PUTS: Final[dict[str, list[str]]] = FIXED["entries"]
SILENT: Final = ("NoOp", "ZkMigrationState")
# These are not shown.
SECRETS: Final = ("salt", "storedKey", "serverKey")
SECRET_CONFIG: Final = re.compile(r"password|secret|jaas|keystore\.key")
HIDDEN: Final = "hidden"
# The fields of a broker that a record may change, and the leader that means no change.
OF_BROKER: Final = ("fenced", "inControlledShutdown", "logDirs", "cordonedLogDirs")
NO_LEADER_CHANGE: Final = -2
# Notes after which the settings of topics are not known.
LOST_TOPICS: Final = re.compile(r"a record of \w+ is left out: (Topic|RemoveTopic|Config)Record ")

Value = dict[str, Any]


@dataclass(slots=True)
class Picture:
    """The metadata after the record at ``offset``.

    ``sections`` has entries by section and name, with the fields of Kafka's records. ``leaders`` has the offset, epoch
    and leader of each change of the leader after the snapshot. ``open`` has the records of a metadata transaction that
    has not ended, which do not count yet. ``names`` and ``partitions`` are those of topic ids.
    """

    snapshots: list[str]
    snapshot: str = ""
    offset: int = -1
    records: int = 0
    leaders: list[dict[str, int]] = field(default_factory=list)
    voters: list[int] = field(default_factory=list)
    sections: dict[str, Value] = field(default_factory=lambda: {one: {} for one in FIXED["sections"]})
    open: list[tuple[str, Value]] | None = None
    names: dict[str, str] = field(default_factory=dict)
    partitions: defaultdict[str, dict[int, Value]] = field(default_factory=lambda: defaultdict(dict))

    def apply(self, name: str, value: Value, notes: Notes) -> None:
        """Take one record."""
        brokers, configs = self.sections["brokers"], self.sections["configs"]
        put = PUTS.get(name.removeprefix("Remove").replace("Unregister", "Register"))
        if name in ("EndTransaction", "AbortTransaction"):
            ended, self.open = self.open or [], None
            for record in ended if name == "EndTransaction" else ():
                self.apply(*record, notes)
        elif name == "BeginTransaction":
            self.open = []
        elif self.open is not None:
            self.open.append((name, value))
        elif name == "RemoveTopic":
            self.partitions.pop(value["topicId"], None)
            topic = self.names.pop(value["topicId"], "")
            self.sections["topics"].pop(topic, None)
            configs.pop(f"topic {topic}", None)
        elif put is not None:
            value = {one: named(one, to) for one, to in value.items()}
            section, *fields = put
            key = _key(fields, value)
            is_gone = name not in PUTS or value.get("remove") or value.get("featureLevel") == 0
            self.sections[section].pop(key, None)
            if not is_gone or key == "metadata.version":
                self.sections[section][key] = {one: to for one, to in value.items() if one not in (*fields, *SECRETS)}
            if name == "Topic":
                self.names[value["topicId"]] = key
        elif name == "Config":
            resource = f"{named('configOf', value['resourceType'])} {value['resourceName']}".strip()
            config = configs.setdefault(resource, {})
            config[value["name"]] = HIDDEN if SECRET_CONFIG.search(value["name"]) else value["value"]
            if value["value"] is None:
                del config[value["name"]]
        elif name == "Partition":
            self.partitions[value.pop("topicId")][value.pop("partitionId")] = value
        elif name == "PartitionChange" and (known := self.partitions[value["topicId"]].get(value["partitionId"])):
            moves = value["leader"] != NO_LEADER_CHANGE
            known |= {one: to for one, to in value.items() if one in known and to not in (None, -1, NO_LEADER_CHANGE)}
            known |= {"leader": value["leader"]} if moves else {}
            known |= {"leaderEpoch": known["leaderEpoch"] + moves, "partitionEpoch": known["partitionEpoch"] + 1}
        elif name in ("FenceBroker", "UnfenceBroker") and str(value["id"]) in brokers:
            brokers[str(value["id"])]["fenced"] = name == "FenceBroker"
        elif name == "BrokerRegistrationChange" and (broker := brokers.get(str(value["brokerId"]))):
            # 1 is true, -1 is false; 0, null and an empty list are no change.
            changes = {one: to for one, to in value.items() if one in OF_BROKER and to}
            broker |= {one: to if isinstance(to, list) else to > 0 for one, to in changes.items()}
        elif name == "ClearElr":
            for id, partitions in self.partitions.items():
                for one in partitions.values() if value["topicName"] in ("", self.names.get(id)) else ():
                    one |= {"eligibleLeaderReplicas": [], "lastKnownElr": []}
        elif name not in SILENT:
            notes[f"a {name} is left out; the metadata have nothing that it could change"] += 1

    def to_json(self) -> Value:
        """The picture's fields, with its sections under ``metadata``, and the number of the open records."""
        names = ("offset", "snapshot", "snapshots", "records", "leaders", "voters")
        made = {name: getattr(self, name) for name in names}
        return made | {"open": len(self.open or ()), "metadata": self.sections}


def _key(fields: list[str], value: Value) -> str:
    """The name of an entry. The entity of a quota is a list."""
    entity = [f"{one['entityType']}={one['entityName'] or '<default>'}" for one in value.get("entity", ())]
    return " ".join(" ".join(entity) if name == "entity" else str(value[name]) for name in fields)


def picture(path: str | Path, notes: Notes, at: int | None = None) -> Picture:
    """The metadata after the record at offset ``at``, or at the end of the log: of a log directory, or of the folder of
    the metadata log. ``UsageError`` if there is no metadata log, or if nothing in it leads to this offset.
    """
    [segments, *_] = partitions_of(path, TOPIC, notes)
    folder = segments[0].path.parent
    names = (one.name for one in folder.iterdir() if SNAPSHOT.fullmatch(one.name))
    made, start = Picture(sorted(name for name in names if name[0].isdigit())), 0
    for name in made.snapshots:
        # A snapshot is named after its end offset and its epoch.
        if at is None or int(name[:20]) <= at + 1:
            made.snapshot, start = name, int(name[:20])
    if (segments[0].base_offset or 0) > start:
        raise UsageError(
            f"{folder} has no record below offset {segments[0].base_offset}, and no snapshot up to the one that you "
            "name; take a later offset"
        )
    if made.snapshot:
        _replay(made, find_segments(folder / made.snapshot), notes, Selection())
        made.records, made.leaders, made.offset = 0, [], start - 1
    _replay(made, segments, notes, Selection(first_offset=start, last_offset=at))
    if at is not None and made.offset < at:
        raise UsageError(f"{folder} ends at offset {made.offset}; take an offset up to there instead of {at}")
    for id, partitions in made.partitions.items():
        for number, one in sorted(partitions.items()):
            made.sections["partitions"][f"{made.names.get(id, id)}-{number}"] = one
    return made


def topic_configs(log_dir: Path) -> dict[str, dict[str, str]] | None:
    """The settings that each topic has of its own, by Kafka's names; None if ``log_dir`` has no metadata, or has some
    about topics that cannot be read.
    """
    notes = Notes()
    try:
        found = picture(log_dir / f"{TOPIC}-0", notes).sections
    except KfuzzError:
        return None
    is_whole = not notes.is_damaged and not any(map(LOST_TOPICS.match, notes))
    configs = {name: found["configs"].get(f"topic {name}", {}) for name in found["topics"]}
    return configs if configs and is_whole else None


def _replay(made: Picture, segments: Any, notes: Notes, selection: Selection) -> None:
    for offset, key, value, _, _, is_control, epoch in rows(segments, notes, selection):
        made.offset, made.records = offset, made.records + 1
        if not is_control:
            for name, one, _ in decoded(TOPIC, [(key, value)], notes):
                made.apply(name, one, notes)
            continue
        try:
            control = decode_control(key, value).value
        except RecordsError as error:
            notes[f"a control record is left out: {error}"] += 1
            continue
        if isinstance(control, LeaderChangeMessage):
            made.leaders.append({"offset": offset, "epoch": epoch, "leader": control.leader_id})
        if isinstance(control, LeaderChangeMessage | VotersRecord):
            made.voters = [one.voter_id for one in control.voters]


def changes(before: Value, after: Value, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Where two pictures differ: the names down to the place, the value before, and the value after."""
    for name in [*before, *(one for one in after if one not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes(old, new, (*path, name))
        elif old != new:
            yield (*path, name), old, new
