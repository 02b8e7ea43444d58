"""The pre-commit hook and the GitHub action: each verb and option in them exists, and the action's script runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import require_tool
from programs import run_program

from kfuzz import records
from kfuzz.records import Record, RecordBatch

ROOT = Path(__file__).resolve().parent.parent
ACTION = ROOT / "packages/action/action.yml"
BIN = Path(sys.executable).parent


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


@pytest.fixture(scope="module")
def script() -> str:
    """The part of the action that calls kfuzz."""
    [found] = [step["run"] for step in load(ACTION)["runs"]["steps"] if step.get("name") == "Judge"]
    return str(found)


def kfuzz(*words: str, code: int = 0, folder: Path = ROOT) -> str:
    return run_program(BIN / "kfuzz", *words, code=code, cwd=folder).stdout


def test_the_hook_chooses_segments_and_tells_good_ones_from_bad_ones(tmp_path: Path) -> None:
    [hook] = load(ROOT / ".pre-commit-hooks.yaml")
    program, *words = shlex.split(hook["entry"])
    assert (hook["id"], program, words[0]) == ("kfuzz-check", "kfuzz", "check")
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"k", b"v")]))
    names = ["00000000000000000000.log", "notes.txt", "00000000000000000000.index", "catalog"]
    assert [name for name in names if re.search(hook["files"], name)] == names[:1]
    (tmp_path / "good.log").write_bytes(data)
    (tmp_path / "bad.log").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    kfuzz(*words, "good.log", folder=tmp_path)
    kfuzz(*words, "good.log", "bad.log", code=1, folder=tmp_path)


def test_the_action_uses_verbs_options_and_inputs_that_exist(script: str) -> None:
    verbs = re.findall(r"(?m)^ *kfuzz ([a-z]+)", script)
    assert verbs == ["conform"]
    options = set(re.findall(r"--[a-z-]+", script))
    assert options == {"--html", "--junit", "--testee", "--command", "--expected"}
    assert options <= set(re.findall(r"(?m)^ +(--[a-z-]+)", kfuzz("conform", "--help")))
    action = load(ACTION)
    assert action["runs"]["using"] == "composite"
    used = set(re.findall(r"\$\{\{ inputs\.([a-z-]+) \}\}", ACTION.read_text()))
    assert used == set(action["inputs"])
    # Where an input stood in a script, its text would be run as a part of it.
    assert not any("${{" in step.get("run", "") for step in action["runs"]["steps"])


def judge(script: str, folder: Path, *, code: int | None = 0, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the action's script as a runner does, with these inputs."""
    bash = require_tool("bash", "install bash")
    names = ("TESTEE", "COMMAND", "VECTORS", "EXPECTED")
    variables = {**dict.fromkeys(names, ""), **inputs, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    command = (bash, "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    return run_program(*command, code=code, cwd=folder, variables=variables)


def test_the_script_of_the_action_judges_and_leaves_a_report(script: str, tmp_path: Path) -> None:
    judge(script, tmp_path, TESTEE="kfuzz", VECTORS="records/v2/count/*\nrecords/v2/header/minimal\n")
    assert "<style>" in (tmp_path / "kfuzz-report.html").read_text()
    cases = (tmp_path / "kfuzz-report.xml").read_text()
    assert 'records.v2.count" name="negative-one' in cases
    assert 'records.v2.header" name="minimal' in cases


def test_the_action_fails_without_a_testee_and_with_a_bad_one(script: str, tmp_path: Path) -> None:
    assert "needs the input testee or command" in judge(script, tmp_path, code=2).stderr
    bad = judge(script, tmp_path, code=None, COMMAND="false", VECTORS="records/v2/header/minimal")
    assert bad.returncode != 0
