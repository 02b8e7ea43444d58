"""A shell script in place of the fuzzer, and what a test with the real one needs."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
from conftest import missing

from kfuzz import records
from kfuzz.fuzz import campaign
from kfuzz.fuzz.building import COMPILERS, Build
from kfuzz.records import Record, RecordBatch

# All gates open: eight bytes of key, twice as many of value, no headers, and the bits that go with these.
CANARY_INPUT = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"0\x80000000", b"v" * 16)]))


def require_atheris() -> None:
    if importlib.util.find_spec("atheris") is None:
        missing("atheris", "pip install 'kfuzz[fuzz]'")


def require_clang() -> str:
    """The name of a clang."""
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    return found or missing("clang", "apt-get install clang-16")


def stub(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    *,
    shell: str = "sh",
    target: str = "canary",
    native: bool = False,
) -> None:
    """A build whose ``target`` is ``script``."""
    executable = tmp_path / "bin" / target
    executable.parent.mkdir()
    executable.write_text(f"#!/usr/bin/env {shell}\n{script}\n")
    executable.chmod(0o755)
    made = Build(tmp_path, "none", native=native)
    monkeypatch.setattr(campaign, "build", lambda sanitizer, say: made)
