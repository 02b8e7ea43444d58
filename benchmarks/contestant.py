"""``python -m benchmarks.contestant``: one contestant of one path, in a process that has nothing else in it.

Pickles come in by standard input and go out by standard output: first a job, that is a function without arguments that
makes the work; then ``census``, ``warm_up`` and ``("lap", lap_ms)``, each answered by a pair (whether it went well, the
result or what went wrong). The process ends with its input. Imports what the job names.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
from contextlib import suppress
from typing import Any, BinaryIO

from benchmarks.measure import Work
from kfuzz.errors import KfuzzError


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Make the work and answer until the input ends."""
    work: Work | None = None
    while True:
        try:
            request = pickle.load(requests)
            if work is None:
                work = request()
                continue
            answer = (True, _answer(work, request))
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


def _answer(work: Work, request: Any) -> Any:
    if request == "census":
        return work.census()
    if request == "warm_up":
        # The set's own objects are not garbage; the collector need not look at them.
        gc.collect()
        gc.freeze()
        return work.warm_up()
    _, lap_ms = request
    return work.lap(lap_ms)


def _main() -> None:
    # The parent is interrupted as well, and ends the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A library that prints must not print between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
