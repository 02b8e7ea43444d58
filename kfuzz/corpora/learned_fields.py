"""Fits the fields of JSON values to sampled ones. Texts of six bytes and more become others of the same size."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from hashlib import shake_128
from typing import Any, Final

import numpy as np

from kfuzz.corpora.clock import DAY_MS
from kfuzz.corpora.json_values import DEPTH_MAX
from kfuzz.corpora.programs import CHOICES_MAX, DATE_BYTES
from kfuzz.corpora.quantities import LABEL, LABEL_MAX, WEIGHT_MAX
from kfuzz.corpora.words import WORDS
from kfuzz.units import parse_moment

UUID: Final = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# Shorter texts are kept.
LONG_BYTES: Final = 6
ENUM_MAX: Final = 50
LABELS_WANTED: Final = 32
# An object with more names is a map, whose names are values.
NAMES_MAX: Final = 100
USUAL: Final = 0.9
# More different sizes than these become quantiles: every hundredth, and finer at the high end. The usual percentiles
# are in the middle between two edges.
POINTS_MAX: Final = 128
EDGES: Final = np.concatenate([np.arange(5, 976, 10), np.arange(979, 1000, 2), [1000]]) / 1000
DECIMALS_MAX: Final = 6
LETTERS: Final = bytes(ord("a") + byte % 16 for byte in range(256))

Json = dict[str, Any]
# A value, the record's timestamp, and its key as text.
Found = tuple[Any, int, str | None]


def two_digits(number: float, *, up: bool) -> int:
    """A whole number with two digits that are not 0, at most ``number``, or with ``up`` at least."""
    whole = math.ceil(number) if up else math.floor(number)
    step: int = 10 ** max(0, len(str(abs(whole))) - 2)
    return -(-whole // step) * step if up else whole // step * step


def weighed(sizes: Counter[int]) -> list[list[int]]:
    """Numbers with weights that have the quantiles and the mean of the counted ones."""
    numbers, counts = np.array(sorted(sizes.items()), np.int64).T
    if len(numbers) > POINTS_MAX:
        places = np.searchsorted(EDGES, (np.cumsum(counts) - counts / 2) / counts.sum())
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        sums, counts = np.add.reduceat(counts * numbers, firsts), np.add.reduceat(counts, firsts)
        numbers = np.rint(sums / counts).astype(np.int64)
    weights = np.maximum(1, np.round(counts * min(1, WEIGHT_MAX / counts.max()))).astype(np.int64)
    return [[number, weight] for number, weight in zip(numbers.tolist(), weights.tolist(), strict=True)]


@dataclass(slots=True)
class Fields:
    """Fits fields. ``anonymous`` ones get other names, and short texts become others too.

    ``notes`` says what could not be fitted.
    """

    anonymous: bool = False
    notes: list[str] = field(default_factory=list)
    made: int = 0

    def of(self, objects: list[Found], depth: int = 1) -> list[Json] | None:
        """The fields of objects; None if these are maps, or nested too deep."""
        names = list(dict.fromkeys(name for one, _, _ in objects for name in one))
        if not 0 < len(names) <= NAMES_MAX or depth > DEPTH_MAX or not all(map(LABEL.fits, names)):
            return None
        return [self._field(name, objects, depth) for name in names]

    def _field(self, name: str, objects: list[Found], depth: int) -> Json:
        found = [(one[name], ms, key) for one, ms, key in objects if one.get(name) is not None]
        self.made += 1
        shown = f"field-{self.made}" if self.anonymous else name
        if any(name not in one for one, _, _ in objects):
            self.notes.append(f"field {shown} is not in every value; here it is null instead")
        nulls = round(1 - len(found) / len(objects), 4)
        fitted = self._fitted(found, shown, depth)
        if nulls and fitted["type"] == "object":
            self.notes.append(f"field {shown} is null in {nulls:.1%} of the values; here its object is always there")
        return {"name": shown, **fitted} | ({"null_share": nulls} if nulls and fitted["type"] != "object" else {})

    def _fitted(self, found: list[Found], shown: str, depth: int) -> Json:
        values = [value for value, _, _ in found]
        kinds = {type(value) for value in values}
        if kinds <= {bool}:
            return {"type": "boolean", "share": round(sum(values) / max(1, len(values)), 4)}
        if kinds == {int} and _usual(abs(value - ms) < DAY_MS < value for value, ms, _ in found):
            return {"type": "timestamp", "format": "ms"}
        # NaN is not JSON, but Python and others write it.
        if kinds <= {int, float} and all(value == value for value in values):
            return self._number(values, 0 if kinds == {int} else DECIMALS_MAX, shown)
        if kinds == {dict} and (fields := self.of(found, depth + 1)):
            return {"type": "object", "fields": fields}
        if kinds != {str}:
            self.notes.append(
                f"field {shown} has arrays, maps, NaN or several types; here it is a text of the same size"
            )
            return self._sized(Counter(max(0, _size(value) - 2) for value in values))
        if _usual(UUID.fullmatch(value) for value in values):
            return {"type": "uuid"}
        if _usual(value == key for value, _, key in found):
            return {"type": "key"}
        moments = [(parse_moment(value), ms) for value, ms, _ in found if len(value) == DATE_BYTES]
        if len(moments) > USUAL * len(found) and _usual(abs(at - ms) < DAY_MS for at, ms in moments if type(at) is int):
            return {"type": "timestamp"}
        counts = Counter(values)
        if len(counts) > ENUM_MAX or len(values) < 10 * len(counts):
            return self._sized(Counter(map(_size, values)))
        labels = Counter[str]()
        for value, count in counts.items():
            is_kept = _size(value) < LONG_BYTES and LABEL.fits(value) and not self.anonymous
            labels[value if is_kept else self._letters(_size(value))] += count
        return {"type": "enum", "values": dict(labels)}

    def _number(self, values: list[float], decimals_max: int, shown: str) -> Json:
        bound = 1 << 31 if decimals_max else (1 << 53) - 1
        low = max(-bound, two_digits(max(-bound, min(bound, *values)), up=False))
        high = min(bound, two_digits(min(bound, max(-bound, *values)), up=True))
        decimals = min(decimals_max, max(len(repr(value).partition(".")[2].partition("e")[0]) for value in values))
        while decimals > 1 and (high - low) * 10**decimals >= CHOICES_MAX:
            decimals -= 1
        if (high - low) * 10**decimals >= CHOICES_MAX:
            self.notes.append(f"field {shown} has more than 2^32 numbers; here it has only the highest ones")
            low = high - (CHOICES_MAX - 1) // 10**decimals
        # The skew that gives the mean.
        mean = (sum(min(max(value, low), high) for value in values) / len(values) - low + 0.5) / (high - low + 1)
        skew = max(1, min(16, round(1 / max(mean, 1 / 32) - 1)))
        more = {"type": "decimal", "decimals": max(1, decimals)} if decimals_max else {"type": "integer"}
        return {**more, "min": low, "max": high, "skew": skew}

    def _letters(self, size: int) -> str:
        self.made += 1
        return shake_128(self.made.to_bytes(8, "big")).digest(min(max(1, size), LABEL_MAX)).translate(LETTERS).decode()

    def _sized(self, sizes: Counter[int]) -> Json:
        """Texts of these sizes: letters, or words if they are long."""
        pairs, labels, words = weighed(sizes), Counter[str](), Counter[int]()
        for size, weight in pairs * max(1, LABELS_WANTED // len(pairs)):
            labels[self._letters(size)] += weight
            words[round((size + 1) / (len(WORDS[0]) + 1))] += weight
        is_long = pairs[-1][0] > LABEL_MAX
        return {"type": "text", "words": weighed(words)} if is_long else {"type": "enum", "values": dict(labels)}


def _usual(found: Any) -> bool:
    """Whether nearly all of these are true."""
    every = [bool(one) for one in found]
    return sum(every) > USUAL * len(every)


def _size(value: Any) -> int:
    """The bytes of a value as JSON; of a text without its quotes."""
    made = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return len(made.encode("utf-8", "surrogatepass")) - 2 * isinstance(value, str)
