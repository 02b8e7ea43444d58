"""Avro schemas as programs; fastavro parses them. Imported on first use: it needs fastavro."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastavro import parse_schema

from kfuzz.corpora import programs
from kfuzz.corpora.avro_rules import require_allowed
from kfuzz.corpora.programs import CHOICES_MAX, INT64_MAX, INT64_MIN, varint
from kfuzz.corpora.quantities import Range
from kfuzz.corpora.shaping import DEFAULT, NAME_BYTES, Schemed, Shaper, member, place_of, wrong
from kfuzz.forms import Wrong
from kfuzz.kafka import INT32_MAX
from kfuzz.schemas.avro import schema_of

# kfuzz.corpora.clock has it too, but imports the modules that import this one.
DAY_MS: Final = 86_400_000
# Logical types that hold the record's timestamp, and the keys of its step.
MOMENTS: Final[dict[str, dict[str, Any]]] = {
    "int-date": {"divide": DAY_MS},
    "int-time-millis": {"modulo": DAY_MS},
    "long-time-micros": {"times": 1000, "modulo": DAY_MS},
    **{
        f"long-{local}timestamp-{unit}": {"times": times}
        for local in ("", "local-")
        for unit, times in (("millis", 1), ("micros", 1000), ("nanos", 1_000_000))
    },
}
DIGITS_MAX: Final = 1000


class Compiler(Shaper):
    """Adds the steps of a schema."""

    text_form = number_form = programs.ZIGZAG

    def compile(self, side: Schemed) -> None:
        """Add the steps of the last of the schemas. ``Wrong`` if it cannot be generated."""
        self._known: dict[str, Any] = {}
        for name, text in side.texts:
            given = schema_of(text, name)
            try:
                if text.strip() == "null":
                    raise Wrong("is null, and no schema", 'write "null" in quotes to name that type')
                require_allowed(given)
            except Wrong as error:
                error.problem = error.problem if name == side.schema else f"refers to {name}, which {error.problem}"
                raise
            schema = parse_schema(given, named_schemas=self._known)
        self._any(schema, "")

    def _any(self, schema: Any, path: str) -> None:
        if isinstance(schema, str):
            schema = self._known.get(schema, {"type": schema})
        kind = None if isinstance(schema, list) else schema["type"]
        if kind is None:
            self._union(schema, path)
        elif not isinstance(kind, str) or kind in self._known:
            # A type inside a type.
            self._any(kind, path)
        elif kind in ("record", "error"):
            self.inside(schema["name"], path, partial(self._record, schema))
        elif kind == "enum":
            self.enum(path, {symbol: varint(at) for at, symbol in enumerate(schema["symbols"])})
        elif kind in ("array", "map"):
            self.loop(self.count_of(path), partial(self._item, schema, path), form=programs.ZIGZAG)
            self.ahead += b"\0"
        else:
            self._single(kind, schema, path)

    def _record(self, schema: Any, path: str) -> None:
        for one in schema["fields"]:
            self._any(one["type"], member(path, one["name"]))

    def _item(self, schema: Any, path: str) -> None:
        if schema["type"] == "map":
            self.ahead += varint(NAME_BYTES)
            self.unique()
        self._any(schema.get("items", schema.get("values")), f"{path}[]")

    def _union(self, schemas: list[Any], path: str) -> None:
        if not schemas:
            raise Wrong(f"has a union of nothing {place_of(path)}", "give it a type")
        branches = {_name(one): (varint(at), partial(self._any, one, path)) for at, one in enumerate(schemas)}
        null = branches.pop("null", (None, None))[0]
        if branches:
            self.union(path, branches, null)
        else:
            self.ahead += null or b""

    def _single(self, kind: str, schema: dict[str, Any], path: str) -> None:
        logical = f"{kind}-{schema.get('logicalType')}"
        size = schema.get("size", 0)
        if type(size) is not int or size < 0:
            raise Wrong(f"has a fixed of {size!r} bytes {place_of(path)}", "give a whole number")
        given = self.at(path, "type")
        if logical in MOMENTS and given.min is None and given.max is None and given.type in (None, "timestamp"):
            self.add(programs.MOMENT, 10, form=programs.ZIGZAG, **MOMENTS[logical])
        elif logical in ("bytes-decimal", "fixed-decimal"):
            self._decimal(schema, path, size)
        elif logical == "string-uuid":
            self.add(programs.UUID, 38, form=programs.ZIGZAG)
        elif logical == "fixed-uuid" and size == 16:
            self.add(programs.UUID, 16, form=programs.NO_LENGTH)
        elif logical == "fixed-duration" and size == 12:
            for part in ("months", "days", "milliseconds"):
                self.number(f"{path}.{part}", 0, (1 << 32) - 1, 4, form=programs.LITTLE, size=4)
        elif kind == "int":
            self.number(path, -INT32_MAX - 1, INT32_MAX, 5)
        elif kind == "long":
            self.number(path, INT64_MIN, INT64_MAX, 10)
        elif kind in ("float", "double"):
            self.real(path, 8, form=programs.FLOAT if kind == "float" else programs.DOUBLE)
        elif kind == "boolean":
            self.boolean(self.given(path, "share", 0.5), b"\1", b"\0")
        elif kind == "string":
            self.text(path)
        elif kind == "bytes":
            self.raw(path)
        elif kind == "fixed":
            self.add(programs.RAW, size, numbers=Range(size, size), form=programs.NO_LENGTH)

    def _decimal(self, schema: dict[str, Any], path: str, size: int) -> None:
        scale, digits = int(schema.get("scale", 0)), int(schema["precision"])
        if digits > DIGITS_MAX:
            raise Wrong(f"has a decimal of more than {DIGITS_MAX} digits {place_of(path)}", "lower its precision")
        unit, unscaled = 10**scale, 10**digits - 1
        most, form = unscaled // unit, programs.BIG_SIZED if size else programs.BIG
        found = self.at(path, "min", "max", "skew")
        if self.at(path, "type").type or self.at(path, "reference").reference:
            self.number(path, -most, most, max(9, size), unit=unit, form=form, size=size)
            return
        first, last = (int(one) * unit for one in self.ends(path, found, -most, most, DEFAULT.max))
        # The digits after the point go on where the schema ends.
        first = -unscaled if found.max is not None and found.min is None and first == -most * unit else first
        last = unscaled if found.max is None and last == most * unit else last
        # Random numbers have 32 bits. In larger ones, the bytes that follow those are random.
        free = next(
            at
            for at in range(DIGITS_MAX)
            if last - first >> 8 * at < CHOICES_MAX and max(-first, last) >> 8 * at <= INT64_MAX
        )
        low, high = -(-first >> 8 * free), (last + 1 >> 8 * free) - 1
        length = size or (max(-first, last).bit_length() + 8) // 8
        if not free:
            self.add(programs.NUMBER, max(9, size), numbers=Range(low, high, found.skew or 1), form=form, size=size)
            return
        self.ahead += b"" if size else varint(length)
        if first == last:
            self.ahead += first.to_bytes(length, "big", signed=True)
        elif low > high:
            raise wrong(path, "max", f"is {last // unit}, too near to min for so many digits", "raise it")
        else:
            head = {"form": programs.BIG_SIZED, "size": length - free}
            self.add(programs.NUMBER, length - free, numbers=Range(low, high, found.skew or 1), **head)
            self.add(programs.RAW, free, numbers=Range(free, free), form=programs.NO_LENGTH)


def _name(schema: Any) -> str:
    """The name of a branch of a union."""
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)
