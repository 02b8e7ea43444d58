"""A corpus directory: what generating leaves there, and what it refuses to touch."""

from __future__ import annotations

import hashlib
import importlib.util
import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_corpora import ABORTING, digests

from kfuzz import storage as targets
from kfuzz.corpora import generation
from kfuzz.corpora.generation import generate, prepare, publish
from kfuzz.corpora.manifest import Manifest, corpus_fingerprint
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.workload import KIB, Batches, Values, Workload, load
from kfuzz.errors import UsageError
from kfuzz.storage import LocalTarget

WORKLOAD = Workload(topics=(ABORTING,), size=512 * KIB, segment_bytes=128 * KIB)


def test_a_corpus_has_the_files_that_a_log_directory_has(tmp_path: Path) -> None:
    generate(WORKLOAD, tmp_path / "out")
    names = set(digests(tmp_path / "out"))
    stems = [segment.path.removesuffix(".log") for segment in Plan(WORKLOAD)]
    expected = {f"{stem}{suffix}" for stem in stems for suffix in (".log", ".index", ".timeindex", ".txnindex")}
    expected |= {segment.snapshot_path for segment in Plan(WORKLOAD)}
    expected |= {f"t-{at}/leader-epoch-checkpoint" for at in (0, 1)}
    assert names == expected | {"_workload.toml", "_SUCCESS", "_manifest/part-00000.parquet"}
    assert (tmp_path / "out/t-1/leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_success_holds_the_fingerprint_of_the_manifest(tmp_path: Path) -> None:
    rows = list(generate(WORKLOAD, tmp_path / "out"))
    assert list(Manifest(tmp_path / "out/_manifest")) == rows
    fingerprint, *sums = (tmp_path / "out/_SUCCESS").read_text().splitlines()
    assert fingerprint == corpus_fingerprint(rows)
    names = ["_manifest/part-00000.parquet", "_workload.toml"]
    sums = [line for line in sums if not line.startswith("# ")]
    assert sums == [f"{hashlib.sha256((tmp_path / 'out' / name).read_bytes()).hexdigest()}  {name}" for name in names]
    assert load(tmp_path / "out/_workload.toml") == WORKLOAD


def test_overwrite_of_the_same_workload_gives_the_same_bytes(tmp_path: Path) -> None:
    generate(WORKLOAD, tmp_path / "out")
    first = digests(tmp_path / "out")
    (tmp_path / "out/t-0/stray").write_text("")
    generate(WORKLOAD, tmp_path / "out", overwrite=True)
    assert digests(tmp_path / "out") == first


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_with_foreign_files_is_never_touched(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="holds no corpus; name a new or empty directory"):
        generate(WORKLOAD, tmp_path, overwrite=overwrite)
    assert digests(tmp_path).keys() == {"thesis.txt"}


def test_a_file_in_the_directorys_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UsageError, match="is not a directory"):
        generate(WORKLOAD, tmp_path / "out")


def test_a_corpus_that_the_disk_cannot_hold_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"takes 1024 PiB, but \d+ B are free there; lower size or name a directory on another disk"
    ):
        generate(WORKLOAD.resized(1 << 60), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_size_of_a_compressed_corpus_is_predicted_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = replace(WORKLOAD.topics[0], values=Values(kind="text"), batches=Batches(codecs=(("zstd", 1),)))
    workload = replace(WORKLOAD, topics=(topic,))
    monkeypatch.setattr(LocalTarget, "free_bytes", lambda self: workload.size * 3 // 4)
    generate(workload, tmp_path / "fits")
    monkeypatch.setattr(LocalTarget, "free_bytes", lambda self: workload.size // 10)
    with pytest.raises(UsageError, match=r"takes \d+ B, but \d+ B are free there"):
        generate(workload, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_pyarrow_the_extra_is_named_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'kfuzz\[corpus\]'"):
        generate(WORKLOAD, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_overwrite_does_not_guess_what_a_broken_corpus_held(tmp_path: Path) -> None:
    generate(WORKLOAD, tmp_path / "out")
    (tmp_path / "out/_workload.toml").write_text("size = ")
    with pytest.raises(UsageError, match=r"remove .* yourself"):
        generate(WORKLOAD, tmp_path / "out", overwrite=True)


def test_an_interrupted_run_leaves_no_success_and_no_half_file_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []

    def failing(descriptor: int, data: memoryview | bytes) -> None:
        # Only a log has chunks of this size, one in each segment.
        if len(data) > 64 * KIB:
            written.append(len(data))
            if len(written) == 3:
                raise OSError(28, "No space left on device")
        plain(descriptor, data)

    generate(WORKLOAD, tmp_path / "out")
    whole = digests(tmp_path / "out")
    plain = targets._write_fully
    monkeypatch.setattr(targets, "_write_fully", failing)
    for path in ("out", "fresh"):
        written.clear()
        with pytest.raises(UsageError, match=r"\.log cannot be written: No space left on device; free space there"):
            generate(WORKLOAD, tmp_path / path, overwrite=True, jobs=1)
        left = digests(tmp_path / path)
        assert "_SUCCESS" not in left
        assert not [name for name in left if name.endswith(".tmp")]
        # A file that has its final name is whole.
        assert not {name for name in left if left[name] != whole.get(name) and not name.startswith("_rows/")}
    monkeypatch.undo()
    generate(WORKLOAD, tmp_path / "fresh", resume="sizes")
    assert digests(tmp_path / "fresh") == whole


def test_the_number_of_jobs_changes_no_byte(tmp_path: Path) -> None:
    for jobs in (1, 2, 7):
        done: list[int] = []
        rows = generate(WORKLOAD, tmp_path / str(jobs), jobs=jobs, set_done=done.append)
        assert done == list(range(len(rows) + 1))
        assert digests(tmp_path / str(jobs)) == digests(tmp_path / "1")


def test_a_failure_soon_stops_the_other_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, stopped = threading.Barrier(3), []

    def first_fails(segment: Any, segment_id: int, *rest: Any) -> Any:
        begun.wait(30)
        if segment_id == 0:
            raise UsageError("a full disk")
        try:
            # Without the flag, this would go on for ever.
            while True:
                write_segment(segment, segment_id, *rest)
        except CancelledError:
            stopped.append(segment_id)
            raise

    monkeypatch.setattr(generation, "write_segment", first_fails)
    with pytest.raises(UsageError, match="a full disk"):
        generate(WORKLOAD, tmp_path / "out", jobs=3)
    assert sorted(stopped) == [1, 2]
    assert not [path for path in (tmp_path / "out").rglob("*") if path.name.endswith(".tmp")]


def test_segments_of_different_codec_libraries_are_not_published(tmp_path: Path) -> None:
    prepare(tmp_path / "out", WORKLOAD)
    plan = Plan(WORKLOAD)
    rows = [write_segment(segment, at, WORKLOAD, tmp_path / "out", "a") for at, segment in enumerate(plan)]
    rows[1] = replace(rows[1], codec_versions='{"zstd": "0.0.1"}')
    with pytest.raises(
        UsageError, match=r"different versions of kfuzz or of the codec libraries .* install the same versions"
    ):
        publish(tmp_path / "out", plan, rows)
    assert not (tmp_path / "out" / generation.SUCCESS).exists()


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_corpus_is_not_published_where_a_file_of_it_is_missing(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / "out"
    prepare(out, WORKLOAD)
    plan = Plan(WORKLOAD)
    rows = [write_segment(segment, at, WORKLOAD, out, "a") for at, segment in enumerate(plan)]
    name = plan[1].snapshot_path if suffix == ".snapshot" else plan[1].path.removesuffix(".log") + suffix
    (out / name).unlink()
    with pytest.raises(
        UsageError,
        match=rf"{name} is missing though it was written; name a place that the driver and all executors",
    ):
        publish(out, plan, rows)
    assert not (out / generation.SUCCESS).exists()
    assert not (out / generation.MANIFEST).exists()


def test_a_corpus_is_not_published_where_all_its_logs_are_gone_or_one_has_another_size(tmp_path: Path) -> None:
    out = tmp_path / "out"
    rows = list(generate(WORKLOAD, out))
    plan = Plan(WORKLOAD)
    (out / generation.SUCCESS).unlink()
    log = out / plan[2].path
    log.write_bytes(log.read_bytes()[:-1])
    with pytest.raises(UsageError, match=rf"{plan[2].path} has {rows[2].bytes - 1} bytes instead of {rows[2].bytes}"):
        publish(out, plan, rows)
    for segment in plan:
        (out / segment.path).unlink()
    with pytest.raises(UsageError, match=rf"\(and {len(plan) - 1} more segments are missing or wrong\)"):
        publish(out, plan, rows)
    assert not (out / generation.SUCCESS).exists()
