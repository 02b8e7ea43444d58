"""Checks what consumers read against what was sent: one history for each partition, and readers in both isolations.

A batch is known again by the CRC and the size of its bytes after the header, which brokers do not change. So each
reader compares its next batch with the one that was sent next, and searches only if they differ.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from kfuzz import records
from kfuzz.broker_errors import ERROR_CODES
from kfuzz.client.cluster import Cluster
from kfuzz.client.copying import LATEST_MS, WAIT_MS, PartitionReader
from kfuzz.client.protocol import BrokerError
from kfuzz.errors import DecodeError, UsageError
from kfuzz.kafka import ISOLATIONS, Isolation
from kfuzz.logs.stored import last_offset
from kfuzz.records.stream import Fetch
from kfuzz.replay.batches import Batch, payload_crc
from kfuzz.replay.report import LATENCY_US_MAX, Level
from kfuzz.wire.records.framing import frames

# The known facts about a batch. From SEEN on, there is a bit for each reader.
ACKNOWLEDGED, IDEMPOTENT, TRANSACTIONAL, COMMITTED, ABORTED, SEEN = (1 << at for at in range(6))
FETCH_BYTES: Final = 8 << 20
# In place of a digest: nothing that is sent has an old format.
OLD: Final = -1
OFFSET_OUT_OF_RANGE: Final = ERROR_CODES["OFFSET_OUT_OF_RANGE"]
# How long a reader waits at the end for records that are missing, or for the markers of the last transactions.
QUIET_S: Final = 10.0
# Of the connections for batches there are at most so many to each broker; readers have others.
CONNECTIONS_MAX: Final = 1000


def digest(batch: memoryview) -> int:
    """The 64 bits that a batch is known by. Its own CRC must be right."""
    return payload_crc(batch) << 32 | len(batch)


class History:
    """The batches that were sent to one partition, in their order."""

    def __init__(self) -> None:
        self.digests, self.counts, self.dues, self.flags = array("Q"), array("l"), array("d"), array("H")

    def add(self, batch: Batch, due: float) -> None:
        """A batch is about to be sent. ``due`` is on the clock of ``time.monotonic``."""
        self.digests.append(digest(batch.data))
        self.counts.append(batch.records)
        self.dues.append(due)
        self.flags.append((IDEMPOTENT if batch.producer_id >= 0 else 0) | (TRANSACTIONAL if batch.transactional else 0))

    def mark(self, numbers: Iterable[int], flag: int) -> None:
        """Note something of batches; ``numbers`` count from 1."""
        for number in numbers:
            self.flags[number - 1] |= flag

    def find(self, wanted: int, start: int) -> int:
        """The next batch with a digest from ``start`` on, or an earlier one; -1 if none has it."""
        for range_ in ((start, len(self.digests)), (0, start)):
            try:
                return self.digests.index(wanted, *range_)
            except ValueError:
                continue
        return -1


@dataclass(slots=True)
class Reader:
    """Reads one partition in one isolation, and counts in ``level``. ``bit`` is its bit in the flags of the history."""

    source: PartitionReader
    history: History
    level: Level
    isolation: Isolation
    bit: int
    at: int
    _next: int = 0
    _highest: int = -1
    # Whether a transaction was open at the last answer.
    _is_held: bool = False
    # For batches that were never sent: which one was expected instead, and the number of records.
    _strange: list[tuple[int, int]] = field(default_factory=list)

    async def run(self, ended: asyncio.Event) -> None:
        """Read until the end that the partition has after ``ended``. ``BrokerError`` if it cannot be read."""
        quiet_since, top, back, goal = 0.0, self.at, 0, -1
        while True:
            last = ended.is_set()
            try:
                answer = await self.source.fetched(self.at, FETCH_BYTES, self.isolation)
            except BrokerError as error:
                if error.code != OFFSET_OUT_OF_RANGE:
                    raise
                after = await self.source.offset(LATEST_MS)
                answer = {"highWatermark": after, "lastStableOffset": after, "records": None, "abortedTransactions": ()}
            end = answer["highWatermark" if self.isolation == "read_uncommitted" else "lastStableOffset"]
            self._is_held = end < answer["highWatermark"]
            top = max(top, self.at)
            if 0 <= end < self.at:
                # The log has lost records that this reader had read.
                self.level.went_back += max(0, self.at - end - back)
                back = max(back, self.at - end)
                self.at = end
                answer["records"] = None
            goal = answer["highWatermark"] if last and goal < 0 else goal
            now, before = time.monotonic(), self.at
            self._take(answer, now)
            if answer["records"] and self.at == before:
                # These records lead no further, and the next answer may come at once.
                await asyncio.sleep(WAIT_MS / 1000)
            # A broker that goes back again and again makes no progress, and others may never cease to write.
            if not last or top < self.at < goal:
                quiet_since = now
            elif now > quiet_since + QUIET_S or (self.at >= goal and not any(self._unread())):
                return

    def _take(self, answer: Any, now: float) -> None:
        aborted = [(one["producerId"], one["firstOffset"]) for one in answer["abortedTransactions"] or ()]
        fetch = Fetch(isolation=self.isolation, aborted=aborted, fetch_offset=self.at)
        data = memoryview(answer["records"] or b"")
        for start, size, _ in frames(data):
            view = data[start : start + size]
            after = last_offset(view) + 1
            try:
                [batch] = records.decode(view)
                if handed_out := len(fetch.records_of(batch)):
                    self._saw(digest(view) if batch.magic == 2 else OLD, handed_out, now)
            except DecodeError:
                # One that leads no further comes again and again.
                if after > self.at:
                    self._count_strange(after - self.at)
            self.at = max(self.at, after)

    def _count_strange(self, count: int) -> None:
        self._strange.append((self._next, count))
        self._next += 1

    def _saw(self, found: int, count: int, now: float) -> None:
        history, level = self.history, self.level
        level.read += count
        number = self._next
        if number >= len(history.digests) or history.digests[number] != found:
            number = history.find(found, min(number, len(history.digests)))
        if number < 0:
            self._count_strange(count)
            return
        flags = history.flags[number]
        if flags & self.bit:
            level.twice += count
            level.twice_idempotent += count if flags & IDEMPOTENT else 0
            return
        history.flags[number] = flags | self.bit
        level.reordered += count if number < self._highest else 0
        self._highest = max(self._highest, number)
        self._next = number + 1
        if self.bit >= SEEN << 2:
            return
        latency_us = max(1, round((now - history.dues[number]) * 1e6))
        level.latency.record_value(min(latency_us, LATENCY_US_MAX))

    def judge(self, before: int = 0) -> None:
        """Count what was not read. ``before`` is the bit of the reader that read the same while it was sent."""
        history, level = self.history, self.level
        for number, count in self._strange:
            if number < len(history.flags) and not history.flags[number] & self.bit:
                history.flags[number] |= self.bit
                level.wrong += count
            else:
                level.foreign += count
        for number, count in self._unread():
            if self._is_held and number > self._highest:
                level.hidden += count
            else:
                level.lost += count
        for flags, count in zip(history.flags, history.counts, strict=True):
            if self.isolation == "read_committed" and flags & ABORTED and flags & self.bit:
                level.aborted += count
            if flags & before and not flags & self.bit:
                level.went_back += count

    def _unread(self) -> Iterator[tuple[int, int]]:
        """The number and records of each batch that is not read though it was acknowledged, and committed if needed."""
        committed = self.isolation == "read_committed"
        for number, (flags, count) in enumerate(zip(self.history.flags, self.history.counts, strict=True)):
            visible = not (committed and flags & TRANSACTIONAL) or flags & COMMITTED
            if flags & ACKNOWLEDGED and visible and not flags & self.bit:
                yield number, count


class Verification:
    """The readers of all partitions, while these are sent and, for ``again``, once more afterwards."""

    def __init__(self, cluster: Cluster, histories: dict[tuple[str, int], History]) -> None:
        self.histories = histories
        self.levels: dict[str, Level] = {}
        self.ended = asyncio.Event()
        self._cluster = cluster
        self._starts: dict[tuple[str, int], int] = {}
        self._readers: list[Reader] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Begin to read at the ends that the partitions have now. ``UsageError`` for topics that change batches."""
        for name in {topic for topic, _ in self.histories}:
            kept = await self._cluster.config(name, "compression.type")
            if kept not in (None, "producer"):
                raise UsageError(
                    f"topic {name} has compression.type={kept}, so the broker changes batches, and they cannot be "
                    "checked; set it to producer, or send to another topic with --topic"
                )
        for place in self.histories:
            self._starts[place] = await PartitionReader(self._cluster, *place).offset(LATEST_MS)
        self._start("", SEEN)

    def _start(self, label: str, first_bit: int) -> None:
        self._readers = []
        for kind, isolation in enumerate(ISOLATIONS):
            level = self.levels[isolation + label] = Level()
            for at, (place, history) in enumerate(self.histories.items()):
                # A fetch that waits holds up its connection, so each reader has one.
                number = CONNECTIONS_MAX + 2 * at + kind
                source = PartitionReader(self._cluster, *place, connection=number)
                bit = first_bit << kind
                self._readers.append(Reader(source, history, level, isolation, bit, self._starts[place]))
        self._tasks = [asyncio.create_task(reader.run(self.ended)) for reader in self._readers]

    async def finish(self, *, again: bool) -> None:
        """Read to the end, and judge. ``KfuzzError`` if that is not possible."""
        self.ended.set()
        await asyncio.gather(*self._tasks)
        for reader in self._readers:
            reader.judge()
        if again:
            self._start(" again", SEEN << 2)
            await asyncio.gather(*self._tasks)
            for reader in self._readers:
                reader.judge(reader.bit >> 2)

    async def close(self) -> None:
        """End the readers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
