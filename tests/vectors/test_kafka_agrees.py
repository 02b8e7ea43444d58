"""Apache Kafka's own reader, both versions, confirms every vector again: outcome, consumed bytes, contents, cells."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import counts, require_tool

from kfuzz.conformance.judge.confirmation import ask_kafka
from kfuzz.kafka import KAFKA_3, LATEST, RELEASES
from kfuzz.vectors import Vector, load_suite
from kfuzz.vectors.confirm import contradiction

pytestmark = pytest.mark.java

SUITE = load_suite()
Asked = tuple[Vector, ...]
Answers = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module", params=counts(25, 100))
def asked(request: pytest.FixtureRequest) -> Asked:
    """As many percent of the vectors."""
    return SUITE[:: 100 // request.param]


@pytest.fixture(scope="module")
def answers(asked: Asked) -> Answers:
    for tool in ("java", "javac", "mvn"):
        require_tool(tool, "install a JDK of version 17 or later and Maven")
    return ask_kafka(asked)


def test_both_versions_of_kafka_were_asked_everything(asked: Asked, answers: Answers) -> None:
    assert sorted(answers) == sorted(RELEASES)
    assert all(len(said) == len(asked) for said in answers.values())


@pytest.mark.parametrize("version", RELEASES)
def test_kafka_contradicts_no_vector(asked: Asked, answers: Answers, version: str) -> None:
    found = {vector.id: contradiction(vector, answers[version][vector.id]) for vector in asked}
    assert {name: text for name, text in found.items() if text} == {}


@pytest.mark.parametrize("version", RELEASES)
def test_the_committed_cells_are_what_kafka_says(asked: Asked, answers: Answers, version: str) -> None:
    said = {vector.id: answers[version][vector.id]["outcome"] for vector in asked}
    committed = {vector.id: vector.kafka[version]["consumer"] for vector in asked}
    assert {name: (said[name], committed[name]) for name in said if said[name] != committed[name]} == {}


@pytest.mark.parametrize("asked", [pytest.param(100, marks=pytest.mark.full)], indirect=True)
def test_where_the_two_versions_differ_it_is_memory_alone(answers: Answers) -> None:
    """3.9.2 dies of the memory that a length asks for; 4.4.0 looks at the length first."""
    differing = {
        vector.id for vector in SUITE if answers[KAFKA_3][vector.id]["outcome"] != answers[LATEST][vector.id]["outcome"]
    }
    assert differing == {
        "records/v0/message/inner-size-largest",
        "records/v1/message/inner-size-largest",
        *(f"records/v2/record/length-largest-{codec}" for codec in ("gzip", "lz4", "snappy", "zstd")),
    }
    assert {answers[KAFKA_3][name]["error"].partition(":")[0] for name in differing} == {"OutOfMemoryError"}
