"""Messages changed by their structure: what goes with a change goes with it, and every kind of change comes up."""

from __future__ import annotations

import hashlib
import random
from typing import Any

import pytest

from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.mutate import message
from kfuzz.mutate.message import mutant, restructured

METADATA = {"topics": [{"name": name} for name in ("a", "bb", "ccc")], "_unknownTaggedFields": [(7, b"x"), (9, b"")]}
# Of fixed sizes, and compact with tags.
VERSIONS = (4, 12)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and sizes always go with what they count."""
    monkeypatch.setattr(message, "_KEEPS_COUNT", 0)
    monkeypatch.setattr(message, "_KEEPS_SIZES", 0)


def only(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """Let one kind of change come up alone."""
    monkeypatch.setattr(message, "_CHANGES", (getattr(message, change),))
    monkeypatch.setattr(message, "_WEIGHTS", (1,))


def mutants(name: str, version: int, values: dict[str, Any], count: int = 200) -> list[bytes]:
    program = schema(catalogue().find(name), version)
    data = program.encode(values)
    places = program.places(data)[2]
    return [restructured(random.Random(seed), data, places) for seed in range(count)]


def metadata(version: int) -> dict[str, Any]:
    return METADATA if version > 8 else {"topics": METADATA["topics"]}


def test_the_first_messages_of_a_seed_never_change() -> None:
    digest = hashlib.sha256()
    for version in VERSIONS:
        for data in mutants("Metadata", version, metadata(version)):
            digest.update(len(data).to_bytes(4, "big") + data)
            bytewise = mutant(random.Random(len(data)), data)
            digest.update(len(bytewise).to_bytes(4, "big") + bytewise)
    assert digest.hexdigest() == "e39e6cbe169ed3d02f696d9b1736e2e6483e148143210fe391473063f60528b1"


@pytest.mark.parametrize("version", VERSIONS)
def test_elements_go_come_and_move_with_their_count(whole: None, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    only(monkeypatch, "_other_elements")
    seen = set()
    for data in mutants("Metadata", version, metadata(version)):
        reading = codec.read("Metadata", version, data)
        assert {finding.code for finding in reading.findings} <= {"tag-unknown", "tag-repeated", "tag-not-ascending"}
        assert reading.message is not None
        seen.add("".join(topic["name"][0] for topic in reading.message["topics"]))
        seen.add(" ".join(str(tag) for tag, _ in reading.message.get("_unknownTaggedFields", ())))
    assert seen >= {"ab", "bc", "ac", "bac", "acb", "aabc", "abbbc", "a" * 9 + "bc"}
    assert version < 9 or seen >= {"7 9", "7", "9", "9 7", "7 7 9", "7 9 9 9"}


@pytest.mark.parametrize("version", VERSIONS)
def test_texts_grow_shrink_and_become_null_with_their_length(
    whole: None, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    only(monkeypatch, "_other_size")
    sizes = set()
    for data in mutants("Metadata", version, metadata(version)):
        reading = codec.read("Metadata", version, data)
        if reading.message is None:
            # Of version 10 on a topic's name may be null.
            assert version < 10
            assert [finding.code for finding in reading.findings] == ["null-not-allowed"]
        else:
            sizes.update(-1 if topic["name"] is None else len(topic["name"]) for topic in reading.message["topics"])
    assert sizes >= {0, 1, 2, 3, 126, 127, 128, 255, 256, 1000}
    assert (-1 in sizes) == (version > 9)


def test_tagged_fields_that_nobody_knows_come_in_front_and_behind(whole: None, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "_one_more_tag")
    ends = set()
    for data in mutants("Metadata", 12, METADATA):
        reading = codec.read("Metadata", 12, data)
        assert reading.message is not None
        tags = [tag for tag, _ in reading.message["_unknownTaggedFields"]]
        inner = sum(len(topic.get("_unknownTaggedFields", ())) for topic in reading.message["topics"])
        assert len(tags) + inner == 3
        ends.add((tags[0] != 7, tags[-1] != 9))
    assert ends == {(True, False), (False, True), (False, False)}


def test_the_size_of_a_tagged_field_goes_with_what_it_holds(whole: None, monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"responses": [{"topicId": bytes(16), "partitions": []}], "nodeEndpoints": [{"nodeId": 1, "host": "h"}]}
    grown = 0
    for change in ("_other_elements", "_other_size", "_one_more_tag"):
        only(monkeypatch, change)
        for data in mutants("FetchResponse", 17, values):
            reading = codec.read("FetchResponse", 17, data)
            assert "tag-size-mismatch" not in {finding.code for finding in reading.findings}
            grown += reading.message is not None and reading.message["nodeEndpoints"] != values["nodeEndpoints"]
    assert grown > 100


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_keep_their_form(monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    only(monkeypatch, "_other_number")
    monkeypatch.setattr(message, "_OVERLONG", 0)
    program = schema(catalogue().find("Metadata"), version)
    before = program.encode(metadata(version))
    codes = set()
    for data in mutants("Metadata", version, metadata(version)):
        codes.update(note[0] for note in program.check(data)[1])
        # Varints alone grow with what they say.
        assert version > 8 or len(data) == len(before)
    assert codes >= {"count-exceeds-message", "length-exceeds-message", "bytes-after-message"}
    assert not codes & {"varint-overlong", "varint-too-long"}
    assert version < 9 or "tag-count-exceeds-message" in codes


def test_values_keep_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "_other_value")
    values = {"entries": [{"entity": [], "ops": [{"key": "key", "value": 1.5, "remove": False}]}]}
    made = mutants("AlterClientQuotasRequest", 1, values)
    readings = [codec.read("AlterClientQuotasRequest", 1, data) for data in made]
    assert len({len(data) for data in made}) == 1
    operations = [reading.message["entries"][0]["ops"][0] for reading in readings if reading.message]
    assert len(operations) == len(made)
    assert {repr(one["value"]) for one in operations} >= {"0.0", "-0.0", "nan", "5e-324"}
    assert {finding.code for reading in readings for finding in reading.findings} == {
        "bool-not-0-or-1",
        "string-not-utf8",
    }


def test_equal_seeds_make_equal_mutants_of_every_message_and_every_finding_comes_up() -> None:
    codes = set()
    for definition in catalogue().messages.values():
        for version in definition.valid_versions:
            program = schema(definition, version)
            data = program.encode(filled(definition, version, 1))
            places = program.places(data)[2]
            for seed in (f"{definition.name} {version}", f"{definition.name} {version} again"):
                made = restructured(random.Random(seed), data, places)
                assert made == restructured(random.Random(seed), data, places)
                codes.update(note[0] for note in program.check(made)[1])
    # Not what needs a message of more bytes than these, or structs in structs in structs.
    assert codes == set(codec.CODES) - {"count-too-large", "tag-count-too-large", "nested-too-deep"}


def test_what_has_no_place_is_changed_blindly() -> None:
    assert restructured(random.Random(1), b"", []) != b""
    assert {restructured(random.Random(seed), b"\0" * 9, []) for seed in range(50)} != {b"\0" * 9}
