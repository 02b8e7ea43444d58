"""Streams in the protocol: what is asked, what an answer is worth, and that kfuzz and Kafka agree on random ones."""

from __future__ import annotations

import io
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_driver import kfuzz
from conftest import counts, the_testee
from referee_tools import make_vector

from kfuzz.conformance.differential import streams as stream_differential
from kfuzz.conformance.differential.streams import differ_streams, stream
from kfuzz.conformance.judge.compare import Case, Cell, cases_of, declared_unsupported, judge, request
from kfuzz.conformance.judge.confirmation import confirm_streams
from kfuzz.conformance.judge.own import answer_stream, serve
from kfuzz.conformance.protocol.lines import APPEND_STREAM, DECODE_STREAM, Handshake, ProtocolError, parse_answer
from kfuzz.conformance.protocol.testees import Testee, own
from kfuzz.errors import UsageError
from kfuzz.kafka import RELEASES
from kfuzz.vectors.confirm import BROKER_CELLS
from kfuzz.vectors.model import load_suite

FULL = Handshake(
    name="toy",
    version="1",
    language="python",
    operations=frozenset({DECODE_STREAM, APPEND_STREAM}),
    roles=frozenset({"consumer", "broker", "log"}),
    magic=frozenset({0, 1, 2}),
    codecs=frozenset({"none", "gzip"}),
)
SUITE = {vector.id: vector for vector in load_suite("stream/*", kinds=("stream",))}


def case(id: str, role: str) -> Case:
    return Case(SUITE[f"stream/{id}"], role)


def judged(asked: Case, answer: Mapping[str, Any]) -> Cell:
    line = json.dumps({"id": asked.vector.id} | dict(answer)).encode()
    return judge(asked, FULL, parse_answer(line, id=asked.vector.id, operation=asked.operation))


def right(asked: Case) -> dict[str, Any]:
    return answer_stream(request(asked))


# --- questions ---


def test_a_stream_is_asked_once_for_each_role_that_it_has_expectations_for() -> None:
    vector = SUITE["stream/isolation/aborted"]
    assert [asked.key[1] for asked in cases_of([vector])] == ["consumer", "log"]
    assert [asked.operation for asked in cases_of([vector, SUITE["stream/sequence/goes-on"]])] == [
        DECODE_STREAM,
        DECODE_STREAM,
        APPEND_STREAM,
    ]


def test_the_question_says_all_that_the_vector_says() -> None:
    asked = request(case("isolation/told-from-before-the-fetch", "consumer"))
    assert asked.keys() == {"id", "operation", "role", "isolation", "aborted", "fetch_offset", "steps"}
    assert (asked["isolation"], asked["fetch_offset"]) == ("read_committed", "100")
    assert asked["aborted"] == [{"first_offset": "17", "producer_id": "4000"}]
    assert request(case("epoch/version-two-marker-twice", "broker"))["transaction_version"] == 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"operations": frozenset({DECODE_STREAM})}, "append-stream"),
        ({"roles": frozenset({"consumer"})}, "role broker"),
        ({"magic": frozenset({1})}, "magic 2"),
    ],
)
def test_streams_that_the_handshake_does_not_declare_are_not_asked(changes: dict[str, Any], why: str) -> None:
    assert why in str(declared_unsupported(case("sequence/goes-on", "broker"), replace(FULL, **changes)))
    assert declared_unsupported(case("sequence/goes-on", "broker"), FULL) is None


# --- appends ---


def test_kfuzz_passes_every_stream_of_the_suite() -> None:
    cells = {asked.key: judged(asked, right(asked)) for asked in cases_of(list(SUITE.values()))}
    assert {key: cell.text for key, cell in cells.items() if cell.outcome != "pass"} == {}
    assert len(cells) > 150


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"outcome": "duplicate"}, "step[1].outcome is duplicate; expected appended"),
        ({"base_offset": "4"}, "step[1].base_offset is 4; expected 3"),
        ({"last_stable_offset": "0"}, "step[1].last_stable_offset is 0; expected 5"),
        ({"outcome": "rejected", "error": "NONE"}, "step[1].outcome is rejected; expected appended"),
    ],
)
def test_a_wrong_step_fails_and_is_named(change: dict[str, Any], said: str) -> None:
    asked = case("sequence/goes-on", "broker")
    answer = right(asked)
    answer["steps"][1] |= change
    assert (judged(asked, answer).outcome, judged(asked, answer).text) == ("fail", said)


@pytest.mark.parametrize(("name", "value"), [("error", "INVALID_RECORD"), ("finding", "sequence-overlap")])
def test_the_reason_of_a_refusal_is_compared_where_it_is_given(name: str, value: str) -> None:
    asked = case("sequence/gap-of-one", "broker")
    answer = right(asked)
    answer["steps"][1][name] = value
    assert f"step[1].{name} is {value}" in judged(asked, answer).text
    del answer["steps"][1][name]
    assert judged(asked, answer).outcome == "pass"


def test_a_step_that_was_not_answered_fails() -> None:
    asked = case("sequence/goes-on", "broker")
    answer = right(asked)
    answer["steps"].pop()
    assert judged(asked, answer).text == "answered too few steps: 2; expected 3"


def test_after_a_free_choice_that_differs_the_later_steps_are_not_judged() -> None:
    asked = case("sequence/unknown-producer-then-gap", "broker")
    refusing = {"outcome": "rejected", "last_stable_offset": "0"}
    assert judged(asked, {"outcome": "accepted", "steps": [refusing, refusing]}).outcome == "pass"
    duplicate = {"outcome": "duplicate", "base_offset": "0"}
    assert judged(asked, {"outcome": "accepted", "steps": [duplicate, refusing]}).outcome == "fail"


def test_refusing_a_stream_as_a_whole_is_no_answer_of_a_broker() -> None:
    asked = case("sequence/gap-of-one", "broker")
    assert judged(asked, {"outcome": "rejected", "error": "no"}).outcome == "fail"


@pytest.mark.parametrize(
    ("operation", "answer", "lacks"),
    [
        (APPEND_STREAM, {}, "steps"),
        (DECODE_STREAM, {"batches": []}, "records"),
        (APPEND_STREAM, {"steps": [{"outcome": "lost"}]}, r"\[0\]\.outcome"),
        (APPEND_STREAM, {"steps": [{"base_offset": "0"}]}, r"\[0\] lacks outcome"),
        (APPEND_STREAM, {"steps": [{"outcome": "appended", "offset": "0"}]}, "not a key"),
    ],
)
def test_an_answer_without_what_it_is_about_breaks_the_protocol(
    operation: str, answer: dict[str, Any], lacks: str
) -> None:
    line = json.dumps({"id": "a", "outcome": "accepted"} | answer).encode()
    with pytest.raises(ProtocolError, match=lacks):
        parse_answer(line, id="a", operation=operation)


# --- reading ---


def test_an_aborted_record_that_is_handed_out_fails() -> None:
    asked = case("isolation/aborted", "consumer")
    shown = right(case("isolation/uncommitted-aborted", "consumer"))
    assert judged(asked, shown).text == "too many records: 2; expected 0"


def test_a_record_that_is_held_back_fails() -> None:
    asked = case("isolation/committed", "log")
    assert judged(asked, right(asked) | {"records": []}).text == "too few records: 0; expected 2"


def test_where_the_next_fetch_begins_is_compared_where_it_is_given() -> None:
    asked = case("isolation/aborted", "consumer")
    answer = right(asked)
    assert "begins at 9; expected 3" in judged(asked, answer | {"next_offset": "9"}).text
    del answer["next_offset"]
    assert judged(asked, answer).outcome == "pass"


def test_the_offsets_that_a_client_tells_are_compared() -> None:
    asked = case("isolation/aborted", "consumer")
    answer = {**right(asked), "position": "3", "high_watermark": "3", "last_stable_offset": "3"}
    assert judged(asked, answer).outcome == "pass"
    assert judged(asked, answer | {"position": "4"}).text == "the position is 4; expected 0 to 3"
    assert judged(asked, answer | {"last_stable_offset": "0"}).text == "the last stable offset is 0; expected 3"


def test_where_a_refusal_is_fine_both_answers_pass_and_the_records_before_it_count() -> None:
    asked = case("isolation/marker-key-short", "consumer")
    answer = right(asked)
    assert (answer["outcome"], len(answer["records"])) == ("rejected", 1)
    assert judged(asked, answer | {"finding": "crc-mismatch"}).outcome == "fail"
    assert judged(asked, answer | {"records": []}).outcome == "fail"
    assert judged(asked, {"outcome": "accepted", "records": answer["records"]}).outcome == "pass"
    assert judged(asked, {"outcome": "accepted", "records": []}).outcome == "fail"


def test_a_stream_that_must_be_accepted_or_refused_as_stated() -> None:
    valid = case("isolation/committed", "consumer")
    assert "must be accepted: no" in judged(valid, {"outcome": "rejected", "error": "no"}).text
    steps = tuple(
        {**step, "expect": {"consumer": {"verdict": "invalid", "finding": "end-marker-invalid"}}}
        for step in valid.vector.steps
    )
    invalid = Case(make_vector("toy/stream", kind="stream", expect={}, steps=steps), "consumer")
    accepted = judged(invalid, {"outcome": "accepted", "records": []})
    assert accepted.text.startswith("accepted bytes that must be refused")
    assert judged(invalid, {"outcome": "rejected"}).outcome == "pass"


# --- kfuzz's own testee ---


def asked_of_own(**changes: Any) -> dict[str, Any]:
    line = json.dumps(request(case("isolation/aborted", "consumer")) | changes).encode()
    out = io.BytesIO()
    serve(io.BytesIO(line), out)
    answer: dict[str, Any] = json.loads(out.getvalue().splitlines()[1])
    return answer


def test_own_testee_answers_for_the_roles_that_it_knows() -> None:
    assert asked_of_own()["outcome"] == "accepted"
    assert asked_of_own(role="broker")["outcome"] == "unsupported"
    assert asked_of_own(operation=APPEND_STREAM)["outcome"] == "unsupported"
    assert asked_of_own(isolation="serializable")["outcome"] == "fault"


def test_own_testee_hands_out_what_stands_before_a_batch_that_cannot_be_read() -> None:
    steps = request(case("isolation/committed", "consumer"))["steps"]
    spoiled = steps[1][:-2] + "ff"
    answer = asked_of_own(steps=[steps[0], spoiled], aborted=[])
    assert (answer["outcome"], answer["finding"], len(answer["records"])) == ("rejected", "crc-mismatch", 2)


# --- the differential ---


def test_equal_seeds_make_equal_streams_and_others_make_others() -> None:
    one, again, other = ([stream(seed, index) for index in range(30)] for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_random_streams_meet_every_rule() -> None:
    met: Counter[str] = Counter()
    for asked in (stream(1, index) for index in range(1200)):
        answer = answer_stream(asked)
        for step in answer.get("steps", [answer]):
            met[f"{asked['role']} {step.get('finding', step['outcome'])}"] += 1
    for code in (
        "appended",
        "sequence-duplicate",
        "sequence-gap",
        "sequence-overlap",
        "sequence-of-new-epoch",
        "producer-epoch-stale",
        "coordinator-epoch-stale",
        "transaction-not-ended",
        "end-marker-invalid",
    ):
        assert met[f"broker {code}"] >= 5, code
    for role in ("consumer", "log"):
        assert met[f"{role} accepted"] > 100
        assert met[f"{role} end-marker-invalid"] >= 5
    assert met["log transaction-not-ended"] >= 5


@pytest.mark.java
@pytest.mark.parametrize("count", counts(100, 1500))
def test_kafka_agrees_on_random_streams(count: int) -> None:
    for testee in (the_testee(f"kafka-clients@{release}") for release in RELEASES):
        found = differ_streams(testee, seed=1, count=count)
        assert [item.reason for item in found.deviations] == []
        # Kafka 3 knows no transactions of version 2, which a ninth of the streams have.
        assert found.unsupported == 0 if testee.version.startswith("4.") else found.unsupported < count / 6
        assert found.agreed + found.unsupported == count


@pytest.mark.java
def test_kafka_confirms_every_stream_of_the_suite() -> None:
    the_testee("kafka-clients")
    found = confirm_streams(list(SUITE.values()))
    assert found.contradictions == []
    said = {
        (name, version, role): answer["outcome"]
        for role, versions in found.answers.items()
        for version, answers in versions.items()
        for name, answer in answers.items()
    }
    cells = {
        (vector.id, version, role): outcome
        for vector in SUITE.values()
        for version, roles in vector.kafka.items()
        for role, outcome in roles.items()
        if version in RELEASES and role not in BROKER_CELLS
    }
    assert said == cells


def test_the_differential_catches_a_testee_with_another_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    right_answer = answer_stream

    def forgetting(asked: Mapping[str, Any]) -> dict[str, Any]:
        answer = right_answer(asked)
        for step in answer.get("steps", ()):
            if step["outcome"] == "duplicate":
                step |= {"outcome": "appended"}
        return answer

    assert differ_streams(own(), seed=3, count=60).deviations == []
    monkeypatch.setattr(stream_differential, "answer_stream", forgetting)
    found = differ_streams(own(), seed=3, count=60)
    assert found.deviations
    assert all("outcome is duplicate; expected appended" in item.reason for item in found.deviations)
    assert found.agreed + len(found.deviations) == 60


def test_a_stream_that_differs_is_kept_as_the_request_that_shows_it(tmp_path: Path) -> None:
    options = ["--what", "streams", "--testee", "aiokafka", "--count", "60", "--seed", "1"]
    done = kfuzz("differential", *options, "--out", tmp_path)
    files = sorted((tmp_path / "differential").iterdir())
    assert (done.returncode, "40 unsupported by aiokafka" in done.stdout) == (1, True), done.stdout + done.stderr
    # One for each cause: the smallest.
    counts = [int(count) for count in re.findall(r"\((\d+) streams?\)$", done.stdout, re.MULTILINE)]
    assert len(counts) == len(files) > 0
    assert f" {sum(counts)} differ" in done.stdout.splitlines()[-1]
    kept = json.loads(files[0].read_text())
    number = int(files[0].stem.rpartition("-")[2])
    assert kept == {"id": "stream"} | stream(1, number)


def test_the_differential_says_when_a_testee_does_not_begin(tmp_path: Path) -> None:
    script = tmp_path / "mute.py"
    script.write_text("pass")
    with pytest.raises(UsageError, match="mute@1: no handshake"):
        differ_streams(Testee("mute", "1", (sys.executable, str(script))), seed=1, count=3)
