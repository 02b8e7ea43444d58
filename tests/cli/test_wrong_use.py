"""Each verb refuses a wrong command with one sentence and exit code 2, and leaves no files.

Where a refusal needs more than files (a broker, a socket, a toolchain), its test is with the verb.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from cli_driver import kfuzz, refused
from conformance.referee_tools import write_suite
from made_segments import bad, batch

from kfuzz.cli import explain
from kfuzz.cli.main import main
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.kafka import KAFKA_3, LATEST

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "KAFKA_3": KAFKA_3,
    "LATEST": LATEST,
    "PYTHON": sys.executable,
    "ROOT": str(ROOT),
    "WORKLOAD": str(ROOT / "spark_jobs/workloads/demo.toml"),
    "LABEL": "a" * 64,
    "STRAY": "needs --message; name a message, or leave this option out to read records",
}
COMMANDS = Path(__file__).with_name("wrong_use.txt").read_text().splitlines()


def filled(text: str) -> str:
    return re.sub(r"\b[A-Z_0-9]{4,}\b", lambda name: NAMES.get(name[0], name[0]), text)


def words_of(line: str) -> list[str]:
    return [word.encode().decode("unicode_escape") for word in shlex.split(filled(line))]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a log, a suite of one vector, a working copy of nothing known, and files that are no such."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "garbage").write_bytes(b"no batch, no vector, no workload and no corpus at all")
    (tmp_path / "empty").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "object").write_text("{}")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "log").write_bytes(batch(0))
    (tmp_path / "broken").write_bytes(batch(5) + bad(batch(6), -2) + batch(7))
    # A request of ApiVersions.
    (tmp_path / "sent").write_bytes(struct.pack(">ihhih", 10, 18, 0, 1, -1))
    write_suite(tmp_path / "toy", [{"id": "toy/empty"}])
    (tmp_path / "other").mkdir()
    (tmp_path / "other/go.mod").write_text("module example.com/other\n\ngo 1.26\n")
    (tmp_path / "other/Cargo.toml").write_text('[package]\nname = "other"\nversion = "1.0.0"\n')
    (tmp_path / "other/package.json").write_text('{"name": "other"}')
    monkeypatch.chdir(tmp_path)
    # No row comes as far as to build a testee.
    monkeypatch.setattr(Testee, "missing", lambda testee: None)
    return tmp_path


@pytest.mark.parametrize(
    "row", [row for row in COMMANDS if row and row[0] != "#"], ids=lambda row: row.partition("  =>")[0]
)
def test_a_wrong_command_is_refused_in_one_sentence_and_leaves_nothing(row: str, place: Path) -> None:
    line, _, sentence = row.partition("  => ")
    before = sorted(place.rglob("*"))
    done = kfuzz(*words_of(line))
    assert (done.returncode, done.stdout) == (2, "")
    *progress, last = done.stderr.splitlines()
    assert not any("kfuzz: " in text for text in progress)
    assert last.startswith("kfuzz: ")
    assert not last.startswith("kfuzz: : ")
    wanted = ".*".join(map(re.escape, filled(sentence).replace(r"\\", "\\").split("…")))
    assert not sentence or re.fullmatch(f"kfuzz: {wanted}", last), last
    assert sorted(place.rglob("*")) == before
    assert os.getcwd() == str(place)


def test_ctrl_c_while_the_command_is_imported_is_one_sentence() -> None:
    script = (
        "import sys\nclass Interrupted:\n    def find_spec(*_):\n        raise KeyboardInterrupt\n"
        "from kfuzz.__main__ import main\nsys.meta_path.insert(0, Interrupted)\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "kfuzz: interrupted\n")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError, "memory ran out; "),
        (ModuleNotFoundError(name="numpy.linalg"), "this needs numpy, which is not installed; pip install 'kfuzz[cor"),
    ],
)
def test_an_error_of_the_machine_is_no_finding(error: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain.command, "callback", Mock(side_effect=error))
    assert refused("explain", "crc-mismatch").startswith(f"kfuzz: {said}")


@pytest.mark.parametrize("error", [EOFError, ModuleNotFoundError])
def test_a_fault_of_kfuzz_is_neither_an_interrupt_nor_a_missing_package(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain.command, "callback", Mock(side_effect=error))
    with pytest.raises(error):
        main(["explain", "crc.mismatch"])
