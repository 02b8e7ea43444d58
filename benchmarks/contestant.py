"""Both sides of a contestant's process: ``Contestant`` starts one, ``serve`` runs in it. Imports ``measure``.

A contestant changes its process: the heap's layout, the state of the processor's vector registers. That can change the
speed of the next contestant in the same process. Each contestant therefore has its own process for each path.

The process reads pickles from standard input and writes pickles to standard output. The first request is a job: a
function without arguments that makes the work. All others name a method of ``Work`` and give its arguments. Each is
answered with a pair: whether it succeeded, and the result or the error's text. The process ends when its input ends.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Final

from benchmarks.measure import Census, Contest, Ratio, Work, measure
from kfuzz.errors import KfuzzError

ROOT: Final = Path(__file__).resolve().parents[1]
# Where `make build` puts a checkout's Python.
VENV_PYTHON: Final = Path(".venv/bin/python")
# The benchmarks of this checkout, with the kfuzz of the working directory.
START: Final = """
import sys, kfuzz
sys.path.insert(0, sys.argv[1])
from benchmarks.contestant import main
main()
"""
# A lap on a disk may take longer.
CLOSE_S: Final = 5

Job = Callable[[], Work]


def made(kind: Callable[[], Any], way: str, *arguments: object) -> Work:
    """Make a peer and its work. A module-level function, so that it can be pickled."""
    work: Work = getattr(kind(), way)(*arguments)
    return work


class ContestantFailed(KfuzzError):
    """A contestant's process could not do its work or has ended; the message names the contestant and the reason."""


class Contestant:
    """Work that ``job`` makes in a new process, with the kfuzz of the checkout ``root``.

    The census begins at once, so that contestants run it in parallel.
    """

    def __init__(self, title: str, job: Job, root: Path = ROOT) -> None:
        self.title = title
        python = sys.executable if root == ROOT else str(root / VENV_PYTHON)
        self.process = subprocess.Popen(
            [python, "-c", START, str(ROOT)], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.warm_up = partial(self._ask, "warm_up")
        self.lap = partial(self._ask, "lap")
        self._send(job)
        self._send(("census",))

    def census(self) -> Any:
        return self._receive()

    def close(self) -> None:
        """Let the process end, or kill it if it does not."""
        try:
            self.process.communicate(timeout=CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()

    def _ask(self, *request: object) -> Any:
        self._send(request)
        return self._receive()

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
    jobs: Mapping[str, tuple[Job, Path]],
    contests: Sequence[Contest],
    expected: Census,
    rounds: int,
    lap_ms: int,
) -> list[Ratio]:
    """Start a process for each job, with the kfuzz of a checkout, :func:`measure` them, and end the processes."""
    with ExitStack() as stack:
        works = {
            name: stack.enter_context(closing(Contestant(f"{path}: {name}", job, root)))
            for name, (job, root) in jobs.items()
        }
        return measure(path, works, contests, expected, rounds, lap_ms)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Make the work, then answer requests until the input ends."""
    work: Work | None = None
    with ExitStack() as stack:
        while True:
            try:
                request = pickle.load(requests)
                if work is None:
                    work = stack.enter_context(closing(request()))
                    continue
                name, *arguments = request
                if name == "warm_up":
                    # The set's own objects are not garbage: exclude them from collection.
                    gc.collect()
                    gc.freeze()
                answer = (True, getattr(work, name)(*arguments))
            except EOFError:
                return
            except KfuzzError as error:
                answer = (False, str(error))
            except Exception as error:
                answer = (False, f"{type(error).__name__}: {error}")
            pickle.dump(answer, answers)
            answers.flush()
            if work is None:
                return


def main() -> None:
    # The parent receives the interrupt too; it then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output that a library prints must not mix with the answers, so it goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)
