"""Rules at work, without sockets: which of them are applied to a frame, how often, and what is sent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from relay.framing import exchange, frame, values_of

from kfuzz.errors import UsageError
from kfuzz.relay import rules as module
from kfuzz.relay.frames import Direction, Exchange, Frame
from kfuzz.relay.pipe import CLOSE, HALT, Step, Wait, framed
from kfuzz.relay.rules import Rules, parse_rule


class Asked:
    """A connection that notes what rules want of it."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.sent: Sequence[Step] = ()
        self.is_keeping = False

    def half_open(self, direction: Direction) -> Sequence[Step]:
        self.log.append(f"half_open {direction}")
        return [HALT]

    def forget(self, frame: Frame) -> None:
        self.log.append("forget")

    def answer(self, exchange: Exchange, steps: Sequence[Step]) -> None:
        self.log.append("answer")
        self.sent = steps

    def sends_again(self, frame: Frame) -> None:
        self.log.append("sends_again")

    def keeps(self, direction: Direction) -> bool:
        return self.is_keeping

    def keep(self, frame: Frame, steps: Sequence[Step]) -> None:
        self.log.append("keep")
        self.sent = steps


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
        (["cut=3"], "response", [WHOLE[:3], CLOSE], []),
        (["cut=9999 delay_ms=1"], "response", [Wait(1), WHOLE, CLOSE], []),
        (["disconnect=before"], "request", [CLOSE], []),
        (["duplicate", "disconnect=after"], "request", [ASKED, ASKED, CLOSE], ["sends_again"]),
        (["duplicate", "disconnect=before"], "request", [CLOSE], []),
        (["half_open"], "request", [HALT], ["half_open request"]),
        (["reorder"], "response", [], ["keep"]),
        (["duplicate", "answer={}"], "request", [], ["answer"]),
    ],
)
def test_the_steps_of_each_action(texts: list[str], direction: Direction, steps: list[Step], log: list[str]) -> None:
    asked = Asked()
    rules = rules_of(*(f"Heartbeat {text} direction={direction}" for text in texts))
    assert rules.steps(asked, beat(direction=direction)) == steps
    assert asked.log == log
    assert [one.applied for one in rules] == [1] * len(texts)


def test_an_answer_has_the_correlation_id_of_its_request() -> None:
    asked = Asked()
    rules_of('Heartbeat answer={"errorCode":27} delay_ms=3').steps(asked, beat(direction="request"))
    [wait, sent] = asked.sent
    assert wait == Wait(3)
    one = exchange("Heartbeat", 4)
    assert isinstance(sent, bytes)
    assert sent[4:8] == one.correlation_id.to_bytes(4, "big")
    assert values_of(one, "response", sent)["errorCode"] == 27


def test_a_frame_is_not_reordered_while_another_waits_for_it() -> None:
    asked = Asked()
    asked.is_keeping = True
    rules = rules_of("Heartbeat reorder")
    assert rules.steps(asked, beat()) is None
    assert [(one.matched, one.applied) for one in rules] == [(1, 0)]


@pytest.mark.parametrize(("probability", "applied"), [(0, 0), (1, 100)])
def test_a_rule_with_probability_0_is_never_applied_and_with_1_always(probability: int, applied: int) -> None:
    rules = rules_of(f"Heartbeat drop probability={probability}")
    dropped = sum(rules.steps(Asked(), beat(nth)) == [] for nth in range(1, 101))
    assert (dropped, [one.applied for one in rules]) == (applied, [applied])


def test_a_probability_decides_for_each_frame_and_two_rules_do_not_decide_alike() -> None:
    def lost(seed: int, connection: int, cut: int) -> list[bool]:
        rules = rules_of(f"Heartbeat cut={cut} probability=0.5", seed=seed)
        return [rules.steps(Asked(), beat(nth, connection=connection)) is not None for nth in range(1, 201)]

    first = lost(1, 1, 0)
    assert 70 < sum(first) < 130
    assert lost(1, 1, 0) == first
    for other in (lost(2, 1, 0), lost(1, 2, 0), lost(1, 1, 1)):
        assert 60 < sum(map(bool.__eq__, first, other)) < 140


def test_frames_of_one_connection_are_decided_alike_whatever_others_send() -> None:
    def lost(order: list[tuple[int, int]]) -> list[tuple[int, int]]:
        rules = rules_of("Heartbeat drop probability=0.5")
        return sorted(one for one in order if rules.steps(Asked(), beat(one[1], connection=one[0])) == [])

    places = [(connection, nth) for connection in (1, 2, 3) for nth in range(1, 30)]
    assert lost(places) == lost(places[::-1]) == lost(places[::2] + places[1::2])


def test_times_counts_how_often_a_rule_was_applied_not_how_often_it_matched() -> None:
    rules = rules_of("Fetch error=6 times=1")
    one = exchange("Fetch", 12)
    without = frame(one, "response", {"responses": []})
    assert rules.steps(Asked(), without) is None
    assert rules.may_match("response", one)
    part = {"responses": [{"topic": "t", "partitions": [{"partitionIndex": 0, "records": b""}]}]}
    assert rules.steps(Asked(), frame(one, "response", part)) is not None
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
    assert rules.steps(Asked(), one) == [broken, broken]
    assert [live.applied for live in rules] == [1, 0, 1]
    [sentence] = said
    assert sentence.startswith("rule-not-applied: rule 2 cannot change it: HeartbeatResponse")


def test_only_frames_of_the_rules_api_direction_version_and_connection_are_held() -> None:
    rules = rules_of("Heartbeat drop versions=3+ connection=2", "* direction=request drop client_id=x")
    assert rules.may_match("response", exchange("Heartbeat", 3, connection=2))
    assert not rules.may_match("response", exchange("Heartbeat", 2, connection=2))
    assert not rules.may_match("response", exchange("Heartbeat", 3, connection=1))
    assert not rules.may_match("response", exchange("Fetch", 3, connection=2))
    assert rules.may_match("request", exchange("Fetch", 3))
    # An API that no release has.
    assert rules.may_match("request", Exchange(1, 1, 1, 9999, 0, 1))
    assert not rules.may_match("response", Exchange(1, 1, 1, 9999, 0, 1))


def test_numbers_of_rules_are_never_given_again() -> None:
    rules = rules_of("Heartbeat drop", "Fetch drop")
    rules.remove(2)
    assert rules.add({"api": "Fetch", "drop": True}) == 3
    rules.clear()
    assert rules.add(parse_rule("Fetch drop")) == 4
    assert [one.number for one in rules] == [4]
    for wrong in (1, 9):
        with pytest.raises(UsageError, match=f"there is no rule {wrong}"):
            rules.remove(wrong)
        with pytest.raises(UsageError, match=f"there is no rule {wrong}"):
            rules.set_times(wrong, 1)
    with pytest.raises(UsageError, match="no API"):
        rules.add({"api": "Fecth", "drop": True})


def test_there_is_a_bound_on_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RULES_MAX", 2)
    rules = rules_of("Heartbeat drop", "Fetch drop")
    with pytest.raises(UsageError, match="there are 2 rules already; remove some"):
        rules.add(parse_rule("Fetch drop"))


def test_the_summary_says_which_rules_never_matched() -> None:
    rules = rules_of("Heartbeat drop", "Fetch drop")
    rules.steps(Asked(), beat())
    assert list(rules.lines()) == [
        "rule 1: Heartbeat drop: applied to 1 of 1 frame that matched",
        "rule 2: Fetch drop: no frame matched",
    ]
    assert rules.to_json()[1] == {
        "number": 2,
        "rule": {"api": "Fetch", "direction": "response", "drop": True},
        "matched": 0,
        "applied": 0,
    }
