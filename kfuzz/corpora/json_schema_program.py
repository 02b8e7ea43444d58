"""JSON Schemas as programs; jsonschema's own registry resolves references. Imported on first use."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kfuzz.corpora import programs
from kfuzz.corpora.programs import NUMBER_MAX
from kfuzz.corpora.quantities import LABELS_MAX, Range
from kfuzz.corpora.shaping import ITEMS_MAX, Schemed, Shaper
from kfuzz.corpora.words import NAMES
from kfuzz.documents import load_json
from kfuzz.forms import Wrong
from kfuzz.schemas.checked import registry_of

# Parts of 2026-01-31T08:00:00.000Z: where each begins, and its size.
DATES: Final = {"date-time": (0, 24), "date": (0, 10), "time": (11, 13)}
# A schema without a type has the type of the first of these that it has.
TYPES: Final = {
    "properties": "object", "additionalProperties": "object", "required": "object", "items": "array",
    "prefixItems": "array", "minItems": "array", "maxItems": "array", "minimum": "number", "maximum": "number",
    "multipleOf": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}  # fmt: skip


def compiled(side: Schemed, made: Shaper) -> None:
    """Add the steps of the schema. ``Wrong`` if it cannot be generated."""
    *others, (name, text) = side.texts
    schema = load_json(text, name)
    root = DRAFT7.detect(schema).create_resource(schema)
    made.encoded = _quoted
    _Compiler(made).add(schema, "", registry_of(others).resolver_with_root(root))


def _quoted(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _merged(first: dict[str, Any], second: Any) -> dict[str, Any]:
    """A schema that asks for both."""
    if not isinstance(second, dict):
        return first
    both = {**first, **second}
    for key in ("properties", "required"):
        if key in first and key in second:
            both[key] = first[key] | second[key] if key == "properties" else [*first[key], *second[key]]
    return both


class _Compiler:
    def __init__(self, made: Shaper) -> None:
        self.made = made

    def add(self, schema: Any, path: str, resolver: Any) -> None:
        made = self.made
        if not isinstance(schema, dict):
            if schema is False:
                raise Wrong(f"allows nothing at {path or 'its top'}", "give it a type")
            made.text(path)
        elif "$ref" in schema:
            try:
                found = resolver.lookup(schema["$ref"])
            except Unresolvable:
                raise Wrong(f"refers to {schema['$ref']!r}, which is not there", "list it in references") from None
            rest = {key: one for key, one in schema.items() if key != "$ref"}
            merged = _merged(rest, found.contents) if set(rest) & set(TYPES) else found.contents
            made.inside(id(found.contents), path, lambda first: self.add(merged, first, found.resolver))
        elif "allOf" in schema:
            both = {key: one for key, one in schema.items() if key != "allOf"}
            for one in schema["allOf"]:
                if isinstance(one, dict) and "$ref" in one:
                    one = resolver.lookup(one["$ref"]).contents
                both = _merged(both, one)
            made.inside(id(schema), path, lambda first: self.add(both, first, resolver))
        elif "const" in schema:
            made.ahead += _quoted(schema["const"])
        elif "enum" in schema:
            made.enum(path, {one if isinstance(one, str) else json.dumps(one): _quoted(one) for one in schema["enum"]})
        elif key := next((key for key in ("oneOf", "anyOf") if key in schema), None):
            rest = {name: one for name, one in schema.items() if name != key}
            named = {
                str(one.get("title", at) if isinstance(one, dict) else at): _merged(rest, one)
                for at, one in enumerate(schema[key])
            }
            self.union(named, path, resolver)
        elif isinstance(schema.get("type"), list):
            self.union({kind: {**schema, "type": kind} for kind in schema["type"]}, path, resolver)
        else:
            self.single(schema, path, resolver)

    def union(self, named: dict[str, dict[str, Any]], path: str, resolver: Any) -> None:
        others = {name: one for name, one in named.items() if one.get("type") != "null"}
        branches = {name: (b"", partial(self.add, one, path, resolver)) for name, one in others.items()}
        self.made.union(path, branches, b"null" if len(others) < len(named) else None)

    def single(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        made = self.made
        kind = schema.get("type") or next((TYPES[key] for key in schema if key in TYPES), "string")
        if kind == "object":
            self.object(schema, path, resolver)
        elif kind == "array":
            self.array(schema, path, resolver)
        elif kind == "boolean":
            made.boolean(path, b"true", b"false")
        elif kind == "null":
            made.ahead += b"null"
        elif kind == "string":
            self.string(schema, path)
        else:
            self.number(schema, path, whole=kind == "integer")

    def object(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        made = self.made
        known = schema.get("properties") or {}
        required = list(dict.fromkeys(schema.get("required", ())))
        more = schema.get("additionalProperties", True)
        made.ahead += b"{"
        if not known and not required and more is not False:
            count = made.count_of(path, schema.get("minProperties", 0), schema.get("maxProperties", ITEMS_MAX))
            made.loop(count, partial(self.pair, more, path, resolver), b",")
        for at, name in enumerate(required):
            made.ahead += b"," * (at > 0) + _quoted(name) + b":"
            self.add(known.get(name, more), f"{path}.{name}" if path else name, resolver)
        for name, inner in known.items():
            here = f"{path}.{name}" if path else name
            if name not in required:
                # The comma is left out if it would be the first byte in the object.
                some = b"," + _quoted(name) + b":"
                made.union(here, {"": (some, partial(self.add, inner, here, resolver))}, b"", omits=True)
        made.ahead += b"}"

    def pair(self, schema: Any, path: str, resolver: Any) -> None:
        self.made.ahead += b'"'
        self.made.unique()
        self.made.ahead += b'":'
        self.add(schema, f"{path}[]", resolver)

    def array(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        made, items = self.made, schema.get("prefixItems", schema.get("items", True))
        made.ahead += b"["
        if isinstance(items, list):
            for at, one in enumerate(items):
                made.ahead += b"," * (at > 0)
                self.add(one, f"{path}[]", resolver)
        else:
            low, high = schema.get("minItems", 0), schema.get("maxItems", ITEMS_MAX)
            count = made.count_of(path, low, max(low, min(1, high)) if schema.get("uniqueItems") else high)
            made.loop(count, lambda: self.add(items, f"{path}[]", resolver), b",")
        made.ahead += b"]"

    def string(self, schema: dict[str, Any], path: str) -> None:
        made, kind = self.made, schema.get("format")
        given = made.at(path)
        if given.type or given.values or given.words or given.size:
            kind = None
        if kind in DATES:
            at, size = DATES[kind]
            made.add(programs.DATE, size + 2, cut_at=at, size=size)
        elif kind == "uuid":
            made.add(programs.UUID, 38)
        elif kind == "email":
            names = [name.lower().replace(" ", ".") for name in NAMES if name.isascii()]
            made.choose([(_quoted(f"{name}@example.com"), 1) for name in names])
        elif kind in ("uri", "url"):
            made.ahead += b'"https://example.com/'
            made.add(programs.LETTERS, 16, numbers=Range(4, 16), form=programs.NO_LENGTH)
            made.ahead += b'"'
        else:
            made.text(path, schema.get("minLength", 0), schema.get("maxLength"))

    def number(self, schema: dict[str, Any], path: str, *, whole: bool) -> None:
        made, step = self.made, schema.get("multipleOf", 1 if whole else 0)
        places = 0 if whole or step == 1 else made.places(path)
        least = 10**-places
        low = max(schema.get("minimum", -NUMBER_MAX), schema.get("exclusiveMinimum", -NUMBER_MAX - 1) + least)
        high = min(schema.get("maximum", NUMBER_MAX), schema.get("exclusiveMaximum", NUMBER_MAX + 1) - least)
        if whole and step != 1:
            first = -(-low // step) if "minimum" in schema or "exclusiveMinimum" in schema else 0
            last = min(high // step, first + LABELS_MAX - 1)
            made.choose([(_quoted(int(number * step)), 1) for number in range(int(first), int(last) + 1)])
        else:
            made.number(path, low, high, 24, unit=10**places, decimals=places)
