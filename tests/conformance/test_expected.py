"""Expected outcomes: what fails a run, what a rewritten file holds, and what a wrong file says."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from referee_tools import make_vector

from kfuzz.conformance.judge import expected
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.expected import (
    UNEXPLAINED,
    Expectations,
    Line,
    Seal,
    Standing,
    load,
    load_own,
    may_be_sealed,
    parse,
    stand,
    unsealed,
)
from kfuzz.errors import UsageError
from kfuzz.vectors.model import default_root

CASE = Case(make_vector("toy/a"), "consumer")
RECOMMENDED = Case(make_vector("toy/a", level="recommended"), "consumer")
TALK = Case(make_vector("conversation/a"), "client")
FAIL, PASS = Cell("fail", "wrong contents"), Cell("pass")
UNSUPPORTED = Expectations("toy@1", {CASE.key: Line(*CASE.key, "unsupported", "answers so")})
LISTED = Expectations("toy@1", {CASE.key: Line(*CASE.key, "fail", "a known bug")})
EMBARGOED = Expectations("toy@1", {}, {CASE.key: Line(*CASE.key, "crash", "told on Monday")})
VARYING = Expectations("toy@1", {TALK.key: Line(*TALK.key, "varies", "a timer")})
NONE = Expectations("toy@1")


STANDINGS = {
    "a pass needs no line": (CASE, PASS, NONE, "ok"),
    "declared unsupported needs no line": (CASE, Cell("unsupported", declared=True), NONE, "ok"),
    "an unlisted failure is unexpected": (CASE, FAIL, NONE, "unexpected"),
    "an answer of unsupported must be listed": (CASE, Cell("unsupported"), NONE, "unexpected"),
    "a listed failure is expected": (CASE, FAIL, LISTED, "listed"),
    "a listed pass is unexpected": (CASE, PASS, LISTED, "unexpected"),
    "another outcome than listed is unexpected": (CASE, Cell("crash"), LISTED, "unexpected"),
    "an answer of unsupported that is listed is expected": (CASE, Cell("unsupported"), UNSUPPORTED, "listed"),
    "answered is listed, declared is unexpected": (CASE, Cell("unsupported", declared=True), UNSUPPORTED, "unexpected"),
    "an outcome that varies may be a pass": (TALK, PASS, VARYING, "listed"),
    "an outcome that varies may be a failure": (TALK, FAIL, VARYING, "listed"),
    "an outcome that varies is no crash": (TALK, Cell("crash"), VARYING, "unexpected"),
    "a recommended miss fails nothing": (RECOMMENDED, FAIL, NONE, "miss"),
    "a recommended miss may be listed": (RECOMMENDED, FAIL, LISTED, "listed"),
    "a recommended pass that is listed is unexpected": (RECOMMENDED, PASS, LISTED, "unexpected"),
    "an embargoed crash is expected": (CASE, Cell("crash"), EMBARGOED, "listed"),
    "an embargoed pass is unexpected": (CASE, PASS, EMBARGOED, "unexpected"),
}


@pytest.mark.parametrize("why", STANDINGS)
def test_each_cell_has_the_standing_of_its_outcome(why: str) -> None:
    case, cell, expectations, status = STANDINGS[why]
    assert stand(case, cell, expectations).status == status


def test_an_embargoed_outcome_is_withheld_with_its_reason() -> None:
    assert stand(CASE, Cell("crash", "secret"), EMBARGOED) == Standing("listed", "told on Monday", True)


@pytest.mark.parametrize("outcome", ["crash", "timeout", "memory"])
def test_a_crash_hang_or_memory_fault_without_a_public_line_is_not_for_what_is_published(outcome: str) -> None:
    assert stand(CASE, Cell(outcome), NONE).withheld
    # The line is about a failure; that it crashes too may be new.
    assert stand(CASE, Cell(outcome), LISTED).withheld
    public = Expectations("toy@1", {CASE.key: Line(*CASE.key, outcome, "CVE-2099-0001")})
    assert not stand(CASE, Cell(outcome), public).withheld
    assert not stand(CASE, FAIL, NONE).withheld
    assert stand(CASE, PASS, EMBARGOED).withheld


CRASHES = {("toy/a", "consumer"): "crash", ("toy/b", "log"): "timeout"}
SEALED = Expectations("toy@1", {}, {}, Seal.of("toy@1", CRASHES))


def crashing(outcomes: dict[tuple[str, str], str]) -> dict[tuple[str, str], Cell]:
    return {("toy/c", "consumer"): PASS, ("toy/d", "consumer"): FAIL} | {
        key: Cell(outcome) for key, outcome in outcomes.items()
    }


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        (CRASHES, None),
        (CRASHES | {("toy/e", "log"): "memory"}, ": 2 in the file .*, 3 in this run;"),
        ({("toy/a", "consumer"): "crash"}, ": 2 in the file .*, 1 in this run;"),
        ({}, ": 2 in the file .*, 0 in this run;"),
        (CRASHES | {("toy/b", "log"): "crash"}, ": 2 in the file .*, the same number, but others, in this run;"),
        (
            {("toy/a", "consumer"): "crash", ("toy/x", "log"): "timeout"},
            ": 2 in the file .*, the same number, but others, in this run;",
        ),
    ],
    ids=["the same", "one more", "one less", "none", "another outcome", "another cell"],
)
def test_a_clean_clone_notices_every_change_of_what_is_withheld(
    outcomes: dict[tuple[str, str], str], said: str | None
) -> None:
    found = unsealed(crashing(outcomes), SEALED)
    assert found is None if said is None else re.search(said, found or "")


def test_outcomes_under_a_seal_that_holds_are_listed_and_withheld() -> None:
    standing = stand(CASE, Cell("crash"), SEALED, sealed=True)
    assert (standing.status, standing.withheld) == ("listed", True)
    # The seal is on crashes, hangs and memory faults alone.
    assert stand(CASE, FAIL, SEALED, sealed=True).status == "unexpected"
    broken = stand(CASE, Cell("crash"), SEALED)
    assert broken.status == "unexpected"
    assert broken.reason == "no line expects this crash, and it is not one of the 2 withheld outcomes"


def test_a_partial_run_may_have_as_many_outcomes_as_the_seal_unless_the_lines_are_at_hand() -> None:
    more = CRASHES | {("toy/e", "log"): "memory"}
    assert may_be_sealed(crashing({("toy/x", "log"): "memory"}), SEALED)
    assert may_be_sealed(crashing(CRASHES), SEALED)
    assert not may_be_sealed(crashing(more), SEALED)
    assert not may_be_sealed(crashing(CRASHES), replace(SEALED, embargoed=EMBARGOED.embargoed))


def test_a_seal_is_the_same_in_every_order_and_another_for_every_testee() -> None:
    seal = Seal.of("toy@1", CRASHES)
    assert Seal.of("toy@1", dict(reversed(CRASHES.items()))) == seal
    assert Seal.of("toy@2", CRASHES) != seal
    assert re.fullmatch(r"withheld 2 scrypt:[0-9a-f]{64}", str(seal))
    assert Seal.of("toy@1", {}) == Seal()


def test_an_embargo_that_no_seal_tells_of_is_noticed() -> None:
    cells = {CASE.key: Cell("crash")}
    assert ": 0 in the file of expected outcomes, 1 in this run" in (unsealed(cells, EMBARGOED) or "")
    sealed = replace(EMBARGOED, seal=Seal.of("toy@1", {CASE.key: "crash"}))
    assert unsealed(cells, sealed) is None
    # A new crash without any embargo is unexpected by itself.
    assert unsealed(cells, NONE) is None


def test_a_line_whose_question_is_gone_is_reported() -> None:
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
        ("toy/a consumer varies  # why", "only the outcome of a conversation may vary"),
        ("toy/a consumer fail", "no reason"),
        ("toy/a consumer fail  #", "no reason"),
        ("toy/a consumer fail  # one\ntoy/a consumer crash  # two", "already has a line"),
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
        assert set(parse(directory / "toy@1.txt")[0]) == {("toy/a", "consumer")}
        assert set(parse(embargo / "toy@1.txt")[0]) == {("toy/b", "consumer")}
        assert load("toy@1", directory, embargo).seal == Seal.of("toy@1", {("toy/b", "consumer"): "crash"})
    assert "toy/b" not in (directory / "toy@1.txt").read_text()
    clean_clone = load("toy@1", directory, tmp_path / "none")
    assert unsealed(cells, clean_clone) is None
    assert expected.withholdable(cells, clean_clone) == {("toy/b", "consumer"): "crash"}


def test_conversations_are_updated_and_sealed_without_the_other_vectors(tmp_path: Path) -> None:
    directory, embargo = tmp_path / "expected", tmp_path / "embargo"
    cases = [Case(make_vector(f"{name}/a"), "consumer") for name in ("toy", "conversation")]
    expected.update(cases, dict.fromkeys([case.key for case in cases], Cell("stall")), NONE, directory, embargo)
    whole = (directory / "toy@1.txt").read_text()
    assert re.search("withheld 1 scrypt:.*\nwithheld 1 conversations scrypt:", whole)
    # A clean clone asks only the conversation, which does something else now.
    talk = cases[1]
    after = {talk.key: FAIL}
    varying = tmp_path / "varying"
    varying.mkdir()
    (varying / "toy@1.txt").write_text("conversation/a consumer varies  # a timer\n")
    for cell in (PASS, FAIL):
        expected.update([talk], {talk.key: cell}, load("toy@1", varying, tmp_path), varying, tmp_path)
        assert "conversation/a consumer varies  # a timer\n" in (varying / "toy@1.txt").read_text()
    clone = load("toy@1", directory, tmp_path / "none")
    assert expected.update([talk], after, clone, directory, tmp_path / "none") == (1, 0)
    found = load("toy@1", directory, tmp_path / "none")
    assert [*found.listed] == [talk.key]
    assert unsealed({cases[0].key: Cell("stall"), **after}, found) is None
    assert str(found.seal) in whole


def test_a_seal_in_a_file_of_the_users_choice_is_that_of_the_version_in_its_heading(tmp_path: Path) -> None:
    cells = {CASE.key: Cell("crash")}
    expected.update([CASE], cells, NONE, tmp_path, tmp_path / "embargo")
    found = load_own("toy@2", tmp_path / "toy@1.txt")
    assert (found.label, found.seal.count) == ("toy@1", 1)
    assert unsealed(cells, found) is None
    assert unsealed({CASE.key: Cell("panic")}, found) is not None
    # A file without a seal is one of whichever testee is asked.
    (tmp_path / "mine.txt").write_text("# Outcomes of toy@1 other than pass.\n")
    assert load_own("toy@2", tmp_path / "mine.txt").label == "toy@2"


def test_a_crash_that_is_gone_takes_its_seal_with_it(tmp_path: Path) -> None:
    directory, embargo = tmp_path / "expected", tmp_path / "embargo"
    for cell, withheld in ((Cell("crash"), 1), (PASS, 0)):
        before = load("toy@1", directory, embargo)
        assert expected.update([CASE], {CASE.key: cell}, before, directory, embargo) == (0, withheld)
        assert load("toy@1", directory, embargo).seal.count == withheld


def test_time_and_memory_are_one_budget_but_a_crash_is_something_else() -> None:
    listed = Expectations("toy@1", {CASE.key: Line(*CASE.key, "timeout", "a bomb")})
    assert stand(CASE, Cell("memory"), listed).status == "listed"
    assert stand(CASE, Cell("crash"), listed).status == "unexpected"
    seals = {
        outcome: Seal.of("toy@1", {CASE.key: outcome}) for outcome in ("timeout", "memory", "crash", "panic", "stall")
    }
    assert seals["timeout"] == seals["memory"]
    assert len({str(seal) for seal in seals.values()}) == 4


@pytest.mark.parametrize(
    ("listed", "embargoed", "complaint"),
    [
        ("toy/a consumer fail  # x\n", "toy/a consumer crash  # y\n", "toy/a consumer has a line in .* too"),
        ("", "toy/a consumer fail  # y\n", "no outcome 'fail' here; write one of crash, memory, panic, stall, timeout"),
        ("", f"{SEALED.seal}\n", "a `withheld` line belongs in"),
        (f"{SEALED.seal}\n{SEALED.seal}\n", "", "a second `withheld` line"),
        ("withheld 0 scrypt:00\n", "", "not a `withheld` line as kfuzz writes it"),
        (f"withheld {'9' * 5000} scrypt:{'0' * 64}\n", "", "not a `withheld` line as kfuzz writes it"),
    ],
)
def test_files_that_contradict_each_other_are_refused(
    tmp_path: Path, listed: str, embargoed: str, complaint: str
) -> None:
    for folder, text in (("expected", listed), ("embargo", embargoed)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "toy@1.txt").write_text(text)
    with pytest.raises(UsageError, match=complaint):
        load("toy@1", tmp_path / "expected", tmp_path / "embargo")


def test_outcomes_that_were_written_are_as_expected_when_read_again(tmp_path: Path) -> None:
    cases = [Case(make_vector(f"toy/{name}"), "consumer") for name in "ab"]
    cells = {cases[0].key: FAIL, cases[1].key: Cell("timeout")}
    expected.update(cases, cells, NONE, tmp_path / "expected", tmp_path / "embargo")
    again = load("toy@1", tmp_path / "expected", tmp_path / "embargo")
    assert [stand(case, cells[case.key], again).status for case in cases] == ["listed", "listed"]


@pytest.mark.parametrize("path", sorted((default_root() / "expected").glob("*.txt")), ids=lambda path: path.stem)
def test_every_committed_line_is_explained(path: Path) -> None:
    unexplained = [str(line) for line in parse(path)[0].values() if line.reason.startswith(UNEXPLAINED)]
    assert unexplained == []
