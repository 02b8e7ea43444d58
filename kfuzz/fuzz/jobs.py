"""Processes that hold conversations, each with a client of its own. Threads of one process would share a processor."""

from __future__ import annotations

import contextlib
import gc
import signal
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Final, NamedTuple

from kfuzz.conformance.protocol.testees import Testee
from kfuzz.fuzz.driver import Bounds, Driver

# How long processes may take to end their clients.
END_S_MAX: Final = 3.0


class Failed(NamedTuple):
    """The work was not done. ``why`` is a sentence."""

    why: str


Work = Callable[..., object]
Take = Callable[[Any], object]


class _Job:
    def __init__(self, client: Testee, bounds: Bounds, others: Sequence[Connection]) -> None:
        # A fork has all message definitions that this process knows. To read them takes as long as some conversations.
        context = get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_main, args=(other, client, bounds, [*others, self.pipe]), daemon=True)
        self.process.start()
        other.close()
        self.starts = 0
        self.take: Take = lambda got: None

    def end(self, wait_s: float) -> None:
        self.process.join(wait_s)
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Jobs:
    """The processes of a campaign. Use it in a ``with`` block, which ends them and their clients."""

    def __init__(self, client: Testee, bounds: Bounds) -> None:
        self._client = client
        self._bounds = bounds
        self._all: list[_Job] = []
        self._idle: list[_Job] = []
        self._busy: dict[Connection, _Job] = {}

    def __enter__(self) -> Jobs:
        return self

    def __exit__(self, *error: object) -> None:
        jobs = [*self._idle, *self._busy.values()]
        for one in jobs:
            one.process.terminate()
        until_s = time.monotonic() + END_S_MAX
        for one in jobs:
            one.end(max(until_s - time.monotonic(), 0))

    def __len__(self) -> int:
        """How many work."""
        return len(self._busy)

    @property
    def starts(self) -> int:
        """How often clients were started."""
        return sum(one.starts for one in self._all)

    def do(self, take: Take, work: Work, *args: object) -> None:
        """Let a process call ``work`` with its driver and ``args``. ``take`` gets its result, or ``Failed``."""
        if not self._idle:
            self._idle.append(_Job(self._client, self._bounds, [one.pipe for one in self._all]))
            self._all.append(self._idle[-1])
        job = self._idle.pop()
        job.take = take
        self._busy[job.pipe] = job
        # If it has ended, that shows where its result is taken.
        with contextlib.suppress(OSError):
            job.pipe.send((work, args))

    def wait(self, seconds: float) -> None:
        """Wait so long for results, and give those that are there to their takers."""
        for pipe in wait(list(self._busy), max(seconds, 0)):
            assert isinstance(pipe, Connection)
            job, got = self._busy.pop(pipe), Failed("a process of kfuzz has ended")
            try:
                job.starts, got = pipe.recv()
                self._idle.append(job)
            except (EOFError, OSError):
                job.end(END_S_MAX)
            job.take(got)


def _main(pipe: Connection, client: Testee, bounds: Bounds, others: Sequence[Connection]) -> None:
    """Do the work that comes through a pipe, to its end."""
    # The pipes end when the campaign's process does.
    for one in others:
        one.close()
    # The objects of the campaign never become garbage here.
    gc.freeze()
    # The campaign decides what becomes of Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Driver(client, bounds) as driver, contextlib.suppress(EOFError, OSError):
        while True:
            work, args = pipe.recv()
            try:
                got = work(driver, *args)
            except Exception as error:
                # A client may print anything, and no conversation ends a campaign.
                driver.stop()
                got = Failed(str(error) or type(error).__name__)
            pipe.send((driver.starts, got))
