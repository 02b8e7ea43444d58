"""tools/museum.py: the list of public bugs is right, and its figures count what they say."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kfuzz.conformance import Cell, all_testees
from kfuzz.errors import UsageError
from kfuzz.vectors.model import has_vector
from tools import museum
from tools.museum import Bug, Shown, figures, load_bugs, shown

BUG = Bug("a/b#1", "b", 2020, "hangs", "a batch is read for ever", "abcdef1", ("records/v2/record/null-key",))
RUN = replace(BUG, testee="b", buggy="1.0.0", mended="1.0.1")
KEY = ("records/v2/record/null-key", "consumer")
STALLS, PASSES, LOSES = Cell("stall", harm="hangs"), Cell("pass"), Cell("fail", harm="loses")


@pytest.fixture(scope="module")
def bugs() -> tuple[Bug, ...]:
    return load_bugs()


def test_the_list_is_long_enough_and_each_vector_and_testee_in_it_exists(bugs: tuple[Bug, ...]) -> None:
    assert len(bugs) >= 80
    assert sum(bug.runs for bug in bugs) >= 50
    assert [(bug.thread, name) for bug in bugs for name in bug.vectors if not has_vector(name)] == []
    assert {bug.testee for bug in bugs if bug.runs} <= {testee.name for testee in all_testees()}


ENTRY = """[[bug]]
thread = "a/b#1"
library = "bee"
year = 2020
harm = "hangs"
summary = "a batch is read for ever"
added = "abcdef1"
"""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "a/b#1 needs a reason, because no version of its library is run"),
        ('testee = "bee"\nbuggy = "1.0.0"', "needs all of testee, buggy and mended, or none of them"),
        ('testee = "bee"\nbuggy = "1.0.0"\nmended = "1.0.0"', "has one version as buggy and as mended"),
        ('testee = "bee"\nbuggy = "1.0.0"\nmended = "1.0.1"', "needs vectors, or the reason why nothing shows it"),
        ('reason = "there is no testee"\n' + ENTRY + 'reason = "there is no testee"', "a/b#1 is there twice"),
        ('reason = "there is no testee"\nvector = []', ".bug[0].vector is not a key that kfuzz knows"),
        ('buggy = "latest"', '.bug[0].buggy is "latest"; give a version'),
        ('reason = "there is no testee"\n' + ENTRY.replace("a/b#1", "private"), '.bug[1].thread is "private"'),
        ('reason = "there is no testee"\n' + ENTRY.replace("hangs", "hurts"), '.bug[1].harm is "hurts"; choose'),
    ],
)
def test_a_wrong_entry_is_refused_with_a_sentence(tmp_path: Path, more: str, says: str) -> None:
    file = tmp_path / "bugs.toml"
    file.write_text(ENTRY + more)
    with pytest.raises(UsageError) as refused:
        load_bugs(file)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("buggy", "mended", "caught"),
    [
        (STALLS, PASSES, True),
        (LOSES, PASSES, False),
        (STALLS, LOSES, False),
        (PASSES, PASSES, False),
        (STALLS, None, False),
    ],
)
def test_a_bug_is_caught_if_the_buggy_version_does_its_harm_and_the_mended_one_passes(
    buggy: Cell, mended: Cell | None, caught: bool
) -> None:
    answers = {"b@1.0.0": {KEY: buggy}, "b@1.0.1": {KEY: mended} if mended else {}}
    [one] = shown([RUN], lambda label, vectors: answers[label])
    assert one.caught is caught
    assert bool(one.why) is not caught


def test_a_bug_may_be_shown_in_another_class_than_its_harm() -> None:
    answers = {"b@1.0.0": {KEY: LOSES}, "b@1.0.1": {KEY: PASSES}}
    [one] = shown([replace(RUN, shown_as="loses")], lambda label, vectors: answers[label])
    assert one.caught


def test_each_version_is_asked_once_with_the_vectors_of_all_its_bugs() -> None:
    asked: list[tuple[str, list[str]]] = []

    def ask(label: str, vectors: Collection[str]) -> Mapping[tuple[str, str], Cell] | str:
        asked.append((label, sorted(vectors)))
        return "it does not build" if label.endswith("1.0.1") else {}

    other = replace(RUN, thread="a/b#2", vectors=("records/v2/record/null-value",))
    found = shown([RUN, other, BUG], ask)
    both = ["records/v2/record/null-key", "records/v2/record/null-value"]
    assert asked == [("b@1.0.0", both), ("b@1.0.1", both)]
    assert [one.why for one in found] == ["1.0.1 is not judged: it does not build"] * 2 + [""]
    assert [one.caught for one in found] == [False, False, True]


def test_figures_count_fresh_bugs_twice_and_others_by_their_triggers() -> None:
    by = ("records/v2/record/null-key consumer",)
    found = [
        Shown(replace(RUN, caught_when_added=False), by),
        Shown(replace(RUN, fresh=True, harm="loses", year=2021), by),
        Shown(replace(RUN, caught_when_added=True, year=2021)),
        Shown(BUG, BUG.vectors),
        Shown(replace(BUG, vectors=()), (), "no vector has it"),
    ]
    made = figures(found)
    assert (made.run.caught, made.run.total) == (2, 3)
    assert (made.run.caught_when_added, made.run.known_when_added) == (1, 2)
    assert (made.fresh.caught, made.fresh.total) == (1, 1)
    assert (made.triggers.caught, made.triggers.total) == (1, 2)
    assert {harm: (count.caught, count.total) for harm, count in made.by_harm.items()} == {
        "hangs": (1, 2),
        "loses": (1, 1),
    }
    assert {years: count.total for years, count in made.by_year.items()} == {"2019–2021": 3}
    report = museum.text(found)
    assert "both versions run here" in report
    assert "1/2" in report
    assert "What nothing shows: 2" in report


def test_a_name_without_a_bug_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert museum.main(["no-such-library"]) == 2
    assert "no bug of no-such-library" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_versions_of_a_bug_are_built_and_asked(capsys: pytest.CaptureFixture[str]) -> None:
    assert museum.main(["--verbose", "platformatic/kafka#217"]) == 0
    said = capsys.readouterr()
    assert "platformatic/kafka#217: " in said.err
    assert "What nothing shows: 0" in said.out
