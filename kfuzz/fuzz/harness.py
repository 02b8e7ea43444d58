"""The process that atheris fuzzes in: ``python -m kfuzz.fuzz.harness EXECUTABLE [libFuzzer's arguments]``.

The executables that :mod:`kfuzz.fuzz.build` writes start it with the right environment; ``campaign.run`` starts those.
This module imports the target late, after atheris has hooked the imports.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import atheris

# Python code that the targets reach: its branches count as coverage too.
INSTRUMENTED = [
    f"kfuzz.records.{name}"
    for name in (
        "append", "arrow", "compact", "compression", "control", "convert",
        "reader", "rebuild", "roles", "stream", "writer",
    )
]  # fmt: skip


def main(arguments: Sequence[str]) -> None:
    """Fuzz the target that ``arguments[0]``, the executable, is named after; the rest is for libFuzzer."""
    # What this process starts (a symbolizer, say) is not to be fuzzed; the executable sets it again for a merge.
    os.environ.pop("LD_PRELOAD", None)
    with atheris.instrument_imports(include=INSTRUMENTED):
        from kfuzz.fuzz import targets
    target = targets.find(Path(arguments[0]).name)
    atheris.Setup(list(arguments), target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
