"""The definition language: what it means, and one error for each mistake."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from defined import field, message_of, struct

from kfuzz.errors import UsageError
from kfuzz.messages import Definition, Type, Versions, parse_definition, parse_versions
from kfuzz.messages.text import parse, plain

CASES = tomllib.loads(Path(__file__).with_name("wrong_definitions.toml").read_text())
GOOD: str = CASES["good"]


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
    assert walk.fields[1].line == 14


def nested(depth: int) -> Definition:
    """Structs that each hold the next one twice."""
    pairs = [struct(f"S{i}", *[field(name, f"S{i + 1}") for name in "ab"]) for i in range(depth)]
    return message_of(structs=[*pairs, struct(f"S{depth}")])


def test_structs_that_double_from_one_to_the_next_are_refused() -> None:
    assert len(nested(8).structs) == 9
    for depth in (9, 99):
        with pytest.raises(UsageError, match=r": S\d+: the struct has more than 1000 structs; put some in an array"):
            nested(depth)


def test_a_struct_is_made_of_1000_at_most() -> None:
    def outer(count: int, inner: int) -> Definition:
        return message_of(
            structs=[
                struct("Leaf"),
                struct("Inner", *[field(f"F{i}", "Leaf") for i in range(inner)]),
                struct("Outer", *[field(f"F{i}", "Inner") for i in range(count)]),
            ]
        )

    assert 1 + 9 * (1 + 110) == 1000
    assert len(outer(9, 110).structs) == 3
    assert 1 + 10 * (1 + 99) == 1001
    with pytest.raises(UsageError, match=r": Outer: the struct has more than 1000 structs; put some in an array"):
        outer(10, 99)


def test_null_is_allowed_in_no_version_that_lacks_the_field() -> None:
    definition = message_of(field("Text", "string", "2-4", nullableVersions="1+"), versions="0-5")
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


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [pytest.param(part, *row, id=case) for part, cases in CASES["wrong"].items() for case, row in cases.items()]
    + [
        pytest.param('"apiKey": 7', '"apiKey": @' + "7" * 401, "the number has 401 digits", id="a number without end"),
        pytest.param(
            '"default": "-1"',
            f'@"default": "{"9" * 5000}"',
            "the default has 5000 digits; an int64 has 19 at most",
            id="a default of too many digits",
        ),
        pytest.param(
            '"tag": "0"',
            f'@"tag": "{"9" * 5000}"',
            '"tag" is a string; it must be a whole number',
            id="a tag of too many digits",
        ),
    ],
)
def test_a_wrong_definition_gets_one_sentence_with_its_place(before: str, after: str, words: str) -> None:
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
    assert words in said, said


def test_a_chain_of_structs_that_nobody_could_follow_is_refused() -> None:
    structs = [struct(f"S{i}", field("Next", f"S{i + 1}")) for i in range(2000)]
    with pytest.raises(UsageError, match="there are 2001 structs; at most 100 are allowed"):
        message_of(field("First", "S0"), structs=[*structs, struct("S2000")])


@pytest.mark.parametrize(
    "text", ["", "  // nothing\n", "[", "{", '{"a"', '{"a":', "nul", "[1,", '"', "{} {}", "[" * 1000]
)
def test_a_text_that_is_no_json_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match=r"^x\.json:\d+: "):
        parse(text, "x.json")


@pytest.mark.parametrize("text", ['{"%s": 1}', '{"name": "%s"}', '{"%s": 1, "%s": 2}'])
def test_a_sentence_about_a_long_name_is_cut(text: str) -> None:
    with pytest.raises(UsageError, match=r"\(cut from 1\d{5} characters\)$") as caught:
        parse_definition(text.replace("%s", "x" * 100_000))
    assert len(str(caught.value)) < 5000


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
