"""Runs a reproducer within bounds, and reports how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import psutil

from kfuzz.conformance.protocol.processes import Family
from kfuzz.conformance.protocol.session import MIB

__all__ = ["Trial", "tried"]

TIMEOUT_S: Final = 60
MEMORY_BYTES: Final = 2048 * MIB
PRINTED_BYTES_MAX: Final = 64 * MIB
POLL_S: Final = 0.02
OUTPUT_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class Trial:
    """How a program ended, worded to follow "it", and the beginning of what it printed."""

    end: str
    output: str


def tried(
    command: Sequence[str], folder: Path, *, timeout_s: float = TIMEOUT_S, memory_bytes: int = MEMORY_BYTES
) -> Trial:
    """Run ``command`` in ``folder``. It is killed after ``timeout_s``, or when it takes more than ``memory_bytes``."""
    family = Family()
    with tempfile.TemporaryFile() as output:
        try:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | family.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            family.begin(process.pid)
            end = _end(process, time.monotonic() + timeout_s, timeout_s, memory_bytes, output, family)
        except OSError as error:
            return Trial(f"could not be started: {error.strerror}", "")
        finally:
            family.kill()
        process.wait()
        output.seek(0)
        return Trial(end, output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace").strip())


def _end(
    process: subprocess.Popen[bytes],
    until_s: float,
    timeout_s: float,
    memory_bytes: int,
    output: IO[bytes],
    family: Family,
) -> str:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = process.wait(POLL_S)
            if status >= 0:
                return f"ended with status {status}"
            with contextlib.suppress(ValueError):
                return f"died of {signal.Signals(-status).name}"
            return f"died of signal {-status}"
        if time.monotonic() > until_s:
            return f"did not end within {timeout_s:g} s"
        if _resident_bytes(family) > memory_bytes:
            return f"took more than {memory_bytes // MIB} MiB of memory"
        if os.fstat(output.fileno()).st_size > PRINTED_BYTES_MAX:
            return f"printed more than {PRINTED_BYTES_MAX // MIB} MiB"


def _resident_bytes(family: Family) -> int:
    total = 0
    for one in family.members():
        with contextlib.suppress(psutil.Error):
            total += one.memory_info().rss
    return total
