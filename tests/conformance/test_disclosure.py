"""Reports for maintainers, and the reproducers that a run tries."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from cli_driver import kfuzz
from referee_tools import make_vector, wicked

from kfuzz.conformance.judge.compare import cases_of
from kfuzz.conformance.judge.matrix import Places, Run, run
from kfuzz.conformance.protocol.session import MIB
from kfuzz.conformance.protocol.testees import Testee, all_testees
from kfuzz.conformance.report.disclosure import disclose, faults, require_private
from kfuzz.conformance.report.trial import tried
from kfuzz.errors import UsageError
from kfuzz.vectors.model import load_requirements

PROGRAM = """import os, sys
data = open(sys.argv[1], "rb").read()
print(len(data), "bytes of", os.path.abspath(sys.argv[1]))
sys.stdout.flush()
os.abort()
"""
TOML = """name = "dies"
language = "python"

[[versions]]
version = "1"
run = ["{python}", "testee.py"]

[reproduce.records]
program = "reproduce.py"
shared = ["../common.py"]
run = ["{python}", "reproduce.py", "{file}"]
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of testees with one that has a reproducer."""
    folder = tmp_path / "testees" / "dies"
    folder.mkdir(parents=True)
    (folder / "testee.toml").write_text(TOML)
    (folder / "reproduce.py").write_text(PROGRAM)
    (folder.parent / "common.py").write_text("# shared")
    return folder.parent


@pytest.fixture
def done(tmp_path: Path) -> Run:
    """A run of a testee that dies of one vector and passes another."""
    vectors = [
        make_vector("toy/trap", b"\xff" * 40, summary="forty bytes", requirements=("RB-CRC-1",)),
        make_vector("toy/other", b"\xff" * 41, expect={"consumer": {"verdict": "valid", "batches": []}}),
    ]
    (tmp_path / "expected").mkdir()
    testee = Testee("dies", "1", tuple(wicked("dies")))
    return run([testee], cases_of(vectors), places=Places(tmp_path / "expected", tmp_path / "embargo"), whole=False)


def disclosed(done: Run, directory: Path, testees: tuple[Testee, ...]) -> list[Path]:
    requirements, documents = load_requirements()
    return disclose(done, directory, testees=testees, requirements=requirements, documents=documents).folders


def test_each_fault_has_a_report_with_a_reproducer_that_was_tried(done: Run, root: Path, tmp_path: Path) -> None:
    folders = disclosed(done, tmp_path / "out", all_testees(root))
    assert [folder.relative_to(tmp_path / "out").parts[0] for folder in folders] == ["dies@1"] * len(faults(done))
    [kills] = [folder for folder in folders if "kills" in folder.name]
    assert (kills / "input.bin").read_bytes() == b"\xff" * 40
    assert (kills / "reproduce.py").read_text() == PROGRAM
    assert (kills / "common.py").read_text() == "# shared"
    text = (kills / "report.md").read_text()
    for part in (
        "# dies 1: kills the process",
        "Forty bytes.",
        "000020  ff ff ff ff ff ff ff ff",
        "kfuzz saw: died of SIGSEGV: wild pointer",
        "reproduce.py input.bin",
        "40 bytes of input.bin",
        "We tried this: the program died of SIGABRT.",
        "CRC",
    ):
        assert part in text
    assert str(tmp_path) not in text


def test_a_user_without_a_home_directory_gets_reports(
    done: Run, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 54_321)
    [kills] = [one for one in disclosed(done, tmp_path / "out", all_testees(root)) if "kills" in one.name]
    assert "40 bytes of input.bin" in (kills / "report.md").read_text()


def test_without_a_reproducer_the_report_has_the_request(done: Run, tmp_path: Path) -> None:
    folders = disclosed(done, tmp_path / "out", ())
    [kills] = [folder for folder in folders if "kills" in folder.name]
    assert json.loads((kills / "request.json").read_text())["hex"] == "ff" * 40
    assert "We tried this" not in (kills / "report.md").read_text()


def test_a_fault_of_a_broker_names_the_probe_that_shows_it(done: Run, tmp_path: Path) -> None:
    [judged] = done.testees
    folders = disclosed(replace(done, testees=(replace(judged, language=""),)), tmp_path / "out", ())
    [kills] = [folder for folder in folders if "kills" in folder.name]
    text = (kills / "report.md").read_text()
    assert "$ kfuzz probe 127.0.0.1:9092 toy/trap" in text
    assert sorted(path.name for path in kills.iterdir()) == ["input.bin", "report.md"]


def test_a_reproducer_that_cannot_be_built_is_a_note(done: Run, root: Path, tmp_path: Path) -> None:
    with (root / "dies" / "testee.toml").open("a") as file:
        file.write('build = ["{python}", "-c", "raise SystemExit(3)"]\n')
    # Of a suite whose requirements are in no table.
    told = disclose(done, tmp_path / "out", testees=all_testees(root), requirements={}, documents={})
    [note] = told.notes
    assert "ended with 3" in note
    assert all((folder / "request.json").exists() for folder in told.folders)
    assert any("RB-CRC-1" in (folder / "report.md").read_text() for folder in told.folders)


@pytest.mark.parametrize(
    ("program", "end"),
    [
        ("print('x' * 9000)", "ended with status 0"),
        ("raise SystemExit(7)", "ended with status 7"),
        ("import time; time.sleep(600)", "did not end within 2 s"),
        ("x = bytearray(b'x') * (300 << 20); import time; time.sleep(600)", "took more than 256 MiB of memory"),
        ("while True: print('x' * 1000000)", "printed more than 64 MiB"),
    ],
)
def test_a_trial_is_bounded(program: str, end: str, tmp_path: Path) -> None:
    # Where the time is not the bound, a busy machine has as much as it needs.
    timeout_s = 2 if "within" in end else 60
    trial = tried([sys.executable, "-S", "-c", program], tmp_path, timeout_s=timeout_s, memory_bytes=256 * MIB)
    assert trial.end == end
    assert len(trial.output) <= 4096


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert tried([str(tmp_path / "absent")], tmp_path).end == "could not be started: No such file or directory"


def test_reports_do_not_go_where_git_would_commit_them(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("/private/\n")
    require_private(tmp_path / "private" / "deep")
    with pytest.raises(UsageError, match="does not ignore it"):
        require_private(tmp_path / "public")


def test_the_verb_writes_reports_of_a_result(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    kfuzz("conform", "--command", shlex.join(wicked("rubbish")), "records/v2/count/of-2", "--json", result)
    told = kfuzz("report", result, "--disclose", tmp_path / "out")
    reports = list((tmp_path / "out").glob("*/*/report.md"))
    assert reports
    assert f"{len(reports)} reports in {tmp_path / 'out'}; they are not public" in told.stderr
