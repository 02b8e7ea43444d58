"""The readers under examples/ pass a freshly copied suite, agree with each other, and fail where something is wrong."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import require_tool

from kfuzz.vectors.copying import copy

# The program that runs each reader, its file, and how to get the program.
READERS = {
    "python": ([sys.executable], "examples/python/read_suite.py", "install Python 3"),
    "go": (["go", "run"], "examples/go/read_suite.go", "install Go 1.23 or newer"),
    "javascript": (["node"], "examples/javascript/read_suite.mjs", "install Node 18 or newer"),
}
# A rule of each decoder, and what stands in its place once it is forgotten.
FORGOTTEN_RULES = {
    "python": ("if count < 0:", "if False:"),
    "go": ("if count < 0 {", "if false {"),
    "javascript": ("if (count < 0)", "if (false)"),
}
MISSED_THEN = "FAILED records/v2/count/negative-one-without-records ("


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("copied") / "suite").directory


@pytest.fixture(params=list(READERS))
def language(request: pytest.FixtureRequest) -> str:
    words, _, remedy = READERS[request.param]
    require_tool(words[0], remedy)
    return str(request.param)


def call(*words: str | Path) -> subprocess.CompletedProcess[str]:
    # Nothing is fetched: the readers need their standard library alone.
    environment = {**os.environ, "GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    return subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment, check=False)


@cache
def compiled(code: str) -> str:
    """The program that ``go build`` makes of a reader; `go run` would make it again for every test."""
    folder = Path(tempfile.mkdtemp(prefix="kfuzz-go-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "reader.go").write_text(code)
    done = call("go", "build", "-o", str(folder / "reader"), str(folder / "reader.go"))
    assert done.returncode == 0, done.stderr
    return str(folder / "reader")


def run(language: str, suite: Path, reader: Path | None = None) -> subprocess.CompletedProcess[str]:
    words, file, _ = READERS[language]
    reader = reader or suite / file
    return call(*([compiled(reader.read_text())] if language == "go" else [*words, reader]), suite)


@pytest.fixture(scope="module")
def two_vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    globs = ["records/v2/count/of-2", "records/v2/count/negative-one"]
    return copy(tmp_path_factory.mktemp("two") / "suite", globs).directory


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # The last one has so many records that its contents are a digest.
    globs = ["records/v2/bomb/gzip-*", "records/v2/bomb/records-131071"]
    return copy(tmp_path_factory.mktemp("bombs") / "suite", globs, bombs=True).directory


def spoiled(two_vectors: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], None]) -> Path:
    """A copy of two vectors, of which the valid one is spoiled."""
    copied = shutil.copytree(two_vectors, tmp_path / "suite")
    path = copied / "records/v2/count.json"
    document = json.loads(path.read_bytes())
    spoil(next(vector for vector in document["vectors"] if vector["id"].endswith("of-2")))
    path.write_text(json.dumps(document))
    return copied


def test_a_reader_passes_every_required_vector_that_it_claims_to_read(language: str, suite: Path) -> None:
    done = run(language, suite)
    assert done.returncode == 0, done.stdout + done.stderr
    passed, skipped = done.stdout.splitlines()[-2:]
    assert passed.endswith(" 0 failed")
    # Who skips most of the suite proves little.
    assert int(passed.split()[0]) >= 250
    for why in ("bombs without bytes", "lz4", "magic 0 or 1", "snappy", "zstd"):
        assert f" {why}" in skipped


def test_the_readers_agree_on_what_passes_and_what_is_skipped(suite: Path) -> None:
    for words, _, remedy in READERS.values():
        require_tool(words[0], remedy)
    said = {run(language, suite).stdout for language in READERS}
    assert len(said) == 1


def test_bombs_are_read_where_their_bytes_are_there(language: str, bombs: Path) -> None:
    done = run(language, bombs)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines()[-2:] == ["3 passed, 0 recommended missed, 0 failed", "skipped: none"]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda v: v["expect"]["consumer"]["batches"][0]["records"][0].update(key="00"), "read "),
        (lambda v: v["expect"]["consumer"]["batches"][0].update(base_sequence=7), "read "),
        (lambda v: v["expect"]["consumer"].update(consumed=7), "consumed "),
        (lambda v: v["expect"]["consumer"].update(partial_tail=True), "partial tail: "),
        (lambda v: v["expect"].update(consumer={"verdict": "invalid", "finding": "x"}), "accepted invalid bytes: x"),
        (lambda v: v.update(hex=v["hex"][:-2] + "01"), "refused valid bytes: "),
    ],
    ids=["key", "base-sequence", "consumed", "partial-tail", "verdict", "bytes"],
)
def test_a_broken_vector_is_a_failure(
    language: str, two_vectors: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], None], said: str
) -> None:
    done = run(language, spoiled(two_vectors, tmp_path, spoil))
    assert done.returncode == 1, done.stdout + done.stderr
    [line] = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    assert line.startswith("FAILED records/v2/count/of-2 (")
    assert said in line


def test_an_unbroken_copy_of_the_same_vectors_is_none(language: str, two_vectors: Path) -> None:
    done = run(language, two_vectors)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "2 passed, 0 recommended missed, 0 failed")


def test_a_missed_recommended_vector_is_told_and_fails_nothing(
    language: str, two_vectors: Path, tmp_path: Path
) -> None:
    def spoil(vector: dict[str, Any]) -> None:
        vector["expect"]["consumer"]["consumed"] = 7
        vector["level"] = "recommended"

    done = run(language, spoiled(two_vectors, tmp_path, spoil))
    assert done.returncode == 0
    assert done.stdout.startswith("missed records/v2/count/of-2 (recommended): consumed ")


def test_a_decoder_that_forgets_a_rule_fails(language: str, suite: Path, tmp_path: Path) -> None:
    source = suite / READERS[language][1]
    rule, nothing = FORGOTTEN_RULES[language]
    code = source.read_text()
    assert code.count(rule) == 1
    reader = tmp_path / source.name
    reader.write_text(code.replace(rule, nothing))
    done = run(language, suite, reader)
    assert done.returncode == 1, done.stdout + done.stderr
    assert MISSED_THEN in done.stdout


def test_a_folder_without_a_suite_is_wrong_use(language: str, suite: Path, tmp_path: Path) -> None:
    words, file, _ = READERS[language]
    # As the copied page says it.
    done = call(*words, suite / file, tmp_path)
    # `go run` has its own exit code for any but 0, and tells the program's.
    assert done.returncode == 2 or "exit status 2" in done.stderr
    assert "kfuzz vectors copy" in done.stderr


def test_a_suite_without_vectors_to_read_is_a_failure(language: str, tmp_path: Path) -> None:
    copied = copy(tmp_path / "suite", ["records/v0/*"]).directory
    assert run(language, copied).returncode == 1
