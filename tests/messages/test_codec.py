"""Messages: short bytes written by hand, a round trip of every version, and every reason for a refusal."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import random
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from defined import field, message_of, struct
from release_counts import COUNTS

from kfuzz.errors import EncodeError, MessageError, UsageError
from kfuzz.findings.messages import CODES
from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.messages import Definition
from kfuzz.messages.catalogues import CARRIED, RECORDS, catalogue
from kfuzz.messages.codec import check, decode, encode, read, size
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.sample import filled
from kfuzz.messages.schemas import Keyed, schema

NUMBER = field("Number", "int32", "2+")
OF_ALL = message_of(
    field("Flag", "bool"),
    field("Tiny", "int8"),
    field("Port", "uint16"),
    field("Large", "uint32"),
    field("Share", "float64"),
    field("Id", "uuid"),
    field("Text", "string", nullableVersions="0+"),
    field("Data", "bytes"),
    field("Parts", "[]Part", fields=[field("Name", "string", mapKey=True), field("Size", "int64")]),
    field("Maybe", "Other", "2+", nullableVersions="2+", default="null", fields=[NUMBER]),
    field("Late", "int16", "1+", tag=0, default="7"),
    field("Later", "[]int32", "2+", tag=1, ignorable=True),
    name="OfAllData",
    versions="0-2",
    flexible="1+",
)
VALUES: dict[str, Any] = {
    "flag": True,
    "tiny": -2,
    "port": 65535,
    "large": 4294967295,
    "share": 0.5,
    "id": bytes(range(16)),
    "text": "zwölf",
    "data": b"\x00\xff",
    "parts": [{"name": "a", "size": -1}],
}
HEAD = "01feffffffffffff3fe0000000000000000102030405060708090a0b0c0d0e0f"
OLD = HEAD + "00067a77c3b66c660000000200ff00000001000161ffffffffffffffff"
# Lengths are sent plus one, and each struct ends with its tags.
NEW = HEAD + "077a77c3b66c660300ff020261ffffffffffffffff00"


@pytest.mark.parametrize(
    ("version", "more", "wire"),
    [
        (0, {}, OLD),
        (1, {}, NEW + "00"),
        (1, {"late": 7}, NEW + "00"),
        (1, {"late": 8}, NEW + "01" "00" "02" "0008"),
        (2, {}, NEW + "ff" "00"),
        (2, {"maybe": {"number": 3}}, NEW + "01" "00000003" "00" "00"),
        (2, {"late": 1, "later": [5]}, NEW + "ff" "02" "00" "02" "0001" "01" "05" "02" "00000005"),
        (2, {"_unknownTaggedFields": [(300, b"xy")]}, NEW + "ff" "01" "ac02" "02" "7879"),
        (2, {"_unknownTaggedFields": [(5, b"z"), (9, b"")], "late": 1},
         NEW + "ff" "03" "00" "02" "0001" "05" "01" "7a" "09" "00"),
    ],
)  # fmt: skip
def test_bytes_are_those_that_one_can_count(version: int, more: dict[str, Any], wire: str) -> None:
    message = VALUES | more
    assert encode(OF_ALL, version, message).hex() == wire
    assert size(OF_ALL, version, message) == len(wire) // 2
    found = read(OF_ALL, version, bytes.fromhex(wire))
    assert {finding.code for finding in found.findings} <= {"tag-unknown"}
    assert found.consumed == len(wire) // 2
    assert found.message is not None
    known = {"maybe": None} if version == 2 else {}
    known |= {"late": 7} if version > 0 else {}
    known |= {"later": []} if version == 2 else {}
    unknown = sorted(more.get("_unknownTaggedFields", []))
    assert found.message == VALUES | known | more | ({"_unknownTaggedFields": unknown} if unknown else {})


@pytest.mark.parametrize("name", CARRIED)
def test_every_version_of_every_message_there_and_back(name: str) -> None:
    count = 0
    for definition in catalogue(name).messages.values():
        for version in definition.valid_versions:
            program = schema(definition, version)
            for seed in range(4):
                values = filled(definition, version, seed) if seed else {}
                data = program.encode(values)
                assert program.size(values) == len(data)
                consumed, notes, found = program.decode(data)
                assert (consumed, {note[0] for note in notes} - {"tag-unknown"}) == (len(data), set())
                assert program.check(data) == (consumed, notes)
                assert found is not None
                assert program.encode(found) == data
                form = json.loads(json.dumps(to_json(definition, version, found)))
                assert form == to_json(definition, version, values)
                assert program.encode(from_json(definition, version, form)) == data
                count += 1
            for cut in range(len(schema(definition, version).encode({}))):
                assert program.check(program.encode({})[:cut])[0] == -1
    counted = COUNTS[name.removeprefix("records-")]
    assert count == 4 * counted["record_versions" if name.startswith("records-") else "versions"]


def test_the_number_of_a_coordinators_key_makes_the_bytes_of_its_former_version() -> None:
    old, new = catalogue(RECORDS[KAFKA_3]).messages, catalogue(RECORDS[LATEST]).messages
    renamed = {("OffsetCommitKey", 0): "LegacyOffsetCommitKey"}
    numbers = []
    for before in (one for name, one in old.items() if name.endswith("Key") and name in new):
        for version in before.valid_versions:
            now = new[renamed.get((before.name, version), before.name)]
            values = filled(before, version, 1)
            assert encode(now, 0, values) == encode(before, version, values)
            assert now.api_key == version
            numbers.append(version)
    # The key of the transaction log also has number 0.
    assert sorted(numbers) == [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11]


def test_the_same_seed_makes_the_same_values_and_others_do_not() -> None:
    definition = catalogue().find("Fetch")
    assert filled(definition, 17, 3) == filled(definition, 17, 3)
    assert filled(definition, 17, 3) != filled(definition, 17, 4)


def test_values_of_a_struct_that_holds_arrays_of_itself_have_an_end() -> None:
    definition = message_of(field("Root", "Node"), structs=[struct("Node", field("Children", "[]Node"))])

    def depth(node: dict[str, Any]) -> int:
        return 1 + max(map(depth, node["children"]), default=0)

    depths = {depth(filled(definition, 0, seed)["root"]) for seed in range(40)}
    assert min(depths) == 1
    assert 2 < max(depths) <= 5


def findings(definition: Definition, version: int, wire: str) -> list[str]:
    found = read(definition, version, bytes.fromhex(wire))
    assert [str(one) for one in check(definition, version, bytes.fromhex(wire)).findings] == list(
        map(str, found.findings)
    )
    assert (found.fatal is None) == (found.message is not None)
    return [f"{one.path} {one.at} {one.code} {one.severity}" for one in found.findings]


@pytest.mark.parametrize(
    ("wire", "found"),
    [
        ("02" + NEW[2:] + "ff00", ["OfAllData.flag 0 bool-not-0-or-1 deviation"]),
        (NEW + "ff00" + "61", ["OfAllData 56 bytes-after-message deviation"]),
        (NEW[:84] + "7f" + "61", ["OfAllData.parts 42 count-exceeds-message fatal"]),
        (HEAD + "ffffffff0f",
         ["OfAllData.text 32 length-below-minus-one deviation", "OfAllData.data 37 message-cut fatal"]),
        (HEAD + "8888018888", ["OfAllData.text 32 length-exceeds-message fatal"]),
        (HEAD + "00" + "00", ["OfAllData.data 33 null-not-allowed fatal"]),
        (HEAD + "03" "c328" + "01" "01" "ff" "00", ["OfAllData.text 33 string-not-utf8 deviation"]),
        (HEAD + "818002", ["OfAllData.text 32 string-too-long fatal"]),
        (NEW + "ff" "7f", ["OfAllData 55 tag-count-exceeds-message fatal"]),
        (NEW + "ff" "02" "0900" "0800",
         ["OfAllData 56 tag-unknown deviation", "OfAllData 58 tag-not-ascending deviation"]),
        (NEW + "ff" "02" "00020001" "00020002", ["OfAllData 60 tag-repeated deviation"]),
        (NEW + "ff" "01" "09" "7f",
         ["OfAllData 56 tag-unknown deviation", "OfAllData 57 tag-size-exceeds-message fatal"]),
        (NEW + "ff" "01" "00050001", ["OfAllData 56 tag-size-mismatch deviation"]),
        (HEAD + "8100" + "01" "01" "ff" "00", ["OfAllData.text 32 varint-overlong deviation"]),
        (HEAD + "808080808000", ["OfAllData.text 32 varint-too-long fatal"]),
        (NEW + "fe" "00", ["OfAllData.maybe 54 length-below-minus-one deviation"]),
        (NEW + "02" "00000001" "00" "00", ["OfAllData.maybe 54 bool-not-0-or-1 deviation"]),
        (NEW + "01" "000000", ["OfAllData.maybe.number 55 message-cut fatal"]),
    ],
)  # fmt: skip
def test_findings_stand_at_their_places_and_in_the_order_of_them(wire: str, found: list[str]) -> None:
    assert findings(OF_ALL, 2, wire) == found


def test_a_tag_of_other_versions_is_refused() -> None:
    assert findings(OF_ALL, 1, NEW + "0101050200000005") == ["OfAllData 55 tag-not-in-version fatal"]


def test_limits_are_those_of_kafka_4_4() -> None:
    array = catalogue().find("OffsetForLeaderEpoch")
    head = encode(array, 3, {})[:4].hex()
    for count, found in ((1_000_000, "message-cut"), (1_000_001, "count-too-large")):
        fatal = read(array, 3, bytes.fromhex(head + f"{count:08x}") + bytes(1_000_001)).fatal
        assert fatal is None if found == "message-cut" and fatal is None else fatal is not None
        assert (fatal.code if fatal else "message-cut") == found
    tagged = b"".join(
        encode("ApiVersions", 3, {"_unknownTaggedFields": [(i, b"") for i in range(n)]}) for n in (10_000,)
    )
    assert read("ApiVersions", 3, tagged).fatal is None
    fatal = read("ApiVersions", 3, tagged[:2] + b"\x91\x4e" + bytes(30_000)).fatal
    assert fatal is not None
    assert fatal.code == "tag-count-too-large"


def test_every_code_is_known_and_strict_refuses_all_but_unknown_tags() -> None:
    data = bytes.fromhex(NEW + "ff010900" + "61")
    assert {one.severity for one in read(OF_ALL, 2, data).findings} == {"deviation"}
    strict = read(OF_ALL, 2, data, profile="strict")
    assert {one.code: one.severity for one in strict.findings} == {
        "bytes-after-message": "fatal",
        "tag-unknown": "deviation",
    }
    with pytest.raises(MessageError, match="bytes-after-message"):
        decode(OF_ALL, 2, data, profile="strict")
    assert len(CODES) == 21


def test_a_bomb_is_refused_without_room_for_it() -> None:
    for name, version, wire in (
        ("MetadataResponse", 1, "7fffffff" + "00000000"),
        ("FetchResponse", 4, "00000000" + "7fffffff"),
        ("MetadataResponse", 9, "00000000" + "ffffffff0f"),
        ("ApiVersionsRequest", 3, "ffffffff07" + "61"),
    ):
        tracemalloc.start()
        found = read(name, version, bytes.fromhex(wire))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.fatal is not None
        assert peak < 200_000


@pytest.mark.parametrize(
    ("version", "change", "says"),
    [
        (0, {"tiny": 128}, "OfAllData.tiny is 128; it does not fit int8"),
        (0, {"port": -1}, "OfAllData.port is -1; it does not fit uint16"),
        (0, {"large": 1 << 32}, "OfAllData.large is 4294967296; it does not fit uint32"),
        (0, {"parts": [{"size": 1 << 63}]}, r"OfAllData.parts\[0\].size is 9223372036854775808; it does not fit int64"),
        (0, {"tiny": 1 << 20_000}, "OfAllData.tiny is a number of 20001 bits; it does not fit int8"),
        (0, {"share": 10**400}, "OfAllData.share is a number of 1329 bits; it does not fit float64"),
        (2, {"nobody": 1}, "OfAllData.nobody is not a field; the fields are .*later"),
        (0, {"tiny": True}, "OfAllData.tiny is bool; it must be an int"),
        (0, {"flag": 1}, "OfAllData.flag is int; it must be a bool"),
        (0, {"share": "1"}, "OfAllData.share is str; it must be a float"),
        (0, {"id": b"short"}, "OfAllData.id has 5 bytes; a uuid has 16"),
        (0, {"text": b"bytes"}, "OfAllData.text is bytes; it must be a str"),
        (0, {"text": "x" * 32768}, "OfAllData.text takes 32768 bytes; a string takes 32767 at most"),
        (0, {"text": "\ud800"}, "half a surrogate pair"),
        (0, {"data": None}, "OfAllData.data is None; it must not be in version 0"),
        (0, {"parts": None}, "OfAllData.parts is None; it must be a list in version 0"),
        (0, {"parts": {}}, "OfAllData.parts is dict; it must be a list"),
        (0, {"parts": [None]}, r"OfAllData.parts\[0\] is NoneType; it must be a dict"),
        (0, {"parts": [{"nmae": "x"}]}, r"OfAllData.parts\[0\].nmae is not a field; the fields are name, size"),
        (0, {"late": 8}, "OfAllData.late is 8, and version 0 has no place for it"),
        (0, {"_unknownTaggedFields": [(1, b"")]}, "version 0 has no tags"),
        (2, {"_unknownTaggedFields": [(0, b"")]}, "tag 0 is known; give the field by its name"),
        (
            2,
            {"_unknownTaggedFields": [(9, b""), (9, b"")]},
            "tag 9 comes after tag 9; give tags in ascending order",
        ),
        (2, {"_unknownTaggedFields": [(-1, b"")]}, "tag -1 is not valid"),
        (2, {"_unknownTaggedFields": [(2**31 - 1, b"")]}, "tag 2147483647 is not valid"),
        (2, {"_unknownTaggedFields": [("9", b"")]}, "it must be a tuple of a tag and bytes"),
        (2, {"_unknownTaggedFields": [9]}, "it must be a tuple of a tag and bytes"),
        (2, {"_unknownTaggedFields": 9}, "it must be a list of tags and bytes"),
    ],
)
def test_a_value_that_does_not_fit_is_reported_with_its_path(version: int, change: dict[str, Any], says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        encode(OF_ALL, version, VALUES | change)


def test_a_field_that_a_version_lacks_must_have_its_default_or_be_ignorable() -> None:
    assert encode(OF_ALL, 0, VALUES | {"late": 7, "maybe": None, "later": [1, 2]}).hex() == OLD


def test_a_version_without_tags_takes_an_empty_list_of_them() -> None:
    assert encode(OF_ALL, 0, VALUES | {"_unknownTaggedFields": []}).hex() == OLD


@pytest.mark.parametrize(("share", "says"), [(0, None), (0.0, None), (1, "share is 1, and version 0 has no place")])
def test_an_int_may_be_the_default_of_a_float_that_a_version_lacks(share: float, says: str | None) -> None:
    definition = message_of(field("Share", "float64", "1+"), versions="0-1")
    if says is None:
        assert encode(definition, 0, {"share": share}) == b""
    else:
        with pytest.raises(EncodeError, match=says):
            encode(definition, 0, {"share": share})


def test_structs_that_are_nested_too_deep_are_refused() -> None:
    """kfuzz's own definitions are not nested so deep; anyone's may be."""
    structs = [struct(f"Struct{i}", field("Inner", f"Struct{i - 1}" if i else "bool")) for i in range(70)]
    definition = message_of(field("Inner", "Struct69"), structs=structs)
    [finding] = check(definition, 0, b"\x01").findings
    assert finding.code == "nested-too-deep"


def test_a_flag_that_changes_what_a_request_means_is_not_lost_in_an_older_version() -> None:
    request = catalogue(KAFKA_3).find("CreateTopics")
    with pytest.raises(EncodeError, match=r"CreateTopicsRequest\.validateOnly is True, and version 0 has no place for"):
        encode(request, 0, {"validateOnly": True})
    assert encode(request, 0, {"validateOnly": False}) == encode(request, 0, {})


def test_a_field_that_is_not_given_has_the_default_of_its_type() -> None:
    types = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "string", "uuid", "bytes")
    definition = message_of(
        field("Numbers", "[]int32"),
        field("Batch", "records", nullableVersions="0+"),
        field("Own", "bool", default="true"),
        field("Hours", "int8", default="0x18"),
        *[field(f"Of{number}", name) for number, name in enumerate(types)],
    )
    expected = dict.fromkeys((f"of{number}" for number in range(len(types))), 0) | {
        "numbers": [], "batch": None, "own": True, "hours": 24,
        "of0": False, "of7": 0.0, "of8": "", "of9": bytes(16), "of10": b"",
    }  # fmt: skip
    found = decode(definition, 0, encode(definition, 0, {}))
    assert found == expected
    assert {name: type(value) for name, value in found.items()} == {name: type(v) for name, v in expected.items()}


def test_a_field_is_in_the_versions_that_it_names_and_in_no_other() -> None:
    fields = field("Always", "int8"), field("Added", "int8", "3+"), field("Removed", "int8", "0-2")
    definition = message_of(*fields, versions="0-4")
    found = [list(decode(definition, version, encode(definition, version, {}))) for version in range(5)]
    assert found == [["always", "removed"]] * 3 + [["always", "added"]] * 2


def test_a_struct_that_a_version_lacks_has_the_defaults_of_those_that_have_it() -> None:
    newer = decode("FetchRequest", 17, encode("FetchRequest", 17, {}))
    assert newer["replicaState"] == {"replicaId": -1, "replicaEpoch": -1}
    assert encode("FetchRequest", 14, newer) == encode("FetchRequest", 14, {})
    with pytest.raises(EncodeError, match="version 14 has no place for it"):
        encode("FetchRequest", 14, newer | {"replicaState": {"replicaId": 1, "replicaEpoch": -1}})


def test_an_empty_tagged_array_is_left_out_whatever_list_it_is() -> None:
    left_out = encode("FetchResponse", 16, {})
    # The tag of NodeEndpoints without elements. Kafka reads it, but does not write it again.
    read_again = decode("FetchResponse", 16, left_out[:-1] + bytes.fromhex("01000101"))
    assert isinstance(read_again["nodeEndpoints"], Keyed)
    for given in (read_again, {"nodeEndpoints": ()}, {"nodeEndpoints": []}):
        assert encode("FetchResponse", 16, given) == left_out


def test_findings_are_those_of_the_bytes_although_others_read_at_the_same_time() -> None:
    topics = [{"name": f"t{i}", "partitions": []} for i in range(50)]
    inputs = [encode("MetadataResponse", 12, {"topics": topics}) + b"!", encode("MetadataResponse", 12, {}) + b"!!"]
    expected = [read("MetadataResponse", 12, data).findings for data in inputs]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda i: read("MetadataResponse", 12, inputs[i % 2]).findings, range(2000)))
    finally:
        sys.setswitchinterval(interval)
    assert found == expected * 1000


def test_all_elements_of_a_keyed_array_can_be_taken_out_one_by_one() -> None:
    elements = [{"name": f"p{i}"} for i in range(1000)]
    keyed = Keyed(elements, ("name",))
    assert [keyed.pop() for _ in range(500)] == elements[:499:-1]
    assert keyed.find(name="p499") is elements[499]
    assert [keyed.pop(0) for _ in range(500)] == elements[:500]
    assert keyed == []


@pytest.mark.parametrize(
    "change",
    [
        lambda array: array.append({"name": "new", "size": 7}),
        lambda array: array.extend([{"name": "new"}, {"name": "newer"}]),
        lambda array: array.insert(1, {"name": "new"}),
        lambda array: array.remove({"name": "b", "size": 2}),
        lambda array: array.pop(1),
        lambda array: array.reverse(),
        lambda array: array.sort(key=lambda element: -element["size"]),
        lambda array: array.clear(),
        lambda array: array.__setitem__(0, {"name": "new"}),
        lambda array: array.__delitem__(0),
        lambda array: array.__iadd__([{"name": "new"}]),
        lambda array: array.__imul__(0),
    ],
)
def test_a_changed_array_is_searched_as_it_is_now(change: Callable[[Any], object]) -> None:
    names = ("a", "b", "c", "new", "newer")
    elements = [{"name": name, "size": size} for size, name in enumerate(names[:3], 1)]
    keyed, usual = Keyed(elements, ("name",)), list(elements)
    # The first search makes the index.
    assert keyed.find(name="a") is elements[0]
    change(keyed)
    change(usual)
    assert keyed == usual
    for name in names:
        assert keyed.find(name=name) == next((element for element in usual if element["name"] == name), None)


def test_elements_with_map_keys_are_found_by_them() -> None:
    parts = [{"name": f"p{i}", "size": i} for i in range(100)]
    found = decode(OF_ALL, 2, encode(OF_ALL, 2, VALUES | {"parts": parts}))["parts"]
    assert isinstance(found, Keyed)
    assert [part["name"] for part in found] == [part["name"] for part in parts]
    assert found.find(name="p42") == {"name": "p42", "size": 42}
    assert found.find(name="nobody") is None
    found.append({"name": "new", "size": 0})
    assert found.find(name="new") is found[-1]
    found[0] = {"name": "other", "size": 1}
    assert found.find(name="p0") is None
    assert found.find(name="other") is found[0]
    # The same number of elements, but other ones.
    found.append(found.pop(1) | {"name": "last"})
    assert found.find(name="p1") is None
    assert found.find(name="last") is found[-1]
    with pytest.raises(UsageError, match="found by name, not by size"):
        found.find(size=1)


def test_an_element_is_found_by_its_map_key_without_a_look_at_the_others() -> None:
    looked_at = []

    class Element(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            looked_at.append(name)
            return super().__getitem__(name)

    elements = Keyed([Element(name=f"p{i}") for i in range(1000)], ("name",))
    assert elements.find(name="p0") is elements[0]
    # Each element is read once, to make the index.
    assert len(looked_at) == 1000
    assert all(elements.find(name=f"p{i}") is elements[i] for i in range(1000))
    assert len(looked_at) == 1000


def test_elements_with_map_keys_are_copied_and_pickled_whole() -> None:
    parts = Keyed(({"name": name} for name in "ab"), ("name",))
    for other in (copy.deepcopy(parts), pickle.loads(pickle.dumps(parts))):
        assert (other, other.keys, type(other)) == (parts, ("name",), Keyed)
        assert other.find(name="b") is other[1]


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("tagged", [False, True])
def test_a_dict_of_any_size_has_its_names_in_the_definitions_order(count: int, tagged: bool) -> None:
    names = [f"Field{i * 5 % 8}" for i in range(count)]
    late_field = [field("Late", "int8", tag=0)] if tagged else []
    definition = message_of(*late_field, *[field(name, "int32") for name in names], flexible="0+")
    values = {f"field{name[5:]}": number for number, name in enumerate(names)}
    for late in (0, 3) if tagged else (None,):
        expected = values if late is None else values | {"late": late}
        found = decode(definition, 0, encode(definition, 0, expected))
        assert list(found.items()) == list(expected.items())
        # Each message gets a copy: a reader of many messages never returns the same dict twice.
        found.clear()
        assert decode(definition, 0, encode(definition, 0, expected)) == expected


def test_names_may_be_anybodys_and_in_any_order() -> None:
    rng = random.Random(3)
    for definition in catalogue().messages.values():
        for version in definition.valid_versions:
            program, values = schema(definition, version), filled(definition, version, 2)
            # The reader's names are the same objects as the writer's, in the same order; those of ``filled`` are not.
            data = program.encode(values)
            read_back = program.decode(data)[2] or {}
            assert program.encode(read_back) == data
            assert program.encode(shuffled(rng, read_back)) == data


def shuffled(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: shuffled(rng, value[name]) for name in rng.sample(list(value), len(value))}
    return [shuffled(rng, element) for element in value] if isinstance(value, list) and value != [] else value


def test_decoded_values_are_shared_with_no_other_message() -> None:
    data = encode("FetchResponse", 12, {"responses": [{"topic": "t", "partitions": [{"partitionIndex": 1}] * 2}]})
    first, second = (decode("FetchResponse", 12, data)["responses"][0]["partitions"] for _ in range(2))
    first[0]["currentLeader"]["leaderId"] = 8
    first[0]["records"] = b"mine"
    for other in (first[1], *second, *decode("FetchResponse", 12, data)["responses"][0]["partitions"]):
        assert (other["currentLeader"], other["records"]) == ({"leaderId": -1, "leaderEpoch": -1}, None)


def test_the_collector_is_left_as_it_was_and_sees_what_holds_others() -> None:
    data = encode(OF_ALL, 2, VALUES | {"maybe": {"number": 3}})
    for switch in (gc.disable, gc.enable):
        switch()
        before = gc.isenabled()
        read_back = decode(OF_ALL, 2, data)
        assert gc.isenabled() is before
    # Python does the same with its own dicts.
    assert gc.is_tracked(read_back)
    assert not gc.is_tracked(read_back["maybe"])


def test_numbers_in_a_row_are_checked_one_by_one_where_they_are_cut() -> None:
    data = bytes.fromhex(NEW)
    for end, name in ((1, "tiny"), (2, "port"), (5, "large"), (6, "large"), (15, "share"), (16, "id"), (31, "id")):
        (finding,) = check(OF_ALL, 1, data[:end]).findings
        assert (finding.code, finding.path) == ("message-cut", f"OfAllData.{name}")


def test_an_array_of_numbers_is_checked_up_to_the_one_that_is_cut() -> None:
    numbers = encode("MetadataResponse", 0, {"topics": [{"partitions": [{"replicaNodes": [1, 2, 3]}]}]})
    at = numbers.index(bytes.fromhex("00000003 00000001"))
    (finding,) = check("MetadataResponse", 0, numbers[: at + 14]).findings
    assert (finding.code, finding.at) == ("message-cut", at + 12)
    assert finding.path == "MetadataResponse.topics[0].partitions[0].replicaNodes[2]"
    nothing = encode("AlterPartitionReassignments", 0, {"topics": [{"name": "t", "partitions": [{"replicas": None}]}]})
    assert check("AlterPartitionReassignments", 0, nothing).consumed == len(nothing)


def test_random_bytes_never_raise_anything_of_their_own() -> None:
    rng = random.Random(9)
    definitions = list(catalogue().messages.values())
    for _ in range(20_000):
        definition = rng.choice(definitions)
        if not definition.valid_versions:
            continue
        version = rng.choice(list(definition.valid_versions))
        data = rng.randbytes(rng.randrange(60))
        found = read(definition, version, data)
        assert 0 <= found.consumed <= len(data)


def test_an_unknown_message_version_or_profile_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="no message called"):
        decode("Nothing", 0, b"")
    with pytest.raises(UsageError, match="FetchRequest has no version 99"):
        decode("Fetch", 99, b"")
    with pytest.raises(UsageError, match="profile 'lax' does not exist"):
        read("Fetch", 12, b"", profile="lax")  # type: ignore[arg-type]


def test_a_bound_on_elements_counts_all_arrays_and_tagged_fields_together() -> None:
    groups = [{"groupId": "g", "topics": [{"name": "t", "partitionIndexes": [1, 2, 3]}] * 2}] * 2
    data = encode("OffsetFetchRequest", 8, {"groups": groups})
    # Two groups, four topics, twelve partitions; and then two tagged fields that nobody knows.
    tagged = data[:-1] + b"\x02\x70\x00\x71\x00"
    for given, count in ((data, 18), (tagged, 20)):
        assert decode("OffsetFetchRequest", 8, given, elements_max=count)["groups"][1]["topics"]
        for objects in (False, True):
            with pytest.raises(MessageError, match=f"all arrays have {count} elements together; at most"):
                decode("OffsetFetchRequest", 8, given, objects=objects, elements_max=count - 1)
        reading = read("OffsetFetchRequest", 8, given, elements_max=count - 1)
        assert (reading.message, reading.consumed) == (None, 0)
        assert reading.fatal is not None
        assert reading.fatal.code == "count-too-large"
    # Bytes that are refused anyway keep their own finding.
    with pytest.raises(MessageError, match="message-cut"):
        decode("OffsetFetchRequest", 8, data[:12], elements_max=100)
