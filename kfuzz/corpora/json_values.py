"""The fields of JSON values: how a workload names them, and the program of steps that writes them.

Nested objects are only parts of the texts in front of its steps.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, get_args

from kfuzz.corpora import programs
from kfuzz.corpora.programs import Builder, Program, To
from kfuzz.corpora.quantities import LABEL, LABELS, SKEW, Range, Share, Weights, ranged
from kfuzz.corpora.words import NAMES
from kfuzz.errors import UsageError
from kfuzz.forms import Form, ListOf, Wrong, choice, integer, nearest, shown, table_of

PAYLOADS_MAX: Final = 1_000_000
WEIGHED: Final = re.compile(rb"([0-9]{1,9})\t(.*)", re.DOTALL)
DEPTH_MAX = 8
# Characters of a counter whose offset is not known yet; it may have up to 16.
COUNTER_BYTES = 7
# As in kfuzz.corpora.value_writer.
DATE_BYTES = 24
# A sample of the numbers of a range, to find their mean length.
SPREAD = 1000


class _FieldForm(Form):
    """A table of one of the classes in ``FIELDS``; its key ``type`` says which."""

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for an unknown type, or as the form of that type does."""
        if not isinstance(value, dict):
            raise Wrong(f"is {shown(value)}", self.remedy)
        if "type" not in value:
            raise Wrong("lacks type", choice(*FIELDS).remedy)
        if value["type"] not in list(FIELDS):
            near = nearest(str(value["type"]), FIELDS)
            raise Wrong(f"is {shown(value['type'])}", near or choice(*FIELDS).remedy, ".type")
        table_of(FIELDS[value["type"]]).check(value)

    def make(self, value: Any) -> Any:
        """An object of the class."""
        return table_of(FIELDS[value["type"]]).make(value)


JSON_FIELDS: Final = ListOf(
    _FieldForm({"$ref": "#/$defs/field"}, "make it a table"), "make it a list of tables", written=list
)


@dataclass(frozen=True, slots=True)
class _Named:
    """The key that every field has first."""

    name: Annotated[str, LABEL]


@dataclass(frozen=True, slots=True)
class Counter(_Named):
    """``start`` plus ``step`` times the offset, modulo 2⁵³."""

    type: Annotated[str, choice("counter")] = "counter"
    start: Annotated[int, integer(0, programs.NUMBER_MAX)] = 0
    step: Annotated[int, integer(0, programs.NUMBER_MAX)] = 1
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Integer(_Named):
    """A random whole number from ``min`` to ``max``; a ``skew`` above 1 favours the low end."""

    type: Annotated[str, choice("integer")] = "integer"
    min: Annotated[int, integer(-programs.NUMBER_MAX, programs.NUMBER_MAX)] = 0
    max: Annotated[int, integer(-programs.NUMBER_MAX, programs.NUMBER_MAX)] = 100
    decimals: ClassVar[int] = 0
    skew: Annotated[int, SKEW] = 1
    null_share: Share = 0.0

    def __post_init__(self) -> None:
        _numbers(self)


@dataclass(frozen=True, slots=True)
class Decimal(_Named):
    """A random number from ``min`` to ``max`` with ``decimals`` digits after the point."""

    type: Annotated[str, choice("decimal")] = "decimal"
    min: Annotated[int, integer(-(1 << 31), 1 << 31)] = 0
    max: Annotated[int, integer(-(1 << 31), 1 << 31)] = 100
    decimals: Annotated[int, integer(1, 6)] = 2
    skew: Annotated[int, SKEW] = 1
    null_share: Share = 0.0

    def __post_init__(self) -> None:
        _numbers(self)


@dataclass(frozen=True, slots=True)
class Boolean(_Named):
    """``true`` in ``share`` of the records, otherwise ``false``."""

    type: Annotated[str, choice("boolean")] = "boolean"
    share: Share = 0.5
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Enum(_Named):
    """One of several texts: a list, or a table of texts with weights."""

    values: Annotated[Weights, LABELS]
    type: Annotated[str, choice("enum")] = "enum"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Name(_Named):
    """A first and a last name: one of 256."""

    type: Annotated[str, choice("name")] = "name"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Text(_Named):
    """Random words."""

    type: Annotated[str, choice("text")] = "text"
    words: Annotated[Range, ranged(0, 10_000)] = Range(3, 8)  # noqa: RUF009 - a Range is frozen.
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Timestamp(_Named):
    """The time at which the record was created: a date in RFC 3339, or milliseconds."""

    type: Annotated[str, choice("timestamp")] = "timestamp"
    format: Annotated[str, choice("date", "ms")] = "date"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Uuid(_Named):
    """A random UUID, version 4."""

    type: Annotated[str, choice("uuid")] = "uuid"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Key(_Named):
    """The record's key as a text; null if the record has no key."""

    type: Annotated[str, choice("key")] = "key"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Reference(To):
    """A key of another topic, or of a key space."""

    name: Annotated[str, LABEL]
    type: Annotated[str, choice("reference")] = "reference"
    null_share: Share = 0.0


@dataclass(frozen=True, slots=True)
class Object(_Named):
    """An object with fields of its own."""

    type: Annotated[str, choice("object")] = "object"
    fields: Annotated[tuple[Field, ...], JSON_FIELDS] = ()


Field = Counter | Integer | Decimal | Boolean | Enum | Name | Text | Timestamp | Uuid | Key | Reference | Object
# Each class by the name of its type.
FIELDS: Final[dict[str, type]] = {kind.__name__.lower(): kind for kind in get_args(Field)}


def field_definitions() -> dict[str, Any]:
    """The definition that the schema of ``JSON_FIELDS`` refers to; it belongs under ``$defs``."""
    found = []
    for named, kind in FIELDS.items():
        made = table_of(kind).schema
        properties = {**made["properties"], "type": {"const": named}}
        found.append({**made, "properties": properties, "required": [*made["required"], "type"]})
    return {"field": {"oneOf": found}}


def check_fields(fields: Sequence[Field], place: str, depth: int = 1) -> None:
    """Raise ``UsageError`` for what concerns several keys of ``fields``; ``place`` is their place in the workload."""
    if depth > DEPTH_MAX:
        raise UsageError(f"{place}: objects are nested more than {DEPTH_MAX} deep; make them flatter")
    names = [field.name for field in fields]
    for at, field in enumerate(fields):
        here = f"{place}[{at}]"
        if names.index(field.name) != at:
            raise UsageError(f"{here}.name is {field.name!r} for the second time; give each field a name of its own")
        if isinstance(field, Object):
            check_fields(field.fields, f"{here}.fields", depth + 1)


class FieldsWriter(Builder):
    """Writes fields of JSON objects."""

    def members(self, fields: Sequence[Field], is_more: bool = False) -> None:
        """Add the fields without braces; ``is_more``: there are others in front."""
        for at, field in enumerate(fields):
            self.ahead += b"," * (is_more or at > 0) + quoted(field.name) + b":"
            self.field(field)

    def field(self, field: Field) -> None:
        """Add the value of a field."""
        match field:
            case Object():
                self.object(field.fields)
            case Counter():
                numbers = Range(field.start, field.start)
                self.add(programs.COUNTER, 16, field.null_share, COUNTER_BYTES, numbers=numbers, times=field.step)
            case Integer() | Decimal():
                numbers = _numbers(field)
                count, skew = numbers.max - numbers.min + 1, numbers.skew
                spread = (numbers.min + count * (2 * at + 1) ** skew // (2 * SPREAD) ** skew for at in range(SPREAD))
                # A number with a point has a digit in front of it, also if that is 0.
                sizes = [
                    len(f"{one / 10**field.decimals:.{field.decimals}f}") for one in (*spread, numbers.min, numbers.max)
                ]
                mean = sum(sizes[:SPREAD]) / SPREAD
                more = {"numbers": numbers, "decimals": field.decimals}
                self.add(programs.NUMBER, max(sizes[SPREAD:]), field.null_share, mean, **more)
            case Boolean():
                per_billion = round(field.share * 10**9)
                self.choose([(b"true", per_billion), (b"false", 10**9 - per_billion)], field.null_share)
            case Enum():
                self.choose([(quoted(text), weight) for text, weight in field.values], field.null_share)
            case Name():
                self.choose([(quoted(name), 1) for name in NAMES], field.null_share)
            case Text():
                self.words(field.words, field.null_share)
            case Timestamp(format="ms"):
                self.add(programs.MOMENT, 16, field.null_share, 13)
            case Timestamp():
                self.add(programs.DATE, DATE_BYTES + 2, field.null_share, DATE_BYTES + 2, size=DATE_BYTES)
            case Uuid():
                self.add(programs.UUID, 38, field.null_share, 38)
            case Key():
                self.add(programs.KEY, 4, field.null_share, 2)
                self.key_fields += 1
            case Reference():
                self.refer(field.target or programs.Target(), null_share=field.null_share)

    def object(self, fields: Sequence[Field]) -> None:
        """Add an object."""
        self.ahead += b"{"
        self.members(fields)
        self.ahead += b"}"


@lru_cache(maxsize=64)
def program(fields: tuple[Field, ...]) -> Program:
    """The program that writes one object with ``fields``."""
    writer = FieldsWriter()
    writer.object(fields)
    return writer.program()


@lru_cache(maxsize=4)
def payload_program(content: str, draw: str | None) -> Program:
    """The program that writes one of the lines of a file, whose bytes are ``content`` in base 64.

    ``draw``: ``weight``, if each line begins with its weight and a tab; ``turn``, if the offset chooses the line; None,
    if all lines are as likely. ``Wrong`` if there are no lines or too many, or if a weight is wrong.
    """
    try:
        lines = [line for line in base64.b64decode(content, validate=True).split(b"\n") if line]
    except ValueError:
        raise Wrong("is not base 64", "name the file instead") from None
    if not 0 < len(lines) <= PAYLOADS_MAX:
        raise Wrong(f"has {len(lines)} payloads", f"give 1 to {PAYLOADS_MAX} lines that are not empty")
    weighed = []
    for at, line in enumerate(lines):
        found = WEIGHED.fullmatch(line if draw == "weight" else b"1\t" + line)
        if found is None:
            raise Wrong(
                f"has no weight in its payload {at + 1}",
                "begin each line with a whole number of at most 9 digits and a tab",
            )
        weighed.append((found[2], int(found[1])))
    if not any(weight for _, weight in weighed):
        raise Wrong("has only weights of 0", "raise one")
    writer = Builder()
    writer.choose(weighed, kind=programs.TURN if draw == "turn" else None)
    return writer.program()


def quoted(value: Any) -> bytes:
    """The value in JSON."""
    return json.dumps(value, ensure_ascii=False).encode()


def _numbers(field: Integer | Decimal) -> Range:
    return programs.between(field.min, field.max, 10**field.decimals, field.skew)
