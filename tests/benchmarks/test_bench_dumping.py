"""``python -m benchmarks.dumping`` on little data: a line for each path; both print the same batches and records."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import require_tool

from benchmarks.dumping import LOGS, PATHS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.java
@pytest.mark.full
def test_each_path_has_a_line(tmp_path: Path) -> None:
    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "install a JDK of version 17 or newer and Maven")
    require_tool("kcat", "apt-get install kcat")
    command = [sys.executable, "-m", "benchmarks.dumping", "--quick", "--in", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [cells for line in done.stdout.splitlines() if len(cells := line.split("│")) == 10]
    assert [(cells[1].strip(), cells[2].strip()) for cells in lines] == [(path, log) for log in LOGS for path in PATHS]
    for cells in lines:
        median, least, most, ours, theirs = (float(cell) for cell in cells[3:8])
        assert 0 < least <= median <= most
        assert min(ours, theirs) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--size", "2GiB"], "--size is '2GiB'; give a size up to that of a segment"),
        (["--quick", "--size", "many"], "--size is 'many'; give a size"),
        (["--in", "missing"], "missing does not exist; make the directory, or name another one with --in"),
        (["--rounds", "0"], "--rounds is 0; give at least 1"),
        (["--in", "/dev/null"], "/dev/null"),
    ],
)
def test_a_wrong_request_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m benchmarks.dumping: ")
    assert told in line


def test_without_java_the_reason_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["--quick"]) == 0
    assert "DumpLogSegments is not compared: " in capsys.readouterr().out
