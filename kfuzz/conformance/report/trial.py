"""Runs a reproducer within bounds, and reports how it ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kfuzz.conformance.protocol.processes import Family, ended_with, use_of
from kfuzz.conformance.protocol.session import MIB

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
            end = ""
            until_s = time.monotonic() + timeout_s
            while not end:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    end = ended_with(process.wait(POLL_S))
                    break
                if time.monotonic() > until_s:
                    end = f"did not end within {timeout_s:g} s"
                elif use_of(family.members())[1] > memory_bytes:
                    end = f"took more than {memory_bytes // MIB} MiB of memory"
                elif os.fstat(output.fileno()).st_size > PRINTED_BYTES_MAX:
                    end = f"printed more than {PRINTED_BYTES_MAX // MIB} MiB"
        except OSError as error:
            return Trial(f"could not be started: {error.strerror}", "")
        finally:
            family.kill()
        process.wait()
        output.seek(0)
        return Trial(end, output.read(OUTPUT_BYTES_MAX).decode("utf-8", "replace").strip())
