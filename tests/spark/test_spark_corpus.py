"""Spark makes the bytes that one process makes, however the work is divided and whatever fails on the way."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from corpora.s3_server import s3
from made_corpora import digests, flip
from signals import interrupt_when, start

from kfuzz.corpora.generation import generate as generate_here
from kfuzz.corpora.generation import prepare
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify as verify_here
from kfuzz.corpora.workload import KIB, MIB, Workload, load, render
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import cannot_write

__all__ = ["s3"]

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark", reason="pyspark is missing; run pip install 'kfuzz[spark]'")

from kfuzz.spark.generation import generate  # noqa: E402

JOBS = Path(__file__).parents[2] / "spark_jobs"
WORKLOADS = JOBS / "workloads"
WORKLOAD = replace(load(WORKLOADS / "mixed.toml"), size=3 * MIB, segment_bytes=256 * KIB)


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The corpus of ``WORKLOAD`` as this process makes it."""
    out = tmp_path_factory.mktemp("here") / "out"
    generate_here(WORKLOAD, out)
    return digests(out)


@pytest.mark.parametrize("tasks", [7, *(pytest.param(tasks, marks=pytest.mark.full) for tasks in (1, 2, 50))])
def test_any_number_of_tasks_gives_the_bytes_of_one_process(
    spark: Any, expected: dict[str, str], tmp_path: Path, tasks: int
) -> None:
    rows = generate(spark, WORKLOAD, tmp_path / "out", tasks=tasks)
    assert len(rows) > 7
    assert digests(tmp_path / "out") == expected


def flaky(notes: Path, fail: Callable[[int], None]) -> Callable[..., Any]:
    """``write_segment``, but the first attempt at each third segment leaves half a file and then calls ``fail``."""

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        note = notes / str(segment_id)
        if segment_id % 3 == 0 and not note.exists():
            note.write_text(attempt)
            half = out / segment.directory / f".{segment.stem}.log.{attempt}.{os.getpid()}.tmp"
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half a log")
            fail(segment_id)
        return write_segment(segment, segment_id, workload, out, attempt)

    return write


@pytest.mark.full
@pytest.mark.parametrize("deadly", [pytest.param(False, id="raises"), pytest.param(True, id="killed")])
def test_failed_attempts_change_no_byte_and_leave_no_file(
    spark: Any, expected: dict[str, str], tmp_path: Path, deadly: bool
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    failed: list[int] = []

    # Workers cannot import this module: a nested function travels by value.
    def fail(segment_id: int) -> None:
        if deadly:
            # As a worker that the system kills: nothing gets to clean up.
            os._exit(9)
        raise RuntimeError(f"attempt at segment {segment_id} failed on purpose")

    rows = generate(spark, WORKLOAD, tmp_path / "out", tasks=7, write=flaky(notes, fail), set_failed=failed.append)
    assert failed == sorted(failed)
    assert 0 < max(failed) <= len(list(notes.iterdir()))
    assert len(list(notes.iterdir())) == (len(rows) + 2) // 3
    assert digests(tmp_path / "out") == expected


@pytest.mark.full
@pytest.mark.parametrize("named", [pytest.param(False, id="bare"), pytest.param(True, id="sentence")])
def test_a_job_that_fails_for_good_says_why_in_one_sentence_and_leaves_no_success(
    spark: Any, tmp_path: Path, named: bool
) -> None:
    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        (out / segment.directory).mkdir(parents=True, exist_ok=True)
        (out / segment.directory / f".{segment.stem}.log.{attempt}.1.tmp").write_bytes(b"half")
        error = OSError(28, "No space left on device")
        raise cannot_write("/full/disk", error) if named else error

    said = (
        "/full/disk cannot be written: No space left on device; free space there or name a place on another disk"
        if named
        else "OSError: [Errno 28] No space left on device"
    )
    with pytest.raises(KfuzzError, match=f"^{re.escape(f'the Spark job failed: {said}')}$"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert {name for name in digests(tmp_path / "out") if not name.startswith("_rows/")} == {"_workload.toml"}


@pytest.mark.full
def test_the_other_tasks_of_a_failed_job_have_ended_before_its_leftovers_are_removed(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        slow = tmp_path / "notes" / "slow"
        if segment_id == 0:
            # The job fails while the other task is at work.
            while not slow.exists():
                time.sleep(0.01)
            raise OSError(28, "No space left on device")
        (out / segment.directory).mkdir(parents=True, exist_ok=True)
        slow.write_text(str(os.getpid()))
        time.sleep(1.5)
        (out / segment.directory / f".{segment.stem}.log.{attempt}.1.tmp").write_bytes(b"half")
        time.sleep(60)

    with pytest.raises(KfuzzError, match="No space left on device"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert not psutil.pid_exists(int((tmp_path / "notes" / "slow").read_text()))
    assert {name for name in digests(tmp_path / "out") if not name.startswith("_rows/")} == {"_workload.toml"}


@pytest.mark.full
def test_workers_without_kfuzz_are_reported_with_their_python_and_the_remedy(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'kfuzz':\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
    )
    python = tmp_path / "python-without-kfuzz"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}:$PYTHONPATH exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    with pytest.raises(KfuzzError) as caught:
        generate(spark, WORKLOAD, tmp_path / "out", tasks=1)
    assert str(caught.value) == (
        f"the Spark job failed: kfuzz is not installed for the workers' Python ({python}); install kfuzz[spark] on "
        "every executor, or send it with the job as docs/spark.md says"
    )


@pytest.mark.full
def test_progress_counts_the_tasks_of_the_last_stage_to_their_end(spark: Any, tmp_path: Path) -> None:
    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        time.sleep(0.4)
        return write_segment(segment, segment_id, workload, out, attempt)

    heard: list[int] = []
    generate(spark, WORKLOAD, tmp_path / "out", tasks=7, set_done=heard.append, write=write)
    assert heard == sorted(heard)
    assert heard[0] == 0
    # A poll may miss some of the seven.
    assert len(set(heard)) >= 3
    assert max(heard) <= 7


def test_tasks_have_a_gibibyte_each_but_a_driver_has_at_most_twenty_thousand(spark: Any) -> None:
    from kfuzz.spark.sessions import default_tasks

    assert default_tasks(spark, 3 << 40, 50_000) == 3072
    assert default_tasks(spark, 100 << 40, 1_600_000) == 20_000
    assert default_tasks(spark, 100 << 40, 7) == 7
    assert default_tasks(spark, 1, 0) == 1


def test_a_driver_listens_on_this_machine_only_where_all_its_executors_run_here() -> None:
    from kfuzz.spark.sessions import _driver_address

    for master in ("local", "local[*]", "local[2,4]", "local-cluster[2,1,1024]"):
        assert set(_driver_address(master).values()) == {"127.0.0.1"}
    for master in ("spark://host:7077", "yarn", "k8s://https://host:443"):
        assert _driver_address(master) == {}


@pytest.mark.full
def test_an_interrupted_job_is_one_sentence_and_leaves_no_half_file(tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = [sys.executable, JOBS / "generate_corpus.py", "--workload", WORKLOADS / "demo.toml", "--master", "local[2]"]
    running = start([*job, "--out", out, "--size", "20GiB"])
    _, told = interrupt_when(running, lambda: bool(list(out.glob("*/.*.tmp"))), within_s=240)
    assert running.returncode == 130
    lines = [line for line in told.splitlines() if not line.startswith("generating: ")]
    assert lines == ["generate_corpus.py: interrupted"]
    assert list(out.rglob(".*")) == []
    assert not (out / "_SUCCESS").exists()


@pytest.mark.full
def test_an_interrupt_while_spark_starts_is_one_sentence_and_leaves_no_java_behind(tmp_path: Path) -> None:
    out = tmp_path / "out"
    job = [sys.executable, JOBS / "generate_corpus.py", "--workload", WORKLOADS / "demo.toml", "--master", "local[2]"]
    running = start([*job, "--out", out])
    started: list[psutil.Process] = []

    def java_starts() -> bool:
        # By its wrapper or by its own name.
        started[:] = [child for child in psutil.Process(running.pid).children() if child.name() in ("java", "sh")]
        return bool(started)

    _, told = interrupt_when(running, java_starts, within_s=120)
    assert running.returncode == 130
    assert told == "generate_corpus.py: interrupted\n"
    assert psutil.wait_procs(started, timeout=30)[1] == []
    assert not out.exists()


@pytest.mark.full
def test_executors_with_different_codec_libraries_stop_the_job(spark: Any, tmp_path: Path) -> None:
    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        row = write_segment(segment, segment_id, workload, out, attempt)
        return replace(row, codec_versions='{"zstd": "0.0.1"}') if segment_id == 2 else row

    with pytest.raises(UsageError, match="install the same versions on every executor"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert not (tmp_path / "out/_SUCCESS").exists()
    assert not (tmp_path / "out/_manifest").exists()


def test_spark_refuses_what_one_process_refuses(spark: Any, tmp_path: Path) -> None:
    prepare(tmp_path / "out", replace(WORKLOAD, seed=99))
    with pytest.raises(UsageError, match="--overwrite"):
        generate(spark, WORKLOAD, tmp_path / "out")


@pytest.mark.full
def test_a_job_that_failed_is_resumed_and_only_the_rest_is_written(
    spark: Any, expected: dict[str, str], tmp_path: Path
) -> None:
    out, notes = tmp_path / "out", tmp_path / "notes"
    notes.mkdir()

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        if segment_id >= 8 and not (notes / "mended").exists():
            raise RuntimeError("on purpose")
        (notes / str(segment_id)).write_text(attempt)
        return write_segment(segment, segment_id, workload, out, attempt)

    with pytest.raises(KfuzzError, match="on purpose"):
        generate(spark, WORKLOAD, out, tasks=3, write=write)
    kept = {path.name for path in notes.iterdir()}
    assert kept == {str(segment_id) for segment_id in range(8)}
    with pytest.raises(UsageError, match="add --resume"):
        generate(spark, WORKLOAD, out, tasks=3, write=write)
    logs = {path: path.stat().st_mtime_ns for path in out.glob("*/*.log")}
    flip(min(logs), 500)
    for path in notes.iterdir():
        path.unlink()
    (notes / "mended").write_text("")
    generate(spark, WORKLOAD, out, tasks=2, resume="verify", write=write)
    again = {path.name for path in notes.iterdir()} - {"mended"}
    assert len(again & kept) == 1
    assert {str(segment_id) for segment_id in range(8, 12)} <= again
    assert digests(out) == expected


def test_executors_with_disks_of_their_own_end_in_one_sentence(spark: Any, tmp_path: Path) -> None:
    elsewhere = str(tmp_path / "elsewhere")

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        return write_segment(segment, segment_id, workload, elsewhere, attempt)

    with pytest.raises(UsageError, match=r"\.log is missing though it was written .*; name a place that the driver"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert not (tmp_path / "out/_SUCCESS").exists()


@pytest.mark.nightly
def test_a_job_writes_to_s3_what_one_process_writes_to_a_directory(s3: Any, tmp_path: Path) -> None:
    """In a process of its own, because workers have the environment that Java was started with."""
    (tmp_path / "w.toml").write_text(render(WORKLOAD))
    place = f"corpora/{tmp_path.name}"
    job = [JOBS / "generate_corpus.py", "--workload", tmp_path / "w.toml", "--out", f"s3://{place}", "--verify"]
    environment = {**os.environ, "PYTHONPATH": str(JOBS.parent)}
    running = start([sys.executable, *job, "--master", "local[2]", "--tasks", "3"], cwd=tmp_path, env=environment)
    told, wrong = running.communicate(timeout=300)
    assert running.returncode == 0, wrong
    assert f"s3://{place}: no problem in" in told
    s3.get(place, str(tmp_path / "copy"), recursive=True)
    generate_here(WORKLOAD, tmp_path / "here")
    assert digests(tmp_path / "copy") == digests(tmp_path / "here")


def test_verification_on_spark_finds_what_one_process_finds(spark: Any, tmp_path: Path) -> None:
    from kfuzz.spark.verification import verify

    out = tmp_path / "out"
    generate_here(WORKLOAD, out)
    assert verify(spark, out, tasks=3)[1] == []
    logs = sorted(out.glob("*/*.log"))
    flip(logs[0], logs[0].stat().st_size // 2, 0x10)
    logs[1].with_suffix(".index").unlink()
    logs[2].with_suffix(".timeindex").write_bytes(b"")
    (out / "stray").write_text("")
    problems = verify(spark, out, tasks=3)[1]
    assert problems == verify_here(out)
    assert len({problem.code for problem in problems}) >= 4


def test_the_entry_points_generate_verify_and_answer_with_exit_codes(
    spark: Any, expected: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.spark.jobs import generate_main, verify_main

    workload = tmp_path / "w.toml"
    workload.write_text(render(WORKLOAD))
    out = str(tmp_path / "out")
    made = ["--workload", str(workload), "--out", out]
    assert generate_main([*made, "--size", "512KiB", "--tasks", "2", "--verify"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-3].startswith("fingerprint ")
    assert "set retention.ms=-1 on its topics" in told[-2]
    assert f"{out}: no problem in " in told[-1]
    assert verify_main(["--out", out]) == 0
    assert "no problem" in capsys.readouterr().out
    assert verify_main(["--out", out, "--statistics"]) == 0
    assert f"{out}/_verify.json: " in capsys.readouterr().out
    # The workload's own size is larger: the corpus grows.
    assert generate_main(made) == 0
    assert digests(tmp_path / "out") == expected
    assert generate_main([*made, "--size", "256KiB"]) == 2
    assert "cannot shrink to 256 KiB; raise size, name another directory or add --over" in capsys.readouterr().err
    assert generate_main([*made, "--resume", "--overwrite"]) == 2
    assert "--overwrite removes what --resume would keep; give one of them" in capsys.readouterr().err
    assert generate_main([*made, "--overwrite", "--size", "256KiB"]) == 0
    (tmp_path / "out/_SUCCESS").unlink()
    assert verify_main(["--out", out, "--tasks", "1"]) == 1
    assert "_SUCCESS: is missing" in capsys.readouterr().out
    for wrong in (["--size", "nothing"], ["--tasks", "0"]):
        assert generate_main([*made, *wrong]) == 2
    assert verify_main(["--out", str(tmp_path / "absent")]) == 2
    assert "Traceback" not in capsys.readouterr().err
