"""The readers of a fresh copy of the suite pass it, and fail where something is wrong."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import require_tool
from programs import run_program

from kfuzz.vectors.copying import copy

READER = "examples/python/read_suite.py"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy(tmp_path_factory.mktemp("copied") / "suite").directory


def call(*words: str | Path, code: int, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    # Nothing is fetched: the readers need their standard library alone.
    variables = {"GOFLAGS": "-mod=mod", "GOPROXY": "off"}
    return run_program(*words, code=code, cwd=folder, variables=variables, timeout=300)


def said(suite: Path, *, code: int = 0, reader: Path | None = None) -> str:
    """The output of the reader about the suite. It must end with this exit code."""
    return call(sys.executable, reader or suite / READER, suite, code=code).stdout


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


def test_a_reader_passes_every_required_vector_that_it_claims_to_read(suite: Path) -> None:
    passed, skipped = said(suite).splitlines()[-2:]
    assert passed.endswith(" 0 failed")
    # A reader that skips most of the suite proves little.
    assert int(passed.split()[0]) >= 250
    for why in ("bombs without bytes", "lz4", "magic 0 or 1", "snappy", "zstd"):
        assert f" {why}" in skipped


@pytest.mark.full
def test_bombs_are_read_where_their_bytes_are_there(bombs: Path) -> None:
    assert said(bombs).splitlines()[-2:] == ["3 passed, 0 recommended missed, 0 failed", "skipped: none"]


@pytest.mark.parametrize(
    ("spoil", "fault"),
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
    two_vectors: Path, tmp_path: Path, spoil: Callable[[dict[str, Any]], None], fault: str
) -> None:
    told = said(spoiled(two_vectors, tmp_path, spoil), code=1)
    [line] = [line for line in told.splitlines() if line.startswith("FAILED")]
    assert line.startswith("FAILED records/v2/count/of-2 (")
    assert fault in line


def test_an_unbroken_copy_of_the_same_vectors_is_none(two_vectors: Path) -> None:
    assert said(two_vectors).splitlines()[0] == "2 passed, 0 recommended missed, 0 failed"


def test_a_missed_recommended_vector_is_reported_and_fails_nothing(two_vectors: Path, tmp_path: Path) -> None:
    def spoil(vector: dict[str, Any]) -> None:
        vector["expect"]["consumer"]["consumed"] = 7
        vector["level"] = "recommended"

    told = said(spoiled(two_vectors, tmp_path, spoil))
    assert told.startswith("missed records/v2/count/of-2 (recommended): consumed ")


def test_a_decoder_that_forgets_a_rule_fails(suite: Path, tmp_path: Path) -> None:
    code = (suite / READER).read_text()
    assert code.count("if count < 0:") == 1
    reader = tmp_path / "reader.py"
    reader.write_text(code.replace("if count < 0:", "if False:"))
    assert "FAILED records/v2/count/negative-one-without-records (" in said(suite, code=1, reader=reader)


def test_a_folder_without_a_suite_is_wrong_use(suite: Path, tmp_path: Path) -> None:
    assert "kfuzz vectors copy" in call(sys.executable, suite / READER, tmp_path, code=2).stderr


def test_a_suite_without_vectors_to_read_is_a_failure(tmp_path: Path) -> None:
    said(copy(tmp_path / "suite", ["records/v0/*"]).directory, code=1)


# A decoder that refuses everything is right about the invalid vector alone.
OWN_TESTS = {
    "go": (
        "own_test.go",
        """package kfuzz

import (
	"errors"
	"testing"
)

func TestOwn(t *testing.T) {
	Run(t, func([]byte) ([]Record, error) { return nil, errors.New("no") }, Options{})
}
""",
        ("go", "test", "-v", "."),
        "install Go 1.26 or newer",
        ("--- PASS: TestOwn/records/v2/count/negative-one", "--- FAIL: TestOwn/records/v2/count/of-2"),
    ),
    "javascript": (
        "own.test.mjs",
        "import { run } from './kfuzz.mjs'\nrun(() => { throw new Error('no') })\n",
        ("node", "--test", "--test-reporter=tap", "own.test.mjs"),
        "install Node 20 or newer",
        ("ok 1 - records/v2/count/negative-one", "not ok 2 - records/v2/count/of-2"),
    ),
}


@pytest.mark.parametrize("language", OWN_TESTS)
def test_a_runner_fails_the_vectors_that_a_decoder_reads_wrongly(
    language: str, two_vectors: Path, tmp_path: Path
) -> None:
    name, test, command, remedy, shown = OWN_TESTS[language]
    require_tool(command[0], remedy)
    folder = shutil.copytree(two_vectors / "examples" / language, tmp_path / "runner")
    (folder / name).write_text(test)
    done = call(*command, code=1, folder=folder)
    assert [line for line in shown if line not in done.stdout] == [], done.stdout
    assert "refused, but it is valid" in done.stdout
