"""The places of a message's parts: they cover each byte once, as far as the message can be read."""

from __future__ import annotations

from typing import Any

import pytest
from defined import field, message_of

from kfuzz.messages.catalogues import catalogue
from kfuzz.messages.codec import encode
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import schema
from kfuzz.mutate.dice import Dice
from kfuzz.mutate.message import scrambled

ALL = [(definition, version) for definition in catalogue().messages.values() for version in definition.valid_versions]


def test_every_byte_up_to_the_end_or_the_fault_has_its_place() -> None:
    dice = Dice(4)
    refused = 0
    for definition, version in ALL:
        program = schema(definition, version)
        good = program.encode(filled(definition, version, 1))
        for data in (good, *(scrambled(good, dice) for _ in range(3))):
            end, notes, places = program.places(data)
            ends = [at + size for at, size, _, _, _ in places]
            assert [at for at, _, _, _, _ in places] == [0, *ends][: len(ends)], definition.name
            assert (end, notes) == program.check(data)
            if end >= 0:
                assert ends[-1:] in ([end], [])
            else:
                refused += 1
                # If a number is cut off, only its beginning is known.
                fault = max(note[1] for note in notes)
                assert 0 <= fault - max(ends, default=0) <= 5
    assert refused > 500


def test_the_parts_of_a_flexible_request() -> None:
    values = {
        "topics": [{"topic": "a", "partitions": []}],
        "clusterId": "x",
        "_unknownTaggedFields": [(9, b"\x01\x02")],
    }
    data = encode("Fetch", 12, values)
    places = schema(catalogue().find("Fetch"), 12).places(data)[2]
    assert [(size, path.removeprefix("FetchRequest"), part, value) for _, size, path, part, value in places[7:]] == [
        (1, ".topics", "count", 2),
        (1, ".topics[0].topic", "length", 2),
        (1, ".topics[0].topic", "value", "a"),
        (1, ".topics[0].partitions", "count", 1),
        (1, ".topics[0]", "tag-count", 0),
        (1, ".forgottenTopicsData", "count", 1),
        (1, ".rackId", "length", 1),
        (1, "", "tag-count", 2),
        (1, "", "tag", 0),
        (1, ".clusterId", "tag-size", 2),
        (1, ".clusterId", "length", 2),
        (1, ".clusterId", "value", "x"),
        (1, "", "tag", 9),
        (1, "._unknownTaggedFields[9]", "tag-size", 2),
        (2, "._unknownTaggedFields[9]", "value", b"\x01\x02"),
    ]


TAGGED = message_of(field("Place", "Where", tag=0, nullableVersions="0+", fields=[field("X", "int8")]), flexible="0+")


@pytest.mark.parametrize(
    ("presence", "found"),
    [
        ("01", {"place": {"x": 7}}),
        ("00", {"place": None}),
        # A varint of two bytes; as an int8, its first byte would be negative and mean null.
        # Then the largest int32, and -1, which means null.
        ("de52", {"place": {"x": 7}}),
        ("ffffffff07", {"place": {"x": 7}}),
        ("ffffffff0f", {"place": None}),
    ],
)
def test_a_varint_says_whether_a_tagged_struct_is_there(presence: str, found: dict[str, Any]) -> None:
    program = schema(TAGGED, 0)
    value = bytes.fromhex(presence) + (b"\7\0" if found["place"] else b"")
    data = b"\1\0" + bytes((len(value),)) + value
    end, notes, values = program.decode(data)
    assert (end, values) == (len(data), found)
    assert program.check(data) == program.places(data)[:2] == (end, notes)
    assert program.decode_objects(data)[2].to_dict() == found
    assert [note[0] for note in notes] == (
        [] if presence in ("01", "00") else ["length-below-minus-one" if presence[-1] == "f" else "bool-not-0-or-1"]
    )
    assert program.encode({"place": {"x": 7}}) == b"\1\0\3\1\7\0"
    assert program.encode({"place": None}) == b"\1\0\1\0"


@pytest.mark.parametrize("left", ["", "80"])
def test_a_tagged_struct_that_is_cut_in_front_is_refused_alike(left: str) -> None:
    program = schema(TAGGED, 0)
    data = b"\1\0" + bytes((len(left) // 2,)) + bytes.fromhex(left)
    end, notes = program.check(data)
    assert program.places(data)[:2] == (end, notes)
    assert [note[0] for note in notes] == ["message-cut"]


@pytest.mark.parametrize("presence", [1, -1])
def test_the_byte_in_front_of_a_struct_that_may_be_null(presence: int) -> None:
    name, version = "DescribeTopicPartitionsRequest", 0
    data = encode(name, version, {"cursor": {"topicName": "t", "partitionIndex": 3} if presence > 0 else None})
    places = schema(catalogue().find(name), version).places(data)[2]
    assert (f"{name}.cursor", "presence", presence) in [(path, part, value) for _, _, path, part, value in places]
