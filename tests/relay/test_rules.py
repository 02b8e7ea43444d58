"""Rules at work, without sockets: which of them are applied to a frame, how often, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import Mock

import pytest
from relay.framing import exchange, frame, values_of

from kfuzz.errors import UsageError
from kfuzz.relay import rules as module
from kfuzz.relay.connection import Connection
from kfuzz.relay.frames import Direction, Exchange, Frame
from kfuzz.relay.pipe import CLOSE, HALT, Step, Wait, framed
from kfuzz.relay.rule import parse_rule
from kfuzz.relay.rules import Rules


def asking(*, is_keeping: bool = False) -> Mock:
    """A connection that notes what rules want of it."""
    made = Mock(spec=Connection)
    made.keeps.return_value = is_keeping
    made.half_open.return_value = [HALT]
    return made


def rules_of(*texts: str, seed: int = 1) -> Rules:
    return Rules(map(parse_rule, texts), seed=seed)


def beat(nth: int = 1, direction: Direction = "response", connection: int = 1) -> Frame:
    values = {"errorCode": 0} if direction == "response" else {"groupId": "g", "memberId": "m"}
    return frame(exchange("Heartbeat", 4, nth=nth, connection=connection), direction, values)


WHOLE = framed(beat().data)
ASKED = framed(beat(direction="request").data)


@pytest.mark.parametrize(
    ("texts", "direction", "steps", "log"),
    [
        (["drop"], "response", [], ["forget"]),
        (["delay_ms=5"], "response", [Wait(5), WHOLE], []),
        (["delay_ms=5", "delay_ms=6 duplicate"], "response", [Wait(11), WHOLE, WHOLE], ["sends_again"]),
        (["cut=0"], "response", [b"", CLOSE], []),
        (["cut=3"], "response", [WHOLE[:3], CLOSE], []),
        (["cut=9999 delay_ms=1"], "response", [Wait(1), WHOLE, CLOSE], []),
        (["disconnect=before"], "request", [CLOSE], []),
        (["duplicate", "disconnect=after"], "request", [ASKED, ASKED, CLOSE], ["sends_again"]),
        (["duplicate", "disconnect=before"], "request", [CLOSE], []),
        (["disconnect=after"], "response", [WHOLE, CLOSE], []),
        (["half_open"], "request", [HALT], ["half_open"]),
        (["reorder"], "response", [], ["keep"]),
        (["duplicate", "answer={}"], "request", [], ["answer"]),
    ],
)
def test_the_steps_of_each_action(texts: list[str], direction: Direction, steps: list[Step], log: list[str]) -> None:
    asked = asking()
    rules = rules_of(*(f"Heartbeat {text} direction={direction}" for text in texts))
    assert rules.steps(asked, beat(direction=direction)) == steps
    assert [name for name, *_ in asked.method_calls if name != "keeps"] == log
    assert all(one.args == (direction,) for one in asked.half_open.call_args_list)
    assert [one.applied for one in rules] == [1] * len(texts)


@pytest.mark.parametrize("version", [0, 4])
def test_an_answer_has_the_values_of_the_rule_and_the_correlation_id_of_its_request(version: int) -> None:
    asked, one = asking(), exchange("Heartbeat", version)
    data = frame(one, "request", {"groupId": "g", "memberId": "m"})
    rules_of('Heartbeat answer={"errorCode":27} delay_ms=3').steps(asked, data)
    [_, [wait, sent]] = asked.answer.call_args.args
    assert wait == Wait(3)
    assert isinstance(sent, bytes)
    assert sent[4:8] == one.correlation_id.to_bytes(4, "big")
    assert values_of(one, "response", sent)["errorCode"] == 27


def test_rules_change_a_frame_in_their_order_until_one_ends_it() -> None:
    rules = rules_of(*(f"Heartbeat {text}" for text in ("error=1", "throttle_ms=9", "error=2", "cut=99", "error=3")))
    [sent, end] = rules.steps(asking(), beat()) or ()
    assert end is CLOSE
    assert values_of(exchange("Heartbeat", 4), "response", sent) == {"errorCode": 2, "throttleTimeMs": 9}
    assert [(one.matched, one.applied) for one in rules] == [(1, 1)] * 4 + [(0, 0)]


def test_a_frame_is_not_reordered_while_another_waits_for_it() -> None:
    rules = rules_of("Heartbeat reorder")
    assert rules.steps(asking(is_keeping=True), beat()) is None
    assert [(one.matched, one.applied) for one in rules] == [(1, 0)]


PLACES = [(connection, nth) for connection in (1, 2) for nth in range(1, 201)]


def chosen(text: str, seed: int = 1, places: Sequence[tuple[int, int]] = PLACES) -> set[tuple[int, int]]:
    """The connections and numbers of the frames to which a rule is applied."""
    rules, asked = rules_of(f"Heartbeat {text}", seed=seed), asking()
    return {one for one in places if rules.steps(asked, beat(one[1], connection=one[0])) is not None}


def test_a_probability_decides_for_each_frame_by_seed_rule_and_connection_alone() -> None:
    assert chosen("cut=0 probability=0") == set()
    assert chosen("cut=0 probability=1") == set(PLACES)
    first = chosen("cut=0 probability=0.5")
    assert 150 < len(first) < 250
    # Frames of others in between do not matter.
    assert chosen("cut=0 probability=0.5", places=PLACES[::-2] + PLACES[::2]) == first
    other_connection = {(3 - connection, nth) for connection, nth in first}
    for other in (chosen("cut=0 probability=0.5", seed=2), chosen("cut=1 probability=0.5"), other_connection):
        assert 130 < len(first ^ other) < 270


def test_times_counts_how_often_a_rule_was_applied_not_how_often_it_matched() -> None:
    rules = rules_of("Fetch error=6 times=1")
    one = exchange("Fetch", 12)
    assert rules.steps(asking(), frame(one, "response", {"responses": []})) is None
    assert rules.may_match("response", one)
    part = {"responses": [{"topic": "t", "partitions": [{"partitionIndex": 0, "records": b""}]}]}
    assert rules.steps(asking(), frame(one, "response", part)) is not None
    assert not rules.may_match("response", one)
    [live] = rules
    assert (live.matched, live.applied) == (2, 1)
    assert str(live) == "rule 1: Fetch error=6 times=1: applied to 1 of 2 frames that matched"


def test_a_value_that_does_not_fit_is_noted_and_the_next_rule_has_its_turn() -> None:
    said: list[str] = []
    # The second body cannot be read any more.
    rules = Rules(
        map(parse_rule, ("Heartbeat hex=00", "Heartbeat error=3", "Heartbeat duplicate")),
        note=lambda code, direction, exchange, sentence: said.append(f"{code}: {sentence}"),
    )
    one = beat()
    broken = framed(bytes(one.data)[: one.body_at] + b"\0")
    assert rules.steps(asking(), one) == [broken, broken]
    assert [live.applied for live in rules] == [1, 0, 1]
    [sentence] = said
    assert sentence.startswith("rule-not-applied: rule 2 cannot change it: HeartbeatResponse")


def test_only_frames_that_may_match_are_held() -> None:
    rules = rules_of("Heartbeat drop versions=3+", "* direction=request drop client_id=x")
    assert rules.may_match("response", exchange("Heartbeat", 3))
    assert not rules.may_match("response", exchange("Heartbeat", 2))
    assert not rules.may_match("response", exchange("Fetch", 3))
    # An API that no release has.
    assert rules.may_match("request", Exchange(1, 1, 1, 9999, 0, 1))
    assert not rules.may_match("response", Exchange(1, 1, 1, 9999, 0, 1))


def test_numbers_of_rules_are_never_given_again() -> None:
    rules = rules_of("Heartbeat drop", "Fetch drop")
    rules.remove(2)
    assert rules.add(parse_rule("Fetch drop")) == 3
    rules.clear()
    assert rules.add(parse_rule("Fetch drop")) == 4
    assert [one.number for one in rules] == [4]
    for call in (rules.remove, lambda number: rules.set_times(number, 1)):
        for wrong in (1, 9):
            with pytest.raises(UsageError, match=f"rule {wrong} does not exist"):
                call(wrong)


def test_there_is_a_bound_on_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RULES_MAX", 2)
    rules = rules_of("Heartbeat drop", "Fetch drop")
    with pytest.raises(UsageError, match="there are 2 rules already; remove some"):
        rules.add(parse_rule("Fetch drop"))


def test_the_summary_says_which_rules_never_matched() -> None:
    rules = rules_of("Heartbeat drop", "Fetch drop")
    rules.steps(asking(), beat())
    assert list(map(str, rules)) == [
        "rule 1: Heartbeat drop: applied to 1 of 1 frame that matched",
        "rule 2: Fetch drop: no frame matched",
    ]
    said = {"api": "Fetch", "direction": "response", "drop": True}
    assert rules.to_json()[1] == {"number": 2, "rule": said, "matched": 0, "applied": 0}
