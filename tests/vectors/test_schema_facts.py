"""``vectors/schema.json`` repeats parts of the code as the code has them: words of roles, codecs, kinds, verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kfuzz.conformance.protocol import lines as words
from kfuzz.kafka import CODECS, ISOLATIONS, ROLES, TIMESTAMP_TYPES
from kfuzz.vectors import KINDS, load_suite
from kfuzz.vectors.coverage import CODES, expectations
from kfuzz.vectors.kinds import CLIENT, LEVELS, OPTIONS, READER, VERDICTS
from kfuzz.vectors.model import FORMAT, default_root
from kfuzz.wire.io.layout import MESSAGE_LAYOUT

SCHEMA: dict[str, Any] = json.loads((default_root() / "schema.json").read_bytes())
VECTOR = SCHEMA["$defs"]["vector"]
SAID = [outcome for outcome in words.OUTCOMES if outcome != "unsupported"]
ACCEPTING = [verdict for verdict in VERDICTS if verdict != "invalid"]
REFUSING = [verdict for verdict in VERDICTS if verdict != "valid"]

# Every list of words in the schema, by its place; None where the schema is the only place that has the words.
FACTS: dict[str, Any] = {
    "properties.kind": KINDS,
    "$defs.role": [*ROLES, READER, CLIENT],
    "$defs.batch.properties.compression": CODECS,
    "$defs.batch.properties.magic": [*MESSAGE_LAYOUT, 2],
    "$defs.batch.properties.timestamp_type": TIMESTAMP_TYPES,
    "$defs.expectation.properties.verdict": VERDICTS,
    "$defs.expectation.allOf[0].if.properties.verdict": ACCEPTING,
    "$defs.step_append.properties.verdict": VERDICTS,
    "$defs.step_append.allOf[0].else.properties.verdict": ACCEPTING,
    "$defs.step_append.allOf[0].then.properties.verdict": REFUSING,
    "$defs.step_reading.properties.verdict": VERDICTS,
    **{f"$defs.said.properties.{role}": SAID for role in (*ROLES, READER, CLIENT, "produce")},
    "$defs.vector.properties.compression": CODECS,
    "$defs.vector.properties.isolation": ISOLATIONS,
    "$defs.vector.properties.left_out.items": None,
    "$defs.vector.properties.level": LEVELS,
    "$defs.vector.properties.topic.properties.compression": ["producer", *CODECS],
    "$defs.vector.properties.topic.properties.timestamp_type": [word for word in TIMESTAMP_TYPES if word != "none"],
    "$defs.flag.properties.bug_type": None,
    "$defs.said.properties.recovery": None,
    "$defs.gets.properties.outcome": None,
    "$defs.gets.properties.sends.items": None,
    "$defs.vector.properties.application.items.properties.do": None,
    "$defs.vector.properties.frames.items.properties.from": None,
    "$defs.step_append.properties.outcome": None,
}


def lists(value: Any, place: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Each ``enum`` below ``value`` with its place."""
    if isinstance(value, dict):
        if isinstance(value.get("enum"), list):
            yield place, value["enum"]
        for name, inner in value.items():
            yield from lists(inner, f"{place}.{name}" if place else name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from lists(inner, f"{place}[{index}]")


def test_every_list_of_words_in_the_schema_is_known_here() -> None:
    assert {place for place, _ in lists(SCHEMA)} == FACTS.keys()


@pytest.mark.parametrize("place", [place for place, words in FACTS.items() if words is not None])
def test_a_list_of_words_in_the_schema_is_the_codes(place: str) -> None:
    assert sorted(dict(lists(SCHEMA))[place], key=str) == sorted(FACTS[place], key=str)


def test_the_schema_has_the_format_and_the_options_of_every_kind() -> None:
    assert SCHEMA["properties"]["format"]["const"] == FORMAT
    bytes_and_words = {"hex", "recipe", "sha256", "size", "steps", *VECTOR["required"], "budget", "expect"}
    assert VECTOR["properties"].keys() - bytes_and_words == set(OPTIONS)
    contents = {kind.contents for kind in KINDS.values()} - {None}
    assert contents <= SCHEMA["$defs"]["expectation"]["properties"].keys()


def test_the_protocol_has_the_same_word_for_the_one_role_of_messages_and_primitives() -> None:
    assert READER == words.READER


@pytest.mark.parametrize("name", KINDS)
def test_every_vector_is_as_the_table_of_kinds_says(name: str) -> None:
    kind = KINDS[name]
    vectors = load_suite(kinds=[name])
    assert vectors
    for vector in vectors:
        assert vector.options.keys() <= set(kind.options), vector.id
        assert (vector.steps != ()) == (kind.contents is None), vector.id
        assert {role for role, _ in expectations(vector)} <= set(kind.roles), vector.id
        assert vector.steps or kind.roles[0] in vector.expect, vector.id
        for expectation in vector.expect.values():
            assert (kind.contents in expectation) == (expectation["verdict"] != "invalid"), vector.id
        found = {expectation["finding"] for _, expectation in expectations(vector) if "finding" in expectation}
        assert found <= CODES[name].keys(), vector.id
