"""Makes a topic that has a few batches, for conversations."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kfuzz.client.cluster import Cluster
from kfuzz.replay.batches import find_parts
from kfuzz.replay.choices import Settings
from kfuzz.replay.running import replay

__all__ = ["give"]


def give(settings: Settings, topic: str, batches: Sequence[bytes]) -> None:
    """Make a topic of one partition with these batches. ``UsageError`` as for :func:`kfuzz.replay.replay`."""
    asyncio.run(_created(settings, topic))
    if not batches:
        return
    with tempfile.TemporaryDirectory() as place:
        log = Path(place) / f"{topic}-0" / "00000000000000000000.log"
        log.parent.mkdir()
        log.write_bytes(b"".join(batches))
        replay(find_parts(place), settings)


async def _created(settings: Settings, topic: str) -> None:
    cluster = Cluster(settings, lambda: None)
    try:
        await cluster.open()
        await cluster.create({topic: 1}, {})
    finally:
        await cluster.close()
