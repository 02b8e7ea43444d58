"""The process that atheris fuzzes in: ``python -m kfuzz.fuzz.harness EXECUTABLE [libFuzzer's arguments]``.

The executables that :mod:`kfuzz.fuzz.building` writes start it with the right environment; ``campaign.run`` starts
those.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import atheris

# Of mutator.c: data, size, the longest size, a seed; the new size.
CHANGE = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint)
# What C may call must not be collected.
kept: list[Any] = []


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target that ``arguments[0]``, the executable, is named after; the rest is for libFuzzer."""
    # What this process starts (a symbolizer, say) is not to be fuzzed; the executable sets it again for a merge.
    os.environ.pop("LD_PRELOAD", None)
    # Branches of Python code count as coverage too.
    with atheris.instrument_imports(include=["kfuzz"]):
        from kfuzz.fuzz import targets
    target = targets.find(Path(arguments[0]).name)
    if target.mutate is not None:
        mutate_by(target.mutate)
    atheris.Setup(list(arguments), target.run)
    atheris.Fuzz()


def mutate_by(mutate: Callable[[bytes, int, int], bytes]) -> None:
    """Let the mutation hook change inputs by ``mutate``; where it is not loaded, libFuzzer mutates alone."""
    install = getattr(ctypes.CDLL(None), "kfuzz_mutate_by", None)
    if install is None:
        return

    def change(data: int, size: int, size_max: int, seed: int) -> int:
        made = mutate(ctypes.string_at(data, size), size_max, seed)
        ctypes.memmove(data, made, len(made))
        return len(made)

    kept.append(CHANGE(change))
    install(kept[-1])


if __name__ == "__main__":
    main(sys.argv[1:])
