"""JSON Schemas as programs; jsonschema's own registry resolves references. Imported on first use."""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kfuzz.corpora import programs
from kfuzz.corpora.programs import DATE_BYTES, ITEMS_MAX, NUMBER_MAX, quoted
from kfuzz.corpora.quantities import LABELS_MAX, Range
from kfuzz.corpora.shaping import Schemed, Shaper, member, place_of, require_some
from kfuzz.corpora.words import NAMES
from kfuzz.documents import load_json
from kfuzz.forms import Wrong, shown
from kfuzz.kafka import INT32_MAX
from kfuzz.schemas.checked import registry_of

# Parts of 2026-01-31T08:00:00.000Z: where each begins, and its size.
DATES: Final = {"date-time": (0, DATE_BYTES), "date": (0, 10), "time": (11, 13)}
# A schema without a type has the type of the first of these that it has.
TYPES: Final = {
    "properties": "object", "additionalProperties": "object", "required": "object", "items": "array",
    "prefixItems": "array", "minItems": "array", "maxItems": "array", "minimum": "number", "maximum": "number",
    "multipleOf": "number", "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}  # fmt: skip


def _merged(first: dict[str, Any], second: Any) -> dict[str, Any]:
    """A schema that asks for both."""
    if not isinstance(second, dict):
        return first
    both = {**first, **second}
    for key in ("properties", "required"):
        if key in first and key in second:
            both[key] = first[key] | second[key] if key == "properties" else [*first[key], *second[key]]
    return both


def _found(resolver: Any, reference: Any) -> Any:
    try:
        return resolver.lookup(reference)
    except Unresolvable:
        problem = f"refers to {shown(reference)}, which is not there"
        raise Wrong(problem, "correct it, or list its file in references") from None


class Compiler(Shaper):
    """Adds the steps of a schema."""

    def compile(self, side: Schemed) -> None:
        """Add the steps of the last of the schemas. ``Wrong`` if it cannot be generated."""
        *others, (name, text) = side.texts
        schema = load_json(text, name)
        root = DRAFT7.detect(schema).create_resource(schema)
        self._any(schema, "", registry_of(others).resolver_with_root(root))

    def _any(self, schema: Any, path: str, resolver: Any) -> None:
        if not isinstance(schema, dict):
            if schema is False:
                raise Wrong(f"allows nothing {place_of(path)}", "give it a type")
            self.text(path)
        elif "$ref" in schema:
            found = _found(resolver, schema["$ref"])
            rest = {key: one for key, one in schema.items() if key != "$ref"}
            merged = _merged(rest, found.contents) if set(rest) & set(TYPES) else found.contents
            self.inside(id(found.contents), path, lambda first: self._any(merged, first, found.resolver))
        elif "allOf" in schema:
            both = {key: one for key, one in schema.items() if key != "allOf"}
            for one in schema["allOf"]:
                if isinstance(one, dict) and "$ref" in one:
                    one = _found(resolver, one["$ref"]).contents
                both = _merged(both, one)
            self.inside(id(schema), path, lambda first: self._any(both, first, resolver))
        elif "const" in schema:
            self.ahead += quoted(schema["const"])
        elif "enum" in schema:
            self.enum(path, {one if isinstance(one, str) else json.dumps(one): quoted(one) for one in schema["enum"]})
        elif key := next((key for key in ("oneOf", "anyOf") if key in schema), None):
            rest = {name: one for name, one in schema.items() if name != key}
            named = {
                str(one.get("title", at) if isinstance(one, dict) else at): _merged(rest, one)
                for at, one in enumerate(schema[key])
            }
            self._union(named, path, resolver)
        elif isinstance(schema.get("type"), list):
            self._union({kind: {**schema, "type": kind} for kind in schema["type"]}, path, resolver)
        else:
            self._single(schema, path, resolver)

    def _union(self, named: dict[str, dict[str, Any]], path: str, resolver: Any) -> None:
        others = {name: one for name, one in named.items() if one.get("type") != "null"}
        branches = {name: (b"", partial(self._any, one, path, resolver)) for name, one in others.items()}
        self.union(path, branches, b"null" if len(others) < len(named) else None)

    def _single(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        kind = schema.get("type") or next((TYPES[key] for key in schema if key in TYPES), "string")
        if kind == "object":
            self._object(schema, path, resolver)
        elif kind == "array":
            self._array(schema, path, resolver)
        elif kind == "boolean":
            self.boolean(self.given(path, "share", 0.5), b"true", b"false")
        elif kind == "null":
            self.ahead += b"null"
        elif kind == "string":
            self._string(schema, path)
        else:
            self._number(schema, path, whole=kind == "integer")

    def _object(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        known = schema.get("properties") or {}
        required = list(dict.fromkeys(schema.get("required", ())))
        more = schema.get("additionalProperties", True)
        self.ahead += b"{"
        if not known and not required and more is not False:
            count = self.count_of(path, schema.get("minProperties", 0), schema.get("maxProperties", ITEMS_MAX))
            self.loop(count, partial(self._pair, more, path, resolver), b",")
        for at, name in enumerate(required):
            self.ahead += b"," * (at > 0) + quoted(name) + b":"
            self._any(known.get(name, more), member(path, name), resolver)
        for name, inner in known.items():
            here = member(path, name)
            if name not in required:
                # The comma is left out if it would be the first byte in the object.
                some = b"," + quoted(name) + b":"
                self.union(here, {"": (some, partial(self._any, inner, here, resolver))}, b"", omits=True)
        self.ahead += b"}"

    def _pair(self, schema: Any, path: str, resolver: Any) -> None:
        self.ahead += b'"'
        self.unique()
        self.ahead += b'":'
        self._any(schema, f"{path}[]", resolver)

    def _array(self, schema: dict[str, Any], path: str, resolver: Any) -> None:
        items = schema.get("prefixItems", schema.get("items", True))
        self.ahead += b"["
        if isinstance(items, list):
            for at, one in enumerate(items):
                self.ahead += b"," * (at > 0)
                self._any(one, f"{path}[]", resolver)
        else:
            low, high = schema.get("minItems", 0), schema.get("maxItems", ITEMS_MAX)
            count = self.count_of(path, low, max(low, min(1, high)) if schema.get("uniqueItems") else high)
            self.loop(count, lambda: self._any(items, f"{path}[]", resolver), b",")
        self.ahead += b"]"

    def _string(self, schema: dict[str, Any], path: str) -> None:
        kind = schema.get("format")
        given = self.at(path)
        if given.type or given.values or given.words or given.size:
            kind = None
        if kind in DATES:
            at, size = DATES[kind]
            self.add(programs.DATE, size + 2, cut_at=at, size=size)
        elif kind == "uuid":
            self.add(programs.UUID, 38)
        elif kind == "email":
            names = [name.lower().replace(" ", ".") for name in NAMES if name.isascii()]
            self.choose([(quoted(f"{name}@example.com"), 1) for name in names])
        elif kind in ("uri", "url"):
            self.ahead += b'"https://example.com/'
            self.add(programs.LETTERS, 16, numbers=Range(4, 16), form=programs.NO_LENGTH)
            self.ahead += b'"'
        else:
            self.text(path, schema.get("minLength", 0), schema.get("maxLength", INT32_MAX))

    def _number(self, schema: dict[str, Any], path: str, *, whole: bool) -> None:
        step = schema.get("multipleOf", 1 if whole else 0)
        places = 0 if whole or step == 1 else self.given(path, "decimals", 2)
        least = 10**-places
        low = max(schema.get("minimum", -NUMBER_MAX), schema.get("exclusiveMinimum", -NUMBER_MAX - 1) + least)
        high = min(schema.get("maximum", NUMBER_MAX), schema.get("exclusiveMaximum", NUMBER_MAX + 1) - least)
        if whole and step != 1:
            first = -(-low // step) if "minimum" in schema or "exclusiveMinimum" in schema else min(0, high // step)
            last = min(high // step, first + LABELS_MAX - 1)
            require_some(first <= last, path, f"multiple of {step}", low, high)
            self.choose([(quoted(int(number * step)), 1) for number in range(int(first), int(last) + 1)])
        else:
            self.number(path, low, high, 24, unit=10**places, decimals=places)
