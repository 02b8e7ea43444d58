"""Lint: the committed suite is clean, and each planted defect is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mini_suite
import pytest

from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import default_root

Document = dict[str, Any]


@pytest.mark.full
def test_the_committed_suite_is_clean() -> None:
    assert [str(problem) for problem in lint(default_root())] == []


def test_the_small_suite_is_clean_before_it_is_spoiled(tmp_path: Path) -> None:
    assert [str(problem) for problem in lint(mini_suite.write(tmp_path))] == []


def vector(document: Document, slug: str) -> dict[str, Any]:
    return next(v for v in document["vectors"] if v["id"].endswith(f"/{slug}"))


def flip_crc(document: Document) -> None:
    data = bytearray.fromhex(vector(document, "of-2")["hex"])
    data[17] ^= 1
    vector(document, "of-2")["hex"] = data.hex()


def only_invalid(document: Document) -> None:
    document["vectors"] = [v for v in document["vectors"] if v["expect"]["consumer"]["verdict"] == "invalid"]


DEFECTS: dict[str, tuple[Callable[[Document], Any], str]] = {
    "schema": (lambda d: d.update(surprise=1), "Additional properties are not allowed ('surprise'"),
    "flag-unexplained": (
        lambda d: vector(d, "of-2")["flags"].append("Strange"),
        "the flag Strange is used but not explained",
    ),
    "flag-unused": (
        lambda d: vector(d, "negative-one").update(flags=[]),
        "the flag RecordCountNegative is explained but not used",
    ),
    "link": (lambda d: d["flags"]["RecordCountNegative"].update(links=["see the net"]), "the link 'see the net'"),
    "requirement-unknown": (
        lambda d: vector(d, "of-2").update(requirements=["RB-NONE-1"]),
        "the requirement RB-NONE-1 is not in",
    ),
    "finding-unknown": (
        lambda d: vector(d, "negative-one")["expect"]["consumer"].update(finding="no-such-finding"),
        "the finding no-such-finding is unknown",
    ),
    "id-elsewhere": (
        lambda d: vector(d, "of-2").update(id="records/v2/record/of-2"),
        "does not begin with its file's path",
    ),
    "id-number": (lambda d: vector(d, "of-2").update(id="records/v2/count/2"), "the id ends in a number"),
    "id-twice": (lambda d: vector(d, "of-3").update(id="records/v2/count/of-2"), "the id is given more than once"),
    "id-gone": (lambda d: d["vectors"].remove(vector(d, "of-2")), "the id records/v2/count/of-2 was given and is gone"),
    "id-new": (lambda d: vector(d, "of-2").update(id="records/v2/count/of-two"), "of-two is not registered"),
    "bytes-changed": (flip_crc, "the bytes of records/v2/count/of-2 have changed; give the new bytes a new id"),
    "withdrawn": (
        lambda d: vector(d, "of-2")["flags"].append("Withdrawn"),
        "it has the flag Withdrawn, so its level must be recommended",
    ),
    "unsorted": (lambda d: d["vectors"].reverse(), "the vectors are not sorted by id"),
    "summary-twice": (
        lambda d: vector(d, "of-3").update(summary=vector(d, "of-2")["summary"]),
        "another vector of the file has the same summary",
    ),
    "layout-beyond": (
        lambda d: vector(d, "of-2")["layout"].append({"at": 80, "size": 400, "field": "value"}),
        "the layout's value ends beyond the bytes",
    ),
    "nothing-hostile": (lambda d: vector(d, "negative-one").update(layout=[]), "its layout marks no hostile field"),
    "budget-missing": (
        lambda d: vector(d, "one-too-high").pop("budget"),
        "it provokes a large allocation but has no budget",
    ),
    "kafka-not-asked": (lambda d: vector(d, "of-2").update(kafka={}), f"Kafka {LATEST} was not asked"),
    "kafka-refuses-valid": (
        lambda d: vector(d, "of-2")["kafka"][LATEST].update(consumer="rejected"),
        f"it is valid, but the answer of Kafka {LATEST} is rejected",
    ),
    "kafka-accepts-invalid": (
        lambda d: vector(d, "negative-one")["kafka"][KAFKA_3].update(consumer="accepted"),
        f"it is invalid, but the answer of Kafka {KAFKA_3} is accepted",
    ),
    "crc": (flip_crc, "a CRC is wrong, but the vector is not about the CRC"),
    "balance": (only_invalid, "only 0 of 2 vectors are valid; at least 20 % must be"),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_in_a_vector_file_is_found(defect: str, tmp_path: Path) -> None:
    spoil, sentence = DEFECTS[defect]
    problems = [str(problem) for problem in lint(mini_suite.write(tmp_path, spoil))]
    assert any(sentence in problem for problem in problems), problems


def test_a_file_that_is_not_in_canonical_form_is_found(tmp_path: Path) -> None:
    path = mini_suite.write(tmp_path) / mini_suite.FILE
    path.write_text(json.dumps(json.loads(path.read_bytes()), indent=1))
    assert [str(p) for p in lint(tmp_path)] == [f"{mini_suite.FILE}: not in canonical form; run `kfuzz vectors build`"]


def test_a_file_of_more_than_eight_megabytes_is_found(tmp_path: Path) -> None:
    mini_suite.write(tmp_path, lambda document: document.update(about="a" * 8_000_001))
    assert any("at most 8000000 are allowed, so split it" in str(problem) for problem in lint(tmp_path))


REQUIREMENT_DEFECTS: dict[str, tuple[Callable[[list[Document]], Any], str]] = {
    "unknown-check": (lambda entries: entries[0].update(check="prayer"), "the check 'prayer' is not one of"),
    "none-without-why": (lambda entries: entries[0].update(check="none"), "'why' is required if check is 'none'"),
    "unknown-level": (
        lambda entries: entries[0].update(level="shall"),
        "the level 'shall' is not one of must, should, may",
    ),
    "behaviour-untested": (
        lambda entries: entries[0].update(check="behaviour"),
        "'tested' is required if check is 'behaviour', and otherwise not allowed",
    ),
    "tested-is-text": (
        lambda entries: entries[0].update(check="behaviour", tested="tests/a.py::test_a"),
        "tested is a list of tests",
    ),
    "document-unknown": (
        lambda entries: entries[0]["spec"][0].update(document="005"),
        "CMP-GAP-1 cites the document 005, which documents does not name",
    ),
    "document-never-cited": (
        lambda entries: [
            entry.update(spec=[place for place in entry["spec"] if place["document"] != "003"]) for entry in entries
        ],
        "documents names 003, which no requirement cites",
    ),
    "no-place": (lambda entries: entries[0].update(spec=[]), "cites no place in the spec"),
    "another-property": (lambda entries: entries[0].update(author="x"), "must have check, id, level, spec and text"),
    "cited-by-finding": (
        lambda entries: entries.remove(next(entry for entry in entries if entry["id"] == "RB-COUNT-1")),
        "RB-COUNT-1 is missing; the finding record-count-negative cites it",
    ),
}


@pytest.mark.parametrize("defect", REQUIREMENT_DEFECTS)
def test_a_defect_in_the_requirements_is_found(defect: str, tmp_path: Path) -> None:
    spoil, sentence = REQUIREMENT_DEFECTS[defect]
    path = mini_suite.write(tmp_path) / "requirements.json"
    document = json.loads(path.read_bytes())
    spoil(document["requirements"])
    path.write_text(json.dumps(document))
    assert any(sentence in str(problem) for problem in lint(tmp_path))


@pytest.mark.parametrize("content", ["", "[]", '{"requirements": 1}', '{"requirements": [{}]}'])
def test_requirements_that_cannot_be_read_are_a_problem_and_no_traceback(content: str, tmp_path: Path) -> None:
    (mini_suite.write(tmp_path) / "requirements.json").write_text(content)
    assert any(str(problem).startswith("requirements.json: cannot be read") for problem in lint(tmp_path))


@pytest.mark.parametrize(
    ("line", "sentences"),
    [
        ("records/v2/count/gone consumer fail  # why", ["no vector has the id records/v2/count/gone"]),
        ("records/v2/count/of-2 consumer fail", ["the line gives no reason; add a reason or a link"]),
        ("records/v2/count/of-2 consumer fail  # unexplained", ["the line gives no reason; add a reason or a link"]),
        ("records/v2/count/of-2 consumer fail  # client #12", []),
    ],
)
def test_a_line_of_expected_outcomes_needs_a_vector_and_a_reason(
    line: str, sentences: list[str], tmp_path: Path
) -> None:
    expected = mini_suite.write(tmp_path) / "expected"
    expected.mkdir()
    (expected / "client@1.0.txt").write_text(f"# a comment\n\n{line}\n")
    assert list(map(str, lint(tmp_path))) == [f"expected/client@1.0.txt:3: {sentence}" for sentence in sentences]
