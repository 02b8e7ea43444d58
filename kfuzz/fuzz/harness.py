"""The process that atheris fuzzes in: ``python -m kfuzz.fuzz.harness EXECUTABLE [libFuzzer's arguments]``.

``campaign.run`` starts an executable that :mod:`kfuzz.fuzz.building` has written. The executable starts this module
with the right environment.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import atheris


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target with the name of the executable ``arguments[0]``. libFuzzer gets the other arguments."""
    # Child processes, for example a symbolizer, must not load the fuzzer. For a merge the executable sets it again.
    os.environ.pop("LD_PRELOAD", None)
    # Branches of Python code count as coverage too.
    with atheris.instrument_imports(include=["kfuzz"]):
        from kfuzz.fuzz import hook, targets
        from kfuzz.fuzz.tiers import Tiers
    target = targets.find(Path(arguments[0]).name)
    hook.prepare(ctypes.CDLL(None), target)
    run = target.tiers(all_twice=is_replay(arguments[1:]))
    atheris.Setup(list(arguments), run)
    stop_timer_at_exit()
    if isinstance(run, Tiers):
        run.tell_at_exit()
    atheris.Fuzz()


def is_replay(arguments: Sequence[str]) -> bool:
    """Whether the process runs given inputs, merges a corpus or shrinks a crash. Then the full oracle judges all."""
    return any(
        argument.startswith(("-merge", "-minimize_crash")) or (argument[:1] != "-" and Path(argument).is_file())
        for argument in arguments
    )


def stop_timer_at_exit() -> None:
    """Stop atheris's timer before the interpreter ends.

    The timer goes on until the process is gone, and the interpreter takes back the handler of SIGALRM when it ends.
    A tick after that kills the process, and libFuzzer writes the input of a crash only then.
    """
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main(sys.argv[1:])
