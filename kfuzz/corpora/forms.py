"""Declares the keys of a TOML table once, and makes their reading, error texts and JSON Schema from that.

A table is a frozen dataclass whose fields are made by :func:`integer`, :func:`share`, …. :func:`read` makes one from
the values that ``tomllib`` returns; :func:`schema` makes the JSON Schema of what :func:`read` accepts.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar, cast

from kfuzz.errors import UsageError

__all__ = [
    "Range",
    "Table",
    "Weights",
    "choice",
    "decimal",
    "integer",
    "integers",
    "label",
    "labels",
    "moment",
    "name",
    "numbers",
    "parse_size",
    "ranged",
    "read",
    "relative_ms",
    "schema",
    "share",
    "show_size",
    "size",
    "table",
    "tables",
    "text",
    "variant_schema",
    "variants",
    "weights",
]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MOMENT_MAX = 1 << 52
RELATIVE_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
UNITS = {
    "": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1 << 40, "PIB": 1 << 50,
}  # fmt: skip
SKEW_MAX = 16
# The default of a size that is decided when it is used.
LATER = 0
WEIGHT_MAX = 1_000_000
LABEL_MAX = 200
LABELS_MAX = 1000
NESTED_MAX = 8
# The name of the variants' definition in the JSON Schema.
VARIANT = "field"

Weights = tuple[tuple[str, int], ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Range:
    """A random whole number from ``min`` to ``max``; ``skew`` 1 is uniform, higher values favour the low end.

    The number is ``min + floor((max - min + 1) · u^skew)`` for a uniform ``u`` in [0, 1). It is computed with integers
    only, so that floating point cannot change a byte of a corpus between platforms.
    """

    min: int
    max: int
    skew: int = 1

    @property
    def mean(self) -> float:
        """The expected value, from a formula. The floor is approximated as a loss of one half."""
        if self.min == self.max:
            return float(self.min)
        return self.min + max(0.0, (self.max - self.min + 1) / (self.skew + 1) - 0.5)


@dataclass(frozen=True, slots=True)
class Table:
    """A table being read. ``name`` is the file's name; ``place`` is the table's path in the file, with a final dot."""

    values: dict[str, Any]
    name: str
    place: str = ""

    def error(self, key: str, problem: str, remedy: str) -> UsageError:
        """The error for ``key``: one sentence with the file, the key, the problem and the remedy."""
        return UsageError(f"{self.name}: {self.place}{key} {problem}; {remedy}")

    def inner(self, key: str, values: dict[str, Any]) -> Table:
        return Table(values, self.name, f"{self.place}{key}.")

    def refuse_others(self, known: Sequence[str]) -> None:
        """Raise ``UsageError`` for a key that is not in ``known``; its text suggests the most similar known key."""
        for key in self.values:
            if key not in known:
                remedy = _nearest(key, known) or f"the keys here are {', '.join(known)}"
                raise self.error(key, "is not a key of a workload", remedy)


class Form(ABC):
    """The kind of value that a key may hold."""

    @abstractmethod
    def read(self, table: Table, key: str, value: Any) -> Any:
        """The value for ``key``, made from the TOML ``value``; ``UsageError`` if that is not allowed."""

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the values that :meth:`read` accepts."""

    def default(self, value: Any) -> Any:
        """The default ``value`` as it is written in a file, for the JSON Schema."""
        return value

    def missing(self, table: Table, key: str) -> UsageError:
        """The error for a missing key that has no default."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Integer(Form):
    low: int
    high: int

    def read(self, table: Table, key: str, value: Any) -> int:
        remedy = f"give a whole number from {self.low} to {self.high}"
        if not isinstance(value, int) or isinstance(value, bool):
            raise table.error(key, f"is {_shown(value)}", remedy)
        if not self.low <= value <= self.high:
            raise table.error(key, f"is {value}", remedy)
        return value

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class _Share(Form):
    def read(self, table: Table, key: str, value: Any) -> float:
        # `0 <= nan` is false, so NaN is refused as well.
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
            raise table.error(key, f"is {_shown(value)}", "give a share from 0 to 1")
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": 0, "maximum": 1}


@dataclass(frozen=True, slots=True)
class _Decimal(Form):
    low: int
    high: int
    places: int

    def read(self, table: Table, key: str, value: Any) -> float:
        remedy = f"give a number from {self.low} to {self.high} with at most {self.places} decimals"
        if not isinstance(value, int | float) or isinstance(value, bool) or not self.low <= value <= self.high:
            raise table.error(key, f"is {_shown(value)}", remedy)
        if round(value, self.places) != value:
            raise table.error(key, f"is {value}", remedy)
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class _Size(Form):
    low: int
    high: int

    def read(self, table: Table, key: str, value: Any) -> int:
        found = parse_size(value) if isinstance(value, int | str) else None
        if found is None:
            raise table.error(key, f"is {_shown(value)}", 'give a size such as 4096 or "256MiB"')
        if not self.low <= found <= self.high:
            raise table.error(key, f"is {_shown(value)}", f"give {show_size(self.low)} to {show_size(self.high)}")
        return found

    def schema(self) -> dict[str, Any]:
        units = "|".join("".join(f"[{one}{one.lower()}]" for one in unit) for unit in UNITS)
        text = {"type": "string", "pattern": rf"^\s*\d{{1,18}}(\.\d{{1,9}})?\s*({units})\s*$"}
        return {"anyOf": [_Integer(self.low, self.high).schema(), text]}


@dataclass(frozen=True, slots=True)
class _Choice(Form):
    choices: tuple[str, ...]

    def read(self, table: Table, key: str, value: Any) -> str:
        if value not in self.choices:
            raise table.error(key, f"is {_shown(value)}", f"choose {_alternatives(self.choices)}")
        return str(value)

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.choices)}


@dataclass(frozen=True, slots=True)
class _Name(Form):
    pattern: str
    rule: str
    refused: tuple[str, ...]

    def read(self, table: Table, key: str, value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value):
            raise table.error(key, f"is {_shown(value)}", f"give {self.rule}")
        if value in self.refused:
            raise table.error(key, f"is {value!r}, which Kafka does not allow", "choose another name")
        return value

    def missing(self, table: Table, key: str) -> UsageError:
        return table.error(key, "is missing", f"give {self.rule}")

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "pattern": f"^{self.pattern}$", "not": {"enum": list(self.refused)}}


@dataclass(frozen=True, slots=True)
class _Ranged(Form):
    """A number, or ``{ min = …, max = …, skew = … }``."""

    low: int
    high: int

    def read(self, table: Table, key: str, value: Any) -> Range:
        if not isinstance(value, dict):
            number = _Integer(self.low, self.high).read(table, key, value)
            return Range(number, number)
        inner = table.inner(key, value)
        for end in ("min", "max"):
            if end not in value:
                raise inner.error(end, "is missing", "give min and max, or one number instead of the table")
        numbers = {name: form.read(inner, name, value[name]) for name, form in self._forms().items() if name in value}
        inner.refuse_others([one.name for one in fields(Range)])
        result = Range(**numbers)
        if result.min > result.max:
            raise inner.error("min", f"is {result.min}, above max ({result.max})", "swap them")
        return result

    def _forms(self) -> dict[str, _Integer]:
        bound = _Integer(self.low, self.high)
        return {"min": bound, "max": bound, "skew": _Integer(1, SKEW_MAX)}

    def default(self, value: Any) -> Any:
        return value.min if value.min == value.max else {"min": value.min, "max": value.max}

    def schema(self) -> dict[str, Any]:
        properties = {name: form.schema() for name, form in self._forms().items()}
        properties["skew"]["default"] = Range(0, 0).skew
        return {"anyOf": [_Integer(self.low, self.high).schema(), _object(properties, ["min", "max"])]}


@dataclass(frozen=True, slots=True)
class _Weights(Form):
    """A name, or a table of whole-number weights. The result has the order of ``names``, not of the file."""

    names: tuple[str, ...]

    def read(self, table: Table, key: str, value: Any) -> Weights:
        if isinstance(value, str) and value in self.names:
            return ((value, 1),)
        alternatives = _alternatives(self.names)
        if not isinstance(value, dict):
            raise table.error(key, f"is {_shown(value)}", f"choose {alternatives}, or give a table of weights")
        inner = table.inner(key, value)
        for one in value:
            if one not in self.names:
                raise inner.error(one, "is not a codec here", _nearest(one, self.names) or f"choose {alternatives}")
        weight = _Integer(0, WEIGHT_MAX)
        weighed = [(one, weight.read(inner, one, value[one])) for one in self.names if one in value]
        result = tuple((one, number) for one, number in weighed if number)
        if not result:
            raise table.error(key, "has no weight above 0", f"give a weight to at least one of {alternatives}")
        return result

    def default(self, value: Any) -> Any:
        return value[0][0] if len(value) == 1 else dict(value)

    def schema(self) -> dict[str, Any]:
        weighed = _object({one: _Integer(0, WEIGHT_MAX).schema() for one in self.names}, [])
        return {"anyOf": [{"enum": list(self.names)}, {**weighed, "minProperties": 1}]}


@dataclass(frozen=True, slots=True)
class _Numbers(Form):
    """A table with a whole number for some of ``names``. The result has the order of ``names``, not of the file."""

    names: tuple[str, ...]
    low: int
    high: int

    def read(self, table: Table, key: str, value: Any) -> Weights:
        if not isinstance(value, dict):
            raise table.error(key, f"is {_shown(value)}", f"give a table of numbers for {_alternatives(self.names)}")
        inner, number = table.inner(key, value), _Integer(self.low, self.high)
        inner.refuse_others(self.names)
        return tuple((one, number.read(inner, one, value[one])) for one in self.names if one in value)

    def default(self, value: Any) -> Any:
        return dict(value)

    def schema(self) -> dict[str, Any]:
        return _object({one: _Integer(self.low, self.high).schema() for one in self.names}, [])


@dataclass(frozen=True, slots=True)
class _Integers(Form):
    """A list of ``count`` whole numbers, at least one above 0."""

    count: int
    high: int

    def read(self, table: Table, key: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or len(value) != self.count:
            raise table.error(key, f"is {_shown(value)}", f"give a list of {self.count} whole numbers")
        number = _Integer(0, self.high)
        found = tuple(number.read(table, f"{key}[{at}]", one) for at, one in enumerate(value))
        if not any(found):
            raise table.error(key, "has no number above 0", "give at least one")
        return found

    def default(self, value: Any) -> Any:
        return list(value)

    def schema(self) -> dict[str, Any]:
        items = _Integer(0, self.high).schema()
        return {"type": "array", "items": items, "minItems": self.count, "maxItems": self.count}


@dataclass(frozen=True, slots=True)
class _Moment(Form):
    """A moment: milliseconds since 1970, a date in RFC 3339, or relative to now. The result is a number or ``now…``."""

    rule: ClassVar[str] = 'give milliseconds, a date such as "2026-01-31T08:00:00Z", or "now", "now-6h", "now-1d"'

    def read(self, table: Table, key: str, value: Any) -> int | str:
        found = _moment(value)
        if found is None:
            raise table.error(key, f"is {_shown(value)}", self.rule)
        if isinstance(found, int) and not 0 <= found <= MOMENT_MAX:
            raise table.error(key, f"is {_shown(value)}", f"give a moment from 1970 on, up to {MOMENT_MAX} ms")
        return found

    def schema(self) -> dict[str, Any]:
        dates = r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
        text = {"type": "string", "pattern": rf"^({dates}|now([+-]\d{{1,9}}({'|'.join(RELATIVE_MS)}))?)$"}
        return {"anyOf": [_Integer(0, MOMENT_MAX).schema(), text]}


@dataclass(frozen=True, slots=True)
class _Table(Form):
    kind: type

    def read(self, table: Table, key: str, value: Any) -> Any:
        if not isinstance(value, dict):
            raise table.error(key, f"is {_shown(value)}", f"make it a table, [{table.place}{key}]")
        return read(self.kind, table.inner(key, value))

    def default(self, value: Any) -> Any:
        return {}

    def schema(self) -> dict[str, Any]:
        return schema(self.kind)


@dataclass(frozen=True, slots=True)
class _Tables(Form):
    kind: type

    def read(self, table: Table, key: str, value: Any) -> Any:
        if not isinstance(value, list) or not value or not all(isinstance(item, dict) for item in value):
            raise self.missing(table, key)
        return tuple(read(self.kind, table.inner(f"{key}[{at}]", item)) for at, item in enumerate(value))

    def missing(self, table: Table, key: str) -> UsageError:
        return table.error(key, "is missing or not a list of tables", f"give at least one [[{key}]]")

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "items": schema(self.kind)}


@dataclass(frozen=True, slots=True)
class _Label(Form):
    rule: ClassVar[str] = f"give 1 to {LABEL_MAX} printable characters"

    def read(self, table: Table, key: str, value: Any) -> str:
        if not isinstance(value, str) or not 1 <= len(value) <= LABEL_MAX or not value.isprintable():
            raise table.error(key, f"is {_shown(value)}", self.rule)
        return value

    def missing(self, table: Table, key: str) -> UsageError:
        return table.error(key, "is missing", self.rule)

    def schema(self) -> dict[str, Any]:
        return {"type": "string", "minLength": 1, "maxLength": LABEL_MAX}


@dataclass(frozen=True, slots=True)
class _Labels(Form):
    """A list of texts, or a table of texts with whole-number weights. The result has the order of the file."""

    rule: ClassVar[str] = "give a list of texts, or a table of texts with weights"

    def read(self, table: Table, key: str, value: Any) -> Weights:
        if not isinstance(value, list | dict) or not value or len(value) > LABELS_MAX:
            raise table.error(key, f"is {_shown(value)}", f"{self.rule}, 1 to {LABELS_MAX} of them")
        weighed = value if isinstance(value, dict) else dict.fromkeys(map(_hashable, value), 1)
        if len(weighed) < len(value):
            raise table.error(key, "has a text twice", "remove one")
        inner, weight = table.inner(key, weighed), _Integer(0, WEIGHT_MAX)
        found = [(_Label().read(inner, str(text), text), weight.read(inner, text, weighed[text])) for text in weighed]
        if not any(number for _, number in found):
            raise table.error(key, "has no weight above 0", "give a weight to at least one text")
        return tuple(found)

    def missing(self, table: Table, key: str) -> UsageError:
        return table.error(key, "is missing", self.rule)

    def schema(self) -> dict[str, Any]:
        weighed = {"type": "object", "additionalProperties": _Integer(0, WEIGHT_MAX).schema()}
        listed = {"type": "array", "items": _Label().schema(), "uniqueItems": True}
        return {
            "anyOf": [
                {**listed, "minItems": 1, "maxItems": LABELS_MAX},
                {**weighed, "minProperties": 1, "maxProperties": LABELS_MAX},
            ]
        }


@dataclass(frozen=True, slots=True)
class _Variants(Form):
    """A list of tables; the key ``type`` of each says which of ``kinds`` it is."""

    kinds: Mapping[str, type]

    def read(self, table: Table, key: str, value: Any) -> Any:
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise table.error(key, f"is {_shown(value)}", "make it a list of tables")
        if table.place.count(f"{key}[") > NESTED_MAX:
            raise table.error(key, f"is nested more than {NESTED_MAX} deep", "make it flatter")
        return tuple(self._one(table.inner(f"{key}[{at}]", item)) for at, item in enumerate(value))

    def _one(self, table: Table) -> Any:
        named = table.values.get("type")
        kind = self.kinds.get(named) if isinstance(named, str) else None
        if kind is None:
            known = _nearest(named, self.kinds) if isinstance(named, str) else ""
            problem = "is missing" if named is None else f"is {_shown(named)}"
            raise table.error("type", problem, known or f"choose {_alternatives(list(self.kinds))}")
        return read(kind, table)

    def default(self, value: Any) -> Any:
        return list(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "array", "items": {"$ref": f"#/$defs/{VARIANT}"}}


def variant_schema(kinds: Mapping[str, type]) -> dict[str, Any]:
    """The definitions that the schema of :func:`variants` refers to; they belong under ``$defs``."""
    found = []
    for named, kind in kinds.items():
        made = schema(kind)
        made["properties"]["type"] = {"const": named}
        found.append({**made, "required": [*made.get("required", []), "type"]})
    return {VARIANT: {"oneOf": found}}


def _hashable(value: Any) -> Any:
    return value if isinstance(value, str) else repr(value) + "\0"


def _field(form: Form, default: Any = MISSING) -> Any:
    return field(default=default, metadata={"form": form})


def integer(default: int, low: int, high: int) -> int:
    """A whole number from ``low`` to ``high``."""
    return cast(int, _field(_Integer(low, high), default))


def share(default: float = 0.0) -> float:
    """A number from 0 to 1."""
    return cast(float, _field(_Share(), default))


def decimal(default: float, low: int, high: int, places: int) -> float:
    """A number from ``low`` to ``high`` with at most ``places`` decimals, so that it is a short exact fraction."""
    return cast(float, _field(_Decimal(low, high, places), default))


def size(default: int, low: int, high: int) -> int:
    """A number of bytes from ``low`` to ``high``, or a string with a unit."""
    return cast(int, _field(_Size(low, high), default))


def choice(default: str, *choices: str) -> str:
    """One of ``choices``."""
    return cast(str, _field(_Choice(choices), default))


def name(pattern: str, rule: str, refused: tuple[str, ...]) -> Any:
    """A string that matches ``pattern`` and is not in ``refused``, without a default. ``rule`` says what is allowed."""
    return _field(_Name(pattern, rule, refused))


def text(default: str, pattern: str, rule: str) -> str:
    """A string that matches ``pattern``; ``rule`` says what is allowed."""
    return cast(str, _field(_Name(pattern, rule, ()), default))


def ranged(default: Range, low: int, high: int) -> Range:
    """A number or a range within ``low`` to ``high``."""
    return cast(Range, _field(_Ranged(low, high), default))


def weights(names: Sequence[str]) -> Weights:
    """A weighted choice among ``names``; the default is the first of them."""
    return cast(Weights, _field(_Weights(tuple(names)), ((names[0], 1),)))


def numbers(names: Sequence[str], low: int, high: int) -> Weights:
    """A whole number from ``low`` to ``high`` for some of ``names``; the default is for none of them."""
    return cast(Weights, _field(_Numbers(tuple(names), low, high), ()))


def table(kind: type[T]) -> T:
    """A nested table of class ``kind``; if it is missing, all its keys have their defaults."""
    return cast(T, _field(_Table(kind), kind()))


def tables(kind: type[T]) -> Any:
    """A list of at least one table of class ``kind``, without a default."""
    return _field(_Tables(kind))


def label() -> Any:
    """A printable text, without a default."""
    return _field(_Label())


def labels() -> Any:
    """Printable texts with weights, without a default."""
    return _field(_Labels())


def variants(kinds: Mapping[str, type]) -> Any:
    """A list of tables, each of one of ``kinds``; the default is an empty list. ``kinds`` may be filled later."""
    return _field(_Variants(kinds), ())


def read(kind: type[T], table: Table) -> T:
    """An object of the dataclass ``kind``, read from ``table``; ``UsageError`` for the first mistake."""
    values = {}
    declared = fields(kind)  # type: ignore[arg-type]
    for one in declared:
        form: Form = one.metadata["form"]
        if one.name in table.values:
            values[one.name] = form.read(table, one.name, table.values[one.name])
        elif one.default is MISSING:
            raise form.missing(table, one.name)
    table.refuse_others([one.name for one in declared])
    return kind(**values)


def schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of a table of class ``kind``. The first paragraph of its docstring is the description."""
    properties, required = {}, []
    for one in fields(kind):
        form: Form = one.metadata["form"]
        properties[one.name] = form.schema()
        if one.default is MISSING:
            required.append(one.name)
        elif (
            not isinstance(form, _Table)
            and one.default is not None
            and not (isinstance(form, _Size) and one.default == LATER)
        ):
            properties[one.name]["default"] = form.default(one.default)
    about = " ".join((kind.__doc__ or "").split("\n\n")[0].split()).replace("``", "")
    return {"description": about, **_object(properties, required)}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    made = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def integers(default: Sequence[int], high: int) -> tuple[int, ...]:
    """A list of as many whole numbers as ``default``, from 0 to ``high``, and not all of them 0."""
    return cast(tuple[int, ...], _field(_Integers(len(default), high), tuple(default)))


def moment(default: int | None) -> Any:
    """A moment: milliseconds since 1970, or a text that begins with ``now``. A None means no moment."""
    return _field(_Moment(), default)


def relative_ms(text: str) -> int | None:
    """The ms that a text such as ``now-6h`` adds to now; None if it is no such text."""
    match = re.fullmatch(rf"now(?:([+-])(\d{{1,9}})({'|'.join(RELATIVE_MS)}))?", text)
    if match is None:
        return None
    return int(f"{match[1]}{match[2]}") * RELATIVE_MS[match[3]] if match[1] else 0


def _moment(value: object) -> int | str | None:
    if isinstance(value, str):
        if relative_ms(value) is not None:
            return value
        try:
            value = datetime.fromisoformat(value.upper())
        except ValueError:
            return None
    if isinstance(value, datetime) and value.tzinfo is not None:
        return (value - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parse_size(value: str | int) -> int | None:
    """The bytes in a size such as ``"64MiB"``, ``"1.5 GB"`` or a plain number; None if ``value`` is not a size."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    match = re.fullmatch(r"\s*(\d{1,18})(?:\.(\d{1,9}))?\s*([A-Za-z]*)\s*", value)
    if match is None or match[3].upper() not in UNITS:
        return None
    unit = UNITS[match[3].upper()]
    fraction = match[2] or "0"
    return int(match[1]) * unit + int(fraction) * unit // int("1" + "0" * len(fraction))


def show_size(size: int) -> str:
    """``size`` in the largest unit that divides it: 268435456 is ``256 MiB``."""
    for unit, name in ((1 << 50, "PiB"), (1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def _nearest(key: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(key, list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]}?" if near else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _alternatives(names: Sequence[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
