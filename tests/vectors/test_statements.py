"""Statements: each fault of the table is told, and the committed table has each document and no fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mini_suite
import pytest

from kfuzz.errors import UsageError
from kfuzz.vectors import coverage
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import default_root
from kfuzz.vectors.statements import STATEMENTS_FILE, gaps, load, missing_test

REPOSITORY = default_root().parent
REQUIREMENTS: dict[str, Any] = {
    "WITH-VECTORS-1": {"spec": [{"document": "008", "place": "Above"}]},
    "WITH-TESTS-1": {"spec": [{"document": "008", "place": "Above"}], "tested": ["tests/test_a.py::test_a"]},
    "WITH-REASON-1": {"spec": [{"document": "kafka", "place": "Class"}], "why": "advice"},
    "WITH-NOTHING-1": {"spec": [{"document": "kafka", "place": "Class"}]},
}
VECTORS = {"WITH-VECTORS-1": ["records/v2/count/of-2"]}
# One statement for each way to be checked, and for each way to say why it is not.
CITED = (
    {"requirements": ["WITH-VECTORS-1"]},
    {"requirements": ["WITH-TESTS-1"]},
    {"requirements": ["WITH-VECTORS-1", "WITH-TESTS-1"], "tests": ["tests/test_a.py::test_b"], "note": "A note."},
    {"tests": ["tests/test_a.py::test_b"]},
    {"requirements": ["WITH-REASON-1"]},
    {"why": "history"},
)


def table() -> list[dict[str, Any]]:
    return [
        {
            "id": f"S-008-{number:03d}",
            "document": "008",
            "line": number,
            "place": "Above / Below",
            "quote": "one two three four five six seven eight nine ten",
            **cited,
        }
        for number, cited in enumerate(CITED, 1)
    ]


def faults(entries: list[dict[str, Any]], tmp_path: Path) -> list[str]:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("def test_a() -> None: ...\ndef test_b() -> None: ...\n")
    (tmp_path / STATEMENTS_FILE).write_text(json.dumps({"statements": entries}))
    return list(gaps(load(tmp_path), REQUIREMENTS, VECTORS, ("008", "kafka"), tmp_path))


def test_a_table_without_a_fault_is_clean(tmp_path: Path) -> None:
    assert faults(table(), tmp_path) == []


FAULTS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str]] = {
    "no-such-requirement": (
        lambda entries: entries[0].update(requirements=["WITH-VECTORS-1", "RB-NONE-1"]),
        "S-008-001: the requirement RB-NONE-1 does not exist",
    ),
    "requirement-without-vectors-or-tests": (
        lambda entries: entries[2]["requirements"].append("WITH-NOTHING-1"),
        "S-008-003: the requirement WITH-NOTHING-1 has neither vectors nor tests",
    ),
    "neither-requirement-nor-reason": (
        lambda entries: entries[5].pop("why"),
        "S-008-006: it has neither a requirement nor a test; add one, or say why there is none",
    ),
    "reason-is-empty": (
        lambda entries: entries[5].update(why=""),
        "S-008-006: it has neither a requirement nor a test; add one, or say why there is none",
    ),
    "checked-and-a-reason": (
        lambda entries: entries[0].update(why="history"),
        "S-008-001: it is checked, and why says that nothing does; take why out",
    ),
    "eleven-words": (
        lambda entries: entries[0].update(quote=entries[0]["quote"] + " eleven"),
        "S-008-001: the quote has 11 words; quote 1 to 10",
    ),
    "eleven-characters-without-spaces": (
        lambda entries: entries[0].update(quote="记录批次包含一个或多个"),
        "S-008-001: the quote has 11 words; quote 1 to 10",
    ),
    "no-words": (lambda entries: entries[0].update(quote=""), "S-008-001: the quote has 0 words; quote 1 to 10"),
    "no-such-test": (
        lambda entries: entries[3].update(tests=["tests/test_a.py::test_c"]),
        "S-008-004: there is no test tests/test_a.py::test_c",
    ),
    "no-such-file": (
        lambda entries: entries[3].update(tests=["tests/test_b.py::test_a"]),
        "S-008-004: there is no test tests/test_b.py::test_a",
    ),
    "number-left-out": (lambda entries: entries.pop(3), "S-008-005: number it S-008-004"),
    "number-twice": (lambda entries: entries.append(entries[0]), "S-008-001: number it S-008-007"),
    "document-unknown": (
        lambda entries: entries[5].update(document="009", id="S-009-001"),
        "S-009-001: the document 009 is none of 008, kafka",
    ),
    "requirement-of-the-document-unstated": (
        lambda entries: [entry.pop("requirements", None) for entry in entries[1:3]],
        "no statement of document 008 cites WITH-TESTS-1, although requirements.json says that the document has it",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_of_the_table_is_reported(name: str, tmp_path: Path) -> None:
    spoil, sentence = FAULTS[name]
    entries = json.loads(json.dumps(table()))
    spoil(entries)
    assert sentence in faults(entries, tmp_path)


def test_a_copy_without_tests_is_not_asked_for_them(tmp_path: Path) -> None:
    assert not missing_test(tmp_path, "tests/test_a.py::test_a")
    assert not missing_test(None, "tests/test_a.py::test_a")
    assert missing_test(REPOSITORY, "tests/vectors/test_statements.py::test_that_is_not_there")
    assert not missing_test(REPOSITORY, "tests/vectors/test_statements.py::test_each_fault_of_the_table_is_reported")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"statements": [1]}',
        '{"statements": [{}]}',
        json.dumps({"statements": [table()[0] | {"a": 1}]}),
    ],
)
def test_a_table_that_cannot_be_read_is_a_sentence_and_no_traceback(content: str, tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    (root / STATEMENTS_FILE).write_text(content)
    what = "no table of statements" if content else f"{STATEMENTS_FILE} is not JSON"
    with pytest.raises(UsageError, match=what):
        load(root)
    (root / coverage.COVERAGE_FILE).write_text('{"families": [], "incidents": []}')
    assert any(what in str(problem) for problem in lint(root))


def test_lint_tells_the_faults_of_a_suites_table(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    (root / coverage.COVERAGE_FILE).write_text('{"families": [], "incidents": []}')
    (root / STATEMENTS_FILE).write_text(json.dumps({"statements": [table()[5]]}))
    assert "statements.json: S-008-006: the document 008 is none of 000, 001, 002, 003, 004, kafka" in map(
        str, lint(root)
    )


def test_a_suite_without_the_table_has_no_statements(tmp_path: Path) -> None:
    assert load(tmp_path) == ()


def test_the_committed_table_has_every_document_in_the_order_of_its_lines() -> None:
    statements = load(default_root())
    counts = Counter(one.document for one in statements)
    assert sorted(counts) == ["000", "001", "002", "003", "004"]
    assert min(counts.values()) > 50
    assert [(one.document, one.line) for one in statements] == sorted((one.document, one.line) for one in statements)
    measured = coverage.measure(default_root())
    assert list(gaps(statements, measured.requirements, measured.about, measured.documents, REPOSITORY)) == []
