"""``kfuzz vectors``: exit codes, and one sentence for wrong use."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mini_suite
import pytest
from cli_driver import kfuzz, outcome

from kfuzz.vectors import Vector, load_suite, suite_version


def test_list_prints_a_line_a_vector_and_the_sum(tmp_path: Path) -> None:
    out = kfuzz("vectors", "list", "--vectors", str(mini_suite.write(tmp_path)), code=0).stdout
    assert out.splitlines()[0] == "invalid    records/v2/count/negative-one  the record count is -1; the CRC is right"
    assert out.splitlines()[-1] == "5 vectors: 1 acceptable, 2 invalid, 2 valid"


def test_list_as_json_is_one_document_without_the_bytes(tmp_path: Path) -> None:
    out = kfuzz("vectors", "list", "*/of-*", "--json", "--vectors", str(mini_suite.write(tmp_path)), code=0).stdout
    assert json.loads(out)["suite"] is None
    assert [(entry["id"], entry["verdicts"]) for entry in json.loads(out)["vectors"]] == [
        ("records/v2/count/of-2", {"consumer": "valid"}),
        ("records/v2/count/of-3", {"consumer": "valid"}),
    ]
    assert "hex" not in out


def test_list_as_json_names_the_version_of_the_suite() -> None:
    document = json.loads(outcome("vectors", "list", "records/v2/count/of-2", "--json")[1])
    assert document["suite"] == suite_version()
    assert re.fullmatch(r"1\.\d+\.\d+", document["suite"])


@pytest.mark.parametrize("content", ["", "7", "{}", "[]"])
def test_a_broken_file_of_the_version_is_wrong_use(content: str, tmp_path: Path) -> None:
    (mini_suite.write(tmp_path) / "suite.json").write_text(content)
    err = kfuzz("vectors", "list", "--json", "--vectors", str(tmp_path), code=2).stderr
    assert ("suite.json must be JSON such as" if content else "suite.json is not JSON") in err


def test_lint_ends_with_1_for_a_problem_and_prints_its_place(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path, lambda document: document["vectors"].reverse())
    out = kfuzz("vectors", "lint", "--vectors", str(root), code=1).stdout
    assert out.splitlines() == ["records/v2/count.json: the vectors are not sorted by id", "1 to fix"]
    out = kfuzz("vectors", "lint", "--json", "--vectors", str(root), code=1).stdout
    assert json.loads(out) == [{"place": "records/v2/count.json", "text": "the vectors are not sorted by id"}]


def test_lint_ends_with_0_where_nothing_is_to_mend(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    assert outcome("vectors", "lint", "--vectors", str(root)) == (0, "nothing to fix\n", "")


@pytest.mark.usefixtures("some_themes")
def test_build_check_ends_with_1_where_files_are_missing_and_writes_nothing(tmp_path: Path) -> None:
    out = kfuzz("vectors", "build", "--check", "--vectors", str(tmp_path), code=1).stdout
    assert "records/v2/header.json: the file is missing" in out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
def test_build_check_of_the_committed_suite_ends_with_0() -> None:
    code, out, _ = outcome("vectors", "build", "--check")
    assert (code, out.rpartition(": ")[2]) == (0, "as built\n")


@pytest.mark.usefixtures("some_themes")
def test_build_check_tells_that_the_coverage_page_is_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = str(tmp_path)
    assert outcome("vectors", "build", "--vectors", root)[0] == 0
    assert outcome("vectors", "build", "--check", "--vectors", root)[0] == 0
    monkeypatch.setattr("kfuzz.vectors.pages.stale", lambda place: ["docs/coverage.md"] * (place == tmp_path))
    out = kfuzz("vectors", "build", "--check", "--vectors", root, code=1).stdout
    assert out.splitlines()[0] == "docs/coverage.md: not up to date with the suite"


@pytest.mark.parametrize("words", [[], ["list"], ["build"], ["lint"]])
def test_every_help_text_has_an_example(words: list[str]) -> None:
    out = kfuzz("vectors", *words, "--help", code=0).stdout
    assert "Example" in out
    assert "kfuzz vectors" in out


def answers_of(
    vectors: Sequence[Vector], role: str = "consumer", progress: object = None, **changed: dict[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    """The answers of a Kafka that agrees with every vector, but for those in ``changed`` (by the id's last word)."""
    said = {}
    for vector in vectors:
        expect = vector.expect.get(role) or vector.expect["consumer"]
        agreeing = {"outcome": "rejected", "error": "no"}
        if expect["verdict"] != "invalid":
            contents = {name: expect[name] for name in ("batches", "message", "value") if name in expect}
            agreeing = {"outcome": "accepted", "consumed": expect["consumed"], **contents}
        said[vector.id] = {**agreeing, **changed.get(vector.id.rpartition("/")[2], {})}
    return {"9.9.9": said}


@pytest.mark.usefixtures("some_themes")
def test_build_confirm_writes_nothing_where_kafka_contradicts_a_recipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kfuzz.conformance.judge.confirmation.ask_kafka",
        lambda vectors, role, progress: answers_of(vectors, role, minimal={"outcome": "rejected"}),
    )
    out = kfuzz("vectors", "build", "--confirm", "--vectors", str(tmp_path), code=1).stdout
    assert (
        "records/v2/header/minimal: Kafka 9.9.9 as consumer contradicts it: it is valid, but Kafka's answer is rejected"
        in out
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.full
@pytest.mark.usefixtures("some_themes")
def test_build_confirm_fills_the_cells_with_what_kafka_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kfuzz.conformance.judge.confirmation.ask_kafka", answers_of)
    kfuzz("vectors", "build", "--confirm", "--vectors", str(tmp_path), code=0)
    (vector,) = load_suite("records/v2/count/negative-one", tmp_path)
    assert vector.kafka == {"9.9.9": {"broker": "rejected", "consumer": "rejected", "log": "rejected"}}


def test_a_folder_or_a_file_of_the_suite_stands_for_its_vectors() -> None:
    _, by_name, _ = outcome("vectors", "list", "records/v2/count")
    assert len(by_name.splitlines()) > 10
    assert outcome("vectors", "list", "records/v2/count/")[1] == by_name
    assert outcome("vectors", "list", "records/v2/count/*")[1] == by_name
    assert len(outcome("vectors", "list", "records/v2")[1].splitlines()) > len(by_name.splitlines())
