"""Messages as objects: the same values as in dicts, as attributes that cannot be changed."""

from __future__ import annotations

import gc
import math
import tracemalloc
import weakref
from typing import Any

import pytest
from defined import field, message_of

from kfuzz.errors import EncodeError, MessageError, UsageError
from kfuzz.messages.catalogues import CARRIED, catalogue
from kfuzz.messages.codec import decode, encode, size
from kfuzz.messages.jsonform import to_json
from kfuzz.messages.model import INT_RANGES, Definition
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import Keyed, schema
from kfuzz.wire.messages.values import StructValue

FETCHED: dict[str, Any] = {
    "responses": [{"topic": "t", "partitions": [{"partitionIndex": 1, "records": b"r"}, {"highWatermark": 1 << 40}]}]
}
PARTITION = (
    "PartitionData(partitionIndex=1, errorCode=0, highWatermark=0, lastStableOffset=-1, logStartOffset=-1, "
    "abortedTransactions=(), preferredReadReplica=-1, records=b'r', "
    "divergingEpoch=EpochEndOffset(epoch=-1, endOffset=-1), "
    "currentLeader=LeaderIdAndEpoch(leaderId=-1, leaderEpoch=-1), snapshotId=SnapshotId(endOffset=-1, epoch=-1))"
)


def fetched(version: int = 12, values: dict[str, Any] = FETCHED) -> StructValue:
    return decode("FetchResponse", version, encode("FetchResponse", version, values), objects=True)


@pytest.mark.parametrize("name", CARRIED)
def test_objects_of_every_version_are_what_dicts_are_and_are_written_as_they(name: str) -> None:
    for definition in catalogue(name).messages.values():
        for version in definition.valid_versions:
            program = schema(definition, version)
            for seed in range(3):
                data = program.encode(filled(definition, version, seed) if seed else {})
                consumed, notes, values = program.decode(data)
                found = program.decode_objects(data)
                assert found[:2] == (consumed, notes)
                assert found[2] is not None
                assert values is not None
                assert_same(found[2], values)
                assert found[2].to_dict() == values
                assert program.encode(found[2]) == data
                assert program.size(found[2]) == len(data)
                assert program.encode(found[2].to_dict()) == data
                assert to_json(definition, version, found[2]) == to_json(definition, version, values)


def assert_same(found: Any, expected: Any) -> None:
    """Compare field by field, including the types."""
    if isinstance(expected, dict):
        unknown = {"_unknownTaggedFields": []} if hasattr(found, "_unknownTaggedFields") else {}
        assert list(type(found).__match_args__) == list(expected | (unknown | expected if unknown else {}))
        for name, value in (unknown | expected).items():
            if name == "_unknownTaggedFields":
                assert found._unknownTaggedFields == tuple(value)
            else:
                assert_same(getattr(found, name), value)
    elif isinstance(expected, list):
        assert isinstance(found, tuple)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert (type(found), found) == (type(expected), expected)


def test_it_reads_well() -> None:
    partition = fetched().responses[0].partitions[0]
    assert repr(partition) == PARTITION
    data = encode("ApiVersions", 3, {"clientSoftwareName": "me", "_unknownTaggedFields": [(7, b"x")]})
    assert repr(decode("ApiVersions", 3, data, objects=True)) == (
        "ApiVersionsRequest(clientSoftwareName='me', clientSoftwareVersion='', _unknownTaggedFields=((7, b'x'),))"
    )
    match fetched().responses[0]:
        case StructValue(topic=topic, partitions=(first, _)):
            assert (topic, first) == ("t", partition)


def test_equal_is_who_has_the_same_names_and_values() -> None:
    one, same = fetched(), fetched()
    assert one == same
    assert one != fetched(values=FETCHED | {"throttleTimeMs": 1})
    assert one != fetched(values={})
    partition = one.responses[0].partitions[0]
    assert partition.divergingEpoch != partition.snapshotId
    assert partition.currentLeader == one.responses[0].partitions[1].currentLeader
    assert one != one.to_dict()
    # Each schema has its own types. Values of different types are equal if names and values are equal.
    other = message_of(field("leaderId", "int32"), field("leaderEpoch", "int32"), flexible="0+")
    leader = decode(other, 0, encode(other, 0, {"leaderId": -1, "leaderEpoch": -1}), objects=True)
    assert leader == partition.currentLeader


def test_nothing_can_be_changed_or_made_up() -> None:
    value = fetched()
    for attempt in (
        lambda: setattr(value, "throttleTimeMs", 1),
        lambda: setattr(value, "another", 1),
        lambda: delattr(value, "throttleTimeMs"),
    ):
        with pytest.raises((AttributeError, TypeError)):
            attempt()
    assert value == fetched()
    for kind in (type(value), StructValue):
        with pytest.raises(TypeError):
            kind()
    with pytest.raises(TypeError):
        hash(value)
    assert not hasattr(value, "__dict__")
    copied = value.to_dict()
    copied["responses"][0]["partitions"][0]["currentLeader"]["leaderId"] = 8
    assert fetched().responses[0].partitions[0].currentLeader.leaderId == -1


def test_elements_with_map_keys_are_found_by_them() -> None:
    names = [f"t{i}" for i in range(50)]
    data = encode("CreateTopics", 6, {"topics": [{"name": name, "numPartitions": i} for i, name in enumerate(names)]})
    topics = decode("CreateTopics", 6, data, objects=True).topics
    assert [topic.name for topic in topics] == names
    assert topics.find(name="t42") is topics[42]
    assert topics.find(name="nobody") is None
    with pytest.raises(UsageError, match="found by name, not by numPartitions"):
        topics.find(numPartitions=3)
    # find also works for a tagged array that was not sent.
    assert (
        decode("ApiVersionsResponse", 3, encode("ApiVersionsResponse", 3, {}), objects=True).supportedFeatures.find(
            name="x"
        )
        is None
    )
    assert type(decode("CreateTopics", 6, data, objects=True).to_dict()["topics"]) is Keyed


def test_objects_stand_in_dicts() -> None:
    value = fetched()
    data = encode("FetchResponse", 12, FETCHED)
    assert encode("FetchResponse", 12, {"responses": value.responses}) == data
    assert encode("FetchResponse", 12, {"responses": [value.responses[0].to_dict()]}) == data
    partitions = [one.to_dict() | {"currentLeader": one.currentLeader} for one in value.responses[0].partitions]
    assert encode("FetchResponse", 12, {"responses": [{"topic": "t", "partitions": partitions}]}) == data


def test_objects_go_to_other_versions() -> None:
    values = {"topics": [{"topic": "t", "partitions": [{"partition": 1, "fetchOffset": 5}]}]}
    newer = decode("Fetch", 12, encode("Fetch", 12, values), objects=True)
    assert encode("Fetch", 4, newer) == encode("Fetch", 4, values)
    assert size("Fetch", 4, newer) == len(encode("Fetch", 4, values))
    assert encode("Fetch", 4, values | {"forgottenTopicsData": newer.forgottenTopicsData}) == encode("Fetch", 4, values)
    forgotten = decode("Fetch", 12, encode("Fetch", 12, {"forgottenTopicsData": [{"topic": "t"}]}), objects=True)
    with pytest.raises(EncodeError, match=r"FetchRequest\.forgottenTopicsData is .* version 4 has no place for it"):
        encode("Fetch", 4, forgotten)


def test_tagged_fields_are_there_with_their_defaults_and_written_when_they_have_others() -> None:
    tagged: dict[str, Any] = {"partitionIndex": 1, "currentLeader": {"leaderId": 5, "leaderEpoch": 6}}
    for unknown in ([], [(9, b"z")]):
        more = {"_unknownTaggedFields": unknown} if unknown else {}
        values = {"responses": [{"topic": "t", "partitions": [tagged | more]}]}
        value = fetched(values=values)
        partition = value.responses[0].partitions[0]
        assert (partition.currentLeader.leaderId, partition.snapshotId.epoch) == (5, -1)
        assert partition._unknownTaggedFields == tuple(unknown)
        assert encode("FetchResponse", 12, value) == encode("FetchResponse", 12, values)
    assert not hasattr(fetched(4), "_unknownTaggedFields")


def test_a_value_that_is_no_struct_is_refused_with_its_path() -> None:
    value = fetched()
    with pytest.raises(EncodeError, match=r"FetchResponse\.responses\[0\] is int; it must be a dict"):
        encode("FetchResponse", 12, {"responses": (1,)})
    with pytest.raises(EncodeError, match="FetchResponse is list; it must be a dict"):
        encode("FetchResponse", 12, [])  # type: ignore[arg-type]
    with pytest.raises(EncodeError, match=r"FetchRequest\.throttleTimeMs is not a field"):
        encode("FetchRequest", 12, value)
    with pytest.raises(MessageError, match="message-cut"):
        decode("FetchResponse", 12, b"\x00", objects=True)


NUMBERS = {"bool": (False, True), **INT_RANGES, "float64": (-1.7976931348623157e308, 5e-324)}


def numbers(flexible: str, tags: bool) -> Definition:
    fields = []
    for tag, kind in enumerate(reversed(NUMBERS)):
        # A field that is not a number lies between them.
        fields += [field(f"{kind}Value", kind, tag=tag if tags else None), field(f"{kind}Text", "string")]
    return message_of(*fields, flexible=flexible)


@pytest.mark.parametrize(("flexible", "tags"), [("none", False), ("0+", False), ("0+", True)])
@pytest.mark.parametrize("end", [0, 1])
def test_numbers_of_every_type_are_held_whole(flexible: str, tags: bool, end: int) -> None:
    definition = numbers(flexible, tags)
    values = {f"{kind}Value": ends[end] for kind, ends in NUMBERS.items()} | {f"{kind}Text": kind for kind in NUMBERS}
    data = encode(definition, 0, values)
    found = decode(definition, 0, data, objects=True)
    for name, value in values.items():
        assert (type(getattr(found, name)), getattr(found, name)) == (type(value), value)
    assert found.to_dict() == values
    assert encode(definition, 0, found) == data


def test_a_flag_that_is_neither_0_nor_1_is_written_as_1() -> None:
    definition = numbers("none", tags=False)
    data = encode(definition, 0, {"boolValue": True})
    odd = data[:-3] + b"\x02" + data[-2:]
    assert data[:-3] + b"\x01" + data[-2:] == data
    found = decode(definition, 0, odd, objects=True)
    assert found.boolValue is True
    assert encode(definition, 0, found) == data


def test_equal_numbers_have_not_always_the_same_bytes() -> None:
    definition = numbers("none", tags=False)

    def read(value: float) -> StructValue:
        return decode(definition, 0, encode(definition, 0, {"float64Value": value}), objects=True)

    assert read(0.0) == read(-0.0)
    assert read(0.0) != read(1.0)
    assert read(1.0) == read(1.0)
    # As in Python's containers, an object is equal to itself.
    assert (one := read(math.nan)) == one


def test_a_default_that_cannot_be_sent_is_the_same_as_in_dicts() -> None:
    inner = field("Inner", "Inner", tag=1, fields=[field("Blob", "records")])
    definition = message_of(field("Blob", "records", tag=0), inner, flexible="0+")
    data = encode(definition, 0, {})
    assert data == b"\0"
    found = decode(definition, 0, data, objects=True)
    assert (found.blob, found.inner.blob) == (None, None)
    assert found.to_dict() == decode(definition, 0, data)
    assert encode(definition, 0, found) == data


def test_a_default_is_a_struct_that_was_met_before() -> None:
    definition = message_of(
        field("Met", "Inner", fields=[field("Words", "[]string"), field("Count", "int64", default="-1")]),
        field("After", "Other", fields=[field("Number", "int16"), field("Again", "Inner", tag=0)]),
        flexible="0+",
    )
    found = decode(definition, 0, encode(definition, 0, {"met": {"count": 3}}), objects=True)
    assert repr(found.met) == "Inner(words=(), count=3)"
    assert repr(found.after) == "Other(number=0, again=Inner(words=(), count=-1))"


def test_a_default_holds_a_struct_that_was_met_before() -> None:
    parts = field("Parts", "[]Part", fields=[field("Name", "string", mapKey=True)])
    tagged = field("Tagged", "Holder", tag=0, fields=[field("Held", "Inner")])
    definition = message_of(
        field("Met", "Inner", fields=[field("Words", "[]string"), parts, field("Count", "int64", default="-1")]),
        field("After", "Other", fields=[tagged]),
        flexible="0+",
    )
    found = decode(definition, 0, encode(definition, 0, {}), objects=True)
    assert repr(found.after) == "Other(tagged=Holder(held=Inner(words=(), parts=(), count=-1)))"
    assert found.after.tagged.held.parts.find(name="nobody") is None
    assert encode(definition, 0, found) == encode(definition, 0, {})


def test_numbers_take_no_objects() -> None:
    partitions = [{"partition": 1 << 20, "fetchOffset": 1 << 40, "logStartOffset": 1 << 41}] * 1000
    data = encode("Fetch", 12, {"topics": [{"topic": "t", "partitions": partitions}]})
    decode("Fetch", 12, data, objects=True)
    tracemalloc.start()
    held = decode("Fetch", 12, data, objects=True)
    each = tracemalloc.get_traced_memory()[0] / 1000
    tracemalloc.stop()
    # The object header (two words), the unknown fields, six numbers (32 bytes together), the tuple's item, and more.
    assert each < 16 + 8 + 32 + 8 + 4
    assert held.topics[0].partitions[999].fetchOffset == 1 << 40


def test_a_repeated_tag_leaves_the_last_one_and_nothing_behind() -> None:
    definition = message_of(field("Text", "string", tag=0), flexible="0+")
    long = ["a" * 2000, "b" * 2000]
    data = bytes.fromhex("02") + b"".join(bytes.fromhex("00d20fd10f") + text.encode() for text in long)
    assert decode(definition, 0, data, objects=True).text == long[1]
    tracemalloc.start()
    for _ in range(200):
        decode(definition, 0, data, objects=True)
    left = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert left < 100_000


@pytest.mark.full
def test_decoded_structs_are_freed_with_their_last_reference() -> None:
    definition = message_of(field("Parts", "[]Part", fields=[field("Number", "int32")]))
    data = encode(definition, 0, {"parts": [{"number": 1 << 20}] * 1000})
    value = decode(definition, 0, data, objects=True)
    kind = weakref.ref(type(value))
    assert not gc.is_tracked(value)
    definition.programs.clear()
    part = value.parts[999]
    del value
    # The type is freed with its last object, not earlier.
    gc.collect()
    assert part.number == 1 << 20
    assert repr(part) == "Part(number=1048576)"
    del part
    gc.collect()
    assert kind() is None
