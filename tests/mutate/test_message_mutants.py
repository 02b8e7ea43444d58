"""Messages changed by their structure: what goes with a change goes with it, and every kind of change comes up."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from kfuzz.findings.messages import CODES
from kfuzz.messages import codec
from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import MessageMutator, scrambled

METADATA = {"topics": [{"name": name} for name in ("a", "bb", "ccc")], "_unknownTaggedFields": [(7, b"x"), (9, b"")]}
# Of fixed sizes, and compact with tags.
VERSIONS = (4, 12)


def mutants(
    name: str, version: int, values: dict[str, Any], kind: str | None = None, *, repair: float = 0.75, count: int = 300
) -> list[bytes]:
    program = schema(catalogue().find(name), version)
    data = program.encode(values)
    mutator = MessageMutator(program, repair=repair)
    return [mutator.mutate(data, Dice(1, i), other=data, kind=kind) for i in range(count)]


HANDSHAKE = {"mechanism": "SCRAM-SHA-256"}


def metadata(version: int) -> dict[str, Any]:
    return METADATA if version > 8 else {"topics": METADATA["topics"]}


def test_the_first_messages_of_a_seed_never_change() -> None:
    digest = hashlib.sha256()
    # The others begin with a length and with a number.
    messages = [("Metadata", version, metadata(version)) for version in VERSIONS]
    messages += [("SaslHandshake", 1, HANDSHAKE), ("ListOffsets", 1, {"replicaId": -1, "topics": []})]
    for name, version, values in messages:
        for data in mutants(name, version, values):
            digest.update(len(data).to_bytes(4, "big") + data)
            blindly = scrambled(data, Dice(len(data)))
            digest.update(len(blindly).to_bytes(4, "big") + blindly)
    assert digest.hexdigest() == "a2afc75577817c51b4b49a78c1a01d53274f24f74e1641ced80bcc9e082d1a86"


@pytest.mark.parametrize("version", VERSIONS)
def test_elements_go_come_and_move_with_their_count(version: int) -> None:
    seen = set()
    for data in mutants("Metadata", version, metadata(version), "elements", repair=1):
        reading = codec.read("Metadata", version, data)
        assert {finding.code for finding in reading.findings} <= {"tag-unknown", "tag-repeated", "tag-not-ascending"}
        assert reading.message is not None
        seen.add("".join(topic["name"][0] for topic in reading.message["topics"]))
        seen.add(" ".join(str(tag) for tag, _ in reading.message.get("_unknownTaggedFields", ())))
    assert seen >= {"ab", "bc", "ac", "bac", "acb", "aabc", "abbbc", "a" * 9 + "bc"}
    assert version < 9 or seen >= {"7 9", "7", "9", "9 7", "7 7 9", "7 9 9 9"}


@pytest.mark.parametrize("version", VERSIONS)
def test_texts_grow_shrink_and_become_null_with_their_length(version: int) -> None:
    sizes = set()
    for data in mutants("Metadata", version, metadata(version), "size", repair=1):
        reading = codec.read("Metadata", version, data)
        if reading.message is None:
            # Of version 10 on a topic's name may be null.
            assert version < 10
            assert [finding.code for finding in reading.findings] == ["null-not-allowed"]
        else:
            sizes.update(-1 if topic["name"] is None else len(topic["name"]) for topic in reading.message["topics"])
    assert sizes >= {0, 1, 2, 3, 126, 127, 128, 255, 256, 1000}
    assert (-1 in sizes) == (version > 9)


def test_tagged_fields_that_nobody_knows_come_in_front_and_behind() -> None:
    ends = set()
    for data in mutants("Metadata", 12, METADATA, "tag", repair=1):
        reading = codec.read("Metadata", 12, data)
        assert reading.message is not None
        tags = [tag for tag, _ in reading.message["_unknownTaggedFields"]]
        inner = sum(len(topic.get("_unknownTaggedFields", ())) for topic in reading.message["topics"])
        assert len(tags) + inner == 3
        ends.add((tags[0] != 7, tags[-1] != 9))
    assert ends == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("version", VERSIONS)
def test_elements_come_from_the_other_message_with_their_count(version: int) -> None:
    program = schema(catalogue().find("Metadata"), version)
    other = program.encode({"topics": [{"name": name} for name in ("from", "another")]})
    mutator = MessageMutator(program, repair=1)
    for values in (metadata(version), {"topics": []}, {"topics": None}):
        names = set()
        for i in range(60):
            data = mutator.mutate(program.encode(values), Dice(2, i), other=other, kind="splice")
            reading = codec.read("Metadata", version, data)
            assert reading.message is not None
            assert {finding.code for finding in reading.findings} <= {"tag-unknown"}
            names.update(topic["name"] for topic in reading.message["topics"] or ())
        assert names >= {"from", "another"}


def test_the_size_of_a_tagged_field_goes_with_what_it_holds() -> None:
    values = {"responses": [{"topicId": bytes(16), "partitions": []}], "nodeEndpoints": [{"nodeId": 1, "host": "h"}]}
    grown = 0
    for kind in ("elements", "size", "tag", "splice"):
        for data in mutants("FetchResponse", 17, values, kind, repair=1):
            reading = codec.read("FetchResponse", 17, data)
            assert "tag-size-mismatch" not in {finding.code for finding in reading.findings}
            grown += reading.message is not None and reading.message["nodeEndpoints"] != values["nodeEndpoints"]
    assert grown > 100


def test_without_repair_counts_and_sizes_stay() -> None:
    values = {"responses": [{"topicId": bytes(16), "partitions": []}], "nodeEndpoints": [{"nodeId": 1, "host": "h"}]}
    codes = set()
    for kind in ("elements", "tag"):
        for data in mutants("FetchResponse", 17, values, kind, repair=0):
            codes.update(finding.code for finding in codec.read("FetchResponse", 17, data).findings)
    assert "tag-size-mismatch" in codes


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_keep_their_form(version: int) -> None:
    program = schema(catalogue().find("Metadata"), version)
    before = program.encode(metadata(version))
    codes = set()
    for data in mutants("Metadata", version, metadata(version), "number"):
        codes.update(note[0] for note in program.check(data)[1])
        # Varints alone grow with what they say.
        assert version > 8 or len(data) == len(before)
    assert codes >= {"count-exceeds-message", "length-exceeds-message", "bytes-after-message"}
    assert version < 9 or codes >= {"tag-count-exceeds-message", "varint-overlong", "varint-too-long"}


def test_values_keep_their_size() -> None:
    values = {"entries": [{"entity": [], "ops": [{"key": "key", "value": 1.5, "remove": False}]}]}
    made = mutants("AlterClientQuotasRequest", 1, values, "value")
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
            mutator, again = MessageMutator(program), MessageMutator(program)
            for i in range(6):
                made = mutator.mutate(data, Dice(i, version), other=data)
                assert made == again.mutate(data, Dice(i, version), other=data)
                codes.update(note[0] for note in program.check(made)[1])
    # Not what needs a message of more bytes than these, or structs in structs in structs.
    assert codes == set(CODES) - {"count-too-large", "tag-count-too-large", "nested-too-deep"}


def test_any_bytes_are_taken() -> None:
    """Mutants of mutants of random bytes: nothing is raised, and they stay small."""
    mutator = MessageMutator(schema(catalogue().find("FetchResponse"), 17))
    data = b""
    for i in range(20_000):
        dice = Dice(3, i)
        data = mutator.mutate(data if i % 20 else dice.octets(dice.below(80)), dice, other=data)
        assert len(data) < 1 << 20
