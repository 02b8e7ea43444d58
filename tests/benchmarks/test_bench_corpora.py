"""``python -m benchmarks.corpora`` on little data: a line for each path, and nothing left on the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.corpora import DISK, PATHS, main

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "names",
    [["batches-of-1", "random-lz4", DISK], pytest.param([*PATHS, DISK], marks=pytest.mark.full)],
    ids=["some", "all"],
)
def test_each_path_has_a_line(tmp_path: Path, names: list[str]) -> None:
    command = [sys.executable, "-m", "benchmarks.corpora", "--quick", "--in", tmp_path, "--path", *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = {cells[1].strip(): cells for line in done.stdout.splitlines() if len(cells := line.split("│")) == 9}
    assert list(lines) == [*names, "disk-parallel"]
    for cells in lines.values():
        median, least, most, rate = (float(cell) for cell in cells[3:7])
        assert 0 < least <= median <= most
        assert rate > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--size", "much"], "--size is 'much'; give a size"),
        (["--in", "/dev/null"], "/dev/null"),
    ],
)
def test_a_wrong_request_is_one_sentence(capsys: pytest.CaptureFixture[str], words: list[str], told: str) -> None:
    assert main(words) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m benchmarks.corpora: ")
    assert told in line
