"""The stream operations of the foreign testees: what they offer, what they answer, and what they cannot take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from conftest import releases
from testee_driver import RunningTestee, running

from kfuzz.conformance.judge.compare import Case, request
from kfuzz.vectors.model import load_suite

SUITE = {vector.id: vector for vector in load_suite("stream/*", kinds=("stream",))}


def asked(id: str, role: str, **changes: Any) -> dict[str, Any]:
    return request(Case(SUITE[f"stream/{id}"], role)) | changes


@pytest.fixture(scope="module", params=["aiokafka", "kafka-python"])
def python(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running(request.param) as testee:
        yield testee


@pytest.fixture(scope="module", params=releases())
def kafka(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running("kafka-clients", request.param) as testee:
        yield testee


def offsets(answer: dict[str, Any]) -> list[str]:
    assert answer["outcome"] == "accepted", answer
    return [record["offset"] for record in answer["records"]]


def test_a_consumer_filters_what_it_is_told_to_be_aborted(python: RunningTestee) -> None:
    assert "decode-stream" in python.handshake["operations"]
    answer = python.ask(**asked("isolation/aborted-then-committed", "consumer"))
    assert (offsets(answer), answer["next_offset"]) == (["3", "4"], "6")
    told_nothing = asked("isolation/aborted-then-committed", "consumer", aborted=[])
    assert offsets(python.ask(**told_nothing)) == ["0", "1", "3", "4"]
    uncommitted = asked("isolation/aborted-then-committed", "consumer", isolation="read_uncommitted")
    assert offsets(python.ask(**uncommitted)) == ["0", "1", "3", "4"]


def test_a_consumer_begins_at_the_fetch_offset(python: RunningTestee) -> None:
    assert offsets(python.ask(**asked("isolation/fetch-from-inside-a-batch", "consumer"))) == ["5", "6"]


def test_records_before_a_bad_batch_are_reported(python: RunningTestee) -> None:
    question = asked("isolation/committed", "consumer")
    question["steps"][1] = question["steps"][1][:-2] + "ff"
    answer = python.ask(**question)
    assert (answer["outcome"], len(answer["records"])) == ("rejected", 2)


def test_a_consumer_library_is_neither_log_nor_broker(python: RunningTestee) -> None:
    assert python.ask(**asked("isolation/committed", "log"))["outcome"] == "unsupported"
    assert python.ask(**asked("sequence/goes-on", "broker"))["outcome"] == "unsupported"


@pytest.mark.parametrize("wrong", [{"isolation": "serializable"}, {"steps": ["0g"]}, {"aborted": [{}]}], ids=str)
def test_a_question_that_is_none_is_a_fault_and_the_next_is_answered(
    python: RunningTestee, wrong: dict[str, Any]
) -> None:
    answer = python.ask(**asked("isolation/aborted", "consumer", **wrong))
    assert (answer["outcome"], answer["error"][:10]) == ("fault", "BadRequest")
    assert python.ask(**asked("isolation/aborted", "consumer"))["outcome"] == "accepted"


@pytest.mark.java
def test_kafka_answers_as_consumer_log_and_broker(kafka: RunningTestee) -> None:
    assert {"decode-stream", "append-stream"} <= set(kafka.handshake["operations"])
    consumer = kafka.ask(**asked("isolation/aborted-then-committed", "consumer"))
    assert (offsets(consumer), consumer["next_offset"]) == (["3", "4"], "6")
    log = kafka.ask(**asked("isolation/committed-before-open", "log"))
    assert (offsets(log), log["next_offset"], log["last_stable_offset"]) == (["0", "1"], "3", "3")
    broker = kafka.ask(**asked("sequence/gap-of-one", "broker"))
    assert [step["outcome"] for step in broker["steps"]] == ["appended", "rejected"]
    assert broker["steps"][1]["error"] == "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.java
def test_kafka_forgets_everything_between_two_streams(kafka: RunningTestee) -> None:
    question = asked("sequence/starts-at-zero", "broker")
    first, second = kafka.ask(**question), kafka.ask(**question)
    assert first == second
    assert [step["outcome"] for step in second["steps"]] == ["appended"]


@pytest.mark.java
def test_kafka_takes_a_step_for_one_whole_batch(kafka: RunningTestee) -> None:
    steps = asked("sequence/goes-on", "broker")["steps"]
    for wrong in (["".join(steps)], [steps[0][:-2]], [""]):
        answer = kafka.ask(**asked("sequence/goes-on", "broker", steps=wrong))
        assert answer["outcome"] == "fault"
        assert "each step must be one whole batch" in answer["error"]


@pytest.mark.java
@pytest.mark.parametrize(
    ("changes", "outcome"),
    [({"role": "log"}, "unsupported"), ({"transaction_version": 3}, "unsupported"), ({"steps": "x"}, "fault")],
    ids=["role", "transaction-version", "steps"],
)
def test_kafka_says_what_it_does_not_support(kafka: RunningTestee, changes: dict[str, Any], outcome: str) -> None:
    assert kafka.ask(**(asked("sequence/goes-on", "broker") | changes))["outcome"] == outcome
