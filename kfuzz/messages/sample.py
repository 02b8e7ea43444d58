"""Makes random values to test a message with.

``filled`` sets every field of a version, but may leave out tagged ones. Nullable fields may be null, arrays may be
empty, and structs may have unknown tagged fields. A primitive that is not null differs from its default. The same seed
makes the same values.
"""

from __future__ import annotations

import random
from typing import Any, Final

from kfuzz.messages.model import INT_RANGES, Definition, Field, key_of
from kfuzz.messages.schemas import default_of
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS

# ASCII characters, and some that take two, three and four bytes in UTF-8.
_LETTERS: Final = "abcXYZ019-._ äßÿ€漢\U0001f600"
_UNKNOWN_TAGS: Final = (20, 1000, 70_000, (1 << 31) - 2)


def filled(definition: Definition, version: int, seed: int) -> dict[str, Any]:
    """Random values for the fields of ``version``, made from ``seed``."""
    rng = random.Random(f"{seed} {definition.name} {version}")
    return _struct(rng, definition, definition.fields, version, 0)


def _struct(
    rng: random.Random, definition: Definition, fields: tuple[Field, ...], version: int, depth: int
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions or (version in field.tagged and rng.random() < 0.3):
            continue
        made[key_of(field.name)] = _value(rng, definition, field, version, depth)
    if version in definition.flexible_versions and rng.random() < 0.3:
        tags = sorted(rng.sample(_UNKNOWN_TAGS, rng.randint(1, 3)))
        made[UNKNOWN_TAGGED_FIELDS] = [(tag, rng.randbytes(rng.choice((0, 1, 3, 130)))) for tag in tags]
    return made


def _value(rng: random.Random, definition: Definition, field: Field, version: int, depth: int) -> Any:
    if version in field.nullable and rng.random() < 0.25:
        return None
    if not field.type.array:
        return _element(rng, definition, field, version, depth)
    count = 0 if depth > 3 else rng.choice((0, 1, 1, 2, 3, 7))
    return [_element(rng, definition, field, version, depth) for _ in range(count)]


def _element(rng: random.Random, definition: Definition, field: Field, version: int, depth: int) -> Any:
    name = field.type.name
    if field.type.struct is not None:
        return _struct(rng, definition, definition.fields_of(field.type), version, depth + 1)
    default = None if field.type.array else default_of(definition, field, version)
    while True:
        value: Any
        if name in INT_RANGES:
            value = _integer(rng, *INT_RANGES[name])
        elif name == "bool":
            value = not default if isinstance(default, bool) else rng.random() < 0.5
        elif name == "float64":
            value = rng.choice((rng.uniform(-1e9, 1e9), -0.0, 1e308, 5e-324))
        elif name == "string":
            value = "".join(rng.choices(_LETTERS, k=rng.choice((1, 2, 5, 20, 130))))
        elif name == "uuid":
            value = rng.randbytes(16)
        else:
            value = rng.randbytes(rng.choice((1, 2, 40, 200)))
        if value != default:
            return value


def _integer(rng: random.Random, least: int, most: int) -> int:
    """A number near the smallest, near the largest, near 0, or anywhere, each as often."""
    near = rng.choice((least, most, 0, rng.randint(least, most)))
    return min(max(near + rng.randint(-3, 3), least), most)
