"""The steps of tools that run other programs: each prints one line, or fails with one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from kfuzz.errors import KfuzzError

__all__ = ["StepFailed", "call", "step"]


class StepFailed(KfuzzError):
    """One sentence that says which step failed and why."""


def call(
    *command: str | Path,
    cwd: Path,
    path: Path | None = None,
    variables: Mapping[str, str | None] | None = None,
    timeout_s: int = 1800,
) -> str:
    """The output of the command. Raises ``StepFailed`` with its first compiler error, or else with its last line.

    The variables of this Python are not passed on. ``variables`` adds others, or removes those that are None.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    if path:
        environment["PATH"] = f"{path}{os.pathsep}{environment.get('PATH', '')}"
    for name, value in (variables or {}).items():
        environment.pop(name, None)
        if value is not None:
            environment[name] = value
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise StepFailed(f"`{name}` took more than {timeout_s} s") from None
    except OSError as error:
        raise StepFailed(f"`{name}` cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
        # After a compiler's error, setuptools only repeats the whole command.
        told = next((line for line in said if re.search(r":\d+:\d+: (fatal )?error: ", line)), said[-1])
        raise StepFailed(f"`{name}` ended with exit code {done.returncode}: {told.strip()}")
    return done.stdout


def step(name: str, work: Callable[[], str], remedy: str = "") -> None:
    """Do the work, and print its result and its time on one line. If it fails, the sentence ends with the remedy."""
    began = time.monotonic()
    try:
        result = work()
    except StepFailed as error:
        raise StepFailed("; ".join(filter(None, (f"{name}: {error}", remedy)))) from None
    print(f"{name}: {result} ({time.monotonic() - began:.0f} s)", flush=True)
