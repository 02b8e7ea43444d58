"""The parent's side of contestants in their own processes. Imports ``measure``; ``contestant`` is the other side.

A contestant changes its process: the heap's layout, the state of the processor's vector registers. That can change the
speed of the next contestant in the same process. Each contestant therefore has its own process for each path.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import Census, Contest, Lap, Ratio, Work, measure
from kfuzz.errors import KfuzzError

__all__ = ["VENV_PYTHON", "ContestantFailed", "Job", "Remote", "compare", "made"]

# The folder from which ``benchmarks`` and ``kfuzz`` can be imported.
ROOT: Final = Path(__file__).resolve().parents[1]
# Where `make build` puts a checkout's Python.
VENV_PYTHON: Final = Path(".venv/bin/python")


class ContestantFailed(KfuzzError):
    """A contestant's process could not do its work or has ended; the message names the contestant and the reason."""


@dataclass(frozen=True)
class Job:
    """``make`` makes a contestant's work. It runs in a new process, or with ``here`` in this one: such work starts its
    own process. ``root`` is the checkout whose kfuzz it measures; None is this one.
    """

    make: Callable[[], Work]
    here: bool = False
    root: Path | None = None


def made(kind: Callable[[], Any], way: str, *arguments: object) -> Work:
    """Make a peer of class ``kind`` and call its method ``way``. A module-level function, so that it can be pickled."""
    work: Work = getattr(kind(), way)(*arguments)
    return work


class Remote:
    """Work that ``make`` makes in a new process. The census begins at once, so that contestants run it in parallel."""

    def __init__(self, title: str, make: Callable[[], Work], root: Path | None = None) -> None:
        self.title = title
        python = sys.executable if root is None else str(root / VENV_PYTHON)
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.contestant"], cwd=root or ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._send(make)
        self._send("census")

    def census(self) -> Census:
        census: Census = self._receive()
        return census

    def warm_up(self) -> None:
        self._send("warm_up")
        self._receive()

    def lap(self, lap_ms: int) -> Lap:
        self._send(("lap", lap_ms))
        lap: Lap = self._receive()
        return lap

    def close(self) -> None:
        """Kill the process, even while it works."""
        self.process.kill()
        self.process.communicate()

    def _send(self, request: object) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(request, self.process.stdin)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        try:
            well, answer = pickle.load(self.process.stdout)
        except EOFError:
            raise self._ended() from None
        if not well:
            raise ContestantFailed(f"{self.title}: {answer}")
        return answer

    def _ended(self) -> ContestantFailed:
        return ContestantFailed(f"{self.title}: its process has ended with exit code {self.process.wait()}")


def compare(
    path: str,
    jobs: Mapping[str, Job],
    contests: Sequence[Contest],
    expected: Census,
    rounds: int,
    lap_ms: int,
) -> list[Ratio]:
    """Start a process for each job, :func:`measure` them, and end the processes."""
    with ExitStack() as stack:
        works: dict[str, Work] = {}
        for name, job in jobs.items():
            work = job.make() if job.here else Remote(f"{path}: {name}", job.make, job.root)
            stack.callback(work.close)
            works[name] = work
        return measure(path, works, contests, expected, rounds, lap_ms)
