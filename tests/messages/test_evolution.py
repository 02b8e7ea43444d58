"""Every change that the document calls incompatible is found. Changes that keep the bytes are compatible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from defined import field, message_of

from kfuzz.errors import UsageError
from kfuzz.kafka import KAFKA_3, LATEST
from kfuzz.messages import Definition, parse_definition
from kfuzz.messages.catalogues import CARRIED, RECORDS, catalogue
from kfuzz.messages.codec import encode
from kfuzz.messages.evolution import CODES, WARNINGS, Change, compare, compare_all

OLD = """
{ "name": "CountRequest", "type": "request", "apiKey": 9, "validVersions": "1-4", "flexibleVersions": "3+", "fields": [
  { "name": "Id", "type": "uuid", "versions": "1+" },
  { "name": "Name", "type": "string", "versions": "1+", "nullableVersions": "2+" },
  { "name": "Places", "type": "[]int32", "versions": "1+" },
  { "name": "Parts", "type": "[]Part", "versions": "2+", "fields": [
    { "name": "Size", "type": "int64", "versions": "2+", "default": "-1" },
    { "name": "Kind", "type": "int8", "versions": "2+" }
  ]},
  { "name": "Data", "type": "bytes", "versions": "1-3" },
  { "name": "Rest", "type": "int32", "versions": "3+", "tag": 0, "taggedVersions": "3+" },
  { "name": "More", "type": "int32", "versions": "3+", "tag": 1, "taggedVersions": "3+" }
]}
"""


def changes(*edits: tuple[str, str]) -> list[Change]:
    text = OLD
    for before, after in edits:
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    return compare(parse_definition(OLD), parse_definition(text, tags_may_end=True))


def codes(found: list[Change]) -> list[str]:
    return [f"{change.path} {change.code}".strip() for change in found]


ID = '{ "name": "Id", "type": "uuid", "versions": "1+" },'
KIND = '{ "name": "Kind", "type": "int8", "versions": "2+" }'
SIZE = '{ "name": "Size", "type": "int64", "versions": "2+", "default": "-1" }'
REST = '{ "name": "Rest", "type": "int32", "versions": "3+", "tag": 0, "taggedVersions": "3+" }'
MORE = '{ "name": "More", "type": "int32", "versions": "3+", "tag": 1, "taggedVersions": "3+" }'
PLACES = '{ "name": "Places", "type": "[]int32", "versions": "1+" },'
NUMBER = '{ "name": "Number", "type": "int32", "versions": "1+" }'
BOXED = '{ "name": "Places", "type": "[]Place", "versions": "1+", "fields": [' + NUMBER + "] },"


@pytest.mark.parametrize(
    ("edits", "found"),
    [
        # Versions that were released.
        ([('"1-4"', '"2-4"')], ["version-lost"]),
        ([('"1-4"', '"1-3"')], ["version-lost"]),
        ([('"1-4"', '"none"')], ["message-lost"]),
        ([('"flexibleVersions": "3+"', '"flexibleVersions": "2+"')], ["released-version-changed"]),
        ([(ID, "")], ["Id released-version-changed"]),
        ([(ID, ID + '{ "name": "New", "type": "int8", "versions": "4+" },')], ["New released-version-changed"]),
        (
            [('"type": "bytes", "versions": "1-3"', '"type": "bytes", "versions": "1-2"')],
            ["Data released-version-changed"],
        ),
        ([('"nullableVersions": "2+"', '"nullableVersions": "1+"')], ["Name released-version-changed"]),
        ([(KIND, KIND.replace("2+", "3+"))], ["Parts.Kind released-version-changed"]),
        ([('"type": "bytes", ', '"type": "bytes", "flexibleVersions": "none", ')], ["Data released-version-changed"]),
        # The order of fields.
        ([(f"{SIZE},\n    {KIND}", f"{KIND},\n    {SIZE}")], ["Parts.Kind fields-reordered"]),
        # Defaults and types.
        ([('"default": "-1"', '"default": "0"')], ["Parts.Size default-changed"]),
        ([('"nullableVersions": "2+"', '"nullableVersions": "2+", "default": "x"')], ["Name default-changed"]),
        ([(KIND, KIND.replace("int8", "int16"))], ["Parts.Kind type-changed"]),
        ([(PLACES, PLACES.replace("[]int32", "int32"))], ["Places type-changed"]),
        ([(PLACES, PLACES.replace("[]int32", "[]int64"))], ["Places type-changed"]),
        # In versions 3 and 4, which are flexible, each struct ends with its tags.
        ([(PLACES, BOXED)], ["Places type-changed"]),
        (
            [('"1-4"', '"1-2"'), (PLACES, BOXED.replace(NUMBER, f"{NUMBER}, {NUMBER.replace('Number', 'Other')}"))],
            ["version-lost", "Places type-changed"],
        ),
        # Tags.
        (
            [
                (MORE, MORE.replace('"tag": 1', '"tag": 0')),
                ('"tag": 0, "taggedVersions": "3+" },', '"tag": 1, "taggedVersions": "3+" },'),
            ],
            ["More tag-changed", "More tag-reused", "Rest tag-changed", "Rest tag-reused"],
        ),
        ([(f",\n  {MORE}", "")], ["More tag-lost"]),
        ([(MORE, '{ "name": "More", "type": "int32", "versions": "3+" }')], ["More tag-lost"]),
        ([(MORE, MORE.replace('"3+"', '"4+"', 2))], ["More released-version-changed", "More tag-lost"]),
        ([(MORE, MORE.replace("More", "Other").replace("int32", "string"))], ["More tag-lost", "Other tag-reused"]),
        # The name is not sent. Only a person can decide whether the meaning is the same.
        ([(MORE, MORE.replace("More", "Other"))], ["More tag-renamed"]),
        # The document allows what Kafka's generator refuses.
        ([(f"{REST},\n  ", "")], ["More tags-refused", "Rest tag-lost"]),
        (
            [('"1-4"', '"1-5"'), (MORE, MORE.replace('"taggedVersions": "3+"', '"taggedVersions": "3-4"'))],
            ["More tags-refused"],
        ),
        ([(MORE, MORE.replace('"3+"', '"3-4"'))], ["More tags-refused"]),
        (
            [(MORE, MORE.replace('"taggedVersions": "3+"', '"taggedVersions": "3"'))],
            ["More tag-lost", "More tags-refused"],
        ),
        ([(MORE, MORE.replace('"tag": 1', '"tag": 7'))], ["More tag-changed", "More tags-refused"]),
        # The kind and number of a message.
        ([('"apiKey": 9', '"apiKey": 8')], ["api-key-changed"]),
        # Changes that no peer can notice.
        ([], []),
        ([('"1-4"', '"1-5"')], []),
        ([('"1-4"', '"1-5"'), (ID, ID + '{ "name": "New", "type": "int8", "versions": "5+" },')], []),
        ([('"1-4"', '"1-5"'), (KIND, KIND.replace('"2+"', '"2-4"'))], []),
        (
            [
                (
                    MORE,
                    MORE + ',{ "name": "Added", "type": "string", "versions": "3+", "tag": 2, "taggedVersions": "3+" }',
                )
            ],
            [],
        ),
        ([(KIND, KIND.replace("}", ', "ignorable": true, "about": "x" }'))], []),
        # The same bytes under other names.
        ([(KIND, KIND.replace("Kind", "Sort"))], ["Parts.Kind field-renamed"]),
        (
            [(SIZE, SIZE.replace("Size", "Length")), (KIND, KIND.replace("Kind", "Sort"))],
            ["Parts.Kind field-renamed", "Parts.Size field-renamed"],
        ),
        (
            [
                (
                    '"Name", "type": "string", "versions": "1+", "nullableVersions": "2+"',
                    '"Title", "type": "string", "versions": "1+", "nullableVersions": "1+"',
                )
            ],
            ["Name released-version-changed", "Title released-version-changed"],
        ),
        ([('"CountRequest"', '"TallyRequest"')], ["message-renamed"]),
        (
            [('"1-4"', '"1-2"'), (PLACES, BOXED)],
            ["version-lost", "Places array-of-structs"],
        ),
    ],
)
def test_a_change_is_found_for_what_it_is(edits: list[tuple[str, str]], found: list[str]) -> None:
    assert codes(changes(*edits)) == found


def test_no_advice_names_a_tag_that_older_definitions_used() -> None:
    """A field is removed, and later another one is added: its tag must be one that was never used."""
    without = OLD.replace(f"{REST},\n  ", "")
    with pytest.raises(
        UsageError, match="there is a tag 1 but no tag 0; put the field of tag 0 back if any"
    ) as refused:
        parse_definition(without)
    assert "take 0" not in str(refused.value)
    [refusal, lost] = compare(parse_definition(OLD), parse_definition(without, tags_may_end=True))
    assert lost.text == (
        "tag 0 of versions 3-4 is gone; keep the field with its tag and leave it unset, "
        "because no other field may ever have the tag"
    )
    assert refusal.text.startswith("there is a tag 1 but no tag 0; if a release had one, keep the field with its tag")
    other = REST.replace("Rest", "Other").replace("int32", "string")
    reused = compare(parse_definition(OLD), parse_definition(OLD.replace(REST, other)))
    assert [(change.code, change.text) for change in reused if change.path == "Other"] == [
        ("tag-reused", "tag 0 belongs to Rest; take one that was never used")
    ]


def test_a_tag_that_ended_is_not_free_again() -> None:
    ended = parse_definition(
        OLD.replace('"1-4"', '"1-5"').replace(MORE, MORE.replace('"taggedVersions": "3+"', '"taggedVersions": "3-4"')),
        tags_may_end=True,
    )
    again = MORE.replace("More", "Other").replace("3+", "6+").replace("int32", "string")
    found = compare(ended, parse_definition(OLD.replace('"1-4"', '"1-6"').replace(MORE, again)))
    assert "Other tag-reused" in codes(found)


def test_a_warning_is_neither_fine_nor_incompatible() -> None:
    [renamed] = changes((MORE, MORE.replace("More", "Other")))
    assert (renamed.weight, renamed.incompatible) == ("warning", False)
    assert renamed.text == "tag 1 is now called Other; a field with another meaning needs a tag of its own"


def test_every_kind_of_change_is_known_by_what_it_does() -> None:
    fine = {code for code, (_, incompatible) in CODES.items() if not incompatible}
    assert fine == {"array-of-structs", "field-renamed", "message-renamed"} | WARNINGS
    assert {"tag-renamed", "tags-refused"} == WARNINGS


def test_a_version_that_was_unstable_was_not_released() -> None:
    unstable = OLD.replace('"validVersions"', '"latestVersionUnstable": true, "validVersions"')
    new = OLD.replace(ID, ID + '{ "name": "New", "type": "int8", "versions": "4+" },')
    assert compare(parse_definition(unstable), parse_definition(new)) == []
    # The request says it, and it counts for the response too.
    renamed: Callable[[str], str] = lambda text: text.replace("CountRequest", "CountResponse").replace(  # noqa: E731
        '"request"', '"response"'
    )
    request, response = parse_definition(unstable), parse_definition(renamed(OLD))
    old = {one.name: one for one in (request, response)}
    newer = {one.name: one for one in (parse_definition(new), parse_definition(renamed(new)))}
    assert compare_all(old, newer) == []
    assert compare_all({response.name: response}, newer) != []


def test_a_struct_that_holds_itself_is_compared_once() -> None:
    def tree(size: str) -> Definition:
        return message_of(field("Nodes", "[]Node", fields=[field("Size", size), field("Inner", "[]Node")]))

    assert codes(compare(tree("int8"), tree("int16"))) == ["Nodes.Size type-changed"]


def test_an_array_of_structs_with_a_text_that_may_be_null_is_another_array() -> None:
    old = message_of(field("Names", "[]string"))
    for nullable, code in (("none", "array-of-structs"), ("0+", "type-changed")):
        new = message_of(field("Names", "[]Name", fields=[field("Text", "string", nullableVersions=nullable)]))
        assert codes(compare(old, new)) == [f"Names {code}"]


def test_an_array_of_structs_with_one_number_each_has_the_bytes_of_an_array_of_numbers() -> None:
    versions = {"versions": "0-1", "flexible": "1+"}
    plain = message_of(field("Numbers", "[]int32"), **versions)
    boxed = message_of(field("Numbers", "[]Number", fields=[field("Value", "int32")]), **versions)
    numbers = [1, -1, 2**31 - 1]
    values = {"numbers": [{"value": number} for number in numbers]}
    assert encode(boxed, 0, values) == encode(plain, 0, {"numbers": numbers})
    # In a flexible version each struct ends with the number of its tags.
    assert len(encode(boxed, 1, values)) == len(encode(plain, 1, {"numbers": numbers})) + len(numbers)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (SIZE, SIZE.replace("int64", "int32")),
        (SIZE, SIZE.replace("-1", "0")),
        (f"{SIZE}, {KIND}", f"{KIND}, {SIZE}"),
        (MORE, MORE.replace("More", "Other").replace("int32", "string")),
    ],
)
def test_fields_of_unstable_versions_may_change(before: str, after: str) -> None:
    frame = """{ "name": "XRequest", "type": "request", "apiKey": 9, "validVersions": "2-3", "flexibleVersions": "3+",
                 "latestVersionUnstable": UNSTABLE, "fields": [FIELDS] }"""

    def defined(fields: str, unstable: str) -> Definition:
        late = fields.replace('"2+"', '"3+"').replace('"tag": 1', '"tag": 0')
        return parse_definition(frame.replace("UNSTABLE", unstable).replace("FIELDS", late))

    assert compare(defined(before, "true"), defined(after, "true")) == []
    assert any(change.incompatible for change in compare(defined(before, "false"), defined(after, "false")))


def test_a_field_that_is_tagged_in_later_versions_alone_is_missed_in_the_earlier() -> None:
    old = message_of(field("A", "int8", tag=0, taggedVersions="1+"), flexible="1+")
    assert codes(compare(old, message_of(flexible="1+"))) == ["A released-version-changed"]


def test_a_message_that_is_gone_is_lost_unless_it_has_another_name() -> None:
    old = parse_definition(OLD)
    assert codes(compare_all({old.name: old}, {})) == ["message-lost"]
    other: Definition = replace(old, name="TallyRequest")
    assert codes(compare_all({old.name: old}, {other.name: other})) == ["message-renamed"]


def test_from_kafka_3_9_to_4_4_versions_went_and_names_changed_and_no_released_layout_did() -> None:
    found = compare_all(catalogue(KAFKA_3).messages, catalogue(LATEST).messages)
    assert {change.code for change in found} == {"version-lost", "message-lost", "field-renamed", "message-renamed"}
    lost = {change.message for change in found if change.code == "message-lost"}
    # Only brokers with ZooKeeper sent these to each other.
    assert lost == {
        f"{name}{kind}"
        for name in ("ControlledShutdown", "LeaderAndIsr", "StopReplica", "UpdateMetadata")
        for kind in ("Request", "Response")
    }
    assert sum(change.code == "version-lost" for change in found) == 41


def test_from_kafka_3_9_to_4_4_coordinators_got_numbers_and_only_share_groups_changed_a_layout() -> None:
    found = compare_all(catalogue(RECORDS[KAFKA_3]).messages, catalogue(RECORDS[LATEST]).messages)
    numbered = [change.message for change in found if change.code == "api-key-changed"]
    kinds = {change.text.rpartition(" ")[0] for change in found if change.code == "api-key-changed"}
    assert kinds == {f"data without a number is now coordinator-{part}" for part in ("key", "value")}
    # The former version of a key is now its number: the int16 in front of it is the same.
    lost = [change.message for change in found if change.code == "version-lost"]
    assert all(name.endswith("Key") and name in numbered for name in lost)
    others = [change for change in found if change.code not in ("api-key-changed", "version-lost")]
    assert [(change.message, change.code) for change in others] == [
        ("ShareGroupMetadataValue", "released-version-changed"),
        ("ShareGroupPartitionMetadataKey", "message-lost"),
        ("ShareGroupPartitionMetadataValue", "message-lost"),
    ]
    assert (len(numbered), len(lost)) == (22, 10)


def test_a_release_has_not_changed_against_itself() -> None:
    for name in CARRIED:
        assert compare_all(catalogue(name).messages, catalogue(name).messages) == []
