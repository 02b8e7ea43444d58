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
        self._sleeping: dict[Pace, asyncio.Future[None]] = {}

    def stop(self) -> None:
        """No more batches are sent."""
        self.stopped = self.stopped or time.monotonic()
        for one in self._sleeping.values():
            set_once(one, None)

    def wake(self, pace: Pace) -> None:
        """End the wait of a partition: a batch that failed must not wait until the next one is due."""
        if (waiting := self._sleeping.get(pace)) is not None:
            set_once(waiting, None)

    async def sleep(self, pace: Pace, seconds: float, work: Callable[[], float]) -> None:
        """Wait so long, then call ``work``; again while it returns a time to wait (s), or until the end or ``wake``.

        So a task that would only wait again costs no round of the event loop. Errors of ``work`` are raised here.
        """
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer: asyncio.TimerHandle

        def fire() -> None:
            nonlocal timer
            if waiting.done():
                return
            try:
                again_s = work()
            except Exception as error:
                waiting.set_exception(error)
                return
            if again_s:
                timer = loop.call_later(again_s, fire)
            else:
                set_once(waiting, None)

        timer = loop.call_later(seconds, fire)
        self._sleeping[pace] = waiting
        try:
            await waiting
        finally:
            timer.cancel()
            del self._sleeping[pace]


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
        # When the wait for the last batch ends; and whether it is due after the end of the run.
        self._until: float | None = None
        self._is_late = False
        self._next = bounds.began

    def plan(self, batch: Batch) -> float:
        """Set :attr:`due` for the next batch. How long to wait (s) until it may be sent, or until the run ends."""
        bounds = self.bounds
        self.due = self._until = self._due(batch)
        if self.due is not None:
            self.latest_due = max(self.latest_due or bounds.began, self.due)
        self._is_late = bounds.end is not None and (self.due or time.monotonic()) >= bounds.end
        if self._is_late:
            self._until = bounds.end
        return self.left_s()

    def left_s(self) -> float:
        """How long to wait from now on."""
        if self._until is None or self.bounds.stopped is not None:
            return 0.0
        delay = self._until - time.monotonic()
        return delay if delay > SLACK_S else 0.0

    def allows(self, batch: Batch) -> bool:
        """Whether the run still has room for ``batch``, whose time has come; it is counted. If not, the run ends."""
        bounds = self.bounds
        if self._is_late:
            bounds.stop()
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
