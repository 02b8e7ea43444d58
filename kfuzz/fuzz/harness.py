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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import atheris

if TYPE_CHECKING:
    from kfuzz.fuzz.targets import Target

# ``kfuzz_change`` of library.c: takes data, size, the largest size and a seed; returns the new size.
CHANGE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)
# Keeps callbacks alive while C code may call them.
kept: list[Any] = []


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target with the name of the executable ``arguments[0]``. libFuzzer gets the other arguments."""
    # Child processes, for example a symbolizer, must not load the fuzzer. For a merge the executable sets it again.
    os.environ.pop("LD_PRELOAD", None)
    # Branches of Python code count as coverage too.
    with atheris.instrument_imports(include=["kfuzz"]):
        from kfuzz.fuzz import targets
    target = targets.find(Path(arguments[0]).name)
    prepare_hook(target)
    atheris.Setup(list(arguments), target.run)
    stop_timer_at_exit()
    atheris.Fuzz()


def stop_timer_at_exit() -> None:
    """Stop atheris's timer before the interpreter ends.

    The timer goes on until the process is gone, and the interpreter takes back the handler of SIGALRM when it ends.
    A tick after that kills the process, and libFuzzer writes the input of a crash only then.
    """
    atexit.register(signal.setitimer, signal.ITIMER_REAL, 0)


def prepare_hook(target: Target) -> None:
    """Tell the mutation hook about the target. If the hook is not loaded, only libFuzzer mutates."""
    from kfuzz.records.codecs import ZLIB_LIBRARY, ZSTD_LIBRARY

    loaded = ctypes.CDLL(None)
    if getattr(loaded, "kfuzz_mutator_settings", None) is None:
        return
    loaded.kfuzz_mutator_settings(ZLIB_LIBRARY.encode(), (ZSTD_LIBRARY or "").encode(), int(target.compresses))
    if target.mutate is not None:
        mutate_by(target.mutate, loaded.kfuzz_mutate_by)


def mutate_by(mutate: Callable[[bytes, int, int], bytes], install: Callable[[Any], None]) -> None:
    """Make the mutation hook use ``mutate``."""

    def change(data: int, size: int, size_max: int, seed: int) -> int:
        made = mutate(ctypes.string_at(data, size), size_max, seed)
        ctypes.memmove(data, made, len(made))
        return len(made)

    kept.append(CHANGE(change))
    install(kept[-1])


if __name__ == "__main__":
    main(sys.argv[1:])
