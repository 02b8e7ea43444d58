"""The definition language: what it means, and one error for each mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kfuzz.errors import UsageError
from kfuzz.messages import Definition, Type, Versions, parse_definition, parse_versions
from kfuzz.messages.text import parse, plain

GOOD = """
// The text after two slashes is for people.
{
  "apiKey": 7,
  "type": "request",
  "listeners": ["broker", "controller"],
  "name": "WalkRequest", // also after a value
  "validVersions": "1-5",
  "deprecatedVersions": "1-2",
  "flexibleVersions": "3+",
  "latestVersionUnstable": true,
  "fields": [
    { "name": "Url", "type": "string", "versions": "1+", "nullableVersions": "2+", "default": "http://none",
      "about": "Slashes in a text are no comment: // see." },
    { "name": "Steps", "type": "[]Step", "versions": "1+", "fields": [
      { "name": "Place", "type": "string", "versions": "1+", "mapKey": true, "entityType": "topicName" },
      { "name": "Way", "type": "Way", "versions": "3+", "nullableVersions": "4+" },
      { "name": "Back", "type": "[]Way", "versions": "4+", "nullableVersions": "4+", "default": "null" }
    ]},
    { "name": "Hex", "type": "int32", "versions": "1+", "default": "0x7fffffff" },
    { "name": "Octal", "type": "int16", "versions": "1+", "default": "-017" },
    { "name": "Flag", "type": "bool", "versions": "1+", "default": "true", "ignorable": true },
    { "name": "Share", "type": "float64", "versions": "1+", "default": "0.25" },
    { "name": "Id", "type": "uuid", "versions": "1+" },
    { "name": "Large", "type": "uint32", "versions": "1+", "default": 4294967295 },
    { "name": "Data", "type": "bytes", "versions": "1+", "zeroCopy": true, "flexibleVersions": "none" },
    { "name": "Batch", "type": "records", "versions": "1+", "nullableVersions": "1+" },
    { "name": "Late", "type": "int64", "versions": "3+", "tag": 1, "taggedVersions": "3+", "default": "-1" },
    { "name": "Later", "type": "string", "versions": "4+", "tag": "0", "taggedVersions": "4+",
      "nullableVersions": "4+", "default": "null" }
  ],
  "commonStructs": [
    { "name": "Way", "versions": "3+", "fields": [
      { "name": "Length", "type": "int64", "versions": "3+" },
      { "name": "Parts", "type": "[]Way", "versions": "3+" }
    ]}
  ]
}
"""


def good() -> Definition:
    return parse_definition(GOOD, "walk.json")


def test_a_definition_says_what_it_says() -> None:
    walk = good()
    assert (walk.name, walk.kind, walk.api_key) == ("WalkRequest", "request", 7)
    assert (walk.valid_versions, walk.deprecated_versions) == (Versions(1, 5), Versions(1, 2))
    assert walk.flexible_versions.open
    assert 3 in walk.flexible_versions
    assert walk.latest_version_unstable
    assert walk.listeners == ("broker", "controller")
    assert list(walk.structs) == ["Way", "Step"]
    assert walk.structs["Way"].common
    assert not walk.structs["Step"].common
    fields = {field.name: field for field in walk.fields}
    assert list(fields) == [
        "Url", "Steps", "Hex", "Octal", "Flag", "Share", "Id", "Large", "Data", "Batch", "Late", "Later",
    ]  # fmt: skip
    assert fields["Url"].default == "http://none"
    assert str(fields["Url"].nullable) == "2+"
    assert "// see" in fields["Url"].about
    assert fields["Steps"].type == Type("Step", array=True)
    assert [fields[name].default for name in ("Hex", "Octal", "Flag", "Share", "Large", "Late")] == [
        2147483647, -15, True, 0.25, 4294967295, -1,
    ]  # fmt: skip
    assert fields["Flag"].ignorable
    assert fields["Data"].zero_copy
    assert not fields["Data"].is_flexible(5, walk.flexible_versions)
    assert fields["Url"].is_flexible(5, walk.flexible_versions)
    assert fields["Batch"].null_default
    assert (fields["Later"].tag, fields["Later"].null_default, fields["Later"].default) == (0, True, None)
    place, way, back = walk.structs["Step"].fields
    assert place.map_key
    assert place.entity_type == "topicName"
    assert way.type.struct == "Way"
    assert back.null_default
    assert walk.fields[1].line == 15


def nested(depth: int) -> str:
    """Structs that each hold the next one twice."""
    structs = [
        {
            "name": f"S{i}",
            "versions": "0+",
            "fields": [{"name": name, "type": f"S{i + 1}", "versions": "0+"} for name in "ab"],
        }
        for i in range(depth)
    ]
    structs.append({"name": f"S{depth}", "versions": "0+", "fields": []})
    return json.dumps(
        {
            "name": "Data",
            "type": "data",
            "validVersions": "0",
            "flexibleVersions": "none",
            "commonStructs": structs,
            "fields": [],
        }
    )


def test_structs_that_double_from_one_to_the_next_are_refused() -> None:
    assert len(parse_definition(nested(8)).structs) == 9
    for depth in (9, 99):
        with pytest.raises(UsageError, match=r": S\d+: the struct has more than 1000 structs; put some in an array"):
            parse_definition(nested(depth))


@pytest.mark.parametrize(("outer", "inner"), [(9, 110), (10, 99)])
def test_a_struct_is_made_of_1000_at_most(outer: int, inner: int) -> None:
    def struct(name: str, count: int, type: str) -> dict[str, Any]:
        fields = [{"name": f"F{i}", "type": type, "versions": "0+"} for i in range(count)]
        return {"name": name, "versions": "0+", "fields": fields}

    definition = json.loads(nested(0))
    definition["commonStructs"] = [
        struct("Leaf", 0, ""),
        struct("Inner", inner, "Leaf"),
        struct("Outer", outer, "Inner"),
    ]
    if 1 + outer * (1 + inner) == 1000:
        assert len(parse_definition(json.dumps(definition)).structs) == 3
        return
    with pytest.raises(UsageError, match=r": Outer: the struct has more than 1000 structs; put some in an array"):
        parse_definition(json.dumps(definition))


def test_null_is_allowed_in_no_version_that_lacks_the_field() -> None:
    definition = parse_definition(
        """{ "name": "Data", "type": "data", "validVersions": "0-5", "flexibleVersions": "none", "fields": [
        { "name": "Text", "type": "string", "versions": "2-4", "nullableVersions": "1+" } ]}"""
    )
    assert definition.fields[0].nullable == Versions(2, 4)


@pytest.mark.parametrize(
    ("text", "versions"),
    [("3", (3, 3)), ("1-4", (1, 4)), ("2+", (2, 32767)), ("none", (1, 0)), ("", (1, 0)), (" 0-0 ", (0, 0))],
)
def test_versions_are_read(text: str, versions: tuple[int, int]) -> None:
    assert parse_versions(text) == Versions(*versions)
    assert parse_versions(str(parse_versions(text))) == Versions(*versions)


def test_versions_meet_and_contain_one_another() -> None:
    some, others = parse_versions("2-5"), parse_versions("4+")
    assert str(some & others) == "4-5"
    assert not some & parse_versions("6+")
    assert (some & others) <= some
    assert parse_versions("none") <= some
    assert not some <= others
    assert list(parse_versions("3-5")) == [3, 4, 5]


# The keys are parts of GOOD. Each case puts its first string in place of that part; the "@" in it marks the line of the
# error, and is left out. The second string stands in the error: what is wrong, where, and what to do.
FIELD = '{ "name": "Id", "type": "uuid", "versions": "1+" }'
WRONG: dict[str, dict[str, tuple[str, str | None]]] = {
    '"mapKey": true, "entityType": "topicName" }': {
        "a comma too many": ('"mapKey": true, @}', "a comma before '}'; take it out"),
    },
    '"apiKey": 7,': {
        "no comma": ('"apiKey": 7\n  @"about": "x",', "expected a comma or '}', found '\"'"),
        "no apiKey": ("", 'a request needs a number; add "apiKey"'),
    },
    '"apiKey": 7': {
        "no colon": ('"apiKey" @7', 'expected a colon after "apiKey"'),
        "no name": ("@apiKey: 7", "expected a name in quotation marks"),
        "no value": ('"apiKey": @,', "expected a value, found ','"),
        "a word": ('"apiKey": @seven', "expected a value, found 's'"),
        "a number without end": ('"apiKey": @' + "7" * 401, "the number has 401 digits"),
        "said twice": ('"apiKey": 7, "apiKey": 8@', '"apiKey" has two different values; keep one'),
        "an unknown member": ('@"api_key": 7', '"api_key" is not known here; did you mean "apiKey"'),
        "a member like none": ('@"zzz": 7', "take one of name, type, apiKey"),
        "a text for a number": ('@"apiKey": "7"', '"apiKey" is a string; it must be a whole number'),
        "a fraction": ('@"apiKey": 7.5', '"apiKey" is a number with a fraction; it must be a whole number'),
        "a negative apiKey": ('@"apiKey": -1', "apiKey is -1; it must be from 0 to 32767"),
    },
    '"name": "WalkRequest",': {
        "a text without end": ('"name": @"WalkRequest,', "invalid string: "),
        "a text with a bad escape": ('"name": @"Walk\\xRequest",', "invalid string: "),
        "no name of the message": ("", '"name" is missing; add "name"'),
    },
    '"ignorable": true': {
        "an unknown member of a field": (
            '@"ignorabel": true',
            'WalkRequest.Flag: "ignorabel" is not known here; did you mean "ignorable"',
        ),
        "a text for a flag": ('@"ignorable": "true"', '"ignorable" is a string; it must be true or false'),
    },
    '"validVersions": "1-5"': {
        "a number for a text": ('@"validVersions": 5', '"validVersions" is a number; it must be a string'),
        "versions without end": ('@"validVersions": "1+"', 'has no end; name the highest version, such as "1-2"'),
        "versions backwards": ('@"validVersions": "5-1"', '"5-1" ends before it begins; write "1-5"'),
        "versions in words": ('@"validVersions": "all"', '"all" is not a range of versions'),
        "versions too large": ('@"validVersions": "1-40000"', "goes beyond 32767; a version is an int16"),
        "a negative version": ('@"validVersions": "-1"', '"-1" is not a range of versions'),
        "a message without fields": ('"about": "x"', None),
    },
    '"listeners": ["broker", "controller"]': {
        "a number for a list": ('@"listeners": 1', '"listeners" is a number; it must be a list'),
    },
    FIELD: {
        "a text for a field": ('@"Id"', "expected an object in braces, found a string"),
        "a field without name": ('@{ "type": "uuid", "versions": "1+" }', "a field needs a name; add it"),
        "a field called wrongly": (
            '@{ "name": "my_id", "type": "uuid", "versions": "1+" }',
            '"my_id" cannot name a field',
        ),
        "a field twice but for the first letter": (
            FIELD + ',\n    @{ "name": "id", "type": "uuid", "versions": "1+" }',
            "has the same name; rename one",
        ),
        "a field without type": ('@{ "name": "Id", "versions": "1+" }', 'WalkRequest.Id: "type" is missing'),
        "a field without versions": ('@{ "name": "Id", "type": "uuid" }', 'WalkRequest.Id: "versions" is missing'),
        "a field twice": ('@{ "name": "Hex", "type": "uuid", "versions": "1+" }', "has the same name; rename one"),
        "an unknown primitive": (
            '@{ "name": "Id", "type": "int33", "versions": "1+" }',
            'type "int33" does not exist; did you mean "int32"',
        ),
        "a type in small letters": (
            '@{ "name": "Id", "type": "thing", "versions": "1+" }',
            'type "thing" does not exist',
        ),
        "an array of arrays": (
            '@{ "name": "Id", "type": "[][]int32", "versions": "1+" }',
            "an array of arrays; put a struct in between",
        ),
        "an array of records": (
            '@{ "name": "Id", "type": "[]records", "versions": "1+" }',
            '"[]records" does not exist',
        ),
        "fields of a primitive": (
            '@{ "name": "Id", "type": "uuid", "versions": "1+", "fields": [' + FIELD + "] }",
            'a field of type "uuid" has no fields',
        ),
        "a nullable uuid": (
            '@{ "name": "Id", "type": "uuid", "versions": "1+", "nullableVersions": "1+" }',
            'a field of type "uuid" cannot be null',
        ),
        "a default of too many digits": (
            '@{ "name": "Id", "type": "int8", "versions": "1+", "default": "%s" }' % ("9" * 5000),
            "the default has 5000 digits; an int8 has 3 at most",
        ),
        "a tag of too many digits": (
            '@{ "name": "Id", "type": "int8", "versions": "3+", "tag": "%s", "taggedVersions": "3+" }' % ("9" * 5000),
            '"tag" is a string; it must be a whole number',
        ),
        "a default of a uuid": (
            '@{ "name": "Id", "type": "uuid", "versions": "1+", "default": "x" }',
            "the default of a uuid is all zeros",
        ),
    },
    '"WalkRequest"': {
        "a name without capital": ('@"walkRequest"', "must be a capital letter and then letters and digits"),
        "a request called otherwise": ('@"Walk"', 'the name of a request ends with "Request"; call it WalkRequest'),
    },
    '"type": "request"': {
        "a response called a request": ('"type": "response"', 'the name of a response ends with "Response"'),
        "an unknown type of message": ('@"type": "reqest"', 'type "reqest" does not exist; take one of request'),
        "an apiKey of data": ('"type": "data"', "a message of type data has no apiKey; take it out"),
    },
    '"type": "request",': {
        "no type": ("", 'WalkRequest: "type" is missing'),
        "listeners of a response": ('"type": "response",', None),
    },
    '"validVersions": "1-5",': {
        "no validVersions": ("", '"validVersions" is missing'),
    },
    '"flexibleVersions": "3+",': {
        "no flexibleVersions": ("", '"flexibleVersions" is missing; add "flexibleVersions": "0+"'),
    },
    '"flexibleVersions": "3+"': {
        "flexibleVersions that end": ('@"flexibleVersions": "3-5"', 'flexibleVersions "3-5" ends; write "3+"'),
    },
    '"deprecatedVersions": "1-2"': {
        "deprecatedVersions outside": ('@"deprecatedVersions": "0-2"', 'go beyond validVersions "1-5"'),
    },
    '["broker", "controller"]': {
        "an unknown listener": ('[@"broker", "raft"]', 'listener "raft" does not exist; use broker'),
        "a listener twice": ('[@"broker", "broker"]', 'listener "broker" is given twice; keep one'),
    },
    '{ "name": "Way", "versions": "3+",': {
        "a common struct without name": ('@{ "versions": "3+",', "a common struct needs a name"),
        "a common struct without versions": ('@{ "name": "Way",', 'Way: "versions" is missing'),
        "a common struct in small letters": ('@{ "name": "way", "versions": "3+",', '"way" cannot name a struct'),
        "a common struct called as a primitive": ('@{ "name": "String", "versions": "3+",', "primitives are taken"),
    },
    '"type": "Way", "versions": "3+",': {
        "fields of a common struct in two places": (
            '"type": "Way", "versions": "3+", @"fields": [' + FIELD + "],",
            "the fields of Way are in commonStructs",
        ),
        "a struct that is not there": (
            '@"type": "Road", "versions": "3+",',
            'there is no struct "Road"; give the field "fields"',
        ),
    },
    '"type": "[]Way", "versions": "3+" }': {
        "a struct that holds itself": (
            '"type": "Way", "versions": "3+" }',
            "Way: the struct holds itself; put it in an array",
        ),
        "a struct that may hold itself": (
            '"type": "Way", "versions": "3+", "nullableVersions": "3+" }',
            "Way: the struct holds itself; put it in an array, or let its default be null",
        ),
    },
    '"default": "0x7fffffff"': {
        "a nullable number": (
            '@"nullableVersions": "1+"',
            'a field of type "int32" cannot be null; take out "nullableVersions"',
        ),
        "own flexibleVersions of a number": (
            '@"flexibleVersions": "none"',
            "only strings and bytes have flexibleVersions of their own",
        ),
    },
    '"tag": 1, "taggedVersions": "3+"': {
        "a tag without versions": ('@"tag": 1', 'tag 1 needs versions; add "taggedVersions"'),
        "versions without a tag": ('@"taggedVersions": "3+"', 'need a tag; add "tag", or take them out'),
    },
    '"tag": 1,': {
        "a negative tag": ('@"tag": -1,', "tag -1 is out of range"),
        "a tag in words": ('@"tag": "one",', '"tag" is a string; it must be a whole number'),
        "a tag twice": ('"tag": 0,', "tag 0 belongs to Late"),
        "a gap before a tag": ('@"tag": 2,', "there is a tag 2 but no tag 1; put the field of tag 1 back if any"),
    },
    '"taggedVersions": "3+"': {
        "tags that end": ('@"taggedVersions": "3-4"', 'taggedVersions "3-4" ends; write "3+", and leave'),
        "a tagged map key": ('@"taggedVersions": "3+", "mapKey": true', "a tagged field cannot be a map key"),
    },
    '"versions": "3+", "tag": 1': {
        "tags before the field": ('@"versions": "4+", "tag": 1', 'taggedVersions "3+" go beyond versions "4+"'),
    },
    '"versions": "3+", "tag": 1, "taggedVersions": "3+"': {
        "tags before flexibility": (
            '@"versions": "2+", "tag": 1, "taggedVersions": "2+"',
            'are not all flexible; keep them within flexibleVersions "3+"',
        ),
    },
    '"taggedVersions": "4+",\n      "nullableVersions": "4+"': {
        "tags that become nullable": ('@"taggedVersions": "4+",\n      "nullableVersions": "5+"', None),
    },
    '"versions": "4+", "nullableVersions": "4+", "default": "null" }': {
        "an array as a map key": ('@"versions": "4+", "mapKey": true }', 'a "[]Way" cannot be a map key'),
        "a default of an array": (
            '@"versions": "4+", "default": "none" }',
            'a field of type "[]Way" can have no default but null',
        ),
    },
    '"entityType": "topicName"': {
        "an unknown entity": (
            '@"entityType": "topic"',
            'entityType "topic" does not exist; take one of transactionalId',
        ),
        "an entity of another type": (
            '@"entityType": "brokerId"',
            'a brokerId is of type int32, but this field is a "string"',
        ),
    },
    '"default": "http://none",': {
        "zero copy of a text": ('@"zeroCopy": true,', 'zeroCopy is only for bytes, but this is "string"'),
    },
    '"default": "-017"': {
        "a default that is too large": ('@"default": "0x8000"', "does not fit an int16; take one from -32768 to 32767"),
        "a default that is not a number": (
            '@"default": "many"',
            'the default "many" is not a whole number; write 12, 0xc or 014',
        ),
        "a default that is not an octal number": ('@"default": "089"', None),
    },
    '"default": 4294967295': {
        "a negative unsigned default": ('@"default": -1', "the default -1 does not fit an uint32"),
        "a fraction by default": (
            '@"default": 1.5',
            "the default is a number with a fraction; it must be a whole number",
        ),
    },
    '"default": "true"': {
        "a default that is not a flag": ('@"default": "yes"', "the default is 'yes'; it must be"),
    },
    '"default": "0.25"': {
        "a default that is not a float": ('@"default": "a quarter"', "the default 'a quarter' is not a number"),
        "an endless default": ('@"default": "1e999"', "the default '1e999' is not a number"),
    },
    '"default": "http://none"': {
        "a number for a text by default": (
            '@"default": 3',
            "the default of a string is a number; put it in quotation marks",
        ),
        "a list by default": ('@"default": []', '"default" is a list'),
        "null by default but not allowed": (
            '@"default": "null"',
            'the default is null, but null is not allowed in all versions; make nullableVersions "1+"',
        ),
    },
    '"zeroCopy": true, "flexibleVersions": "none"': {
        "a default of bytes": (
            '@"zeroCopy": true, "flexibleVersions": "none", "default": "x"',
            'a field of type "bytes" can have no default but null',
        ),
    },
    '{ "name": "Way", "type": "Way", "versions": "3+", "nullableVersions": "4+" }': {
        "a default of a struct": (
            '@{ "name": "Way", "type": "Way", "versions": "3+", "nullableVersions": "4+", "default": "none" }',
            'a field of type "Way" can have no default but null',
        ),
    },
}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [pytest.param(before, *row, id=case) for before, rows in WRONG.items() for case, row in rows.items()],
)
def test_a_wrong_definition_gets_one_sentence_with_its_place(before: str, after: str, words: str | None) -> None:
    assert GOOD.count(before) == 1
    text = GOOD.replace(before, after, 1)
    at = text.find("@")
    with pytest.raises(UsageError) as caught:
        parse_definition(text.replace("@", "", 1), "walk.json")
    said = str(caught.value)
    found = re.match(r"walk\.json:(\d+): ", said)
    assert found is not None, said
    assert "\n" not in said
    # The path of the field comes before the problem.
    assert not re.search(r": [\w.\[\]]+$", said), said
    if at >= 0:
        assert int(found[1]) == text.count("\n", 0, at) + 1, said
    if words is not None:
        assert words in said, said


def test_a_chain_of_structs_that_nobody_could_follow_is_refused() -> None:
    structs = [
        {"name": f"S{i}", "versions": "0+", "fields": [{"name": "Next", "type": f"S{i + 1}", "versions": "0+"}]}
        for i in range(2000)
    ]
    chain = {
        "name": "Chain", "type": "data", "validVersions": "0", "flexibleVersions": "none",
        "fields": [{"name": "First", "type": "S0", "versions": "0+"}],
        "commonStructs": [*structs, {"name": "S2000", "versions": "0+", "fields": []}],
    }  # fmt: skip
    with pytest.raises(UsageError, match="there are 2001 structs; at most 100 are allowed"):
        parse_definition(json.dumps(chain))


@pytest.mark.parametrize(
    "text", ["", "  // nothing\n", "[", "{", '{"a"', '{"a":', "nul", "[1,", '"', "{} {}", "[" * 1000]
)
def test_a_text_that_is_no_json_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^x\.json:\d+: "):
        parse(text, "x.json")


def test_comments_stand_anywhere_but_in_texts() -> None:
    text = '// a\n{ // b\n "x" // c\n : // d\n [1, // e\n "// f"] // g\n}// h'
    assert plain(parse(text, "x")) == {"x": [1, "// f"]}


def test_a_bare_null_is_no_default_and_a_tagged_field_is_there_where_it_is_tagged() -> None:
    """As in two definitions of the group coordinator, and one of the transaction coordinator."""
    assert parse_definition(GOOD.replace('"default": "http://none"', '"default": null')).fields[0].default == ""
    late = '"versions": "3+", "tag": 1, "taggedVersions": "3+"'
    assert parse_definition(GOOD.replace(late, '"tag": 1, "taggedVersions": "3+"')) == good()


def test_a_thing_said_twice_in_the_same_words_is_said(tmp_path: Path) -> None:
    text = GOOD.replace('"apiKey": 7', '"apiKey": 7, "apiKey": 7', 1)
    assert parse_definition(text) == good()
