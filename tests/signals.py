"""Starts programs that tests interrupt; for tests only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

KFUZZ = [sys.executable, "-m", "kfuzz.cli.main"]


def start(argv: Sequence[str | Path], **options: Any) -> subprocess.Popen[str]:
    """``argv`` as the leader of a session of its own, as a shell starts it: SIGINT does what it does by default.

    A test may run where SIGINT is ignored (under ``nohup``, in the background of a script), and children inherit that.
    """
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(
        [str(word) for word in argv],
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **{**streams, **options},
    )


def interrupt_when(
    process: subprocess.Popen[str], ready: Callable[[], bool], *, within_s: float, number: int = signal.SIGINT
) -> tuple[str, str]:
    """Press Ctrl-C once ``ready`` (the whole group gets the signal, as from a terminal); its output and errors.

    ``number`` is another signal to send instead.
    """
    end = time.monotonic() + within_s
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise AssertionError(f"not ready to be interrupted: {process.communicate()}")
        time.sleep(0.05)
    os.killpg(process.pid, number)
    try:
        return process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"not ended 60 s after the interrupt: {process.communicate()}") from None
