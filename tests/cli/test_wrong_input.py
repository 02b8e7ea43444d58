"""Every verb meets closed streams, full disks, interrupts and places that cannot be written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from cli_driver import commands, on_full_disk
from made_segments import bad, batch
from programs import run_program
from signals import KFUZZ, interrupt_when, start

from kfuzz.errors import UsageError
from kfuzz.files import open_whole, require_writable, write_whole
from kfuzz.spark.jobs import conform_main

ROOT = Path(__file__).resolve().parents[2]
WORKLOAD = ROOT / "spark_jobs" / "workloads" / "demo.toml"
JOB = [sys.executable, str(ROOT / "spark_jobs" / "generate_corpus.py")]
# An argument that is empty, as that of a script whose variable was not set.
LAKE = [sys.executable, str(ROOT / "spark_jobs" / "lake_ingest.py")]
BENCHMARKS = [sys.executable, "-m", "benchmarks", "--quick", "--path", "verdict", "--peer", "aiokafka"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a folder `dir`, a file of `garbage` and an `empty` one."""
    (tmp_path / "dir").mkdir()
    (tmp_path / "garbage").write_bytes(b"no batch, no vector, no workload and no corpus at all")
    (tmp_path / "empty").touch()
    return tmp_path


@pytest.mark.parametrize(("name", "command"), [pytest.param(*one, id=one[0]) for one in commands()])
def test_the_help_of_every_command_has_an_example_of_it(name: str, command: click.Command) -> None:
    assert name in (command.help or "")


def test_a_missing_file_of_a_testee_is_told_before_spark_starts(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kfuzz.spark.jobs._session", None)
    assert conform_main(["--out", str(place), "--ship", str(place / "mine.py")]) == 2
    assert capsys.readouterr().err.endswith("mine.py is not a file; name the files of the testee\n")


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param([*JOB, "--workload", str(WORKLOAD)], id="spark job"),
        pytest.param(LAKE, id="lake", marks=pytest.mark.spark),
        pytest.param(BENCHMARKS, id="benchmarks"),
    ],
)
def test_jobs_refuse_a_place_that_cannot_be_written_before_they_work(argv: list[str], place: Path) -> None:
    done = run_program(*argv, "--out", place / "garbage" / "out", cwd=ROOT, timeout=60, code=2)
    (sentence,) = done.stderr.splitlines()
    assert "garbage is not a directory; name another place" in sentence
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("line", "closed"),
    [
        ("check -", "<&-"),
        ("testee", "<&-"),
        ("testee", ">&-"),
        ("check -", ">&-"),
        ("vectors list", ">&-"),
        ("messages list", ">&-"),
    ],
)
def test_closed_standard_streams_are_reported(line: str, closed: str) -> None:
    argv = ["bash", "-c", f'"$0" -m kfuzz.cli.main {line} {closed}', sys.executable]
    done = run_program(*argv, stdin=subprocess.DEVNULL, timeout=60, code=2)
    assert done.stderr == f"kfuzz: standard {'input' if '<' in closed else 'output'} is closed; kfuzz needs it open\n"


def test_a_reader_that_leaves_is_no_error() -> None:
    argv = ["bash", "-c", 'set -o pipefail; "$0" -m kfuzz.cli.main vectors list | head -1', sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_answer_of_a_check_stands_though_its_reader_leaves(tmp_path: Path) -> None:
    file = tmp_path / "bad.log"
    file.write_bytes(bad(batch(0)))
    # More lines than a pipe holds, so that writing meets the closed end.
    line = '"$0" -m kfuzz check $(yes "$1" | head -3000) | head -1; exit "${PIPESTATUS[0]}"'
    done = subprocess.run(["bash", "-c", line, sys.executable, file], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize(
    ("argv", "name"),
    [([*KFUZZ, "vectors", "list"], "kfuzz"), (BENCHMARKS, "python -m benchmarks")],
    ids=["kfuzz", "bench"],
)
def test_a_full_disk_is_one_sentence(argv: list[str], name: str) -> None:
    with open("/dev/full", "wb") as full:
        # The place does not count: nothing is written before the first line has been told.
        done = subprocess.run(argv, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == f"{name}: No space left on device\n"


def test_the_exit_code_is_right_if_standard_error_is_full() -> None:
    done = subprocess.run(["bash", "-c", '"$0" -m kfuzz check nowhere 2>/dev/full', sys.executable], timeout=60)
    assert done.returncode == 2


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "one.log"
    file.write_bytes(batch(0))
    argv = ["bash", "-c", f'"$0" -m kfuzz.cli.main check <(cat {file})', sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert f"ok, 1 batches, 1 records, {file.stat().st_size} bytes" in done.stdout


def test_an_interrupt_ends_with_130_and_one_sentence(tmp_path: Path) -> None:
    running = start([*KFUZZ, "testee"], stdin=subprocess.PIPE, cwd=tmp_path)
    assert running.stdout is not None
    # The handshake is there once the verb has begun.
    assert running.stdout.readline().startswith("{")
    _, told = interrupt_when(running, lambda: True, within_s=1)
    assert running.returncode == 130
    assert told.strip() == "kfuzz: interrupted"


def test_the_same_test_holds_where_the_parent_ignores_interrupts(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        test_an_interrupt_ends_with_130_and_one_sentence(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("name", ["file", "n" * 255])
def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, name: str) -> None:
    file = tmp_path / "new" / name
    with pytest.raises(TypeError), open_whole(file) as out:
        out.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert list(file.parent.iterdir()) == []
    write_whole(file, "whole")
    assert file.read_text() == "whole"
    with pytest.raises(TypeError), open_whole(file) as out:
        out.writelines([b"half", "no bytes"])  # type: ignore[list-item]
    assert file.read_text() == "whole"


def test_a_full_disk_is_one_sentence_with_the_path_and_leaves_nothing(tmp_path: Path) -> None:
    words = ("corpus", "generate", WORKLOAD, "--out", "out", "--size", "64KiB", "--jobs", "1")
    said = on_full_disk(*words, cwd=tmp_path)
    log = tmp_path / "out/demo-0/00000000000000000000.log"
    place = log.relative_to(tmp_path)
    assert said == (
        f"kfuzz: {place} cannot be written: File too large; free space there or name a place on another disk\n"
    )
    assert list(log.parent.iterdir()) == []


def test_a_disk_that_is_full_for_a_report_is_reported_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^/dev/full cannot be written: No space left on device; free space there"):
        write_whole("/dev/full", b"x")


@pytest.mark.parametrize("place", ["s3a://bucket/x", "hdfs://host/x", "s3a:/bucket/x"])
def test_a_place_that_is_no_path_is_refused_before_a_folder_is_made(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for attempt in (require_writable, lambda path: write_whole(path, b"")):
        with pytest.raises(UsageError, match=r"is on \w+:, which kfuzz cannot read or write; name a d"):
            attempt(place)
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_no_regular_file_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write_whole(pipe, b"through")
    assert reader.communicate(timeout=60)[0] == b"through"
    assert pipe.is_fifo()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("name", ["dir", "garbage/file", "", "dir/" + "x" * 5000])
def test_a_place_that_cannot_be_written_is_refused_in_words(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for attempt in (require_writable, lambda path: write_whole(path, b"")):
        with pytest.raises(UsageError, match=r"name (another place|a file)"):
            attempt(name)
