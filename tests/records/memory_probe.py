"""Checks one file and prints how much address space that took beside the file's mapping; run by test_allocation.py.

The peak counts what was asked for, touched or not, so it bounds the memory from above.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import kfuzz.cli.check
from kfuzz import records
from kfuzz.cli.main import main as kfuzz
from kfuzz.files import map_bytes


def status(name: str) -> int:
    """A line of /proc/self/status in bytes."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def by_function(path: str) -> int:
    return records.check(map_bytes(path)).batch_count


def by_command(path: str) -> int:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        kfuzz(["check", "--json", path])
    return int(json.loads(out.getvalue())[0]["batches"])


def by_taking_it_whole(path: str) -> int:
    """The way that must not be: here to show that the measurement sees it."""
    whole = Path(path).read_bytes()
    # The mapping, as in the other ways, and the bytes beside it.
    return records.check(map_bytes(path)).batch_count if whole else 0


WAYS: dict[str, Callable[[str], int]] = {
    "records.check": by_function,
    "kfuzz check": by_command,
    "whole file": by_taking_it_whole,
}


def main(how: str, path: str) -> None:
    """Check the file at ``path`` and print one JSON object."""
    for codec in records.CODECS:
        records.check(records.encode_batch(records.RecordBatch(0, 0, compression=codec)))
    before = status("VmSize")
    batches = WAYS[how](path)
    print(json.dumps({"batches": batches, "above_mapping_bytes": status("VmPeak") - before - os.path.getsize(path)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
