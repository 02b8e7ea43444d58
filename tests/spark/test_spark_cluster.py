"""A standalone cluster whose executors run from the archive makes the bytes of one process, whatever fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from conftest import require_tool
from made_corpora import digests

from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import KIB, MIB, load, render
from kfuzz.fuzz.building import build
from kfuzz.records import Record, RecordBatch
from kfuzz.storage import LocalTarget

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
pytest.importorskip("pyspark", reason="pyspark is missing; run pip install 'kfuzz[spark]'")

from held_job import HELD  # noqa: E402
from spark_cluster import EXECUTOR, JOB_S, ROOT, Cluster, finish, running, wait_for  # noqa: E402

from kfuzz.spark.archive import make_archive  # noqa: E402

WORKLOAD = replace(load(ROOT / "spark_jobs/workloads/mixed.toml"), size=4 * MIB, segment_bytes=256 * KIB)
HELD_JOB = ROOT / "tests/spark/held_job.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_tool("java", "install a Java runtime of version 17 or newer")
    with running(tmp_path_factory.mktemp("cluster")) as made:
        yield made


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_archive(tmp_path_factory.mktemp("archive") / "env.zip").path


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workload") / "w.toml"
    path.write_text(render(WORKLOAD))
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The corpus as this process makes it."""
    out = tmp_path_factory.mktemp("here") / "out"
    generate(WORKLOAD, out)
    return digests(out)


def test_bare_executors_make_the_corpus_from_the_archive_and_verify_it(
    cluster: Cluster, archive: Path, workload: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    job = ROOT / "spark_jobs/generate_corpus.py"
    out = tmp_path / "out"
    said, told = finish(cluster.submit(archive, job, "--workload", workload, "--out", out, "--tasks", "7", "--verify"))
    assert "no problem in " in said
    assert digests(out) == expected
    # Java says a few lines before the job can tell it to be quiet. From then on, there is only progress.
    _, quiet, rest = told.partition('Setting Spark log level to "OFF".\n')
    assert quiet
    assert [line for line in rest.splitlines() if not line.startswith(("generating", "verifying"))] == []


def executor_of(pid: int) -> psutil.Process:
    """The executor's JVM that started this Python worker."""
    parents = psutil.Process(pid).parents()
    [found] = [one for one in parents if any(EXECUTOR in word for word in one.cmdline())]
    return found


def test_a_killed_executor_changes_no_byte(
    cluster: Cluster, archive: Path, workload: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    out, notes = tmp_path / "out", tmp_path / "notes"
    notes.mkdir()
    job = cluster.submit(archive, HELD_JOB, workload, out, notes, "4")
    pid = wait_for(lambda: note(notes, 0), JOB_S, lambda: f"no attempt: {job.poll()}")
    worker = psutil.Process(pid)
    before = executor_of(pid)
    before.kill()
    # The segment's second attempt runs while the worker of the dead executor still has the first one open.
    second = wait_for(lambda: note(notes, 1), JOB_S, lambda: f"no second attempt: {job.poll()}")
    assert executor_of(second) != before
    (notes / "release").touch()
    finish(job)
    psutil.wait_procs([worker], timeout=60)
    assert digests(out) == expected


def test_a_speculative_attempt_changes_no_byte(
    cluster: Cluster, archive: Path, workload: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    out, notes = tmp_path / "out", tmp_path / "notes"
    notes.mkdir()
    conf = {"": "true", ".interval": "100ms", ".quantile": "0.1", ".multiplier": "1.1", ".minTaskRuntime": "100ms"}
    settings = {f"spark.speculation{name}": value for name, value in conf.items()}
    job = cluster.submit(archive, HELD_JOB, workload, out, notes, "4", settings=settings)
    pid = wait_for(lambda: note(notes, 0), JOB_S, lambda: f"no attempt: {job.poll()}")
    worker = psutil.Process(pid)
    finish(job)
    # Nothing failed: Spark started the second attempt because the first one was slow, and killed the first one.
    assert note(notes, 1) is not None
    assert not (notes / "release").exists()
    psutil.wait_procs([worker], timeout=60)
    assert digests(out) == expected


def note(notes: Path, number: int) -> int | None:
    """The process of an attempt at the held segment; None before it begins."""
    path = notes / f"{HELD}.{number}"
    words = path.read_text().split() if path.exists() else []
    return int(words[0]) if words else None


def test_an_executor_of_another_size_makes_the_same_corpus(
    cluster: Cluster, archive: Path, workload: Path, expected: dict[str, str], tmp_path: Path
) -> None:
    job = ROOT / "spark_jobs/generate_corpus.py"
    out = tmp_path / "out"
    # One executor with one core instead of two.
    settings = {"spark.cores.max": "1"}
    finish(cluster.submit(archive, job, "--workload", workload, "--out", out, "--tasks", "50", settings=settings))
    assert digests(out) == expected


@pytest.mark.clang
def test_a_campaign_goes_on_when_an_executor_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    packed = make_archive(tmp_path / "env.zip", builds=[build()])
    place = tmp_path / "shared"
    # It breaks the canary, and comes from another machine.
    data = records.encode_batch(RecordBatch(0, 0, [Record(0, 1, b"0\x80000000", b"v" * 16)]))
    LocalTarget(place).write(f"canary/corpus/{hashlib.sha1(data).hexdigest()}", data)
    job = cluster.submit(
        packed.path, ROOT / "spark_jobs/fuzz_campaign.py", "canary", "--time", "20s", "--out", place, "--json"
    )

    def given() -> set[str] | None:
        """The inputs at the place, when campaigns have given some."""
        names = {file.name for file in (place / "canary/corpus").iterdir()}
        return names if len(names) > 20 else None

    before = wait_for(given, JOB_S, lambda: f"no inputs: {job.poll()}")
    cluster.executors()[0].kill()
    out, errors = job.communicate(timeout=JOB_S)
    assert job.returncode == 1, errors[-4000:]
    document = json.loads(out)
    tasks = document["tasks"]
    assert [(task["target"], task["no_native_coverage"]) for task in tasks] == [("canary", None)] * 2
    assert min(task["executions"] for task in tasks) > 10_000
    [cause] = document["causes"]["canary"]
    assert (place / f"canary/causes/panics-{cause['id']}").read_bytes()
    # The inputs of the lost campaign are still there, and each task that ended has its causes there.
    assert {name for name in before if not name.startswith(".")} <= {
        file.name for file in (place / "canary/corpus").iterdir()
    }
    assert len(list((place / "canary/campaigns").glob("*.json"))) >= 2
