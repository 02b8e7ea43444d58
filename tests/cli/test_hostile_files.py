"""Files from others that are far larger, deeper or longer than what they claim to be: one sentence, little memory."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bombs import look
from cli_driver import kfuzz, refused
from irregular import IRREGULAR, SECRET, kinds
from made_corpora import digests
from replay.hand_made import batch, write_log

from kfuzz.corpora.workload import KIB, Topic, Workload, render
from kfuzz.records import Record, RecordBatch, encode_batch
from vectors import mini_suite

FIRST = f"{0:020d}"
GIB = 1 << 30
only_linux = pytest.mark.skipif(sys.platform != "linux", reason="/proc says how much memory a process had")


def sparse(path: Path, size: int, end: bytes = b"") -> None:
    path.parent.mkdir(exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(size - len(end))
        file.write(end)


def lines(path: Path, size: int) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"0\n5000000\n" + b"1 1\n" * (size // 4))


@pytest.mark.parametrize("verb", ["check", "show", "browse", "check DIR"])
@pytest.mark.parametrize(
    ("name", "make", "size"),
    [
        (f"{FIRST}.index", sparse, 6 * GIB),
        (f"{FIRST}.timeindex", sparse, 6 * GIB),
        (f"{FIRST}.txnindex", sparse, 6 * GIB),
        (f"{FIRST}.snapshot", sparse, 6 * GIB),
        ("partition.metadata", sparse, 6 * GIB),
        ("leader-epoch-checkpoint", lines, 20_000_000),
        ("recovery-point-offset-checkpoint", sparse, 20_000_000),
    ],
)
def test_a_file_beside_a_segment_that_is_too_large_is_one_sentence(
    tmp_path: Path, verb: str, name: str, make: Callable[[Path, int], None], size: int
) -> None:
    path = tmp_path / "orders-0" / name
    make(path, size)
    done = kfuzz("check", tmp_path) if verb == "check DIR" else kfuzz(verb, path)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    if verb == "check DIR":
        assert f"{path}: skipped: it has " in done.stdout
    elif verb != "browse":
        assert f"{path} has {path.stat().st_size} bytes; kfuzz reads such a file up to " in done.stderr


def peak_bytes(*words: str | Path) -> int:
    """The most memory that ``kfuzz WORDS…`` had."""
    return look(tuple(map(str, words))).memory_kib << 10


@only_linux
def test_an_index_of_any_size_takes_little_memory(tmp_path: Path) -> None:
    large = tmp_path / f"{FIRST}.index"
    sparse(large, 64 << 20, b"\1" * 8)
    assert peak_bytes("check", large) < 60 << 20
    full = tmp_path / f"{10:020d}.index"
    full.write_bytes(b"".join(struct.pack(">ii", i, i) for i in range(30_000)))
    for options in ([], ["--json"]):
        assert peak_bytes("show", full, *options) < 200 << 20


@only_linux
@pytest.mark.full
@pytest.mark.parametrize(
    "words", [("check", "{}"), ("cat", "--keep-going", "{}"), ("salvage", "{}", "--out", "{}/../../out")]
)
@pytest.mark.parametrize("length", [0, 0x7F000042])
def test_a_large_hole_in_a_segment_takes_little_memory(tmp_path: Path, words: tuple[str, ...], length: int) -> None:
    path = tmp_path / "log" / "t-0" / f"{FIRST}.log"
    path.parent.mkdir(parents=True)
    sparse(path, 400 << 20, encode_batch(batch(1)))
    with path.open("r+b") as file:
        file.write(encode_batch(batch(0)) + struct.pack(">qi", 1, length) + b"\0\0\0\0\2")
    where = path if words[0] == "check" else path.parent
    assert peak_bytes(*(word.replace("{}", str(where)) for word in words)) < 250 << 20


@only_linux
def test_an_index_that_is_larger_than_any_takes_cat_little_memory(tmp_path: Path) -> None:
    path = write_log(tmp_path, "t-0", [batch(10 * i) for i in range(12)])
    whole = kfuzz("cat", tmp_path).stdout
    sparse(path.with_suffix(".index"), 6 * GIB)
    sparse(path.with_suffix(".timeindex"), 6 * GIB)
    sparse(path.with_suffix(".snapshot"), 6 * GIB)
    for options in (
        [],
        ["--isolation", "read_committed"],
        ["--from", "0"],
        ["--from", "1970-01-01"],
        ["--tail", "500"],
    ):
        assert kfuzz("cat", tmp_path, *options).stdout == whole
    assert peak_bytes("cat", tmp_path, "--from", "0") < 300 << 20


# ------------------------------------------------------------------------------------------------- JSON and TOML

HOSTILE_JSON = {
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "many digits": b'{"size": ' + b"9" * 5000 + b"}",
    "no UTF-8": b"\xff\xfe",
    "empty": b"",
    "half of a character": b'"\\ud800"',
}
HOSTILE_TOML = {
    "deep lists": b"a = " + b"[" * 50_000,
    "deep tables": b"a = " + b"{a = " * 50_000,
    "a key of many parts": b"a" + b".a" * 50_000 + b" = 1",
    "a table of many parts": b"[a" + b".a" * 50_000 + b"]",
    "many digits": b"size = " + b"9" * 5000,
    "no UTF-8": b"\xff\xfe",
    "too large": b"#" * (2 << 20),
}


@pytest.mark.parametrize("content", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_json_from_others_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    suite = mini_suite.write(tmp_path / "suite")
    for file in (suite / "records/v2/count.json", suite / "suite.json"):
        before = file.read_bytes() if file.exists() else None
        file.write_bytes(content)
        for words in (["list", "--json"], ["copy", tmp_path / "copy"]):
            refused("vectors", *words, "--vectors", suite)
        file.unlink() if before is None else file.write_bytes(before)
    (suite / "records/v2/more.json").write_bytes(content)
    assert "records/v2/more.json: " in kfuzz("vectors", "lint", "--vectors", suite).stdout
    (suite / "records/v2/more.json").unlink()
    refused("messages", "encode", "ApiVersions", "--version", "3", stdin=content)
    (tmp_path / "one.json").write_bytes(content)
    refused("messages", "list", "--definitions", tmp_path / "one.json")
    # A copy's own list of files is only believed if it is one.
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "manifest.json").write_bytes(content)
    assert kfuzz("vectors", "copy", tmp_path / "copy", "--overwrite", "--vectors", suite).returncode == 0


@pytest.mark.parametrize("content", HOSTILE_TOML.values(), ids=HOSTILE_TOML)
def test_toml_from_others_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "workload.toml"
    file.write_bytes(content)
    refused("corpus", "generate", file, "--out", tmp_path / "out")
    file.rename(tmp_path / "_workload.toml")
    refused("corpus", "verify", tmp_path)
    good = tmp_path / "good.toml"
    good.write_text(render(Workload(topics=(Topic("t"),), size=64 * KIB)))
    refused("corpus", "generate", good, "--out", tmp_path, "--overwrite")


# -------------------------------------------------------------------------------------------------------- suites


@kinds
@pytest.mark.parametrize(
    "name", ["records/v2/more.json", "suite.json", "requirements.json", "expected/mine.txt", "statements.json"]
)
def test_a_suite_is_read_without_opening_what_is_no_file(tmp_path: Path, kind: str, name: str) -> None:
    suite = mini_suite.write(tmp_path / "suite")
    (suite / name).parent.mkdir(exist_ok=True)
    (suite / name).unlink(missing_ok=True)
    IRREGULAR[kind][0](suite / name)
    for words in (["list"], ["lint"], ["copy", tmp_path / "copy"]):
        done = kfuzz("vectors", *words, "--vectors", suite)
        assert done.returncode in (0, 1, 2)
        assert SECRET not in done.stdout + done.stderr
    if name.endswith("more.json"):
        refused("vectors", "list", "--vectors", suite)
        assert f"{name}: " in kfuzz("vectors", "lint", "--vectors", suite).stdout


def test_copy_neither_writes_nor_deletes_through_a_linked_folder(tmp_path: Path) -> None:
    suite = mini_suite.write(tmp_path / "suite")
    copy = tmp_path / "copy"
    assert kfuzz("vectors", "copy", copy, "--vectors", suite).returncode == 0
    victim = tmp_path / "victim"
    os.rename(copy / "records", victim)
    (copy / "records").symlink_to(victim)
    before = digests(tmp_path)
    refused("vectors", "copy", copy, "--overwrite", "--vectors", suite)
    assert digests(tmp_path) == before


def test_a_workload_without_end_is_one_sentence(tmp_path: Path) -> None:
    sparse(tmp_path / "workload.toml", 6 * GIB)
    refused("corpus", "generate", tmp_path / "workload.toml", "--out", tmp_path / "out")


@pytest.mark.parametrize(
    "words", [("cat", "-n"), ("cat", "--tail"), ("show", "--records"), ("show", "--dump", "--batches")], ids=" ".join
)
def test_any_number_may_be_asked_for(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = write_log(tmp_path, "t-0", [batch(0)])
    done = kfuzz(*words, "9" * 30, path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == kfuzz(*words, "50", path).stdout


@pytest.mark.parametrize("key", [b"\xff" * (3 << 20), b"k" * (3 << 20)], ids=["bytes", "text"])
def test_a_key_that_no_record_has_is_looked_for_among_large_ones(tmp_path: Path, key: bytes) -> None:
    path = tmp_path / "large.log"
    path.write_bytes(encode_batch(RecordBatch(0, 0, [Record(0, 0, key, b"v")])))
    done = kfuzz("cat", "--key", "other", path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
