"""Coverage: the document says what the suite makes of the tables, and whatever has no vector is named."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import mini_suite
import pytest

from kfuzz.errors import UsageError
from kfuzz.vectors import coverage, pages
from kfuzz.vectors.linting import lint
from kfuzz.vectors.model import default_root

REPOSITORY = default_root().parent
FAMILY = {"class": "Class", "case": "case"}


@pytest.fixture(scope="module")
def measured() -> coverage.Coverage:
    return coverage.measure(default_root())


def test_the_committed_page_is_what_the_suite_makes(measured: coverage.Coverage) -> None:
    assert (REPOSITORY / "docs" / "coverage.md").read_text() == pages.summary(measured)
    assert pages.stale(default_root(), measured) == []


def test_each_entry_of_the_tables_has_a_row_in_a_page_of_the_site(measured: coverage.Coverage) -> None:
    made = pages.site_pages(measured)
    ids = {
        "statements.md": [one.id for one in measured.statements],
        "coverage/requirements.md": list(measured.requirements),
        "coverage/findings.md": list(coverage.RECORD_CODES),
        "coverage/kafka-tests.md": [family["class"] for family in measured.families],
        "coverage/incidents.md": [incident["name"] for incident in measured.incidents],
    }
    assert made.keys() == ids.keys()
    assert [one for page, names in ids.items() for one in names if one not in made[page]] == []
    # The summary names every one of them.
    assert [page for page in made if f"`out/site/{page[:-3]}.html`" not in pages.summary(measured)] == []


def test_the_first_page_says_on_its_first_screen_what_is_covered_and_what_is_not(measured: coverage.Coverage) -> None:
    text = pages.summary(measured)
    assert len(text) < 12_000
    start = text[: text.index("## The vectors")]
    total = len(measured.statements)
    left = sum(map(int, re.findall(r"^\| [^|]+ \| (\d+) \| S-", start, re.MULTILINE)))
    assert f"They make {total} statements." in start
    assert f"check **{total - left}** of them" in start
    assert f"Nothing checks **{left}** of them" in start
    assert [number for number in measured.documents if f"| {number} |" not in start] == ["kafka"]


def test_an_incident_finds_the_vectors_whose_flags_link_its_thread(measured: coverage.Coverage) -> None:
    assert "records/v2/bomb/records-131071" in measured.of_incident({"name": "sarama #3120"})
    assert "records/v2/lz4/end-mark-with-high-bit" in measured.of_incident({"name": "KAFKA-5150"})


def test_a_requirement_is_obeyed_by_valid_vectors_and_broken_by_those_with_a_finding(
    measured: coverage.Coverage,
) -> None:
    assert "records/v2/header/minimal" in measured.obeyed["RB-CRC-1"]
    assert "records/v2/header/crc-wrong" in measured.broken["RB-CRC-1"]
    assert "records/v2/header/crc-wrong" not in measured.obeyed["RB-CRC-1"]


def texts(measured: coverage.Coverage, repository: Path | None = None) -> list[str]:
    return [text for _, text in coverage.gaps(measured, repository)]


def test_a_requirement_without_a_vector_on_either_side_is_a_gap(measured: coverage.Coverage) -> None:
    entry = {"id": "RB-NEW-1", "check": "format", "level": "must", "text": "t", "spec": []}
    found = texts(replace(measured, requirements={"RB-NEW-1": entry}))
    assert "no vector obeys RB-NEW-1" in found
    assert any(text.startswith("no vector breaks RB-NEW-1") for text in found)
    excused = texts(replace(measured, requirements={"RB-NEW-1": {**entry, "one_sided": "a permission"}}))
    assert not any(text.startswith("no vector breaks RB-NEW-1") for text in excused)


@pytest.mark.parametrize(
    ("tables", "sentence"),
    [
        ({"families": [FAMILY | {"vectors": ["records/v9/*"]}]}, "Class, case: no vector matches records/v9/*"),
        ({"families": [FAMILY | {"elsewhere": "tests/no/such.py"}]}, "Class, case: there is no tests/no/such.py"),
        ({"families": [FAMILY]}, "Class, case: neither vectors nor elsewhere nor why"),
        ({"incidents": [{"name": "nobody #1", "fault": "f"}]}, "no vector stands for nobody #1"),
    ],
)
def test_an_entry_without_vectors_is_a_gap(measured: coverage.Coverage, tables: dict[str, Any], sentence: str) -> None:
    assert sentence in texts(replace(measured, **tables), REPOSITORY)


def test_a_finding_without_a_vector_is_a_gap(measured: coverage.Coverage) -> None:
    assert "no vector has the finding crc-mismatch" in texts(replace(measured, findings={}))
    without = texts(replace(measured, message_findings={}))
    assert "no vector of a message has the finding message-cut" in without
    # Which is excused with a reason.
    assert "no vector of a message has the finding count-too-large" not in without
    assert texts(measured, REPOSITORY) == []


def test_lint_tells_of_gaps_where_the_tables_are(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    tables = {"format": "kfuzz-coverage/1", "families": [], "incidents": [{"name": "nobody #1", "fault": "f"}]}
    (root / coverage.COVERAGE_FILE).write_text(json.dumps(tables))
    assert any("no vector stands for nobody #1" in str(problem) for problem in lint(root))


@pytest.mark.parametrize("content", ["", "{", "[]", '{"families": []}'])
def test_tables_that_cannot_be_read_are_a_problem_and_no_traceback(content: str, tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path)
    (root / coverage.COVERAGE_FILE).write_text(content)
    assert any(str(problem).startswith("coverage.json: cannot be read") for problem in lint(root))
    if content == "{":
        with pytest.raises(UsageError, match="not JSON"):
            coverage.measure(root)


def test_the_page_is_written_where_there_are_docs_and_a_stale_one_is_reported(tmp_path: Path) -> None:
    root = mini_suite.write(tmp_path / "vectors")
    (root / coverage.COVERAGE_FILE).write_text('{"families": [], "incidents": []}')
    pages.write(root)
    assert pages.stale(root) == []
    (tmp_path / "docs").mkdir()
    assert pages.stale(root) == ["docs/coverage.md"]
    pages.write(root)
    assert pages.stale(root) == []
    (tmp_path / "docs" / "coverage.md").write_text("old")
    assert pages.stale(root) == ["docs/coverage.md"]
    assert "docs/coverage.md: is out of date; run `kfuzz vectors build`" in map(str, lint(root))


def test_cells_show_three_ids_and_count_the_rest(measured: coverage.Coverage) -> None:
    text = pages.site_pages(measured)["coverage/requirements.md"]
    assert re.search(r"\| RB-GZIP-1 \|.* and \d+ more \|", text)
