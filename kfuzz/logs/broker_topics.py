"""The settings of topics in a stopped broker's own copy of the cluster's metadata.

Each KRaft broker keeps that copy in the partition ``__cluster_metadata-0`` of one of its log directories: a snapshot
(``.checkpoint``) and the log of the records since.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kfuzz import messages, records
from kfuzz.errors import KfuzzError
from kfuzz.files import map_regular
from kfuzz.mapped import require_whole
from kfuzz.wire.io.cursor import uvarint_of

__all__ = ["topic_configs"]

METADATA: Final = "__cluster_metadata-0"
# The records that matter here, by the key in their frame. ConfigRecord's resource type 2 is a topic.
RECORDS: Final = {2: "TopicRecord", 4: "ConfigRecord", 9: "RemoveTopicRecord"}
TOPIC: Final = 2
UVARINT_BYTES_MAX: Final = 5


def topic_configs(log_dir: Path) -> dict[str, dict[str, str]] | None:
    """The settings that each topic has of its own, by Kafka's names; None if ``log_dir`` has no readable metadata."""
    ids: dict[bytes, str] = {}
    configs: dict[str, dict[str, str]] = {}
    try:
        for name, values in _records(log_dir / METADATA):
            if name == "TopicRecord":
                ids[values["topicId"]] = values["name"]
                configs[values["name"]] = {}
            elif name == "RemoveTopicRecord":
                configs.pop(ids.pop(values["topicId"], ""), None)
            elif values["resourceType"] == TOPIC:
                _set(configs.setdefault(values["resourceName"], {}), values["name"], values["value"])
    # ValueError: a snapshot whose name is no offset.
    except (KfuzzError, OSError, KeyError, ValueError):
        return None
    return configs if ids else None


def _set(config: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        config.pop(name, None)
    else:
        config[name] = value


def _records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records of the latest snapshot, then those of the log after it."""
    start = 0
    snapshots = sorted(folder.glob("*.checkpoint"))
    if snapshots:
        start = int(snapshots[-1].name.partition("-")[0])
        yield from _of_file(snapshots[-1], 0)
    for path in sorted(folder.glob("*.log")):
        yield from _of_file(path, start)


def _of_file(path: Path, start: int) -> Iterator[tuple[str, dict[str, Any]]]:
    data = map_regular(path)
    for batch in records.batches(data):
        for record in batch.records if not batch.control else ():
            if record.offset >= start and record.value is not None and (found := _of_frame(record.value)):
                yield found
    require_whole(data)


def _of_frame(data: bytes) -> tuple[str, dict[str, Any]] | None:
    """The record in a frame: the frame's version, the record's key and version, and the record."""
    at, numbers = 0, []
    for _ in range(3):
        number, size = uvarint_of(data[at:], UVARINT_BYTES_MAX)
        if size < 0:
            return None
        numbers.append(number)
        at += size
    _, key, version = numbers
    name = RECORDS.get(key)
    return None if name is None else (name, messages.decode(name, version, data[at:]))
