"""Runs a load in several processes: each sends some of the partitions, and the reports are added up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.synchronize import Event
from typing import Final

from kfuzz.errors import KfuzzError
from kfuzz.replay.choices import Settings
from kfuzz.replay.made import Load, load_sources
from kfuzz.replay.report import Report, require_histogram
from kfuzz.replay.running import prepare, run_load

POLL_S: Final = 0.25


def load_in_processes(
    load: Load, settings: Settings, jobs: int, *, set_done: Callable[[int], None] = lambda done: None
) -> Report:
    """As :func:`run_load`, in at most ``jobs`` processes. ``set_done`` is called now and then, with 0."""
    require_histogram()
    shares, context = load_shares(load, settings, jobs), get_context("spawn")
    stop, total = context.Event(), Report()
    with ProcessPoolExecutor(len(shares), context, _begin, (stop, os.getpid())) as pool:
        running = [pool.submit(_sent, *share) for share in shares]
        left = set(running)
        while left:
            try:
                left = wait(left, POLL_S).not_done
                set_done(0)
            except KeyboardInterrupt:
                # Each process ends with its report.
                stop.set()
        for one in running:
            try:
                total.add(one.result())
            except (OSError, RuntimeError) as error:
                total.failure = total.failure or f"a process ended without its report: {error}"
    return total


def load_shares(load: Load, settings: Settings, most: int) -> list[tuple[Load, Settings]]:
    """At most so many shares of a load, and their bounds. The topics are there then; errors as for :func:`run_load`."""
    sources, wanted, settings = load_sources(load, settings)
    prepare(wanted, settings)
    parts = min(most, len(sources))
    return [(replace(load, part=at, parts=parts), settings.part(at, 1, parts)) for at in range(parts)]


_ends: Callable[[], bool]


def _begin(stop: Event, parent: int) -> None:
    """In a new process: Ctrl-C is for the first one, and without that one this one ends too."""
    global _ends
    os.setpgrp()
    _ends = lambda: stop.is_set() or os.getppid() != parent  # noqa: E731


def _sent(load: Load, settings: Settings) -> Report:
    ended = False

    def live(done: int) -> None:
        nonlocal ended
        if _ends() and not ended:
            ended = True
            signal.raise_signal(signal.SIGINT)

    try:
        return run_load(load, settings, set_done=live)
    except KfuzzError as error:
        return Report(failure=str(error))
