"""The testees of `kfuzz serve` do what vectors/expected/ says, and are asked about chosen vectors only."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from conftest import the_testee

from kfuzz.conformance.judge.choice import chosen_keys
from kfuzz.conformance.judge.compare import PRODUCE_ROLE, Case, cases_of
from kfuzz.conformance.judge.matrix import Column, Places, run
from kfuzz.conformance.protocol.testees import CHOSEN, Testee, all_testees
from kfuzz.vectors import KINDS, default_root, load_suite
from kfuzz.vectors.kinds import CLIENT, CONVERSATION

# Nobody has to install these: then, or if they have another version, there is nothing to test.
OPTIONAL = ("kcat",)
FEW = (
    "records/v2/count/of-2",
    "stream/isolation/aborted",
    "produce/contents/key-empty-value-empty",
    "conversation/reading/lost",
)
ROLES = ("consumer", PRODUCE_ROLE, CLIENT)
SOME = ("records/v2/count/of-*", "records/v2/transaction/*", "records/v2/headers/key-*")


@pytest.fixture
def testee(request: pytest.FixtureRequest) -> Testee:
    if request.param in OPTIONAL:
        (found,) = [testee for testee in all_testees() if testee.name == request.param]
        if reason := found.missing():
            pytest.skip(reason)
        return found
    return the_testee(request.param)


def judged(testee: Testee, cases: tuple[Case, ...], *, choose: bool) -> Column:
    (found,) = run([testee], cases, places=Places.beside(default_root()), whole=False, choose=choose).testees
    assert found.broken == ""
    if found.name in OPTIONAL and not found.expectations.exist:
        pytest.skip(f"{found.label} has no expected outcomes")
    assert {key: found.cells[key].text for key in found.unexpected} == {}
    return found


@pytest.mark.parametrize("testee", ["aiokafka-client", "kafka-python-client"], indirect=True)
def test_a_quick_client_reads_sends_and_holds_a_conversation_as_expected(testee: Testee) -> None:
    found = judged(testee, cases_of(load_suite(FEW, kinds=KINDS), ROLES), choose=False)
    assert len(found.cells) == len(FEW)
    assert found.totals()["pass"] >= 3


@pytest.mark.full
@pytest.mark.parametrize("testee", [one.name for one in all_testees() if one.kind == "client"], indirect=True)
def test_some_families_are_as_expected(testee: Testee) -> None:
    found = judged(testee, cases_of(load_suite(SOME), ("consumer",)), choose=False)
    assert found.expectations.exist
    assert found.totals()["pass"] >= len(found.cells) // 2
    assert "not-asked" not in found.totals()


@pytest.mark.nightly
@pytest.mark.parametrize("testee", [one.name for one in all_testees() if one.kind == "client"], indirect=True)
def test_the_chosen_vectors_are_as_expected(testee: Testee) -> None:
    cases = cases_of(load_suite(kinds=KINDS), ROLES)
    found = judged(testee, cases, choose=True)
    left_out = {case.key for case in cases if case.vector.kind in ("records", CONVERSATION)} - chosen_keys(cases)
    assert found.totals()["not-asked"] == sum(not found.cells[key].declared for key in left_out)


@pytest.mark.nightly
@pytest.mark.parametrize("testee", [one.name for one in all_testees() if one.kind == "client"], indirect=True)
def test_all_conversations_are_as_expected(testee: Testee) -> None:
    judged(testee, cases_of(load_suite(kinds=(CONVERSATION,))), choose=False)


def test_the_choice_has_every_flag_and_requirement_of_each_family_and_stays_small() -> None:
    cases = cases_of(load_suite(), ("consumer",))
    chosen = chosen_keys(cases)
    assert 200 <= len(chosen) <= 350
    streams = cases_of(load_suite(kinds=("stream",)), ("consumer",))
    assert chosen_keys(streams) == {case.key for case in streams}
    talks = cases_of(load_suite(kinds=(CONVERSATION,)))
    asked = [case.vector for case in talks if case.key in chosen_keys(talks)]
    assert {one for vector in asked for one in vector.requirements} == {
        one for case in talks for one in case.vector.requirements
    }
    assert len(asked) <= 20

    def has(key: str, only: bool) -> Counter[tuple[str, str, str]]:
        asked = [case for case in cases if case.key in chosen or not only]
        return Counter(
            (case.vector.id.rpartition("/")[0], case.expectation["verdict"] if key == "requirements" else "", word)
            for case in asked
            for word in getattr(case.vector, key)
        )

    for key in ("flags", "requirements"):
        assert has(key, True).keys() == has(key, False).keys()


def test_a_testee_that_takes_all_vectors_is_asked_all_even_if_others_choose() -> None:
    cases = cases_of(load_suite("records/v2/count/*"), ("consumer",))
    own, chooser = all_testees()[0], Testee("twin", "", all_testees()[0].argv, vectors=CHOSEN)
    (all_asked,) = run([own], cases, places=Places.beside(default_root()), whole=False, choose=True).testees
    (some_asked,) = run([chooser], cases, places=Places.beside(default_root()), whole=False, choose=True).testees
    assert all_asked.totals() == {"pass": len(cases)}
    left_out = len(cases) - len(chosen_keys(cases))
    assert some_asked.totals() == {"pass": len(cases) - left_out, "not-asked": left_out}
    assert some_asked.notes == (f"{left_out} vectors were not asked; --all asks them",)
    assert not some_asked.failed


def test_a_file_of_expected_outcomes_is_never_made_from_chosen_vectors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from kfuzz.cli.main import main

    the_testee("librdkafka")
    with pytest.raises(SystemExit) as ended:
        main(["conform", "--testee", "librdkafka", "--expected", str(tmp_path / "mine"), "--update-expected"])
    assert ended.value.code == 2
    assert "add --all" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()
