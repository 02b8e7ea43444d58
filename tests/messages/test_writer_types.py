"""The types that the writer accepts besides dicts, ints and bytes. Values that change during writing do no harm."""

from __future__ import annotations

import types
from collections import ChainMap, OrderedDict, UserDict
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any

import pytest
from defined import field, message_of, struct

from kfuzz.errors import EncodeError
from kfuzz.messages.codec import encode, size

DEFINITION = message_of(
    field("Tiny", "int8"),
    field("Large", "uint32"),
    field("Share", "float64"),
    field("Id", "uuid"),
    field("Data", "bytes"),
    field("Batches", "records", nullableVersions="0+"),
    field("Parts", "[]Part", fields=[field("Name", "string"), field("Sizes", "[]int32")]),
    field("Late", "int16", "1+", tag=0, default="7"),
    field("Raw", "bytes", "1+", tag=1),
    field("Rate", "float64", "1+", tag=2, default="1.0"),
    field("Inner", "Inner", "1+", tag=3, fields=[field("Number", "int32", "1+", default="3")]),
    name="Taken",
    versions="0-1",
    flexible="0+",
)


class Few(IntEnum):
    THREE = 3
    SEVEN = 7
    MANY = 300


class Indexed:
    """An integer like those of numpy, which are not subclasses of int."""

    def __init__(self, value: int, then: Callable[[], object] = lambda: None) -> None:
        self.value, self.then = value, then

    def __index__(self) -> int:
        self.then()
        return self.value


class OnlyMapping(Mapping[str, Any]):
    def __init__(self, values: dict[str, Any]) -> None:
        self.values_ = values

    def __getitem__(self, name: str) -> Any:
        return self.values_[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)


PART = {"name": "a", "sizes": [1, 2]}
PLAIN: dict[str, Any] = {
    "tiny": 3, "large": 7, "share": 3.0, "id": bytes(range(16)), "data": b"abc", "batches": b"xyz", "parts": [PART],
}  # fmt: skip
EXPECTED = encode(DEFINITION, 1, PLAIN)


@pytest.mark.parametrize("kind", [OrderedDict, UserDict, ChainMap, types.MappingProxyType, OnlyMapping])
def test_a_struct_may_be_any_mapping(kind: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    values = kind(PLAIN | {"parts": [kind(PART)]})
    assert encode(DEFINITION, 1, values) == EXPECTED
    assert size(DEFINITION, 1, values) == len(EXPECTED)
    tagged = encode(DEFINITION, 1, PLAIN | {"inner": {"number": 4}})
    assert encode(DEFINITION, 1, kind(PLAIN | {"inner": kind({"number": 4})})) == tagged != EXPECTED
    # A tagged field with its default is left out.
    assert encode(DEFINITION, 1, kind(PLAIN | {"inner": kind({"number": 3})})) == EXPECTED
    with pytest.raises(EncodeError, match=r"Taken\.nobody is not a field"):
        encode(DEFINITION, 1, kind({"nobody": 1}))


@pytest.mark.parametrize("kind", [Few, Indexed])
def test_a_number_may_be_an_int_enum_or_have_an_index(kind: Callable[[int], Any]) -> None:
    assert encode(DEFINITION, 1, PLAIN | {"tiny": kind(3), "large": kind(7), "share": kind(3)}) == EXPECTED
    sizes = PLAIN | {"parts": [{"name": "a", "sizes": [kind(7), kind(300)]}]}
    assert encode(DEFINITION, 1, sizes) == encode(DEFINITION, 1, PLAIN | {"parts": [PART | {"sizes": [7, 300]}]})
    assert encode(DEFINITION, 1, PLAIN | {"late": kind(7)}) == EXPECTED
    assert encode(DEFINITION, 1, PLAIN | {"late": kind(3)}) == encode(DEFINITION, 1, PLAIN | {"late": 3}) != EXPECTED
    # A version that lacks a field accepts its default.
    assert encode(DEFINITION, 0, PLAIN | {"late": kind(7)}) == encode(DEFINITION, 0, PLAIN)
    with pytest.raises(EncodeError, match=r"Taken\.tiny is 300; it does not fit int8"):
        encode(DEFINITION, 1, PLAIN | {"tiny": kind(300)})


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_bytes_may_be_bytes_like(kind: Callable[[bytes], Any]) -> None:
    given = {"id": kind(bytes(range(16))), "data": kind(b"abc"), "batches": kind(b"xyz")}
    assert encode(DEFINITION, 1, PLAIN | given) == EXPECTED
    assert encode(DEFINITION, 1, PLAIN | {"data": memoryview(b"a.b.c")[::2]}) == EXPECTED
    assert encode(DEFINITION, 1, PLAIN | {"raw": kind(b"")}) == EXPECTED
    assert encode(DEFINITION, 1, PLAIN | {"raw": kind(b"r")}) == encode(DEFINITION, 1, PLAIN | {"raw": b"r"})
    unknown = {"_unknownTaggedFields": [(Few.SEVEN, kind(b"u"))]}
    assert encode(DEFINITION, 1, PLAIN | unknown) == encode(
        DEFINITION, 1, PLAIN | {"_unknownTaggedFields": [(7, b"u")]}
    )
    with pytest.raises(EncodeError, match=r"Taken\.id has 15 bytes; a uuid has 16"):
        encode(DEFINITION, 1, PLAIN | {"id": kind(bytes(15))})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tiny": True}, r"Taken\.tiny is bool; it must be an int"),
        ({"tiny": 3.0}, r"Taken\.tiny is float; it must be an int"),
        ({"share": True}, r"Taken\.share is bool; it must be a float"),
        ({"data": "abc"}, r"Taken\.data is str; it must be bytes"),
        ({"data": [1]}, r"Taken\.data is list; it must be bytes"),
        ({"parts": [[("name", "a")]]}, r"Taken\.parts\[0\] is list; it must be a dict"),
        ({"late": False}, r"Taken\.late is bool; it must be an int"),
    ],
)
def test_other_types_are_refused_with_the_path(change: dict[str, Any], says: str) -> None:
    with pytest.raises(EncodeError, match=says):
        encode(DEFINITION, 1, PLAIN | change)


def test_an_error_of_the_values_own_code_is_raised_as_it_is() -> None:
    def fail() -> None:
        raise LookupError("not today")

    for change in ({"tiny": Indexed(1, fail)}, {"late": Indexed(1, fail)}):
        with pytest.raises(LookupError, match="not today"):
            encode(DEFINITION, 1, PLAIN | change)
    assert encode(DEFINITION, 1, PLAIN) == EXPECTED


def test_values_that_change_while_they_are_written_do_no_harm() -> None:
    values: dict[str, Any] = dict(PLAIN)
    values["tiny"] = Indexed(3, values.clear)
    # Writing tiny removes all other fields, so they get their defaults.
    assert encode(DEFINITION, 1, values) == encode(DEFINITION, 1, {"tiny": 3})

    sizes: list[Any] = [1, 2, 3]
    sizes[0] = Indexed(1, sizes.clear)
    with pytest.raises(EncodeError, match=r"Taken\.parts\[0\]\.sizes has changed while it was written"):
        encode(DEFINITION, 1, {"parts": [{"name": "a", "sizes": sizes}]})

    parts: list[Any] = [{"name": "a", "sizes": [1]}, PART]
    outer: dict[str, Any] = {"parts": parts}

    def drop() -> None:
        outer.clear()
        parts.clear()

    parts[0]["sizes"][0] = Indexed(1, drop)
    with pytest.raises(EncodeError, match=r"Taken\.parts has changed while it was written"):
        encode(DEFINITION, 1, outer)

    tagged: dict[str, Any] = {"raw": b"r"}
    # The first call counts the tagged fields, the second one writes them.
    calls: list[int] = []
    tagged["late"] = Indexed(3, lambda: tagged.pop("raw", None) if calls else calls.append(1))
    with pytest.raises(EncodeError, match="Taken has changed while it was written"):
        encode(DEFINITION, 1, tagged)


def test_a_message_that_is_written_while_another_one_is_leaves_it_alone() -> None:
    inner: list[bytes] = []
    values = PLAIN | {"tiny": Indexed(3, lambda: inner.append(encode(DEFINITION, 1, PLAIN)))}
    assert encode(DEFINITION, 1, values) == EXPECTED
    assert inner == [EXPECTED]


def test_structs_that_lie_deeper_than_a_reader_takes_are_refused() -> None:
    fields = field("Number", "int32"), field("Children", "[]Child")
    nested = message_of(*fields, flexible="0+", structs=[struct("Child", *fields)])

    def of(depth: int) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for _ in range(depth - 1):
            made = {"children": [made]}
        return made

    program = nested.programs.get(0)
    assert program is None
    data = encode(nested, 0, of(64))
    assert nested.programs[0].check(data)[0] == len(data)
    with pytest.raises(EncodeError, match="lies 65 structs deep; a message has 64 at most"):
        encode(nested, 0, of(65))
    with pytest.raises(EncodeError, match="structs deep"):
        encode(nested, 0, of(100_000))
