"""JSON Schemas as programs; jsonschema's own registry resolves references. Imported on first use."""

from __future__ import annotations

import json
from fractions import Fraction
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
from kfuzz.schemas.checked import as_written, registry_of

# Parts of 2026-01-31T08:00:00.000Z: where each begins, and its size.
DATES: Final = {"date-time": (0, DATE_BYTES), "date": (0, 10), "time": (11, 13)}
# Formats whose texts have letters between these texts, and those that have numbers from 0 on after these texts.
URI: Final = (b"https://example.com/", b"")
HOST: Final = (b"", b".example.com")
LETTERED: Final = {
    **dict.fromkeys(("uri", "url", "iri", "uri-reference", "iri-reference", "uri-template"), URI),
    **dict.fromkeys(("hostname", "idn-hostname"), HOST),
    "json-pointer": (b"/", b""), "relative-json-pointer": (b"0/", b""),
}  # fmt: skip
NUMBERED: Final = {
    "ipv4": ((b"", 223), *((b".", 255),) * 3),
    # Decimal digits are hexadecimal too.
    "ipv6": ((b"2001:db8:", 9999), *((b":", 9999),) * 5),
    "duration": ((b"P", 30), (b"DT", 23), (b"H", 59), (b"M", 59)),
}
PLACES_MAX: Final = 16
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
        self._any(schema, "", registry_of(others, schema).resolver_with_root(root))

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
            # A text that is written as another value keeps its quotes in its name.
            others = {json.dumps(one) for one in schema["enum"] if not isinstance(one, str)}
            names = [one if isinstance(one, str) and one not in others else json.dumps(one) for one in schema["enum"]]
            self.enum(path, dict(zip(names, map(quoted, schema["enum"]), strict=True)))
        elif key := next((key for key in ("oneOf", "anyOf") if key in schema), None):
            rest = {name: one for name, one in schema.items() if name != key}
            titles = [one.get("title") if isinstance(one, dict) else None for one in schema[key]]
            named = {
                str(at if title is None or titles.count(title) > 1 else title): _merged(rest, one)
                for at, (title, one) in enumerate(zip(titles, schema[key], strict=True))
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
        elif kind in ("email", "idn-email"):
            names = [name.lower().replace(" ", ".") for name in NAMES if name.isascii()]
            self.choose([(quoted(f"{name}@example.com"), 1) for name in names])
        elif kind in LETTERED:
            before, after = LETTERED[kind]
            self.ahead += b'"' + before
            self.add(programs.LETTERS, 16, numbers=Range(4, 16), form=programs.NO_LENGTH)
            self.ahead += after + b'"'
        elif kind in NUMBERED:
            for at, (before, most) in enumerate(NUMBERED[kind]):
                self.ahead += b'"' * (at == 0) + before
                self.add(programs.NUMBER, len(str(most)), numbers=Range(0, most))
            self.ahead += b'S"' if kind == "duration" else b'"'
        else:
            self.text(path, schema.get("minLength", 0), schema.get("maxLength", INT32_MAX))

    def _number(self, schema: dict[str, Any], path: str, *, whole: bool) -> None:
        schema = _with_numbers(schema)
        step = as_written(schema.get("multipleOf", 1 if whole else 0))
        # A whole number that is a multiple of 3/2 is one of 3.
        step = Fraction(step.numerator) if whole else step
        places = next((at for at in range(PLACES_MAX) if 10**at % step.denominator == 0), PLACES_MAX)
        if places == PLACES_MAX:
            raise Wrong(f"has a multipleOf of {PLACES_MAX} digits or more {place_of(path)}", "shorten it")
        places = places if step else self.given(path, "decimals", 2)
        least = 10**-places
        low = max(schema.get("minimum", -NUMBER_MAX), schema.get("exclusiveMinimum", -NUMBER_MAX - 1) + least)
        high = min(schema.get("maximum", NUMBER_MAX), schema.get("exclusiveMaximum", NUMBER_MAX + 1) - least)
        if step * 10**places > 1:
            self._multiples(schema, path, step, places, low, high)
        else:
            self.number(path, low, high, 24, unit=10**places, decimals=places)

    def _multiples(
        self, schema: dict[str, Any], path: str, step: Fraction, places: int, low: float, high: float
    ) -> None:
        """Add one of at most LABELS_MAX multiples of ``step``."""
        found = self.at(path, "min", "max")
        self.ends(path, found, low, high, NUMBER_MAX)
        is_bounded = found.min is not None or "minimum" in schema or "exclusiveMinimum" in schema
        low, high = low if found.min is None else found.min, high if found.max is None else found.max
        last = as_written(high) // step
        first = -(-as_written(low) // step) if is_bounded else min(0, last)
        last = last if found.max is not None else min(last, first + LABELS_MAX - 1)
        require_some(first <= last, path, f"multiple of {schema['multipleOf']}", low, high)
        count = min(last - first + 1, LABELS_MAX)
        chosen = [first + (last - first) * at // max(1, count - 1) for at in range(count)]
        self.choose([(_written(int(one * step * 10**places), places), 1) for one in chosen])


def _written(unscaled: int, places: int) -> bytes:
    whole, rest = divmod(abs(unscaled), 10**places)
    return (f"{'-' * (unscaled < 0)}{whole}" + f".{rest:0{places}}" * (places > 0)).encode()


def _with_numbers(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without the booleans that draft 4 has: they say that minimum or maximum is not allowed itself."""
    made = dict(schema)
    for key, end in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(made.get(key), bool) and made.pop(key) and end in made:
            made[key] = made.pop(end)
    return made
