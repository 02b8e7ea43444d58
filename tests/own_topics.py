"""Workloads of Kafka's own topics, and the state that `kfuzz state` reads of their corpora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli_driver import kfuzz

from kfuzz.corpora.workload import MIB, Workload, parse


def workload(
    kind: str, own: int, *, start: str = "2026-01-31T08:00:00Z", segment_bytes: int = MIB, **things: Any
) -> Workload:
    """A workload of one topic with ``own`` partitions, about these things."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in things.items()]
    name = f"__{kind.replace('-', '_')}"
    topic = f'[[topics]]\nname = "{name}"\nkind = "{kind}"\npartitions = {own}\ntimestamps.start = "{start}"'
    return parse("\n".join([f"segment_bytes = {segment_bytes}", topic, "[topics.things]", *lines]), kind)


def state(what: str, out: Path) -> Any:
    """The document of `kfuzz state`, which has found nothing that it cannot use."""
    found = json.loads(kfuzz("state", what, out, "--json").stdout)
    assert found["notes"] == []
    return found
