"""Copies partitions of a cluster into a log directory, so that what reads logs also reads a live topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.address import Access
from kfuzz.client.cluster import CONTROL, Cluster, ClusterFailed, asked
from kfuzz.client.protocol import BrokerError
from kfuzz.errors import UsageError
from kfuzz.files import writing
from kfuzz.kafka import ISOLATIONS, TOPIC_NAME, Isolation
from kfuzz.logs.segments import matches
from kfuzz.logs.stored import last_offset
from kfuzz.messages.codec import Message
from kfuzz.wire.records.framing import frames

# The special timestamps of ListOffsets.
LATEST_MS, EARLIEST_MS = -1, -2
FETCH_BYTES: Final = 8 << 20
# How long a broker waits for records that are not there yet.
WAIT_MS: Final = 500
# The most of a partition: Kafka's segments are below 2 GiB.
SEGMENT_BYTES: Final = (1 << 31) - 2 * FETCH_BYTES
NAMED_MAX: Final = 10
# Of ListOffsets, a later one needs a timeout of its own; of Fetch, ids of topics.
VERSION_MAX: Final = {"ListOffsets": 9, "Fetch": 12}


@dataclass(frozen=True, slots=True)
class Live:
    """Topics of a cluster: their glob, as for :func:`kfuzz.logs.find_segments`, and how much of each partition is read.

    ``first`` is the first offset, or the time from which on records are wanted; None is the start of the partition. The
    end is the high watermark. ``bytes_max`` is for each partition, which gets one segment below 2 GiB.
    """

    access: Access
    bytes_max: int
    topics: str = "*"
    first: int | datetime | None = None

    def copy(self, folder: Path, *, set_done: Callable[[int], None] = lambda done: None) -> list[str]:
        """Write the batches, as the brokers send them, into segments below ``folder``.

        ``set_done`` gets the bytes that were written. Returns a sentence for each partition that is not whole. Raises
        ``KfuzzError`` if the brokers cannot be read, or have no such topic.
        """
        with writing(folder):
            return asyncio.run(asked(self.access, lambda cluster: self._copied(cluster, folder, set_done)))

    async def _copied(self, cluster: Cluster, folder: Path, set_done: Callable[[int], None]) -> list[str]:
        sentences, done = [], 0
        # Names of topics become names of folders.
        found = {name: count for name, count in (await cluster.topics()).items() if TOPIC_NAME.fullmatch(name)}
        chosen = sorted(name for name in found if matches(name, self.topics))
        if not chosen:
            known = ", ".join(sorted(found)[:NAMED_MAX]) or "none"
            raise UsageError(f"no topic of {self.access.bootstrap} matches {self.topics!r}; there are {known}")
        for topic, number in [(name, number) for name in chosen for number in range(found[name])]:
            (place := folder / f"{topic}-{number}").mkdir()
            async for written in PartitionReader(cluster, topic, number).copied(place, self):
                if isinstance(written, str):
                    sentences.append(f"{topic}-{number}: {written}")
                else:
                    set_done(done := done + written)
        return sentences


@dataclass(frozen=True, slots=True)
class PartitionReader:
    """Asks the leader of a partition, as often as the settings allow. ``connection`` is the number of the connection.

    Raises ``BrokerError`` for an error that stays, and ``ClusterFailed`` for an answer without the partition.
    """

    cluster: Cluster
    topic: str
    number: int
    connection: int = CONTROL

    async def offset(self, timestamp: int) -> int:
        """The first offset from a time (ms) on; also of LATEST_MS and EARLIEST_MS."""
        partition = {"partitionIndex": self.number, "timestamp": timestamp}
        values = {"replicaId": -1, "topics": [{"name": self.topic, "partitions": [partition]}]}
        offset = int((await self._asked("ListOffsets", values, "topics"))["offset"])
        # Only a time may have no offset after it: -1.
        if offset < (0 if timestamp < 0 else -1):
            what = f"{self.topic}-{self.number}: ListOffsets"
            raise ClusterFailed(f"{what}: the answer has offset {offset}; look at the broker")
        return offset

    async def fetched(self, offset: int, bytes_max: int, isolation: Isolation = "read_uncommitted") -> Any:
        """The partition's part of the answer to Fetch."""
        partition = {"partition": self.number, "fetchOffset": offset, "partitionMaxBytes": bytes_max}
        topics = [{"topic": self.topic, "partitions": [partition]}]
        values = {"maxWaitMs": WAIT_MS, "minBytes": 1, "maxBytes": bytes_max, "sessionEpoch": -1, "topics": topics}
        values["isolationLevel"] = ISOLATIONS.index(isolation)
        return await self._asked("Fetch", values, "responses")

    async def _asked(self, api: str, values: Message, topics: str) -> Any:
        """The partition's part of the leader's answer, after as many attempts as the settings allow."""
        moves: list[bool] = []

        async def ask() -> Message:
            if moves:
                await self.cluster.refresh_leaders(self.topic, self.cluster.generation)
            if (link := await self.cluster.leader(self.topic, self.number, self.connection)) is None:
                return {"errorCode": ERROR_CODES["LEADER_NOT_AVAILABLE"]}
            return await link.call(api, values, VERSION_MAX[api])

        what = f"{self.topic}-{self.number}: {api}"
        answer = await self.cluster.until_done(what, ask, lambda: moves.append(True))
        try:
            # One topic and one partition were asked for.
            return answer[topics][0]["partitions"][0]
        except IndexError:
            raise ClusterFailed(f"{what}: the answer has no partition; look at the broker") from None

    async def copied(self, folder: Path, wanted: Live) -> AsyncIterator[int | str]:
        """Write the segment. Yields how many bytes were written, after each piece, and a sentence about what is not."""
        first = wanted.first
        start, end = await self.offset(EARLIEST_MS), await self.offset(LATEST_MS)
        if isinstance(first, datetime):
            found = await self.offset(round(first.timestamp() * 1000))
            first = end if found < 0 else found
        at = start = max(start, first or 0)
        left = min(wanted.bytes_max, SEGMENT_BYTES)
        # A broker sends whole batches: the first one may begin before the offset.
        with open(folder / f"{at:020d}.log", "xb") as file:
            while at < end and left > 0:
                try:
                    data = memoryview((await self.fetched(at, min(left, FETCH_BYTES)))["records"] or b"")
                except BrokerError as error:
                    out_of_range = error.code == ERROR_CODES["OFFSET_OUT_OF_RANGE"]
                    if not out_of_range or (first_left := await self.offset(EARLIEST_MS)) <= at:
                        raise
                    yield f"offsets {at} to {first_left - 1} were deleted before they were read"
                    at = first_left
                    continue
                whole = list(frames(data))
                after = max((last_offset(data[begin:]) + 1 for begin, _, _ in whole), default=at)
                if after <= at:
                    # It would send the same again and again.
                    file.write(data)
                    yield f"the broker sends no whole batch from offset {at} on"
                    return
                at = after
                size = file.write(data[: sum(whole[-1][:2])])
                left -= size
                yield size
        if at < end:
            yield f"only offsets {start} to {at - 1} of {end - 1} were read; give more --bytes, or --from"
