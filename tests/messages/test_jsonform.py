"""The JSON form of messages: a round trip for each value, and an error with its path for each wrong form."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from defined import field, message_of

from kfuzz.errors import UsageError
from kfuzz.messages.jsonform import from_json, to_json

NAMED = [field("Name", "string")]
FORMS = message_of(
    field("Flag", "bool"),
    field("Number", "int32"),
    field("Long", "int64"),
    field("Share", "float64"),
    field("Id", "uuid"),
    field("Text", "string", nullableVersions="0+"),
    field("Data", "bytes", nullableVersions="0+"),
    field("Longs", "[]int64"),
    field("Part", "Part", nullableVersions="0+", default="null", fields=NAMED),
    field("Parts", "[]Part2", "1+", fields=NAMED),
    name="FormData",
    versions="0-1",
    flexible="0+",
)


@pytest.mark.parametrize(
    ("name", "value", "form"),
    [
        ("flag", True, True),
        ("number", -1, -1),
        ("long", 2**63 - 1, "9223372036854775807"),
        ("long", -(2**63), "-9223372036854775808"),
        ("share", 0.5, 0.5),
        ("share", math.inf, "Infinity"),
        ("share", -math.inf, "-Infinity"),
        ("id", bytes(16), "AAAAAAAAAAAAAAAAAAAAAA"),
        ("id", b"\xff" * 16, "_____________________w"),
        ("text", "zwölf", "zwölf"),
        ("text", None, None),
        ("data", b"\x00\xff", "00ff"),
        ("data", None, None),
        ("longs", [1, -2], ["1", "-2"]),
        ("longs", [], []),
        ("part", None, None),
        ("part", {"name": "a"}, {"name": "a"}),
        ("parts", [{"name": "a"}, {"name": ""}], [{"name": "a"}, {"name": ""}]),
        ("_unknownTaggedFields", [(9, b"\x01"), (10, b"")], [{"tag": 9, "hex": "01"}, {"tag": 10, "hex": ""}]),
    ],
)
def test_a_value_has_one_form_and_the_form_that_value(name: str, value: Any, form: Any) -> None:
    assert to_json(FORMS, 1, {name: value})[name] == form
    assert from_json(FORMS, 1, json.loads(json.dumps({name: form}))) == {name: value}


def test_a_form_has_every_field_of_its_version_and_no_tagged_fields_where_there_are_none() -> None:
    assert to_json(FORMS, 0, {"_unknownTaggedFields": []}) == {
        "flag": False, "number": 0, "long": "0", "share": 0.0, "id": "A" * 22, "text": "", "data": "", "longs": [],
        "part": None,
    }  # fmt: skip
    assert to_json(FORMS, 1, {}) == to_json(FORMS, 0, {}) | {"parts": []}


def test_a_number_that_is_none_has_a_form() -> None:
    assert to_json(FORMS, 0, {"share": math.nan})["share"] == "NaN"
    assert math.isnan(from_json(FORMS, 0, {"share": "NaN"})["share"])


def test_a_number_need_not_be_text_nor_a_share_have_a_point() -> None:
    assert from_json(FORMS, 0, {"long": 7, "share": 3}) == {"long": 7, "share": 3}


NO_TAGGED_FIELD = 'FormData._unknownTaggedFields[0] must be an object such as {"tag": 9, "hex": "00"}'
NO_LONG = "it must be a decimal string from -9223372036854775808 to 9223372036854775807"
NO_SHARE = 'it must be a number, "NaN", "Infinity" or "-Infinity"'
NO_HEX = "it must be a string of hex digits, two for each byte"
NO_UUID = "it must be a uuid as Kafka writes it, such as AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ([], "FormData is a list; it must be an object"),
        (None, "FormData is null; it must be an object"),
        ({"flags": 1}, "FormData.flags is not a field; the fields are flag, number, long, share, id, text, data, "
         "longs, part, parts"),
        ({"part": {"x": 1}}, "FormData.part.x is not a field; the fields are name"),
        ({"part": {"x" * 5000: 1}},
         f"FormData.part.{'x' * 70}… (cut from 5000 characters) is not a field; the fields are name"),
        ({"flag": 1}, "FormData.flag is a number; it must be true or false"),
        ({"number": True}, "FormData.number is a bool; it must be a whole number"),
        ({"number": 1.5}, "FormData.number is a number; it must be a whole number"),
        ({"number": "1"}, "FormData.number is the string '1'; it must be a whole number"),
        ({"long": 1.0}, f"FormData.long is a number; {NO_LONG}"),
        ({"long": True}, f"FormData.long is a bool; {NO_LONG}"),
        ({"long": "--1"}, f"FormData.long is the string '--1'; {NO_LONG}"),
        ({"long": "1" * 21}, f"FormData.long is the string '{'1' * 21}'; {NO_LONG}"),
        ({"long": "²"}, f"FormData.long is the string '²'; {NO_LONG}"),
        ({"long": "٣"}, f"FormData.long is the string '٣'; {NO_LONG}"),
        ({"longs": "1"}, "FormData.longs is the string '1'; it must be a list"),
        ({"longs": ["1", None]}, f"FormData.longs[1] is null; {NO_LONG}"),
        ({"share": "inf"}, f"FormData.share is the string 'inf'; {NO_SHARE}"),
        ({"share": True}, f"FormData.share is a bool; {NO_SHARE}"),
        ({"id": "A" * 21}, f"FormData.id is the string '{'A' * 21}'; {NO_UUID}"),
        ({"id": "A" * 23}, f"FormData.id is the string '{'A' * 23}'; {NO_UUID}"),
        # Only 2 bits of the last letter are used; the others must be 0. Python skips characters outside the alphabet.
        ({"id": "A" * 21 + "B"}, f"FormData.id is the string '{'A' * 21}B'; {NO_UUID}"),
        ({"id": "A" * 20 + "!A"}, f"FormData.id is the string '{'A' * 20}!A'; {NO_UUID}"),
        ({"id": "ä" * 22}, f"FormData.id is the string '{'ä' * 22}'; {NO_UUID}"),
        ({"id": 22}, f"FormData.id is a number; {NO_UUID}"),
        ({"text": ["a"]}, "FormData.text is a list; it must be a string"),
        ({"data": "abc"}, f"FormData.data is the string 'abc'; {NO_HEX}"),
        ({"data": "zz"}, f"FormData.data is the string 'zz'; {NO_HEX}"),
        ({"data": 7}, f"FormData.data is a number; {NO_HEX}"),
        ({"part": []}, "FormData.part is a list; it must be an object"),
        ({"parts": [{}, 5]}, "FormData.parts[1] is a number; it must be an object"),
        ({"_unknownTaggedFields": {}}, "FormData._unknownTaggedFields is an object; it must be a list"),
        ({"_unknownTaggedFields": [5]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [["tag", "hex"]]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [{"tag": 1}]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [{"tag": 1, "hex": "", "x": 1}]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [{"tag": True, "hex": ""}]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [{"tag": "1", "hex": ""}]}, NO_TAGGED_FIELD),
        ({"_unknownTaggedFields": [{"tag": 1, "hex": ""}, {"tag": 2, "hex": "0"}]},
         f"FormData._unknownTaggedFields[1].hex is the string '0'; {NO_HEX}"),
    ],
)  # fmt: skip
def test_a_form_that_does_not_fit_is_one_sentence_with_its_path(form: Any, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_json(FORMS, 1, form)
    assert str(caught.value) == sentence
