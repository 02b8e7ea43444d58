"""The testees in Python and those of kafka-clients answer these requests in the same way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hand_made import LARGE, LARGE_VALUE, V2
from testee_driver import LARGEST_LEAD, RunningTestee, running

from kfuzz.kafka import KAFKA_3, LATEST

IN_JAVA = [
    pytest.param(f"kafka-clients@{LATEST}", marks=pytest.mark.java),
    pytest.param(f"kafka-clients@{KAFKA_3}", marks=[pytest.mark.java, pytest.mark.full]),
]


@pytest.fixture(scope="module", params=["aiokafka", "kafka-python", *IN_JAVA])
def testee(request: pytest.FixtureRequest) -> Iterator[RunningTestee]:
    with running(request.param) as started_testee:
        yield started_testee


def test_a_value_over_64_kib_is_reported_by_its_digest(testee: RunningTestee) -> None:
    (large,) = testee.decode(LARGE)["batches"]
    assert large["records"][0]["value"] == LARGE_VALUE


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        "\x00",
        "[" * 5000,
        '{"id": "b", "operation": "decode-records", "role": "consumer"}',
        '{"id": "b", "operation": "decode-records", "role": "consumer", "hex": "0g"}',
    ],
)
def test_a_bad_request_is_answered_and_the_next_one_too(testee: RunningTestee, line: str) -> None:
    testee.send_line(line)
    answer = testee.read_answer()
    assert answer["outcome"] == "fault"
    assert answer["error"].startswith("BadRequest")
    assert testee.decode(V2)["outcome"] == "accepted"


@pytest.mark.parametrize(
    "request_fields", [{"operation": "sing"}, {"operation": "decode-records", "role": "proxy", "hex": ""}]
)
def test_operations_that_a_testee_does_not_offer_are_unsupported(
    testee: RunningTestee, request_fields: dict[str, Any]
) -> None:
    assert testee.ask(**request_fields)["outcome"] == "unsupported"


def test_requests_sent_ahead_are_answered_in_order(testee: RunningTestee) -> None:
    request = {"operation": "decode-records", "role": "consumer", "hex": V2.hex()}
    for i in range(LARGEST_LEAD):
        testee.send_line(json.dumps(request | {"id": f"r{i}"}))
    assert [testee.read_answer()["id"] for _ in range(LARGEST_LEAD)] == [f"r{i}" for i in range(LARGEST_LEAD)]
