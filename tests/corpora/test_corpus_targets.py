"""Targets: an S3 server, memory:// and a directory hold the same corpus, and never half a file under its name."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_corpora import ABORTING
from programs import run_program
from s3_server import place, s3
from test_corpus_resume import digests

from kfuzz import storage as targets
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, MIB, Topic, Workload
from kfuzz.errors import UsageError
from kfuzz.storage import RemoteTarget, Target

__all__ = ["place", "s3"]

WORKLOAD = Workload(topics=(ABORTING,), size=512 * KIB, segment_bytes=128 * KIB)


def test_every_target_holds_the_same_corpus_and_it_verifies(place: str, tmp_path: Path) -> None:
    rows = list(generate(WORKLOAD, place))
    assert list(generate(WORKLOAD, tmp_path / "here")) == rows
    assert digests(place) == digests(tmp_path / "here")
    assert len(digests(place)) > 4 * len(rows)
    assert verify(place) == []


def test_damage_is_found_and_named_on_every_target(place: str) -> None:
    rows = list(generate(WORKLOAD, place))
    target = Target.of(place)
    log = bytearray(target.read(rows[0].path) or b"")
    log[len(log) // 2] ^= 1
    target.write(rows[0].path, bytes(log))
    target.write(rows[1].path.replace(".log", ".index"), b"")
    target.remove(rows[2].path)
    target.write("t-1/notes", "")
    assert {problem.path for problem in verify(place)} == {
        rows[0].path,
        rows[1].path.replace(".log", ".index"),
        rows[2].path,
        "t-1/notes",
    }


def test_other_corpora_are_refused_and_removed_on_every_target(place: str, tmp_path: Path) -> None:
    generate(WORKLOAD, place)
    other = Workload(topics=(Topic("other"),), size=64 * KIB, segment_bytes=64 * KIB)
    with pytest.raises(UsageError, match="holds a corpus of another workload"):
        generate(other, place)
    generate(other, place, overwrite=True)
    generate(other, tmp_path / "fresh")
    assert digests(place) == digests(tmp_path / "fresh")
    Target.of(place).remove("_workload.toml")
    with pytest.raises(UsageError, match="is not empty and holds no corpus"):
        generate(other, place, overwrite=True)


def test_no_more_is_read_of_a_small_file_than_a_bound(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "READ_BYTES_MAX", KIB)
    target = Target.of(place)
    for size in (0, KIB):
        target.write("small", b"x" * size)
        assert target.read("small") == b"x" * size
    assert target.read("absent") is None
    target.write("small", b"x" * (KIB + 1))
    with pytest.raises(UsageError, match="small is larger than 1024 bytes, the most that kfuzz reads of"):
        target.read("small")


@pytest.mark.parametrize("size", [10, 2 * targets.PART_BYTES])
def test_a_visible_log_has_its_indexes(place: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was written first gets its name last: after a crash between two names, the log is missing."""
    target = Target.of(place)

    def fail(*names: Any) -> None:
        if str(names[-1]).endswith("a.index") or str(names[0]).endswith("a.index"):
            raise OSError(5, "on purpose")
        plain(*names)

    with target.stage("d", "a") as stage:
        stage.write("a.log", [bytes(1000)] * (size // 1000) + [bytes(size % 1000)])
        stage.write("a.index", [b"index"])
        owner, name = os, "replace"
        if isinstance(target, RemoteTarget):
            owner, name = target._fs, "pipe_file" if target.has_multipart() else "mv"
        plain = getattr(owner, name)
        monkeypatch.setattr(owner, name, fail)
        with pytest.raises(UsageError, match=r"cannot be written: .*on purpose"):
            stage.publish()
    monkeypatch.undo()
    assert [found for found, _ in target.walk() if not found.endswith(".tmp")] == []


SIZES = [0, 1, targets.PART_BYTES - 1, targets.PART_BYTES, 2 * targets.PART_BYTES + 7]


@pytest.mark.parametrize("size", SIZES)
def test_a_file_has_its_name_only_when_it_is_whole(place: str, size: int) -> None:
    target = Target.of(place)
    content = bytes(range(256)) * (size // 256 + 1)
    pieces = [content[at : min(at + 700_001, size)] for at in range(0, size, 700_001)]
    target.write("d/file", b"old")
    with target.stage("d", "a") as stage:
        stage.write("file", pieces)
        stage.write("index", [b"index"])
        assert target.read("d/file") == b"old"
        assert target.read("d/index") is None
        stage.publish()
    assert target.read("d/file") == content[:size]
    assert target.list("d").files == {"file": size, "index": 5}
    with target.view("d/file") as view:
        assert view == content[:size]


@pytest.mark.parametrize("size", SIZES)
def test_an_attempt_that_fails_leaves_the_old_file_and_nothing_else(place: str, size: int) -> None:
    def pieces() -> Iterator[bytes]:
        for at in range(0, size, 1 << 20):
            yield bytes(min(1 << 20, size - at))
        raise RuntimeError("on purpose")

    target = Target.of(place)
    target.write("d/file", b"old")
    with pytest.raises((RuntimeError, UsageError), match="on purpose"), target.stage("d", "a") as stage:
        stage.write("file", pieces())
    assert {name: target.read(name) for name, _ in target.walk()} == {"d/file": b"old"}
    assert uploads(target) == []


def uploads(target: Target) -> list[Any]:
    """The unfinished uploads of the bucket, which no listing shows."""
    if not target.uri.startswith("s3:"):
        return []
    assert isinstance(target, RemoteTarget)
    found = target._fs.call_s3("list_multipart_uploads", Bucket="corpora")
    return list(found.get("Uploads") or [])


def test_a_directory_that_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `--overwrite` would leave segments of the old corpus among the new ones."""
    target = Target.of(tmp_path)
    target.write("t-0/kept", "")
    target.remove_directory("t-1")

    def refuse(*place: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "rmdir", refuse)
    with pytest.raises(UsageError, match=r"/t-0 cannot be removed: Permission denied; remove it yourself"):
        target.remove_directory("t-0")


@pytest.mark.full
def test_a_sweep_removes_what_dead_attempts_left_but_no_other_file(place: str) -> None:
    target = Target.of(place)
    target.write("t-0/kept", "")
    stage = target.stage("t-0", "dead")
    stage.__enter__()
    stage.write("big", [bytes(1 << 20)] * 11)
    beside = Target.of(f"{place}-beside")
    other = beside.stage("t-0", "alive")
    other.__enter__()
    other.write("big", [bytes(1 << 20)] * 11)
    target.sweep(["t-0"])
    assert [name for name, _ in target.walk()] == ["t-0/kept"]
    other.publish()
    assert beside.list("t-0").files == {"big": 11 << 20}
    assert uploads(target) == []
    beside.remove_directory("")
    with pytest.raises(UsageError, match="cannot be written"):
        stage.publish()
    stage.__exit__(None, None, None)


def test_segments_that_the_driver_does_not_see_are_named_on_every_target(place: str, tmp_path: Path) -> None:
    """Executors with disks of their own: their files are not where the driver looks."""
    from kfuzz.corpora.generation import prepare, publish

    prepare(place, WORKLOAD)
    plan = Plan(WORKLOAD)
    rows = [write_segment(segment, at, WORKLOAD, tmp_path / "elsewhere", "a") for at, segment in enumerate(plan)]
    with pytest.raises(UsageError, match=r"t-0/.*\.log is missing though .* more segments .*; name a place"):
        publish(place, plan, rows)
    assert "_SUCCESS" not in digests(place)


MEASURE = """
import sys, tracemalloc
from kfuzz.storage import Target
target = Target.of(sys.argv[1])
target.write("warm", bytes(100))
chunk = bytes(1 << 20)
tracemalloc.start()
with target.stage("d", "a") as stage:
    stage.write("big", (chunk for _ in range(96)))
    stage.publish()
with target.view("d/big") as view:
    assert len(view) == 96 << 20
print(tracemalloc.get_traced_memory()[1])
"""


@pytest.mark.full
def test_an_upload_and_its_verification_hold_a_few_mebibytes(s3: Any, tmp_path: Path) -> None:
    del s3
    argv = [sys.executable, "-c", MEASURE, f"s3://corpora/{tmp_path.name}"]
    measured = run_program(*argv)
    assert int(measured.stdout) < 24 * MIB


def test_a_server_that_is_not_there_and_a_bucket_that_is_not_there_are_one_sentence(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"^s3://absent-bucket/x.* cannot be (read|written): .*; check the address"):
        generate(WORKLOAD, "s3://absent-bucket/x")
    # A port that nothing listens on.
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    type(s3).clear_instance_cache()
    with pytest.raises(UsageError, match=r"^s3://corpora/x.* cannot be read: .*; check the address"):
        generate(WORKLOAD, "s3://corpora/x")
    type(s3).clear_instance_cache()


@pytest.mark.parametrize(
    ("uri", "module", "sentence"),
    [
        ("s3://b/x", "s3fs", r"s3://b/x needs s3fs, which is not installed; pip install 'kfuzz\[s3\]'"),
        ("gs://b/x", "gcsfs", "gs://b/x needs gcsfs, which is not installed; pip install gcsfs"),
        ("sftp://b/x", "paramiko", "sftp://b/x needs another package; .*paramiko"),
        ("s3://b/x", "fsspec.core", r"s3://b/x needs s3fs, which is not installed; pip install 'kfuzz\[s3\]'"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    uri: str, module: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = importlib.import_module("fsspec.registry")._registry
    monkeypatch.delitem(known, uri.partition(":")[0], raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=f"^{sentence}"):
        Target.of(uri)
