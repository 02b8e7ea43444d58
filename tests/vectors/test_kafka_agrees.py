"""Apache Kafka's own reader, both versions, confirms every vector again: outcome, consumed bytes, contents, cells."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import require_kafka_build

from kfuzz.conformance.judge.confirmation import ask_kafka
from kfuzz.kafka import KAFKA_3, LATEST, RELEASES
from kfuzz.vectors import load_suite
from kfuzz.vectors.confirm import contradiction

pytestmark = [pytest.mark.java, pytest.mark.full]

SUITE = load_suite()
Answers = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    require_kafka_build()
    return ask_kafka(SUITE)


def test_both_versions_of_kafka_were_asked_everything(answers: Answers) -> None:
    assert sorted(answers) == sorted(RELEASES)
    assert all(len(said) == len(SUITE) for said in answers.values())


@pytest.mark.parametrize("version", RELEASES)
def test_kafka_contradicts_no_vector(answers: Answers, version: str) -> None:
    found = {vector.id: contradiction(vector, answers[version][vector.id]) for vector in SUITE}
    assert {name: text for name, text in found.items() if text} == {}


@pytest.mark.parametrize("version", RELEASES)
def test_the_committed_cells_are_what_kafka_says(answers: Answers, version: str) -> None:
    said = {vector.id: answers[version][vector.id]["outcome"] for vector in SUITE}
    committed = {vector.id: vector.kafka[version]["consumer"] for vector in SUITE}
    assert {name: (said[name], committed[name]) for name in said if said[name] != committed[name]} == {}


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
