"""Resuming: what is whole stays untouched, the rest is written, and the result is that of one undisturbed run."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from made_corpora import ABORTING, flip
from s3_server import place, s3
from test_corpus_manifest import ROW

from kfuzz.corpora import finished as rows_module
from kfuzz.corpora import generation
from kfuzz.corpora.finished import KeptRows, RowWriter, directory_of
from kfuzz.corpora.generation import generate, prepare
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, Topic, Workload
from kfuzz.errors import UsageError
from kfuzz.storage import Target

__all__ = ["place", "s3"]

WORKLOAD = Workload(topics=(ABORTING,), size=768 * KIB, segment_bytes=128 * KIB)


def digests(place: str | Path | Target) -> dict[str, str]:
    target = Target.of(place)
    return {name: hashlib.sha256(target.read(name) or b"").hexdigest() for name, _ in target.walk()}


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, str]:
    generate(WORKLOAD, tmp_path / "whole")
    return digests(tmp_path / "whole")


class Writes:
    """``write_segment`` that notes which segments it wrote, and fails after ``limit`` of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ids: list[int] = []
        self.limit = 1000
        monkeypatch.setattr(generation, "write_segment", self)

    def __call__(self, segment: Any, segment_id: int, *rest: Any) -> Any:
        if len(self.ids) == self.limit:
            raise KeyboardInterrupt
        self.ids.append(segment_id)
        return write_segment(segment, segment_id, *rest)


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> Writes:
    return Writes(monkeypatch)


def interrupted(place: str | Path, writes: Writes, after: int) -> None:
    writes.limit = after
    with pytest.raises(KeyboardInterrupt):
        generate(WORKLOAD, place, jobs=1)
    writes.limit = 1000
    writes.ids.clear()


@pytest.mark.parametrize("resume", ["sizes", "verify"])
def test_an_interrupted_run_continues_where_it_stopped(
    place: str, whole: dict[str, str], writes: Writes, resume: Any
) -> None:
    interrupted(place, writes, 4)
    done: list[int] = []
    rows = generate(WORKLOAD, place, resume=resume, set_done=done.append)
    assert sorted(writes.ids) == [4, 5]
    assert done == [4, 5, 6]
    assert digests(place) == whole
    assert len(rows) == 6


def test_a_plain_run_on_an_unfinished_corpus_names_both_ways_on_and_changes_nothing(
    tmp_path: Path, writes: Writes
) -> None:
    out = tmp_path / "out"
    interrupted(out, writes, 3)
    before = digests(out)
    with pytest.raises(UsageError, match="add --resume to continue it or --overwrite to begin again"):
        generate(WORKLOAD, out)
    assert digests(out) == before
    generate(WORKLOAD, out, overwrite=True)
    assert sorted(writes.ids) == list(range(6))


def test_a_second_run_on_a_finished_corpus_touches_nothing(tmp_path: Path, writes: Writes) -> None:
    out = tmp_path / "out"
    first = list(generate(WORKLOAD, out))
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    writes.ids.clear()
    for resume in ("no", "sizes", "verify"):
        assert list(generate(WORKLOAD, out, resume=resume)) == first  # type: ignore[arg-type]
    assert writes.ids == []
    logs = {path: at for path, at in before.items() if path.suffix in (".log", ".index")}
    assert all(path.stat().st_mtime_ns == at for path, at in logs.items())


def damage(out: Path) -> None:
    plan = Plan(WORKLOAD)
    log = out / plan[0].path
    log.write_bytes(log.read_bytes()[:-1])
    (out / plan[2].path).with_suffix(".index").unlink()
    (out / plan[4].path).unlink()
    flip(out / plan[5].path, 1000)


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize(("resume", "written"), [("sizes", [0, 2, 4]), ("verify", [0, 2, 4, 5])])
def test_damaged_segments_are_written_again(
    tmp_path: Path, whole: dict[str, str], writes: Writes, finished: bool, resume: Any, written: list[int]
) -> None:
    out = tmp_path / "out"
    if finished:
        generate(WORKLOAD, out)
        writes.ids.clear()
    else:
        # All segments are there; the run stops before it publishes.
        prepare(out, WORKLOAD)
        with RowWriter(Target.of(out), WORKLOAD, 1, "a") as writer:
            for at, segment in enumerate(Plan(WORKLOAD)):
                writer.add(write_segment(segment, at, WORKLOAD, out, "a"))
    damage(out)
    generate(WORKLOAD, out, resume=resume)
    assert sorted(writes.ids) == written
    if resume == "verify":
        assert digests(out) == whole
        assert verify(out) == []
    else:
        assert {problem.path for problem in verify(out)} == {Plan(WORKLOAD)[5].path}


def test_a_run_that_stops_while_it_publishes_continues(
    tmp_path: Path, whole: dict[str, str], writes: Writes, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    plain = generation.success_text
    for step in ("write_manifest", "success_text"):
        with monkeypatch.context() as patch:
            patch.setattr(generation, step, lambda *rest: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                generate(WORKLOAD, out, resume="sizes")
    assert generation.success_text is plain
    writes.ids.clear()
    generate(WORKLOAD, out, resume="sizes")
    assert writes.ids == []
    assert digests(out) == whole


def test_a_driver_that_lost_its_lock_does_not_publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"

    def loses(*rest: Any) -> Any:
        for path in out.glob("_lock-*"):
            path.unlink(missing_ok=True)
        return write_segment(*rest)

    monkeypatch.setattr(generation, "write_segment", loses)
    with pytest.raises(UsageError, match="another driver has taken over this corpus; let it finish, then verify"):
        generate(WORKLOAD, out)
    assert not (out / "_SUCCESS").exists()
    assert not (out / "_manifest").exists()


def test_an_index_that_a_row_no_longer_has_is_removed(tmp_path: Path, writes: Writes) -> None:
    """As of a last segment that had an aborted transaction before the corpus grew."""
    workload = Workload(topics=(Topic("t"),), size=256 * KIB, segment_bytes=64 * KIB)
    writes.limit = 2
    with pytest.raises(KeyboardInterrupt):
        generate(workload, tmp_path / "out")
    writes.limit = 1000
    for segment in Plan(workload):
        (tmp_path / "out" / segment.path).with_suffix(".txnindex").write_bytes(b"old")
    generate(workload, tmp_path / "out", resume="sizes")
    assert verify(tmp_path / "out") == []


def test_the_rows_of_the_latest_run_count(tmp_path: Path) -> None:
    target = Target.of(tmp_path)
    for run, size in ((1, 10), (3, 30), (2, 20)):
        with RowWriter(target, WORKLOAD, run, "a") as writer:
            writer.add(replace(ROW, segment_id=run % 2, bytes=size))
            writer.add(replace(ROW, segment_id=5, bytes=size))
    kept = KeptRows.of(target, WORKLOAD)
    assert [(row.segment_id, row.bytes) for row in kept] == [(0, 20), (1, 30), (5, 30)]
    assert kept.next_run == 4
    assert list(KeptRows.of(target, WORKLOAD.resized(1 << 20))) == []


def test_rows_are_merged_in_order_however_tasks_wrote_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "ROWS_PER_FILE", 7)
    chance = random.Random(1)
    target = Target.of(tmp_path)
    expected: dict[int, int] = {}
    for run in range(1, 6):
        for task in range(4):
            ids = chance.sample(range(200), 30)
            with RowWriter(target, WORKLOAD, run, f"{task}") as writer:
                for segment_id in ids:
                    writer.add(replace(ROW, segment_id=segment_id, bytes=run))
                    expected[segment_id] = run
    kept = KeptRows.of(target, WORKLOAD)
    assert [(row.segment_id, row.bytes) for row in kept] == sorted(expected.items())
    part = [row.segment_id for row in kept.between(50, 60) if 50 <= row.segment_id <= 60]
    assert part == [segment_id for segment_id in sorted(expected) if 50 <= segment_id <= 60]


@pytest.mark.parametrize("line", ["", "{", "[]", '{"segment_id": 0}', "no", "\xff"])
def test_a_row_of_another_version_or_half_a_row_is_not_kept(tmp_path: Path, line: str) -> None:
    target = Target.of(tmp_path)
    good = json.dumps(asdict(ROW))
    target.write(f"{directory_of(WORKLOAD)}/000001-000000000000-000000000000-a.jsonl", f"{line}\n{good}\n")
    target.write(f"{directory_of(WORKLOAD)}/notes.txt", "")
    assert list(KeptRows.of(target, WORKLOAD)) == [ROW]


def test_rows_are_kept_while_the_run_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.of(tmp_path)
    monkeypatch.setattr(rows_module, "FLUSH_S", 0.0)
    with RowWriter(target, WORKLOAD, 1, "a") as writer:
        for at in range(3):
            writer.add(replace(ROW, segment_id=at))
            assert len(list(KeptRows.of(target, WORKLOAD))) == at + 1
