"""Golden conversations: what must be among them, and that Kafka's own client did what they say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kfuzz.conformance.judge.compare import Case, cases_of, judge
from kfuzz.conformance.judge.conversing import asked_of, wrong_conversation
from kfuzz.conformance.judge.harm import HARM_OF
from kfuzz.conformance.protocol.lines import Answer, Handshake
from kfuzz.relay.rule import Rule
from kfuzz.vectors import Vector, find_vector, load_suite
from kfuzz.vectors.kinds import CLIENT, CONVERSATION, FRAMES

SUITE = load_suite(kinds=[CONVERSATION])
ANYBODY = Handshake("anybody", "1", "python", frozenset())


def rule_kind(rule: dict[str, Any]) -> tuple[str, ...]:
    """A rule without its API and the values that it sets."""
    kept = {key: value if key in ("nth", "direction") else None for key, value in rule.items() if key != "api"}
    return tuple(f"{key}={value}" for key, value in kept.items())


def question_kind(vector: Vector) -> tuple[Any, ...]:
    """A conversation without its APIs, errors, numbers and names."""
    options, expected = vector.options, vector.expect[CLIENT]
    acts = [
        (
            act["do"],
            act.get("by"),
            sorted(act.keys() - {"by", "count", "records"}),
            [*map(rule_kind, act.get("rules", ()))],
        )
        for act in options["application"]
    ]
    follows = [(*sorted(one.get("where", ())), "at_most" in one) for one in expected.get("follows", ())]
    outcomes = [one["outcome"] for one in expected["acts"]]
    rules = [rule_kind(one) for one in options.get("rules", ())]
    return tuple(map(str, (acts, follows, outcomes, rules, options.keys() - {FRAMES})))


def test_there_are_two_hundred_conversations_of_which_eighty_have_four_requests() -> None:
    assert len({question_kind(one) for one in SUITE}) >= 200
    long = [one for one in SUITE if len(list(asked_of(one.options[FRAMES]))) >= 4]
    assert len({question_kind(one) for one in long}) >= 80


def golden(vector: Vector, frames: list[dict[str, Any]] | None = None) -> Answer:
    """The answer of a client that sends these frames, and gets what it must."""
    acts = [one | ({"outcome": "rejected"} if one["outcome"] == "any" else {}) for one in vector.expect[CLIENT]["acts"]]
    return Answer(vector.id, "accepted", acts=acts, frames=frames if frames is not None else vector.options[FRAMES])


@pytest.mark.parametrize("name", [one.id for one in SUITE])
def test_kafkas_own_client_sent_what_must_follow(name: str) -> None:
    vector = find_vector(name)
    # The frames have no times.
    follows = [{k: v for k, v in one.items() if k != "after_ms"} for one in vector.expect[CLIENT].get("follows", ())]
    vector = replace(vector, expect={CLIENT: {**vector.expect[CLIENT], "follows": follows}})
    assert wrong_conversation(vector, ANYBODY, golden(vector)) is None


def test_a_client_that_does_not_ask_again_is_seen() -> None:
    vector = find_vector("conversation/reading/not-leader")
    frames = vector.options[FRAMES]
    at = next(number for number, one in enumerate(frames) if one.get("trouble"))
    wrong = wrong_conversation(vector, ANYBODY, golden(vector, frames[: at + 2]))
    assert wrong is not None
    assert (wrong.harm, wrong.text) == ("differs", "never sent Metadata")


@pytest.mark.parametrize(
    ("acts", "what", "text"),
    [
        (
            [{"outcome": "accepted"}, {"outcome": "stalled", "error": "hands out nothing"}],
            "stall",
            "act 2 (read) stalled: hands out nothing",
        ),
        ([{"outcome": "panic"}], "panic", "act 1 (open) panic"),
        ([{"outcome": "rejected", "error": "no"}], "refuses", "act 1 (open) failed: no"),
        (
            [{"outcome": "accepted"}, {"outcome": "accepted", "offsets": ["0"]}],
            "loses",
            "did too few acts: 2; expected 5",
        ),
    ],
)
def test_an_application_that_does_not_get_everything_is_seen(acts: list[Any], what: str, text: str) -> None:
    vector = find_vector("conversation/reading/not-leader")
    cell = judge(Case(vector, CLIENT), ANYBODY, Answer(vector.id, "accepted", acts=acts, frames=vector.options[FRAMES]))
    assert cell.text == text
    assert what == cell.harm if cell.outcome == "fail" else (cell.outcome, HARM_OF[cell.outcome]) == (what, cell.harm)


def test_a_lookup_may_come_before_or_after_what_is_asked_again() -> None:
    vector = find_vector("conversation/reading/not-leader-twice")
    frames = vector.options[FRAMES]
    assert wrong_conversation(vector, ANYBODY, golden(vector, frames)) is None
    follows = [{"api": "Fetch"}, {"api": "Metadata"}, {"api": "Fetch"}, {"api": "Metadata"}]
    other = replace(vector, expect={CLIENT: {**vector.expect[CLIENT], "follows": follows}})
    assert wrong_conversation(other, ANYBODY, golden(other, frames)) is None


def test_rules_are_those_of_the_proxy_and_each_conversation_is_one_question() -> None:
    for vector in SUITE:
        acts = vector.options["application"]
        for rule in [*vector.options.get("rules", ()), *(one for act in acts for one in act.get("rules", ()))]:
            Rule(rule)
        assert cases_of([vector]) == (Case(vector, CLIENT),)
        assert len(vector.expect[CLIENT]["acts"]) == len(acts)
