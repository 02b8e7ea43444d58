"""The fields of JSON values: how a workload names them, and the program of steps that writes them.

Nested objects are only parts of the texts in front of its steps.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final

from kfuzz.corpora import programs
from kfuzz.corpora.programs import NUMBER_MAX, Builder, Drawn, Program, To, between, quoted
from kfuzz.corpora.quantities import LABEL, Range, ranged
from kfuzz.forms import Form, ListOf, Object, Wrong, choice, integer, nearest, object_of, shown, table

PAYLOADS_MAX: Final = 1_000_000
WEIGHED: Final = re.compile(rb"([0-9]{1,9})\t(.*)", re.DOTALL)
DEPTH_MAX = 8
# A sample of the numbers of a range, to find their mean length.
SPREAD = 1000
WHOLE: Final = integer(-NUMBER_MAX, NUMBER_MAX)
WIDE: Final = integer(-(1 << 31), 1 << 31)
SETTINGS: Final = object_of(Drawn).keys
TO: Final = object_of(To).keys


@dataclass(frozen=True, slots=True)
class Field(Drawn):
    """A field of JSON objects. It has the settings that json_fields.json has for its type; all others are None.

    ``format`` is that of a timestamp, and ``fields`` are those of an object.
    """

    name: str = ""
    format: str | None = None
    fields: tuple[Field, ...] = ()

    @property
    def numbers(self) -> Range:
        """The numbers from ``min`` to ``max``, without a point. ``Wrong`` if there are none or too many."""
        return between(self.min or 0, self.max or 0, 10 ** (self.decimals or 0), self.skew or 1)

    @property
    def settings(self) -> list[tuple[str, Any]]:
        """Each key of its type with its value."""
        keys = FIELDS[str(self.type)].keys
        return [(key, getattr(self.reference if key in TO else self, key)) for key in keys]


class _FieldForm(Form):
    """A table of one of the types in ``FIELDS``; its key ``type`` says which."""

    def check(self, value: Any) -> None:
        """Raise ``Wrong`` for an unknown type, or as the form of that type does."""
        if not isinstance(value, dict):
            raise Wrong(f"is {shown(value)}", self.remedy)
        if "type" not in value:
            raise Wrong("lacks type", choice(*FIELDS).remedy)
        if value["type"] not in list(FIELDS):
            near = nearest(str(value["type"]), FIELDS)
            others = f"{choice(*FIELDS).remedy}; arrays and other types need a schema"
            raise Wrong(f"is {shown(value['type'])}", f"{near} Or {others}" if near else others, ".type")
        FIELDS[value["type"]].check(value)

    def make(self, value: Any) -> Any:
        """The field."""
        return FIELDS[value["type"]].make(value)


JSON_FIELDS: Final = ListOf(
    _FieldForm({"$ref": "#/$defs/field"}, "make it a table"), "make it a list of tables", written=list
)
# Forms that fields of a type have and those of schemas have not.
FORMS: Final[dict[str, Mapping[str, Form]]] = {
    "integer": {"min": WHOLE, "max": WHOLE},
    "decimal": {"min": WIDE, "max": WIDE, "decimals": integer(1, 6)},
    "enum": {"values": SETTINGS["values"]},
    "text": {"words": ranged(0, 10_000)},
    "timestamp": {"format": choice("date", "ms")},
    "reference": TO,
    "object": {"fields": JSON_FIELDS},
}


def _form(kind: str, about: str, defaults: dict[str, Any]) -> Object:
    """The form of fields of one type. Its keys are in the order of a corpus' workload."""
    is_type, own = choice(kind), FORMS.get(kind, {})
    forms = {**SETTINGS, **own}
    required = {"name": LABEL, **{key: form for key, form in own.items() if key not in defaults}}
    required["type"] = Form({"const": kind}, is_type.remedy, is_type.fits)
    keys = {**(TO if kind == "reference" else {}), **required, **{key: forms[key] for key in defaults}}
    made = {key: forms[key].make(default) for key, default in defaults.items()}
    return table(about, keys, list(required), made, partial(_made, made))


def _made(defaults: dict[str, Any], given: dict[str, Any]) -> Field:
    values = {**defaults, **given}
    to = {key: values.pop(key) for key in TO if key in values}
    field = Field(**values, reference=To(**to) if to else None)
    if "max" in values:
        # Wrong ends are refused here, at their place.
        _ = field.numbers
    return field


FIELDS: Final = {
    kind: _form(kind, **one)
    for kind, one in json.loads(Path(__file__).with_name("json_fields.json").read_bytes()).items()
}


def field_definitions() -> dict[str, Any]:
    """The definition that the schema of ``JSON_FIELDS`` refers to; it belongs under ``$defs``."""
    return {"field": {"oneOf": [form.schema for form in FIELDS.values()]}}


def field_faults(fields: Sequence[Field], place: str, depth: int = 1) -> Iterator[str]:
    """The sentences about what concerns several keys of ``fields``; ``place`` is their place in the workload."""
    if depth > DEPTH_MAX:
        yield f"{place}: objects are nested more than {DEPTH_MAX} deep; make them flatter"
        return
    names = [field.name for field in fields]
    for at, field in enumerate(fields):
        here = f"{place}[{at}]"
        if names.index(field.name) != at:
            yield f"{here}.name is {field.name!r} for the second time; give each field a name of its own"
        if field.type == "object":
            yield from field_faults(field.fields, f"{here}.fields", depth + 1)


class FieldsWriter(Builder):
    """Writes fields of JSON objects."""

    def members(self, fields: Sequence[Field], is_more: bool = False) -> None:
        """Add the fields without braces; ``is_more``: there are others in front."""
        for at, field in enumerate(fields):
            self.ahead += b"," * (is_more or at > 0) + quoted(field.name) + b":"
            self.field(field)

    def field(self, field: Field) -> None:
        """Add the value of a field."""
        nulls: dict[str, Any] = {"null_share": field.null_share}
        if field.type == "object":
            self.object(field.fields)
        elif field.type == "counter":
            self.counter(field, 16, **nulls)
        elif field.type in ("integer", "decimal"):
            self._number(field)
        elif field.type == "boolean":
            self.boolean(field.share or 0.0, b"true", b"false", **nulls)
        elif field.format == "ms":
            self.add(programs.MOMENT, 16, mean=13, **nulls)
        else:
            self.single(field, **nulls)

    def _number(self, field: Field) -> None:
        numbers, decimals = field.numbers, field.decimals or 0
        count, skew = numbers.max - numbers.min + 1, numbers.skew
        spread = (numbers.min + count * (2 * at + 1) ** skew // (2 * SPREAD) ** skew for at in range(SPREAD))
        # A number with a point has a digit in front of it, also if that is 0.
        sizes = [len(f"{one / 10**decimals:.{decimals}f}") for one in (*spread, numbers.min, numbers.max)]
        mean, most = sum(sizes[:SPREAD]) / SPREAD, max(sizes[SPREAD:])
        self.add(programs.NUMBER, most, field.null_share or 0.0, mean, numbers=numbers, decimals=decimals)

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
        lines = [line for line in re.split(rb"\r?\n", base64.b64decode(content, validate=True)) if line]
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
