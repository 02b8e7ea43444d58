"""Avro schemas as programs; fastavro parses them. Imported on first use: it needs fastavro."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from fastavro import parse_schema

from kfuzz.corpora import programs
from kfuzz.corpora.quantities import Range
from kfuzz.corpora.shaping import INT64_MAX, INT64_MIN, NAME_BYTES, Schemed, Shaper, varint, wrong
from kfuzz.forms import Wrong
from kfuzz.kafka import INT32_MAX
from kfuzz.schemas.avro import schema_of

DAY_MS: Final = 86_400_000
# Logical types that hold the record's timestamp: times, divided by, modulo.
MOMENTS: Final = {
    "int-date": (1, DAY_MS, 0),
    "int-time-millis": (1, 1, DAY_MS),
    "long-time-micros": (1000, 1, DAY_MS),
    **{
        f"long-{local}timestamp-{unit}": (times, 1, 0)
        for local in ("", "local-")
        for unit, times in (("millis", 1), ("micros", 1000), ("nanos", 1_000_000))
    },
}
# Bytes of a fixed that a decimal of 64 bits fills; the sign fills the others.
DIGITS_MAX: Final = 18


def compiled(side: Schemed, made: Shaper) -> None:
    """Add the steps of the schema. ``Wrong`` if it cannot be generated."""
    known: dict[str, Any] = {}
    for name, text in side.texts:
        schema = parse_schema(schema_of(text, name), named_schemas=known)
    made.text_form = made.number_form = programs.ZIGZAG
    made.encoded = _text
    _Compiler(made, known).add(schema, "")


def _text(text: str) -> bytes:
    data = text.encode()
    return varint(len(data)) + data


class _Compiler:
    def __init__(self, made: Shaper, known: dict[str, Any]) -> None:
        self.made, self.known = made, known

    def add(self, schema: Any, path: str) -> None:
        made = self.made
        if isinstance(schema, str):
            schema = self.known.get(schema, {"type": schema})
        if isinstance(schema, list):
            self.union(schema, path)
            return
        kind = schema["type"]
        if not isinstance(kind, str) or kind in self.known:
            # A type inside a type.
            self.add(kind, path)
        elif kind in ("record", "error"):
            made.inside(schema["name"], path, partial(self.record, schema))
        elif kind == "enum":
            made.enum(path, {symbol: varint(at) for at, symbol in enumerate(schema["symbols"])})
        elif kind in ("array", "map"):
            made.loop(made.count_of(path), partial(self.item, schema, path), form=programs.ZIGZAG)
            made.ahead += b"\0"
        else:
            self.single(kind, schema, path)

    def record(self, schema: Any, path: str) -> None:
        for one in schema["fields"]:
            self.add(one["type"], f"{path}.{one['name']}" if path else one["name"])

    def item(self, schema: Any, path: str) -> None:
        if schema["type"] == "map":
            self.made.ahead += varint(NAME_BYTES)
            self.made.unique()
        self.add(schema.get("items", schema.get("values")), f"{path}[]")

    def union(self, schemas: list[Any], path: str) -> None:
        if not schemas:
            raise Wrong(f"has a union of nothing at {path or 'its top'}", "give it a type")
        branches = {_name(one): (varint(at), partial(self.add, one, path)) for at, one in enumerate(schemas)}
        null = branches.pop("null", (None, None))[0]
        if branches:
            self.made.union(path, branches, null)
        else:
            self.made.ahead += null or b""

    def single(self, kind: str, schema: dict[str, Any], path: str) -> None:
        made = self.made
        logical = f"{kind}-{schema.get('logicalType')}"
        size = schema.get("size", 0)
        if type(size) is not int or size < 0:
            raise Wrong(f"has a fixed of {size!r} bytes at {path or 'its top'}", "give a whole number")
        given = made.at(path, "type")
        if logical in MOMENTS and given.min is None and given.max is None and given.type in (None, "timestamp"):
            times, divide, modulo = MOMENTS[logical]
            made.add(programs.MOMENT, 10, form=programs.ZIGZAG, times=times, divide=divide, modulo=modulo)
        elif logical in ("bytes-decimal", "fixed-decimal"):
            self.decimal(schema, path, size)
        elif logical == "string-uuid":
            made.add(programs.UUID, 38, form=programs.ZIGZAG)
        elif logical == "fixed-uuid" and size == 16:
            made.add(programs.UUID, 16, form=programs.NO_LENGTH)
        elif logical == "fixed-duration" and size == 12:
            for part in ("months", "days", "milliseconds"):
                made.number(f"{path}.{part}", 0, (1 << 32) - 1, 4, form=programs.LITTLE, size=4)
        elif kind == "int":
            made.number(path, -INT32_MAX - 1, INT32_MAX, 5)
        elif kind == "long":
            made.number(path, INT64_MIN, INT64_MAX, 10)
        elif kind in ("float", "double"):
            made.real(path, 8, form=programs.FLOAT if kind == "float" else programs.DOUBLE)
        elif kind == "boolean":
            made.boolean(path, b"\1", b"\0")
        elif kind == "string":
            made.text(path)
        elif kind == "bytes":
            made.raw(path)
        elif kind == "fixed":
            made.add(programs.RAW, size, numbers=Range(size, size), form=programs.NO_LENGTH)

    def decimal(self, schema: dict[str, Any], path: str, size: int) -> None:
        scale, digits = int(schema.get("scale", 0)), int(schema["precision"])
        # A fixed may be too short for its precision.
        digits = min(digits, DIGITS_MAX, int((8 * size - 1) * 0.30103) if size else DIGITS_MAX)
        if scale > digits:
            raise wrong(path, "type", "is a decimal without digits before the point", "lower its scale")
        most = 10 ** (digits - scale) - 1
        form: dict[str, Any] = {"form": programs.BIG_SIZED, "size": size} if size else {"form": programs.BIG}
        self.made.number(path, -most, most, max(9, size), unit=10**scale, **form)


def _name(schema: Any) -> str:
    """The name of a branch of a union."""
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)
