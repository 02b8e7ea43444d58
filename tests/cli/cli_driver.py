"""Runs the command line in a process of its own, as a user does; for tests only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def kfuzz(*words: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    """The outcome of ``kfuzz WORDS…``; no traceback ever leaves it."""
    done = subprocess.run(
        [sys.executable, "-m", "kfuzz.cli.main", *map(str, words)], input=stdin, capture_output=True, timeout=120
    )
    out = subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in out.stderr
    return out
