"""``python -m benchmarks.contestant``: runs one contestant of one path in its own process.

It reads pickles from standard input and writes pickles to standard output. The first request is a job: a function
without arguments that makes the work. Then come ``census``, ``warm_up`` and ``("lap", lap_ms)``. Each is answered with
a pair: whether it succeeded, and the result or the error's text. The process ends when its input ends. It imports the
modules that the job names.
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
    """Make the work, then answer requests until the input ends."""
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
        # The set's own objects are not garbage: exclude them from collection.
        gc.collect()
        gc.freeze()
        return work.warm_up()
    _, lap_ms = request
    return work.lap(lap_ms)


def _main() -> None:
    # The parent receives the interrupt too; it then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output that a library prints must not mix with the answers, so it goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with suppress(BrokenPipeError):
        serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
