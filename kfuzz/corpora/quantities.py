"""The forms of a workload's keys that are more than a number or a text: sizes, moments, ranges and weights."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import Annotated, Any, Final

from kfuzz.forms import Either, Form, ListOf, Object, Wrong, choice, integer, number
from kfuzz.units import RELATIVE_MS, SIZES, parse_moment, parse_size, show_size

MOMENT_MAX = 1 << 52
# The default of a size that is decided when it is used.
LATER = 0
LABEL_MAX = 200
LABELS_MAX = 1000
NUMBERS_MAX = 1000
# A random number of 32 bits below the limit chooses this number or an earlier one.
COLUMN: Final = struct.Struct("=Qq")
WEIGHT_MAX = 1_000_000
WEIGHT: Final = integer(0, WEIGHT_MAX)
SKEW: Final = integer(1, 16)

Share = Annotated[float, number(0, 1)]
Weights = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Range:
    """A random whole number from ``min`` to ``max``; ``skew`` 1 is uniform, higher values favour the low end.

    The number is ``min + floor((max - min + 1) · u^skew)`` for a uniform ``u`` in [0, 1). It is computed with integers
    only, so that floating point cannot change a byte of a corpus between platforms. With ``weights``, which are pairs
    of a rising number and its weight, it is one of these numbers, and ``skew`` is 0.
    """

    min: int
    max: int
    skew: int = 1
    weights: tuple[tuple[int, int], ...] = ()

    @property
    def table(self) -> bytes:
        """A ``COLUMN`` for each of the weighted numbers, and after them the last one again: together a power of two."""
        return _table(self.weights)

    @property
    def limits(self) -> list[int]:
        """For each of the weighted numbers, how many of 2^32 random numbers give it or an earlier one."""
        return limits_of([weight for _, weight in self.weights])

    @property
    def mean(self) -> float:
        """The expected value, from a formula. The floor is approximated as a loss of one half."""
        if self.weights:
            return sum(number * weight for number, weight in self.weights) / sum(weight for _, weight in self.weights)
        if self.min == self.max:
            return float(self.min)
        return self.min + max(0.0, (self.max - self.min + 1) / (self.skew + 1) - 0.5)


def limits_of(weights: Sequence[int]) -> list[int]:
    """For each weight, how many of 2^32 random numbers choose it or an earlier one."""
    total = sum(weights)
    return [(below << 32) // total for below in accumulate(weights)]


# Compiled code points into these bytes, so they stay as long as the process.
@cache
def _table(weights: tuple[tuple[int, int], ...]) -> bytes:
    limits = Range(0, 0, 0, weights).limits
    rows = [COLUMN.pack(limit, number) for limit, (number, _) in zip(limits, weights, strict=True)]
    return b"".join(rows + rows[-1:] * ((1 << (len(rows) - 1).bit_length()) - len(rows)))


def byte_size(low: int, high: int) -> Form:
    """A number of bytes from ``low`` to ``high``, or a text with a unit."""

    def fits(value: Any) -> bool:
        found = parse_size(value) if isinstance(value, int | str) else None
        return found is not None and low <= found <= high

    units = "|".join("".join(f"[{one}{one.lower()}]" for one in unit) for unit in SIZES)
    text = {"type": "string", "pattern": rf"^\s*\d{{1,18}}(\.\d{{1,9}})?\s*({units})\s*$"}
    remedy = f'give a size from {show_size(low)} to {show_size(high)}, such as 65536 or "256MiB"'
    return Form({"anyOf": [integer(low, high).schema, text]}, remedy, fits, convert=parse_size)


def _is_moment(value: Any) -> bool:
    found = parse_moment(value)
    return found is not None and (isinstance(found, str) or 0 <= found <= MOMENT_MAX)


_DATES: Final = r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)"
# Milliseconds since 1970, a date in RFC 3339, or relative to now. The workload holds a number or the text ``now…``.
MOMENT: Final = Form(
    {
        "anyOf": [
            integer(0, MOMENT_MAX).schema,
            {"type": "string", "pattern": rf"^({_DATES}|now([+-]\d{{1,9}}({'|'.join(RELATIVE_MS)}))?)$"},
        ]
    },
    'give milliseconds from 1970 on, a date such as "2026-01-31T08:00:00Z", or "now", "now-6h", "now-1d"',
    _is_moment,
    convert=parse_moment,
)


def ranged(low: int, high: int) -> Form:
    """A number, ``{ min = …, max = …, skew = … }``, or numbers with weights; all within ``low`` to ``high``."""
    bound = integer(low, high)
    skew = Form({**SKEW.schema, "default": Range(0, 0).skew}, SKEW.remedy, SKEW.fits)
    ends = Object({"min": bound, "max": bound, "skew": skew}, ("min", "max"))
    pair = ListOf(integer(0, max(high, WEIGHT_MAX)), "give a number and its weight, as [40, 3]", least=2, most=2)
    pairs = ListOf(pair, f"give 1 to {NUMBERS_MAX} numbers with their weights", least=1, most=NUMBERS_MAX)

    def convert(value: Any) -> Range:
        if isinstance(value, list):
            weights = sorted((number, weight) for number, weight in value if weight)
            numbers = [number for number, _ in weights]
            if len(set(numbers)) < len(numbers) or not numbers:
                raise Wrong("has a number twice, or no weight above 0", "correct it")
            if numbers[0] < low or numbers[-1] > high or max(weight for _, weight in weights) > WEIGHT_MAX:
                raise Wrong(f"has a number outside {low} to {high}, or a weight above {WEIGHT_MAX}", "correct it")
            return Range(numbers[0], numbers[-1], 0, tuple(weights))
        made = Range(**value) if isinstance(value, dict) else Range(value, value)
        if made.min > made.max:
            raise Wrong(f"is {made.min}, above max ({made.max})", "swap them", ".min")
        return made

    def written(value: Range) -> Any:
        return value.min if value.min == value.max else {"min": value.min, "max": value.max}

    return Either(bound, ends, pairs, convert=convert, written=written)


def weights(*names: str) -> Form:
    """A name, or a table of whole-number weights. The result has the order of ``names``, not of the file."""
    table = Object(dict.fromkeys(names, WEIGHT))
    table.schema["minProperties"] = 1

    def convert(value: Any) -> Weights:
        given = {value: 1} if isinstance(value, str) else value
        made = tuple((name, given[name]) for name in names if given.get(name))
        if not made:
            raise Wrong("has no weight above 0", f"give a weight to at least one of {', '.join(names)}")
        return made

    return Either(
        choice(*names), table, convert=convert, written=lambda value: value[0][0] if len(value) == 1 else value
    )


def numbers(names: Sequence[str], low: int, high: int) -> Form:
    """A table with a whole number for some of ``names``. The result has the order of ``names``, not of the file."""

    def convert(value: Any) -> Weights:
        return tuple((name, value[name]) for name in names if name in value)

    return Object(
        dict.fromkeys(names, integer(low, high)), remedy="give a table of numbers", convert=convert, written=dict
    )


def integers(count: int, high: int) -> Form:
    """A list of ``count`` whole numbers from 0 to ``high``, at least one above 0."""

    def convert(value: Any) -> tuple[int, ...]:
        if not any(value):
            raise Wrong("has no number above 0", "give at least one")
        return tuple(value)

    remedy = f"give a list of {count} whole numbers"
    return ListOf(integer(0, high), remedy, least=count, most=count, convert=convert, written=list)


LABEL: Final = Form(
    {"type": "string", "minLength": 1, "maxLength": LABEL_MAX},
    f"give 1 to {LABEL_MAX} printable characters",
    lambda value: isinstance(value, str) and 1 <= len(value) <= LABEL_MAX and value.isprintable(),
)


def _are_labels(value: Any) -> bool:
    right = isinstance(value, list | dict) and 1 <= len(value) <= LABELS_MAX and all(map(LABEL.fits, value))
    return right and (isinstance(value, list) or all(map(WEIGHT.fits, value.values())))


def _labels(value: list[str] | dict[str, int]) -> Weights:
    weighed = value if isinstance(value, dict) else dict.fromkeys(value, 1)
    if len(weighed) < len(value):
        raise Wrong("has a text twice", "remove one")
    if not any(weighed.values()):
        raise Wrong("has no weight above 0", "give a weight to at least one text")
    return tuple(weighed.items())


# A list of texts, or a table of texts with whole-number weights. The result has the order of the file.
LABELS: Final = Form(
    {
        "anyOf": [
            {"type": "array", "items": LABEL.schema, "uniqueItems": True, "minItems": 1, "maxItems": LABELS_MAX},
            {
                "type": "object",
                "additionalProperties": WEIGHT.schema,
                "minProperties": 1,
                "maxProperties": LABELS_MAX,
            },
        ]
    },
    f"give a list of texts, or a table of texts with whole numbers as weights: 1 to {LABELS_MAX} printable texts",
    _are_labels,
    convert=_labels,
)
