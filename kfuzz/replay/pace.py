"""When a batch may be sent: by a rate, or by the timestamps of the log; and when a replay ends."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from kfuzz.replay.batches import Batch
from kfuzz.replay.choices import Settings

# The event loop wakes up a little late. A batch due sooner than this is sent at once; the mean rate stays right,
# because each batch is due at a time that does not depend on when the one before was sent.
SLACK_S: Final = 0.002


class Pace:
    """One for all partitions of a replay. ``first`` is the timestamp (ms) at which it begins, if there is a speed."""

    def __init__(self, settings: Settings, first: int) -> None:
        self.settings = settings
        self.first = first
        self.began = self.due = time.monotonic()
        self.left = settings.records
        self.stopping = asyncio.Event()

    async def wait_for(self, batch: Batch) -> bool:
        """Wait until ``batch`` may be sent. False if the replay ends before."""
        due = self._due(batch)
        if self.settings.duration_s is not None and due >= self.began + self.settings.duration_s:
            await self._until(self.began + self.settings.duration_s)
            self.stopping.set()
        else:
            await self._until(due)
        if self.stopping.is_set():
            return False
        if self.left is not None:
            if batch.records > self.left:
                self.stopping.set()
                return False
            self.left -= batch.records
        return True

    def _due(self, batch: Batch) -> float:
        """When the batch may be sent, on the clock of ``time.monotonic``."""
        now = time.monotonic()
        rate = self.settings.rate
        if self.settings.speed is not None:
            if batch.timestamp < 0:
                return now
            return max(now, self.began + (batch.timestamp - self.first) / 1000 / self.settings.speed)
        if rate.records_per_s is not None:
            due, cost = self.due, batch.records / rate.records_per_s
        elif rate.bytes_per_s is not None:
            due, cost = self.due, len(batch.data) / rate.bytes_per_s
        else:
            return now
        # A slow broker must not be followed by a burst.
        due = max(due, now - SLACK_S)
        self.due = due + cost
        return max(due, now)

    async def _until(self, due: float) -> None:
        delay = due - time.monotonic()
        if delay > SLACK_S and not self.stopping.is_set():
            try:
                await asyncio.wait_for(self.stopping.wait(), delay)
            except TimeoutError:
                return
