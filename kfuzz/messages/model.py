"""Checked definitions: messages, structs, fields and their versions.

The names are those of Kafka's definition language. All classes are frozen; two definitions are equal if they define the
same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, Final, Literal, get_args

Kind = Literal["request", "response", "header", "data", "metadata", "coordinator-key", "coordinator-value"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# The integer types, each with its smallest and its largest value.
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

# The default of a field; ``Field`` explains None.
Default = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions from ``lowest`` to ``highest``, both included. The range is empty if ``lowest`` is larger."""

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
        """Whether ``other`` contains all of these versions."""
        return not self or (other.lowest <= self.lowest and self.highest <= other.highest)

    @property
    def open(self) -> bool:
        """Whether the range has no end, as in ``2+``."""
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
    """The type of a field: a primitive or a struct by its name, or an array of either."""

    name: str
    array: bool = False

    @property
    def struct(self) -> str | None:
        """The name of the struct; None for primitives."""
        return None if self.name in PRIMITIVES else self.name

    @property
    def nullable(self) -> bool:
        """Whether values of this type can be null. Kafka has no null uuid, although its document allows one."""
        return self.array or self.name in ("string", "bytes", "records") or self.struct is not None

    def __str__(self) -> str:
        return f"[]{self.name}" if self.array else self.name


@dataclass(frozen=True, slots=True)
class Field:
    """A field as the definition has it. Comparisons ignore ``about`` and ``line``, its line in the file.

    ``default`` is the value of a field that is not given: a number, a string or a bool. It is None if the default is
    null, and for types whose default cannot be chosen. ``null_default`` separates the two: if it is False, the type's
    own default counts (empty, zero, or a struct of defaults).
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
        """Whether the field is flexible in ``version``. ``message`` has the flexible versions of the whole message."""
        return version in (message if self.flexible is None else self.flexible)


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct: its fields in their order on the wire. ``common``: it is defined in ``commonStructs``."""

    name: str
    versions: Versions
    fields: tuple[Field, ...]
    common: bool = dataclass_field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Definition:
    """A message's definition. ``fields`` are its top-level fields; ``structs`` has all its structs by name."""

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
    # A cache of the programs that ``schema`` has compiled, by version. It is not part of the definition.
    programs: dict[int, Any] = dataclass_field(default_factory=dict, init=False, compare=False, repr=False)

    def fields_of(self, type_: Type) -> tuple[Field, ...]:
        """The fields of a struct; empty for a primitive."""
        return () if type_.struct is None else self.structs[type_.struct].fields


def key_of(name: str) -> str:
    """The name of a field in values: the name in the definition, with the first letter in lower case."""
    return name[0].lower() + name[1:]
