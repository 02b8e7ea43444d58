"""The process that atheris fuzzes in: ``python -m kfuzz.fuzz.harness EXECUTABLE [libFuzzer's arguments]``.

``campaign.run`` starts an executable that :mod:`kfuzz.fuzz.building` has written. The executable starts this module
with the right environment.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import atheris

from kfuzz.fuzz.recorder import FINDS, STACK_AFTER, TRY, Recorder, answer

# Inputs are small, and what they may decompress to is limited.
ALLOCATION_BYTES_MAX: Final = 16 << 20


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target with the name of the executable ``arguments[0]``. libFuzzer gets the other arguments."""
    # Child processes, for example a symbolizer, must not load the fuzzer. For a merge the executable sets it again.
    os.environ.pop("LD_PRELOAD", None)
    # Branches of Python code count as coverage too.
    with atheris.instrument_imports(include=["kfuzz"]):
        from kfuzz.fuzz import hook, targets
        from kfuzz.fuzz.tiers import Tiers, refuse_allocations_above
    target = targets.find(Path(arguments[0]).name)
    hook.prepare(ctypes.CDLL(None), target)
    if os.environ.get(TRY):
        faulthandler.enable()
        refuse_allocations_above(ALLOCATION_BYTES_MAX)
        answer(target.tiers(all_twice=True), sys.stdin.buffer, lambda line: print(line, flush=True))
        return
    folder = os.environ.get(FINDS)
    run = target.tiers(all_twice=is_replay(arguments[1:]), report=Recorder(Path(folder)) if folder else None)
    if timeout_s := os.environ.get(STACK_AFTER):
        # For a crash that the campaign runs again alone: where it was in Python.
        faulthandler.enable()
        faulthandler.dump_traceback_later(float(timeout_s))
    refuse_allocations_above(ALLOCATION_BYTES_MAX)
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
