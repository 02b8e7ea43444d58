"""When a message is read, fields that its version lacks have their defaults, as in Kafka's own objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import releases
from defined import field, message_of
from testee_driver import RunningTestee, running

from kfuzz.errors import EncodeError
from kfuzz.messages import Definition, Field
from kfuzz.messages.catalogues import CARRIED, RECORDS, catalogue
from kfuzz.messages.codec import decode, encode, read
from kfuzz.messages.jsonform import to_json, uuid_text
from kfuzz.messages.model import key_of
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import Keyed
from kfuzz.wire.messages.values import StructValue

# Version 0 has one field, version 1 all others, and version 2 all others again, most of them tagged.
PART = [field("Name", "string", "1+", mapKey=True)]
RACK = [field("Name", "string", "2+", default="none")]
NODE = [
    field("Id", "int32", "1+", default="-1"),
    field("Rack", "Rack", "2+", ignorable=True, fields=RACK),
    field("Names", "[]string", "1+"),
]
HELD = [
    field("Gone", "int16", "0-1", default="3"),
    field("Elements", "[]Part2", "2+", fields=[field("Key", "int32", "2+", mapKey=True)]),
]
LATER = message_of(
    field("Old", "int32", "0", default="-1"),
    field("Flag", "bool", "1+", default="true"),
    field("Plain", "bool", "1+"),
    field("Tiny", "int8", "1+", default="-0x80"),
    field("Short", "int16", "1+", default="010"),
    field("Port", "uint16", "1+", default="0xffff"),
    field("Number", "int32", "1+"),
    field("Large", "uint32", "1+", default="4294967295"),
    field("Long", "int64", "1+", default="-9223372036854775808"),
    field("Share", "float64", "1+"),
    field("Half", "float64", "1+", default="0.5"),
    field("Id", "uuid", "1+"),
    field("Text", "string", "1+"),
    field("Word", "string", "1+", default="word"),
    field("NoText", "string", "1+", nullableVersions="1+", default="null"),
    field("SomeText", "string", "1+", nullableVersions="1+"),
    field("Data", "bytes", "1+", zeroCopy=True),
    field("NoData", "bytes", "1+", nullableVersions="1+", default="null"),
    field("Batches", "records", "1+", nullableVersions="1+"),
    field("Numbers", "[]int32", "1+"),
    field("NoNumbers", "[]int32", "1+", nullableVersions="1+", default="null"),
    field("Parts", "[]Part", "1+", fields=PART),
    field("Leader", "Node", "1+", fields=NODE),
    field("NoNode", "Node2", "1+", nullableVersions="1+", default="null", fields=[field("Id", "int32", "1+")]),
    field("Maybe", "Node3", "1+", nullableVersions="1+", fields=[field("Id", "int32", "1+", default="5")]),
    field("Tagged", "Held", "2+", tag=0, fields=HELD),
    name="Later",
    versions="0-2",
    flexible="2+",
)
DEFAULTS: dict[str, Any] = {
    "flag": True,
    "plain": False,
    "tiny": -128,
    "short": 8,
    "port": 65535,
    "number": 0,
    "large": 4294967295,
    "long": -(1 << 63),
    "share": 0.0,
    "half": 0.5,
    "id": bytes(16),
    "text": "",
    "word": "word",
    "noText": None,
    "someText": "",
    "data": b"",
    "noData": None,
    "batches": None,
    "numbers": [],
    "noNumbers": None,
    "parts": [],
    "leader": {"id": -1, "rack": {"name": "none"}, "names": []},
    "noNode": None,
    "maybe": {"id": 5},
    "tagged": {"gone": 3, "elements": []},
}


def kinds(value: Any) -> Any:
    """The types of values, because True equals 1 and 0.0 equals 0."""
    return {name: kinds(one) for name, one in value.items()} if isinstance(value, dict) else type(value)


def test_a_dict_has_the_default_of_every_type() -> None:
    data = encode(LATER, 0, {"old": 7})
    found = decode(LATER, 0, data, defaults=True)
    assert found == {"old": 7} | DEFAULTS
    expected = kinds({"old": 7} | DEFAULTS)
    expected["parts"] = expected["tagged"]["elements"] = Keyed
    assert kinds(found) == expected
    assert found["parts"].find(name="a") is None
    assert found["tagged"]["elements"].find(key=1) is None
    assert read(LATER, 0, data, defaults=True).message == found


def test_without_being_asked_a_dict_has_the_fields_of_its_version_alone() -> None:
    data = encode(LATER, 0, {"old": 7})
    assert decode(LATER, 0, data) == read(LATER, 0, data).message == {"old": 7}


def test_an_object_always_has_them() -> None:
    found = decode(LATER, 0, encode(LATER, 0, {"old": 7}), objects=True)
    for name, value in DEFAULTS.items():
        if name not in ("numbers", "parts", "leader", "maybe", "tagged"):
            assert (type(getattr(found, name)), getattr(found, name)) == (type(value), value), name
    assert found.numbers == found.parts == ()
    assert found.parts.find(name="a") is None
    assert repr(found.leader) == "Node(id=-1, rack=Rack(name='none'), names=())"
    assert found.maybe.to_dict() == {"id": 5}
    assert repr(found.tagged) == "Held(gone=3, elements=())"
    assert found.tagged.elements.find(key=1) is None
    assert found.leader != found.maybe
    # The fields of its version are those that were sent.
    assert repr(found) == "Later(old=7)"
    assert found.to_dict() == {"old": 7}
    assert found == decode(LATER, 0, encode(LATER, 0, {"old": 7}), objects=True)
    with pytest.raises(AttributeError):
        found.nobody  # noqa: B018
    for name in DEFAULTS:
        with pytest.raises(AttributeError):
            setattr(found, name, 1)


def test_a_field_that_was_removed_has_its_default_and_so_has_one_inside_a_struct_that_was_read() -> None:
    data = encode(LATER, 1, {"leader": {"id": 3}})
    found = decode(LATER, 1, data, defaults=True)
    assert (found["old"], found["leader"]) == (-1, {"id": 3, "rack": {"name": "none"}, "names": []})
    value = decode(LATER, 1, data, objects=True)
    assert (value.old, value.leader.id, value.leader.rack.name) == (-1, 3, "none")


def test_a_tagged_field_that_was_not_sent_has_what_its_version_lacks_too() -> None:
    data = encode(LATER, 2, {})
    assert decode(LATER, 2, data)["tagged"] == {"elements": []}
    assert decode(LATER, 2, data, defaults=True)["tagged"] == {"gone": 3, "elements": []}
    assert decode(LATER, 2, data, objects=True).tagged.gone == 3
    sent = encode(LATER, 2, {"tagged": {"elements": [{"key": 1}]}})
    assert decode(LATER, 2, sent, defaults=True)["tagged"] == {"elements": [{"key": 1}], "gone": 3}


def test_an_array_of_a_tagged_field_that_was_not_sent_can_be_looked_up_in() -> None:
    features = decode("ApiVersionsResponse", 3, encode("ApiVersionsResponse", 3, {}))["supportedFeatures"]
    assert features == []
    assert features.find(name="x") is None


def test_defaults_are_nobody_elses() -> None:
    data = encode(LATER, 0, {})
    found = decode(LATER, 0, data, defaults=True)
    found["numbers"].append(1)
    found["parts"].append({"name": "a"})
    found["leader"]["rack"]["name"] = "r1"
    found["tagged"]["elements"].append({"key": 1})
    assert decode(LATER, 0, data, defaults=True) == {"old": -1} | DEFAULTS


def test_a_message_read_with_defaults_is_written_unchanged_and_a_changed_field_is_refused() -> None:
    data = encode(LATER, 0, {"old": 7})
    found = decode(LATER, 0, data, defaults=True)
    assert encode(LATER, 0, found) == data
    assert decode(LATER, 1, encode(LATER, 1, found | {"old": -1})) == {
        name: value for name, value in DEFAULTS.items() if name != "tagged"
    } | {"leader": {"id": -1, "names": []}}
    found["leader"]["id"] = 1
    with pytest.raises(EncodeError, match=r"Later\.leader is .* version 0 has no place for it"):
        encode(LATER, 0, found)


def test_a_default_of_an_absent_struct_goes_where_the_struct_has_a_place() -> None:
    leader = decode(LATER, 0, encode(LATER, 0, {}), objects=True).leader
    assert encode(LATER, 1, {"leader": leader}) == encode(LATER, 1, {})
    assert encode(LATER, 0, {"leader": leader}) == encode(LATER, 0, {})


def item(values: dict[str, Any], name: str) -> Any:
    return values[name]


def every_field(
    definition: Definition, fields: tuple[Field, ...], values: Any, value_of: Callable[[Any, str], Any]
) -> dict[str, Any]:
    """The fields of all versions in the JSON form. Defaults are not filled in here."""
    made = {
        key_of(field.name): in_json(definition, field, value_of(values, key_of(field.name)), value_of)
        for field in fields
    }
    name = "_unknownTaggedFields"
    unknown = values.get(name, ()) if isinstance(values, dict) else getattr(values, name, ())
    if unknown:
        made[name] = [{"tag": tag, "hex": data.hex()} for tag, data in unknown]
    return made


def in_json(definition: Definition, field: Field, value: Any, value_of: Callable[[Any, str], Any]) -> Any:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return [in_json(definition, field, element, value_of) for element in value]
    if field.type.struct is not None:
        return every_field(definition, definition.fields_of(field.type), value, value_of)
    if isinstance(value, bytes):
        return uuid_text(value) if field.type.name == "uuid" else value.hex()
    return str(value) if field.type.name == "int64" else value


@pytest.mark.parametrize("name", CARRIED)
def test_every_version_of_every_message_has_all_fields_as_dicts_and_as_objects(name: str) -> None:
    for definition in catalogue(name).messages.values():
        for version in definition.valid_versions:
            for seed in range(2):
                data = encode(definition, version, filled(definition, version, seed) if seed else {})
                whole = decode(definition, version, data, defaults=True)
                value = decode(definition, version, data, objects=True)
                in_dicts = every_field(definition, definition.fields, whole, item)
                assert every_field(definition, definition.fields, value, getattr) == in_dicts
                plain = decode(definition, version, data)
                assert to_json(definition, version, whole) == to_json(definition, version, plain)
                assert encode(definition, version, whole) == data
                assert isinstance(value, StructValue)


# -- Kafka's own objects


@pytest.fixture(scope="module", params=releases())
def kafka(request: pytest.FixtureRequest) -> Iterator[tuple[str, RunningTestee]]:
    with running("kafka-clients", request.param) as testee:
        yield request.param, testee


@pytest.mark.full
@pytest.mark.java
def test_kafkas_objects_have_the_same_defaults_after_they_held_other_values(kafka: tuple[str, RunningTestee]) -> None:
    release, testee = kafka
    asked = 0
    for name in (release, RECORDS[release]):
        for definition in catalogue(name).messages.values():
            last = definition.valid_versions.highest
            for version in definition.valid_versions:
                data = encode(definition, version, filled(definition, version, 1))
                before = encode(definition, last, filled(definition, last, 2))
                answer = testee.ask(
                    operation="every-field", message=definition.name, version=version, hex=data.hex(),
                    before={"version": last, "hex": before.hex()},
                )  # fmt: skip
                assert answer["outcome"] == "accepted", (definition.name, version, answer)
                found = decode(definition, version, data, defaults=True)
                assert every_field(definition, definition.fields, found, item) == answer["message"], (
                    definition.name,
                    version,
                )
                asked += 1
    assert asked > 700
