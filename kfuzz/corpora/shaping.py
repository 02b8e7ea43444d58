"""Values and keys with a schema: the keys of a workload, and the parts that all compilers of schemas share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Final
from uuid import UUID as Uuid

from kfuzz.corpora import programs
from kfuzz.corpora.programs import INT64_MAX, ITEMS_MAX, Body, Builder, Drawn, Endless, Target, To, TooMany, varint
from kfuzz.corpora.quantities import LABEL_MAX, MOMENT_MAX, Range, Weights
from kfuzz.forms import TEXT, Either, ListOf, TableOf, Wrong, choice, integer, matching, nearest, step_of, table_of
from kfuzz.kafka import INT32_MAX
from kfuzz.schemas.store import SUFFIXES
from kfuzz.schemas.values import FRAME_BYTES, HEADERS, LONG_FRAME_BYTES, Side

# Of a workload's schemas together, as JSON texts in its TOML.
TEXTS_BYTES_MAX: Final = 256 << 10
NESTED_MAX: Final = 64
# A type that is tried and left out again leaves no steps, but two of them in each of 30 types are 2^30 tries.
TYPES_MAX: Final = 2 * programs.STEPS_MAX
DEFAULT: Final = Range(0, 100)
NULL_SHARE: Final = 0.1
NAME_BYTES: Final = programs.WORD_BYTES + 4
# A text of the default number of words has fewer.
WORDS_BYTES: Final = 64
PATH: Final = matching(
    r"[^\x00-\x1f\x7f]{1,180}(\.avsc|\.proto|\.schema\.json)",
    f"name a file that ends with {', '.join(SUFFIXES)}; its path counts from the folder of the workload",
)
_GUID: Final = matching("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "give a number, or a GUID in lower case")
_GUID.takes = str
SCHEMA_ID: Final = Either(integer(1, INT64_MAX), _GUID)
Texts = tuple[tuple[str, str], ...]
# By default, Apicurio 3 writes ids of four bytes, and Apicurio 2 a header.
FRAMINGS: Final = ("confluent", "confluent-header", "apicurio", "apicurio-3", "apicurio-header", "none")
FieldsDrawn = tuple[tuple[str, Drawn], ...]
DRAWN: Final = table_of(Drawn)
# The empty name is the value itself, such as a union of records.
FIELDS_DRAWN: Final = TableOf(DRAWN, LABEL_MAX, name_min=0)
FIELDS_DRAWN.schema["additionalProperties"] = {"$ref": "#/$defs/drawn"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schemed:
    """A schema's file, the files that it refers to, and what is written before each value. kfuzz fills in ``texts``.

    ``references`` are named as the schema names them; their paths count from its folder. ``message`` is a Protobuf
    message of the file, by default the first.
    """

    schema: Annotated[str | None, PATH] = None
    references: Annotated[tuple[str, ...], ListOf(PATH, "give a list of files", most=100)] = ()
    message: Annotated[str | None, matching(r"[A-Za-z0-9_.]{1,200}", "name a message of the schema")] = None
    framing: Annotated[str | None, choice(*FRAMINGS)] = None
    schema_id: Annotated[int | str | None, SCHEMA_ID] = None
    texts: Annotated[Texts, TableOf(TEXT, LABEL_MAX)] = ()

    @property
    def drawn(self) -> FieldsDrawn:
        """The settings of the schema's fields."""
        found: FieldsDrawn = getattr(self, "fields")  # noqa: B009 - it is a key of each class below, in its place.
        return found

    @property
    def schema_kind(self) -> str:
        """AVRO, PROTOBUF or JSON."""
        return next(kind for suffix, kind in SUFFIXES.items() if str(self.schema).endswith(suffix))

    @property
    def framed(self) -> str:
        """The framing, also if the workload leaves it out."""
        return self.framing or ("none" if self.schema_id is None else "confluent")

    @property
    def prefix(self) -> bytes:
        """The bytes before each value, without Protobuf's message indexes."""
        size = {"confluent": FRAME_BYTES, "apicurio-3": FRAME_BYTES, "apicurio": LONG_FRAME_BYTES}.get(self.framed)
        return b"\0" + int(self.schema_id or 0).to_bytes(size - 1, "big") if size else b""

    @property
    def indexes(self) -> bytes:
        """Protobuf's message indexes; empty for other schemas."""
        if self.schema_kind != "PROTOBUF":
            return b""
        from kfuzz.schemas.proto import chosen

        return chosen(self.texts[-1][1], self.texts[:-1], str(self.schema), self.message)[1]

    def header(self, side: Side) -> tuple[bytes, bytes] | None:
        """The name and the value of the header with the schema's id; None without one."""
        given = self.schema_id
        if self.framed == "apicurio-header":
            return HEADERS[1].format(side).encode(), int(given or 0).to_bytes(8, "big")
        if self.framed != "confluent-header":
            return None
        data = b"\1" + Uuid(given).bytes if isinstance(given, str) else b"\0" + int(given or 0).to_bytes(4, "big")
        return HEADERS[0].format(side).encode(), data + self.indexes

    def header_bytes(self, side: Side) -> bytes:
        """The same as it is in a record; empty without one."""
        return b"".join(varint(len(one)) + one for one in self.header(side) or ())


def member(path: str, name: str) -> str:
    """The path of a field in the field at ``path``."""
    return f"{path}.{name}" if path else name


def place_of(path: str) -> str:
    """The place of a field, for an error."""
    return f"at {path or 'its top'}"


class Shaper(Builder):
    """The part that all compilers share: fields by their paths, and how their values are drawn.

    A path has the names of fields with points between them. Items of an array and values of a map have ``[]`` after
    it. The branches of a union have the path of the union.
    """

    def __init__(self, given: dict[str, Drawn], key_bytes_max: int, levels: int) -> None:
        super().__init__()
        self._given, self._key_bytes_max, self._levels = given, key_bytes_max, levels
        self._used: dict[str, set[str]] = {}
        self._active: dict[Any, tuple[int, str]] = {}
        self._types = 0
        # Whether a type contains itself: only then do fewer levels make a smaller program.
        self.is_recursive = False
        self._unions: dict[tuple[str, ...], Weights] = {}

    def compile(self, side: Schemed) -> None:
        """Add the steps of the schema. ``Wrong`` if it cannot be generated."""
        raise NotImplementedError

    def given(self, path: str, key: str, default: Any) -> Any:
        """The workload's setting of a field, or else the default."""
        found = getattr(self.at(path, key), key)
        return default if found in (None, ()) else found

    def at(self, path: str, *keys: str) -> Drawn:
        """The workload's settings of a field; notes that these keys of it are used."""
        self._used.setdefault(path, set()).update(keys)
        return self._given.get(path, Drawn())

    def require_used(self) -> None:
        """``Wrong`` for a field that the schema lacks, and for what does not suit the field."""
        for path, drawn in self._given.items():
            if path not in self._used:
                known = [one for one in self._used if one]
                raise Wrong(
                    "is not a field of the schema",
                    nearest(path, known) or f"it has {', '.join(known[:20])}",
                    f".fields{step_of(path)}",
                )
            for one in fields(drawn):
                if getattr(drawn, one.name) not in (None, ()) and one.name not in self._used[path]:
                    raise wrong(path, one.name, "does not apply to this type of field", "remove it")

    def inside(self, name: Any, path: str, body: Callable[[str], None]) -> None:
        """Add a type that may contain itself. Then its fields have the same paths as those of the outermost."""
        count, first = self._active.get(name, (0, path))
        self.is_recursive |= count > 0
        if count > self._levels:
            raise Endless
        if sum(one for one, _ in self._active.values()) > NESTED_MAX:
            raise Wrong(f"is nested deeper than {NESTED_MAX} levels", "name a flatter schema")
        self._types += 1
        if self._types > TYPES_MAX:
            raise TooMany(f"has more than {TYPES_MAX} places for types", "name a smaller schema")
        self._active[name] = count + 1, first
        try:
            body(first)
        finally:
            self._active[name] = count, first
            if not count:
                del self._active[name]

    def union(
        self, path: str, branches: Mapping[str, tuple[bytes, Body]], null: bytes | None = None, *, omits: bool = False
    ) -> None:
        """Add one of some branches: for each name, a text and the steps after it. ``null`` is the text without one."""
        weights, given = dict.fromkeys(branches, 1), self._given.get(path)
        if len(branches) > 1:
            weights = dict(self._unions.setdefault((path, *branches), self.weights(path, list(branches))))
            # The branches have the same path. They may contain this union again, but its weights are not theirs.
            self._given |= {path: replace(given, values=())} if given else {}
        share = 0 if null is None else round(self.given(path, "null_share", NULL_SHARE) * 10**9)
        total = sum(weights.values())
        alternatives: list[tuple[int, bytes, Body | None]] = [
            ((10**9 - share) * weights.get(name, 0), text, body) for name, (text, body) in branches.items()
        ]
        try:
            self.branch(alternatives if null is None else [(share * total, null, None), *alternatives], omits=omits)
        finally:
            self._given |= {path: given} if given else {}

    def unique(self) -> None:
        """Add the NAME_BYTES of a name in a map: a word, and the number of the round, which makes it another one."""
        self.words(Range(1, 1), form=programs.NO_LENGTH)
        self.ahead += b"-"
        self.add(programs.ITEM, 4, form=programs.NO_LENGTH, size=4)

    def count_of(self, path: str, low: int = 0, high: int = ITEMS_MAX) -> Range:
        """How many items an array or a map has."""
        require_some(low <= high, path, "number of items", low, high)
        found: Range = self.given(path, "count", Range(low, min(max(low, 3), high)))
        if not low <= found.min <= found.max <= high:
            given = found.min if found.min == found.max else f"{found.min} to {found.max}"
            raise wrong(path, "count", f"is {given}", f"give {low} to {high}, which the schema allows")
        return found

    def number(self, path: str, low: float, high: float, most: int, unit: int = 1, **more: Any) -> None:
        """Add a whole number from ``low`` to ``high``, in steps of 1/``unit``; a counter stays below a power of 2."""
        found = self.at(path, "type", "min", "max", "skew", "start", "step", "reference")
        kind = self._type(path, found, "integer", *(("counter", "timestamp") if unit == 1 else ()))
        if kind == "timestamp" and high < MOMENT_MAX:
            raise wrong(path, "type", 'is "timestamp", which is too large for this field', "remove it")
        is_some = low <= high and math.ceil(low * unit) <= math.floor(high * unit)
        require_some(is_some, path, "number", low, high)
        form: dict[str, Any] = {"form": self.number_form, **more}
        if found.reference:
            self.refer(self._target(path, found.reference, high, form.get("decimals", 0)), most, **form)
        elif kind == "counter":
            mask = (1 << max(0, (int(min(high, INT64_MAX)) + 1).bit_length() - 1)) - 1
            start, step = found.start or 0, 1 if found.step is None else found.step
            if low > 0 or high < 0:
                # 0 is not allowed, so it begins again at its start, after the last number that is.
                if high < 0:
                    raise wrong(path, "type", 'is "counter", but the schema allows no number from 0 on', "remove it")
                if not low <= start <= high:
                    raise wrong(path, "start", f"is {start}", f"give {low} to {high}, which the schema allows")
                mask, form["modulo"] = INT64_MAX, (math.floor(high) - start) // max(1, step) + 1
            self.counter(found, most, mask=mask, **form)
        elif kind == "timestamp":
            self.add(programs.MOMENT, most, **form)
        else:
            self.add(programs.NUMBER, most, numbers=self._range(path, found, low, high, unit), **form)

    def real(self, path: str, most: int, **more: Any) -> None:
        """Add a number with digits after the point."""
        places = self.given(path, "decimals", 2)
        self.number(path, -(1 << 52), 1 << 52, most, unit=10**places, decimals=places, **more)

    def enum(self, path: str, symbols: dict[str, bytes]) -> None:
        """Add one of some texts, each with a name."""
        if not symbols:
            raise Wrong(f"has an enum of nothing {place_of(path)}", "give it a value")
        self.choose([(symbols[name], weight) for name, weight in self.weights(path, list(symbols))])

    def weights(self, path: str, names: list[str]) -> Weights:
        """The names and weights that the workload gives, or all names alike."""
        found: Weights = self.given(path, "values", tuple((name, 1) for name in names))
        for name, _ in found:
            if name not in names:
                remedy = nearest(name, names) or f"choose from {', '.join(names[:20])}"
                raise wrong(path, "values", f"has {name!r}", remedy)
        return found

    def text(self, path: str, low: int = 0, high: int = INT32_MAX) -> None:
        """Add a text of ``low`` to ``high`` characters."""
        require_some(low <= high, path, "length of a text", low, high)
        found = self.at(path, "type", "values", "words", "size", "reference")
        kind = self._type(path, found, "text", "key", "name", "timestamp", "uuid")
        if found.reference:
            self._target(path, found.reference)
        elif kind == "key" and not found.values and self._key_bytes_max < 0:
            raise wrong(path, "type", 'is "key", but the keys are numbers or have a schema', "make both a counter")
        elif found.size is None and not found.words and (low or high < WORDS_BYTES):
            found = replace(found, size=Range(low, min(low + 20, high)))
        self.single(found)

    def key(self, **more: Any) -> None:
        """Add the record's key as a text; without one, the text is empty."""
        self.add(programs.KEY, 5 + self._key_bytes_max, omits=True, **more)

    def _target(self, path: str, to: To, high: float | None = None, decimals: int = 0) -> Target:
        """The keys of a reference, if a field of texts can hold them, or one of numbers up to ``high``."""
        target = to.target or Target(form=0 if high is None else programs.NUMBER_FORMS[0])
        if "[]" in path:
            raise wrong(path, "reference", "is repeated in a record", "name a field that is not in an array or a map")
        if target.is_number != (high is not None):
            kind = "numbers" if target.is_number else "texts"
            raise wrong(path, "reference", f"is to keys that are {kind}", "name a field of that type")
        if high is not None and (target.cardinality + target.beyond > high or decimals):
            raise wrong(path, "reference", "is to keys that this type does not hold", "name a field of a larger type")
        return target

    def raw(self, path: str) -> None:
        """Add random bytes."""
        size: Range = self.given(path, "size", Range(8, 16))
        self.add(programs.RAW, 5 + size.max, numbers=size, form=self.text_form)

    def _type(self, path: str, found: Drawn, *allowed: str) -> str:
        if found.type is not None and found.type not in allowed:
            others = f"{choice(*allowed[1:]).remedy}, or " if allowed[1:] else ""
            raise wrong(path, "type", f'is "{found.type}"', f"{others}remove it")
        return found.type or allowed[0]

    def ends(self, path: str, found: Drawn, low: float, high: float, span: float) -> tuple[float, float]:
        """The least and the largest number of a field; by default near 0, and ``span`` apart."""
        for key, value in (("min", found.min), ("max", found.max)):
            if value is not None and not low <= value <= high:
                raise wrong(path, key, f"is {value}", f"give {low} to {high}, which the schema allows")
        # The default is as near to 0 as it can be.
        upper = high if found.max is None else found.max
        first = max(low, DEFAULT.min if upper > DEFAULT.min else upper - span) if found.min is None else found.min
        last = min(high, span if first < span else first + span) if found.max is None else found.max
        if first > last:
            raise wrong(path, "min", f"is {first}, above max ({last})", "swap them")
        return first, last

    def _range(self, path: str, found: Drawn, low: float, high: float, unit: int) -> Range:
        span = min(DEFAULT.max, (programs.CHOICES_MAX - 1) / unit)
        first, last = self.ends(path, found, low, high, span)
        try:
            return programs.between(first, last, unit, found.skew or 1)
        except Wrong as error:
            raise error.inside(f".fields{step_of(path)}") from None


def require_some(is_some: bool, path: str, what: str, low: float, high: float) -> None:
    """``Wrong`` unless a schema leaves something from ``low`` to ``high``."""
    if not is_some:
        raise Wrong(f"allows no {what} {place_of(path)}: it asks for at least {low} and at most {high}", "correct it")


def wrong(path: str, key: str, problem: str, remedy: str) -> Wrong:
    """The error of a key of a field."""
    return Wrong(problem, remedy, f".fields{step_of(path)}.{key}")
