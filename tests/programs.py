"""Runs programs to their end; for tests only. signals.py starts those that a test interrupts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

# For a process of Python that imports what this one can.
SAME_PATHS = {"PYTHONPATH": os.pathsep.join(sys.path)}


def run_program(
    *words: object, code: int | None = 0, variables: Mapping[str, str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """The outcome of a program that has more variables than this process, with its output as text.

    Its exit code must be ``code``; None: any. ``options`` are those of ``subprocess.run``.
    """
    usual = {"capture_output": True, "text": True, "timeout": 120, "env": os.environ | (variables or {})}
    done = subprocess.run([str(word) for word in words], check=False, **usual | options)
    assert code in (None, done.returncode), f"{done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done
