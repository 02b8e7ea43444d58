"""What a definition says, checked: messages, structs, fields, and their versions.

The names are those of Kafka's definition language; everything here is immutable, and equal where it says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final, Literal

__all__ = [
    "ALL",
    "INT_RANGES",
    "KINDS",
    "NONE",
    "PRIMITIVES",
    "Default",
    "Definition",
    "Field",
    "Kind",
    "Struct",
    "Type",
    "Versions",
    "key_of",
]

Kind = Literal["request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value"]
KINDS: Final[tuple[Kind, ...]] = (
    "request",
    "response",
    "header",
    "data",
    "metadata",
    "coordinator-key",
    "coordinator-value",
)

# The integers, with the least and the largest of each.
INT_RANGES: Final[Mapping[str, tuple[int, int]]] = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "uint16": (0, (1 << 16) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
}
PRIMITIVES: Final = ("bool", *INT_RANGES, "float64", "string", "uuid", "bytes", "records")

LAST_VERSION: Final = (1 << 15) - 1

# A number, a text or a flag as a definition gives it; None is null. Other types have no default of their own.
Default = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Versions:
    """From ``lowest`` to ``highest``, both included; none where the first is the larger."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest

    def __bool__(self) -> bool:
        return self.lowest <= self.highest

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.lowest, self.highest + 1))

    def __and__(self, other: Versions) -> Versions:
        both = Versions(max(self.lowest, other.lowest), min(self.highest, other.highest))
        return both if both else NONE

    def __le__(self, other: Versions) -> bool:
        """Whether all of these are among the others."""
        return not self or (other.lowest <= self.lowest and self.highest <= other.highest)

    @property
    def open(self) -> bool:
        """Whether they have no end."""
        return self.highest == LAST_VERSION and bool(self)

    def __str__(self) -> str:
        if not self:
            return "none"
        if self.open:
            return f"{self.lowest}+"
        return str(self.lowest) if self.lowest == self.highest else f"{self.lowest}-{self.highest}"


NONE: Final = Versions(1, 0)
ALL: Final = Versions(0, LAST_VERSION)


@dataclass(frozen=True, slots=True)
class Type:
    """A primitive or a struct by its name, or an array of either."""

    name: str
    array: bool = False

    @property
    def struct(self) -> str | None:
        """The struct's name; None for primitives."""
        return None if self.name in PRIMITIVES else self.name

    @property
    def nullable(self) -> bool:
        """Whether null can stand for a value of it. Kafka has no null among uuids, whatever the documents say."""
        return self.array or self.name in ("string", "bytes", "records") or self.struct is not None

    def __str__(self) -> str:
        return f"[]{self.name}" if self.array else self.name


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it is defined; ``line`` says where and counts for nothing else.

    ``default`` is the number, text or flag that is taken where the field is not there; None is null, and for types that
    have no default of their own ``null_default`` says whether it is null or the type's own: empty, zero.
    """

    name: str
    type: Type
    versions: Versions
    nullable: Versions = NONE
    tag: int | None = None
    tagged: Versions = NONE
    default: Default = None
    null_default: bool = False
    ignorable: bool = False
    map_key: bool = False
    entity_type: str | None = None
    flexible: Versions | None = None
    zero_copy: bool = False
    about: str = dataclass_field(default="", compare=False)
    line: int = dataclass_field(default=0, compare=False)

    def is_flexible(self, version: int, message: Versions) -> bool:
        """Whether it is written compactly in ``version``; ``message`` are the flexible versions of all."""
        return version in (message if self.flexible is None else self.flexible)


@dataclass(frozen=True, slots=True)
class Struct:
    """Fields in the order in which they are written; ``common`` says where it is defined, which no byte shows."""

    name: str
    versions: Versions
    fields: tuple[Field, ...]
    common: bool = dataclass_field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """A message. ``structs`` has those of all its fields by their names, ``fields`` are the message's own."""

    name: str
    kind: Kind
    api_key: int | None
    valid_versions: Versions
    flexible_versions: Versions
    fields: tuple[Field, ...]
    structs: Mapping[str, Struct]
    deprecated_versions: Versions = NONE
    latest_version_unstable: bool = False
    listeners: tuple[str, ...] = ()
    # What ``schema`` has compiled, by version; it goes with the definition, and is nothing of what that says.
    programs: dict[int, Any] = dataclass_field(default_factory=dict, init=False, compare=False, repr=False)

    def fields_of(self, type_: Type) -> tuple[Field, ...]:
        """The fields of a struct; none of a primitive."""
        return () if type_.struct is None else self.structs[type_.struct].fields


def key_of(name: str) -> str:
    """The name that a field has in values: the definition's, with a small letter in front."""
    return name[0].lower() + name[1:]
