"""The settings of topics in a stopped broker's own copy of the cluster's metadata.

Each KRaft broker keeps that copy in the partition ``__cluster_metadata-0`` of one of its log directories: a snapshot
(``.checkpoint``) and the log of the records since.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kfuzz import records
from kfuzz.errors import KfuzzError
from kfuzz.files import map_regular
from kfuzz.mapped import require_whole
from kfuzz.messages.internal import decode_internal

METADATA: Final = "__cluster_metadata"
RECORDS: Final = ("TopicRecord", "ConfigRecord", "RemoveTopicRecord")
# ConfigRecord's resource type.
TOPIC: Final = 2


def topic_configs(log_dir: Path) -> dict[str, dict[str, str]] | None:
    """The settings that each topic has of its own, by Kafka's names; None if ``log_dir`` has no readable metadata."""
    ids: dict[str, str] = {}
    configs: dict[str, dict[str, str]] = {}
    try:
        for name, values in _records(log_dir / f"{METADATA}-0"):
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
            side = decode_internal(METADATA, None, record.value).value if record.offset >= start else None
            if side is not None and side.name in RECORDS:
                if side.values is None:
                    raise KfuzzError(side.error)
                yield side.name, side.values
    require_whole(data)
