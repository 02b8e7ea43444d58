"""When a batch is due: by a rate, by the timestamps of the log, or by the clock of a workload; and when a run ends.

The times at which batches are due do not depend on the broker. If it is slow, what is due meanwhile waits and is late;
its latency counts from the time when it was due. Otherwise a broker that stops would slow down those who measure it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from kfuzz.client.tls import set_once
from kfuzz.replay.batches import Batch
from kfuzz.replay.choices import Settings

# The event loop wakes up a little late. A batch due sooner than this is sent at once; the mean rate stays right,
# because each batch is due at a time that does not depend on when the one before was sent.
SLACK_S: Final = 0.002
# From seconds to seconds.
Gap = Callable[[float], float]


class Bounds:
    """When all partitions of a run end. ``first`` is the timestamp (ms) at which it begins, if there is a speed."""

    def __init__(self, settings: Settings, first: int = 0) -> None:
        self.settings = settings
        self.first = first
        self.began = time.monotonic()
        self.end = None if settings.duration_s is None else self.began + settings.duration_s
        self.left = settings.records
        # The records of a batch that did not fit.
        self.over = 0
        # When :meth:`stop` was called.
        self.stopped: float | None = None
        self._sleeping: set[asyncio.Future[None]] = set()

    def stop(self) -> None:
        """No more batches are sent."""
        self.stopped = self.stopped or time.monotonic()
        for one in self._sleeping:
            set_once(one, None)

    async def sleep(self, seconds: float) -> None:
        """Wait so long, or until the end. This costs a fifth of a wait for the event with a timeout."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, set_once, waiting, None)
        self._sleeping.add(waiting)
        try:
            await waiting
        finally:
            timer.cancel()
            self._sleeping.discard(waiting)


class Pace:
    """When the batches of one partition are due. ``share`` is its part of the rate, from 0 to 1.

    ``gap`` makes a gap between two batches of the mean gap; None keeps it. ``phase`` is the part of a gap before the
    first batch, so that the partitions do not all send at the same moment. :attr:`due` is when the last batch was due,
    on the clock of ``time.monotonic``; None if nothing says when. :attr:`latest_due` is the latest of these times:
    timestamps may go back, but the order stays.
    """

    def __init__(self, bounds: Bounds, share: float = 1.0, phase: float = 0.0, gap: Gap | None = None) -> None:
        self.bounds = bounds
        self.rate = bounds.settings.rate.part(share)
        self.phase = phase
        self.gap = gap
        self.due: float | None = None
        self.latest_due: float | None = None
        self._next = bounds.began

    async def wait_for(self, batch: Batch) -> bool:
        """Wait until ``batch`` may be sent. False if the run ends before."""
        bounds = self.bounds
        self.due = self._due(batch)
        if self.due is not None:
            self.latest_due = max(self.latest_due or bounds.began, self.due)
        if bounds.end is not None and (self.due or time.monotonic()) >= bounds.end:
            await self._until(bounds.end)
            bounds.stop()
        elif self.due is not None:
            await self._until(self.due)
        if bounds.stopped is not None:
            return False
        if bounds.left is not None:
            if batch.records > bounds.left:
                bounds.over = batch.records if bounds.settings.records else 0
                bounds.stop()
                return False
            bounds.left -= batch.records
        return True

    def _due(self, batch: Batch) -> float | None:
        bounds, rate = self.bounds, self.rate
        if bounds.settings.speed is not None:
            if batch.timestamp < 0:
                return None
            return bounds.began + (batch.timestamp - bounds.first) / 1000 / bounds.settings.speed
        if rate.records_per_s is not None:
            cost = batch.records / rate.records_per_s
        elif rate.bytes_per_s is not None:
            cost = len(batch.data) / rate.bytes_per_s
        else:
            return None
        due = self._next + cost * self.phase
        self._next += cost if self.gap is None else self.gap(cost)
        return due

    async def _until(self, due: float) -> None:
        delay = due - time.monotonic()
        if delay > SLACK_S and self.bounds.stopped is None:
            await self.bounds.sleep(delay)
