"""Expected outcomes: what fails a run, what a rewritten file holds, and what a wrong file says."""

from __future__ import annotations

from pathlib import Path

import pytest
from referee_tools import make_vector

from kfuzz.conformance.judge import expected
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.expected import UNEXPLAINED, Expectations, Line, load, parse, stand
from kfuzz.errors import UsageError
from kfuzz.vectors.model import default_root

CASE = Case(make_vector("toy/a"), "consumer")
RECOMMENDED = Case(make_vector("toy/a", level="recommended"), "consumer")
FAIL, PASS = Cell("fail", "wrong contents"), Cell("pass")
LISTED = Expectations("toy@1", {CASE.key: Line(*CASE.key, "fail", "a known bug")})
EMBARGOED = Expectations("toy@1", {}, {CASE.key: Line(*CASE.key, "crash", "told on Monday")})
NONE = Expectations("toy@1")


@pytest.mark.parametrize(
    ("case", "cell", "expectations", "status"),
    [
        (CASE, PASS, NONE, "ok"),
        (CASE, Cell("unsupported", declared=True), NONE, "ok"),
        (CASE, FAIL, NONE, "unexpected"),
        (CASE, Cell("unsupported"), NONE, "unexpected"),
        (CASE, FAIL, LISTED, "listed"),
        (CASE, PASS, LISTED, "unexpected"),
        (CASE, Cell("crash"), LISTED, "unexpected"),
        (CASE, Cell("unsupported", declared=True), LISTED, "unexpected"),
        (RECOMMENDED, FAIL, NONE, "miss"),
        (RECOMMENDED, FAIL, LISTED, "listed"),
        (RECOMMENDED, PASS, LISTED, "unexpected"),
        (CASE, Cell("crash"), EMBARGOED, "listed"),
        (CASE, PASS, EMBARGOED, "unexpected"),
    ],
    ids=[
        "a pass needs no line",
        "declared unsupported needs no line",
        "an unlisted failure is unexpected",
        "an answer of unsupported must be listed",
        "a listed failure is expected",
        "a listed pass is unexpected",
        "another outcome than listed is unexpected",
        "listed, yet declared unsupported, is unexpected",
        "a recommended miss fails nothing",
        "a recommended miss may be listed",
        "a recommended pass that is listed is unexpected",
        "an embargoed crash is expected",
        "an embargoed pass is unexpected",
    ],
)
def test_how_a_cell_stands(case: Case, cell: Cell, expectations: Expectations, status: str) -> None:
    assert stand(case, cell, expectations).status == status


def test_an_embargoed_outcome_is_withheld_with_its_reason() -> None:
    standing = stand(CASE, Cell("crash", "secret"), EMBARGOED)
    assert standing.withheld
    assert standing.reason == ""


def test_a_line_whose_question_is_gone_is_told() -> None:
    assert expected.stale([], LISTED) == ["toy/a consumer is listed, but the suite does not ask it; remove the line"]
    assert expected.stale([CASE], LISTED) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("toy/a consumer", "not of the form"),
        ("toy/a consumer fail because", "not of the form"),
        ("toy/a writer fail  # why", "no role 'writer'"),
        ("toy/a consumer pass  # why", "a pass needs no line"),
        ("toy/a consumer withheld  # why", "no outcome 'withheld'"),
        ("toy/a consumer fail", "no reason"),
        ("toy/a consumer fail  #", "no reason"),
        ("toy/a consumer fail  # one\ntoy/a consumer crash  # two", "has a line already"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "toy@1.txt"
    path.write_text(f"# a heading\n\n{text}\n")
    with pytest.raises(UsageError, match=complaint) as caught:
        parse(path)
    assert str(caught.value).startswith(f"{path}:{3 + text.count(chr(10))}: ")


def test_a_rewritten_file_keeps_reasons_that_hold_and_asks_for_those_that_are_new(tmp_path: Path) -> None:
    cases = [Case(make_vector(f"toy/{name}"), "consumer") for name in "abcdef"]
    found = [
        FAIL,
        FAIL,
        PASS,
        Cell("unsupported", "zstd"),
        Cell("unsupported", declared=True),
        Cell("fault", "now\nworse"),
    ]
    directory, embargo = tmp_path / "expected", tmp_path / "embargo"
    directory.mkdir()
    (directory / "toy@1.txt").write_text(
        "toy/a consumer fail  # issue 7\ntoy/c consumer fail  # mended since\ntoy/f consumer fail  # was wrong\n"
    )
    cells = {case.key: cell for case, cell in zip(cases, found, strict=True)}
    counts = expected.update(cases, cells, load("toy@1", directory, embargo), directory, embargo)
    assert counts == (4, 0)
    assert (directory / "toy@1.txt").read_text().splitlines()[1:] == [
        "toy/a consumer fail  # issue 7",
        "toy/b consumer fail  # unexplained: wrong contents",
        "toy/d consumer unsupported  # answers unsupported: zstd",
        "toy/f consumer fault  # lets escape: now worse",
    ]
    assert not embargo.exists()


def test_a_new_crash_goes_under_embargo_and_a_known_one_stays_listed(tmp_path: Path) -> None:
    cases = [Case(make_vector(f"toy/{name}"), "consumer") for name in "ab"]
    directory, embargo = tmp_path / "expected", tmp_path / "embargo"
    directory.mkdir()
    (directory / "toy@1.txt").write_text("toy/a consumer crash  # CVE-2099-0001\n")
    cells = {case.key: Cell("crash", "died of SIGSEGV") for case in cases}
    for _ in range(2):
        assert expected.update(cases, cells, load("toy@1", directory, embargo), directory, embargo) == (1, 1)
        assert set(parse(directory / "toy@1.txt")) == {("toy/a", "consumer")}
        assert set(parse(embargo / "toy@1.txt")) == {("toy/b", "consumer")}


def test_what_was_written_is_as_expected_when_read_again(tmp_path: Path) -> None:
    cases = [Case(make_vector(f"toy/{name}"), "consumer") for name in "ab"]
    cells = {cases[0].key: FAIL, cases[1].key: Cell("timeout")}
    expected.update(cases, cells, NONE, tmp_path / "expected", tmp_path / "embargo")
    again = load("toy@1", tmp_path / "expected", tmp_path / "embargo")
    assert [stand(case, cells[case.key], again).status for case in cases] == ["listed", "listed"]


@pytest.mark.parametrize("path", sorted((default_root() / "expected").glob("*.txt")), ids=lambda path: path.stem)
def test_every_committed_line_is_explained(path: Path) -> None:
    unexplained = [str(line) for line in parse(path).values() if line.reason.startswith(UNEXPLAINED)]
    assert unexplained == []
