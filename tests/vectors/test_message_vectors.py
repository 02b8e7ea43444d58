"""Messages and primitives: Apache Kafka confirms each vector again, layouts have every byte, all APIs are there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from conftest import require_kafka_build
from each_vector import each

from kfuzz.conformance.judge.confirmation import ask_kafka
from kfuzz.conformance.protocol.lines import READER
from kfuzz.errors import UsageError
from kfuzz.kafka import RELEASES
from kfuzz.messages import primitives
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.messages.codec import read
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.schemas import schema
from kfuzz.vectors import load_suite
from kfuzz.vectors.confirm import contradiction
from kfuzz.vectors.model import Vector
from kfuzz.vectors.recipes.making.message import body

SUITE = load_suite(kinds=("message",))
SINGLE = load_suite(kinds=("primitive",))

Answers = dict[str, dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers() -> Answers:
    require_kafka_build()
    return ask_kafka([*SUITE, *SINGLE], READER)


def has(release: str, vector: Vector) -> bool:
    definition = catalogue(release).messages.get(vector.options["message"])
    return definition is not None and vector.options["version"] in definition.valid_versions


@pytest.mark.full
@pytest.mark.java
@pytest.mark.parametrize("release", RELEASES)
def test_each_kafka_reads_what_the_vectors_say_of_the_messages_that_it_has(answers: Answers, release: str) -> None:
    asked = [*(vector for vector in SUITE if has(release, vector)), *SINGLE]
    assert sorted(answers[release]) == [vector.id for vector in asked]
    assert len(asked) > 1200
    said = {vector.id: contradiction(vector, answers[release][vector.id], READER) for vector in asked}
    assert {name: text for name, text in said.items() if text} == {}
    cells = {vector.id: vector.kafka[release][READER] for vector in asked}
    assert cells == {name: answer["outcome"] for name, answer in answers[release].items()}


def test_every_primitive_has_values_and_faults_and_is_written_as_it_was_read() -> None:
    verdicts = {(vector.options["primitive"], vector.expect[READER]["verdict"]) for vector in SINGLE}
    assert {(name, verdict) for name in primitives.PRIMITIVES for verdict in ("valid", "invalid")} <= verdicts
    for vector in SINGLE:
        name, expect = vector.options["primitive"], vector.expect[READER]
        reading = primitives.read(name, vector.data)
        if expect["verdict"] == "invalid":
            assert reading.fatal is not None
            assert reading.fatal.code == expect["finding"]
            continue
        assert reading.message is not None
        value = reading.message["value"]
        assert (primitives.to_json_value(name, value), reading.consumed) == (expect["value"], expect["consumed"])
        if vector.canonical:
            assert primitives.write(name, primitives.from_json_value(name, expect["value"])) == vector.data


def test_every_api_has_valid_and_hostile_vectors() -> None:
    verdicts = Counter((vector.options["message"], vector.expect[READER]["verdict"]) for vector in SUITE)
    for definition in catalogue().messages.values():
        if definition.kind in ("request", "response") and definition.valid_versions and definition.fields:
            assert verdicts[definition.name, "valid"], definition.name
    hostile = {name for name, verdict in verdicts if verdict != "valid"}
    alike = {definition.name for definition in catalogue().messages.values() if definition.name in hostile}
    # A message without lengths and counts can only be cut.
    assert len(alike) >= 170


@each(SUITE)
def test_the_layout_has_each_byte_up_to_the_fault(vector: Vector) -> None:
    end = 0
    for place in vector.layout:
        assert place["at"] == end
        end += place["size"]
    expect = vector.expect[READER]
    hostile = [place for place in vector.layout if place.get("hostile")]
    assert len(hostile) == (expect["verdict"] != "valid")
    if expect["verdict"] != "invalid":
        assert end == len(vector.data)
        assert expect["consumed"] in (end, hostile[0]["at"] if hostile else end)


def test_canonical_bytes_are_those_that_the_encoder_writes() -> None:
    asked = [vector for vector in SUITE if vector.canonical]
    assert len(asked) > 500
    for vector in asked:
        definition, version = newest(vector.options["message"], vector.options["version"]), vector.options["version"]
        values = from_json(definition, version, vector.expect[READER]["message"])
        assert schema(definition, version).encode(values) == vector.data, vector.id


def test_full_messages_have_no_field_at_its_default() -> None:
    for definition in catalogue().messages.values():
        if definition.kind in ("request", "response") and definition.valid_versions:
            version = definition.valid_versions.highest
            whole = body(definition.name)
            empty = to_json(definition, version, {})
            assert whole.contents is not None
            same = [name for name, value in whole.contents.items() if value == empty[name]]
            assert same == [], definition.name
            reading = read(definition, version, whole.data)
            assert reading.findings == []


def test_a_recipe_whose_fault_is_not_the_one_it_names_is_refused() -> None:
    whole = body("FetchRequest", 12)
    place = whole.place("count", "topics")
    with pytest.raises(UsageError, match=r"'count-exceeds-message'\]; expected \['null-not-allowed'\]"):
        whole.broken(place, b"\x7f", "null-not-allowed", after=b"")
