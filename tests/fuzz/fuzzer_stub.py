"""A shell script in place of the fuzzer."""

from __future__ import annotations

from pathlib import Path

import pytest

from kfuzz.fuzz import campaign
from kfuzz.fuzz.building import Build


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
