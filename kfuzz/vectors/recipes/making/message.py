"""Builders for the themes of messages: values for every field, and bytes with one thing wrong.

``Body`` is a correct message; ``Body.broken`` returns the same message with different bytes at one place. If wrong
bytes may still be read, kfuzz's own reader supplies the contents. Apache Kafka then confirms them like all others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kfuzz import records
from kfuzz.errors import UsageError
from kfuzz.kafka import RELEASES
from kfuzz.messages.catalogues import catalogue, newest
from kfuzz.messages.codec import read
from kfuzz.messages.jsonform import to_json
from kfuzz.messages.model import INT_RANGES, Definition, Field, key_of
from kfuzz.messages.schemas import default_of, schema
from kfuzz.wire.io.cursor import uvarint

Json = dict[str, Any]


@cache
def _last() -> dict[str, Definition]:
    """The newest definition of each message that has versions; for messages that Kafka dropped, the last definition."""
    return {
        definition.name: definition
        for release in RELEASES
        for definition in catalogue(release).messages.values()
        if definition.valid_versions
    }


def definitions(*kinds: str) -> Iterator[Definition]:
    """The definitions of the ``kinds``, in the order of their names."""
    return (definition for _, definition in sorted(_last().items()) if definition.kind in kinds)


def newest_version(name: str) -> int:
    """The newest version of the message ``name``."""
    return _last()[name].valid_versions.highest


def slug_of(name: str, version: int) -> str:
    """The slug of a message version: ``fetch-request-v17`` for FetchRequest in version 17."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
    return f"{words}-v{version}"


# --- values ---------------------------------------------------------------------------------------------------------


def full(definition: Definition, version: int) -> Json:
    """A value for every field of the version, also tagged ones. No value is a default; arrays have one element."""
    return _Values(definition, version).struct(definition.fields)


def _with_errors(values: Any, code: int) -> Any:
    """The ``values`` of a message with this number in every error code."""
    if isinstance(values, list):
        return [_with_errors(value, code) for value in values]
    if not isinstance(values, dict):
        return values
    return {key: code if key == "errorCode" else _with_errors(value, code) for key, value in values.items()}


class _Values:
    """Makes values that grow from field to field, so that no two fields can be confused."""

    def __init__(self, definition: Definition, version: int) -> None:
        self.definition = definition
        self.version = version
        self.count = 0

    def struct(self, fields: tuple[Field, ...]) -> Json:
        return {key_of(one.name): self.value(one) for one in fields if self.version in one.versions}

    def value(self, one: Field) -> Any:
        return [self.element(one)] if one.type.array else self.element(one)

    def element(self, one: Field) -> Any:
        if one.type.struct is not None:
            return self.struct(self.definition.fields_of(one.type))
        self.count += 1
        name = one.type.name
        if key_of(one.name) == "errorCode":
            return 1 + self.count % ERROR_CODE_MAX
        if name == "bool":
            return not default_of(self.definition, one, self.version) or one.type.array
        if name in INT_RANGES:
            number = _NUMBERS[name] + self.count
            return number + 1 if number == default_of(self.definition, one, self.version) else number
        made: dict[str, Callable[[], Any]] = {
            "float64": lambda: self.count + 0.5,
            "string": lambda: f"{key_of(one.name)[:4]}{self.count}",
            "uuid": lambda: bytes(range(self.count, self.count + 16)),
            "bytes": lambda: bytes([self.count, 0, 255]),
            "records": _batch,
        }
        return made[name]()


class _Nulls(_Values):
    """Makes null for each field that may be null."""

    def value(self, one: Field) -> Any:
        return None if self.version in one.nullable else super().value(one)


class _Several(_Values):
    """Makes two elements for each array. The first struct of each has an unknown tag, if the version has tags."""

    def value(self, one: Field) -> Any:
        if not one.type.array:
            return super().value(one)
        first, second = self.element(one), self.element(one)
        if one.type.struct is not None and self.version in self.definition.flexible_versions:
            # The size of the tag takes two bytes.
            first["_unknownTaggedFields"] = [(1000, bytes(200))]
        return [first, second]


# Kafka's error codes up to this one are older than any client that is asked. Some clients refuse an unknown code, and
# would read none of the other fields.
ERROR_CODE_MAX = 87
# The numbers are not near zero, and do not fit a smaller type.
_NUMBERS = {"int8": 0, "int16": 1000, "uint16": 50_000, "int32": 1_000_000, "uint32": 3_000_000_000, "int64": 10**12}


def _batch() -> bytes:
    return records.encode([records.RecordBatch(0, 0, [records.Record(0, 1_700_000_000_000, b"k", b"v")])])


# --- bytes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a message: the ``part`` of the field ``path``, in the terms of the wire module."""

    at: int
    size: int
    path: str
    part: str
    hostile: bool = False

    def to_json(self) -> Json:
        name = " ".join(filter(None, (self.path, self.part if self.part != "value" else "")))
        return {"at": self.at, "size": self.size, "field": name} | ({"hostile": True} if self.hostile else {})


@dataclass(frozen=True, slots=True)
class Body:
    """Bytes of a message, and the position of each part. ``contents`` is None if the bytes must be refused."""

    definition: Definition
    version: int
    data: bytes
    places: tuple[Place, ...]
    contents: Json | None
    finding: str | None = None

    @property
    def slug(self) -> str:
        return slug_of(self.definition.name, self.version)

    @property
    def title(self) -> str:
        """The message's name and version, as summaries begin."""
        return f"{self.definition.name} in version {self.version}"

    @property
    def verdict(self) -> str:
        if self.contents is None:
            return "invalid"
        return "valid" if self.finding is None else "acceptable"

    @property
    def consumed(self) -> int:
        """The end of the message, in bytes."""
        return sum(place.size for place in self.places if place.part != "rest")

    @property
    def compact(self) -> bool:
        """Whether lengths and counts are compact."""
        return self.version in self.definition.flexible_versions

    def about(self, place: Place) -> tuple[str, str]:
        """How the slugs and the summaries of vectors about this field begin."""
        return f"{self.slug}-{place.path.rpartition('.')[2].lower()}", f"{self.title}: {place.path}"

    def number(self, place: Place, number: int) -> bytes:
        """The encoding of the length or count ``number`` at ``place``."""
        return uvarint(number + 1) if self.compact else number.to_bytes(place.size, "big", signed=True)

    def may_be_null(self, place: Place) -> bool:
        """Whether the field at the end of the path is nullable; looks up its name in all structs of the definition."""
        name = place.path.rpartition(".")[2].partition("[")[0]
        structs = (self.definition.fields, *(struct.fields for struct in self.definition.structs.values()))
        return any(key_of(one.name) == name and self.version in one.nullable for fields in structs for one in fields)

    def after(self, place: Place) -> bytes:
        """The bytes after the data that a length or count covers."""
        own = (place.path, f"{place.path}[")
        later = (one.at for one in self.places if one.at > place.at)
        of_it = {one.at for one in self.places if one.path == own[0] or one.path.startswith(own[1])}
        return self.data[next((at for at in later if at not in of_it), len(self.data)) :]

    def find(self, part: str, path: str | None = None) -> Place | None:
        """The first place of this ``part``, limited to ``path`` if it is given; None if there is none."""
        return next((one for one in self.places if one.part == part and path in (None, one.path)), None)

    def place(self, part: str, path: str) -> Place:
        """Like ``find``, but the place must exist."""
        found = self.find(part, path)
        assert found is not None, f"{self.slug} has no {part} of {path!r}"
        return found

    def negative(self, place: Place, number: int, encoded: bytes | None = None) -> Body:
        """The same message with this length or count below 0, where -1 is null. ``encoded``: another encoding of it."""
        finding: str | None = "null-not-allowed"
        if self.may_be_null(place):
            finding = None if number == -1 else "length-below-minus-one"
        return self.broken(place, number if encoded is None else encoded, finding, after=self.after(place))

    def broken(self, place: Place, instead: bytes | int, finding: str | None, *, after: bytes | None = None) -> Body:
        """The same message with ``instead`` at ``place``; ``after`` replaces all bytes that follow it, if given.

        ``instead`` may also be a length or a count. ``finding`` is the expected finding, or None if nothing departs
        from the documents.
        """
        if isinstance(instead, int):
            instead = self.number(place, instead)
        rest = self.data[place.at + place.size :] if after is None else after
        data = self.data[: place.at] + instead + rest
        reading = read(self.definition, self.version, data)
        codes = [one.code for one in reading.findings if one.code != "tag-unknown"]
        expected = [] if finding is None else [finding]
        found = [reading.fatal.code] if reading.fatal else codes
        if found != expected:
            what = f"the recipe {self.slug}, {place.path} {place.part}"
            raise UsageError(f"{what}: the reader finds {found}; expected {expected}")
        before = tuple(one for one in self.places if one.at < place.at)
        hostile = Place(place.at, len(instead), place.path, place.part, finding is not None)
        if reading.message is None:
            return Body(self.definition, self.version, data, (*before, hostile), None, finding)
        contents = to_json(self.definition, self.version, reading.message)
        # Bytes after the message are not part of it.
        rest = data[reading.consumed :]
        hostile_at = None if finding is None or rest else place.at
        places = tuple(
            Place(one.at, one.size, one.path, one.part, one.at == hostile_at)
            for one in _places(self.definition, self.version, data)
        )
        if rest:
            places += (Place(reading.consumed, len(rest), "", "rest", hostile=True),)
        return Body(self.definition, self.version, data, places, contents, finding)


def body(name: str, version: int | None = None, values: Mapping[str, Any] | None = None) -> Body:
    """A correct message; by default in its newest version, with a value in every field."""
    if version is None:
        version = newest_version(name)
    definition = newest(name, version)
    given = full(definition, version) if values is None else dict(values)
    data = schema(definition, version).encode(given)
    contents = to_json(definition, version, given)
    return Body(definition, version, data, tuple(_places(definition, version, data)), contents)


def successful(name: str, version: int) -> Body:
    """A correct message with a value in every field, but with every error code 0: some clients read no further than an
    error.
    """
    return failed(name, version, 0)


def with_nulls(name: str, version: int) -> Body:
    """A correct message with null in every field that may be null, and a value in the others."""
    definition = newest(name, version)
    return body(name, version, _Nulls(definition, version).struct(definition.fields))


def with_several(name: str, version: int) -> Body:
    """A correct message with two elements in each array, and with unknown tags in the first ones."""
    definition = newest(name, version)
    return body(name, version, _Several(definition, version).struct(definition.fields))


def nullable_fields(definition: Definition, version: int, *, arrays: bool = False) -> frozenset[str]:
    """The paths of all fields that may be null in this version; with ``arrays`` only those of arrays."""

    def of(fields: tuple[Field, ...], path: str) -> Iterator[str]:
        for one in fields:
            if version in one.versions and version in one.nullable and (one.type.array or not arrays):
                yield path + one.name
            if version in one.versions and one.type.struct is not None:
                yield from of(definition.fields_of(one.type), f"{path}{one.name}.")

    return frozenset(of(definition.fields, ""))


def versions_of(name: str) -> list[int]:
    """All versions of the message that any of the known releases has."""
    known = (catalogue(release).messages for release in RELEASES)
    return sorted({version for messages in known if name in messages for version in messages[name].valid_versions})


def failed(name: str, version: int, code: int) -> Body:
    """A correct message with a value in every field, and this number in every error code."""
    return body(name, version, _with_errors(full(newest(name, version), version), code))


def _places(definition: Definition, version: int, data: bytes) -> Iterator[Place]:
    for at, size, path, part, _ in schema(definition, version).places(data)[2]:
        yield Place(at, size, path.removeprefix(definition.name).removeprefix("."), part)
