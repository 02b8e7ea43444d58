"""How a tool or a benchmark ends after an error or an interrupt."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.commands import exit_code
from kfuzz.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (UsageError("x is a file; name a folder"), 2, "wheels: x is a file; name a folder\n"),
        (OSError(errno.ENOSPC, "No space left on device", "out"), 2, "wheels: out: No space left on device\n"),
        (OSError("no number"), 2, "wheels: no number\n"),
        (KeyboardInterrupt(), 130, "wheels: interrupted\n"),
    ],
)
def test_an_error_is_one_sentence(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def work() -> int:
        raise error

    assert exit_code("wheels", work) == code
    assert capsys.readouterr().err == said


def test_wheels_refuses_a_place_that_cannot_be_written_before_it_builds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "tools.wheels", "--out", str(tmp_path / "file" / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"wheels: {tmp_path / 'file' / 'out'} cannot be written: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nope"], "there is no decoder nope; take "),
        (["--seeds", "0"], "0 is not"),
    ],
)
def test_the_fuzzers_of_others_refuse_wrong_use_in_one_line(words: list[str], said: str) -> None:
    command = [sys.executable, "-m", "benchmarks.foreign", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("python -m benchmarks.foreign: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
