"""``kfuzz testee new``: what it writes builds, runs and is judged, in each language, and nothing is half-written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_driver import kfuzz, refused
from conftest import require_tool
from programs import run_program

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.protocol import stubs
from kfuzz.vectors import load_suite

FAMILY = "records/v2/count/*"
TOOLS = {"go": "go", "rust": "cargo", "node": "npm", "python": "python3"}


# Cargo compiles the kit's dependencies for each new folder.
@pytest.mark.parametrize("language", ["go", "node", "python", pytest.param("rust", marks=pytest.mark.nightly)])
def test_a_new_testee_builds_at_once_and_answers_unsupported_to_everything(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    require_tool(TOOLS[language], f"the stub in {language} needs it")
    _, enter, judge = kfuzz("testee", "new", "--language", language, "mine", code=0).stdout.splitlines()
    folder = tmp_path / "mine"
    run_program("sh", "-c", enter.strip(), cwd=tmp_path, variables={"GOFLAGS": "-mod=readonly"}, timeout=None)
    stub = stubs.STUBS[language]
    assert judge.split() == ["kfuzz", "conform", "--command", *judge.split()[3:]]
    assert stub.run in judge
    monkeypatch.chdir(folder)
    kfuzz("conform", "--command", stub.run, FAMILY, "--json", "result.json", code=1)
    [testee] = json.loads((folder / "result.json").read_text())["testees"]
    assert testee["totals"] == {"unsupported": len(cases_of(load_suite(FAMILY)))}
    # The README of the stub says the same as the command.
    readme = (folder / "README.md").read_text()
    assert stub.build in readme
    assert f'--command "{stub.run}"' in readme


def test_a_folder_that_holds_something_is_refused_and_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    said = refused("testee", "new", "--language", "go", "mine")
    assert said == "kfuzz: mine is not empty; name another folder\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["mine", "notes.txt"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    stubs.write_stub("python", tmp_path / "mine")
    assert {path.name for path in (tmp_path / "mine").iterdir()} == {"README.md", "kit", "testee.py"}


def test_a_folder_with_an_odd_name_is_harmless_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, then, _ = kfuzz("testee", "new", "--language", "python", "a\udcff\x1b").stdout.splitlines()
    assert first.startswith("a\\xff\\x1b/testee.py is where")
    assert then == "  cd $'a\\xff\\x1b'"


def test_a_copy_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(stubs.UsageError, match="cannot be written: No space left"):
        stubs.write_stub("go", tmp_path / "deep" / "mine")
    assert list(tmp_path.iterdir()) == []
