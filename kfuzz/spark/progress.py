"""Progress of a Spark job: tasks, segments, bytes, rate, time left and failed attempts.

Spark reports how many tasks have ended, not what a running task has written. So segments and bytes are the share of the
ended tasks, and "about" says so.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kfuzz.display import PLAIN_INTERVAL_S, printed_above
from kfuzz.units import counted

# A job of hours needs no line every five seconds in its log.
PLAIN_INTERVAL_MAX_S = 60.0
PLAIN_SHARE = 0.05


@dataclass(frozen=True, slots=True)
class Job:
    """The size of a job; ``bytes`` is about the size of all segments."""

    verb: str
    tasks: int
    segments: int
    bytes: int

    def line(self, done: int, failed: int, seconds: float) -> str:
        """One line about a job with ``done`` ended tasks after ``seconds``."""
        size = self.bytes * done // self.tasks
        parts = [
            f"{done} of {self.tasks} tasks",
            f"about {self.segments * done // self.tasks} of {self.segments} segments",
            f"{size / 1e9:.1f} of {self.bytes / 1e9:.1f} GB",
        ]
        if done and seconds > 0:
            parts.append(f"{size / 1e6 / seconds:.0f} MB/s")
            parts.append(f"{_duration(seconds * (self.tasks - done) / done)} left")
        if failed:
            parts.append(counted(failed, "failed attempt"))
        return f"{self.verb}: {', '.join(parts)}"


@dataclass(slots=True)
class Watch:
    """Takes the numbers of ended tasks and of failed attempts, and shows them."""

    show: Callable[[int, int], None]
    failed: int = 0

    def set_done(self, done: int) -> None:
        """Report how many tasks have ended."""
        self.show(done, self.failed)

    def set_failed(self, failed: int) -> None:
        """Report how many attempts at tasks have failed; their tasks start again."""
        self.failed = failed


@contextlib.contextmanager
def job_progress(job: Job, clock: Callable[[], float] = time.monotonic) -> Iterator[Watch]:
    """Show the progress of ``job`` on standard error: a bar on a terminal, otherwise plain lines.

    A plain line comes after five seconds, and later when the time since the last one is a twentieth of the whole, or a
    minute.
    """
    began = clock()
    if sys.stderr is None:
        yield Watch(lambda done, failed: None)
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        columns = [SpinnerColumn(), BarColumn(bar_width=20), TextColumn("{task.description}")]
        shown = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
        with shown as bar, printed_above(bar.console):
            task = bar.add_task(job.line(0, 0, 0), total=job.tasks)

            def move(done: int, failed: int) -> None:
                bar.update(task, completed=done, description=job.line(done, failed, clock() - began))

            yield Watch(move)
    else:
        last = began

        def print_line(done: int, failed: int) -> None:
            nonlocal last
            now = clock()
            if now - last >= min(PLAIN_INTERVAL_MAX_S, max(PLAIN_INTERVAL_S, PLAIN_SHARE * (now - began))):
                last = now
                print(job.line(done, failed, now - began), file=sys.stderr)

        yield Watch(print_line)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
