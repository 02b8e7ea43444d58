"""JSON values compared with their JSON Schema. Imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any
from urllib.parse import urljoin

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.forms import shown
from kfuzz.schemas.plain import json_form
from kfuzz.text import foreign_text


def registry_of(references: Iterable[tuple[str, str]], root: Any = None) -> Any:
    """The registry of schemas, given by names and texts. Names count from the ``$id`` of the schema ``root``."""
    base = root.get("$id", "") if isinstance(root, dict) else ""
    known = [(urljoin(base, path), Resource.from_contents(_loaded(one, path), DRAFT7)) for path, one in references]
    return Registry().with_resources(known)


def _loaded(text: str, name: str) -> Any:
    schema = load_json(text, name)
    if not isinstance(schema, dict | bool):
        raise UsageError(f"{name} is not a JSON Schema: it is {shown(schema)}, and no object")
    return schema


def as_written(number: float) -> Fraction:
    """The number as it is written: the double nearest to 33.08 is no multiple of the one nearest to 0.01."""
    return Fraction(repr(number))


def _multiple(_: Any, step: float, value: Any, schema: Any) -> Iterator[ValidationError]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and as_written(value) % as_written(step):
        yield ValidationError(f"{value!r} is not a multiple of {step!r}")


def checker(text: str, references: Iterable[tuple[str, str]], name: str) -> Callable[[bytes], bytes]:
    """A function that gives the JSON of a value, and raises ``ValueError`` for one that the schema refuses.

    ``references`` are the schemas that it refers to, by name; nothing is fetched.
    """
    schema = _loaded(text, name)
    kind = validator_for(schema, Draft7Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"{name} is not a JSON Schema: {error.json_path}: {foreign_text(error.message)}") from None
    made = extend(kind, {"multipleOf": _multiple})(schema, registry=registry_of(references, schema))

    def check(data: bytes) -> bytes:
        form = json_form(data)
        try:
            value = load_json(data, "the value")
        except UsageError as error:
            raise ValueError(str(error)) from None
        try:
            wrong = best_match(made.iter_errors(value))
        except Unresolvable as error:
            path = foreign_text(error.ref, bytes_max=100)
            raise ValueError(f"{name} needs {path}, which neither it nor a schema that it refers to has") from None
        if wrong is not None:
            raise ValueError(f"{wrong.json_path}: {wrong.message}")
        return form

    return check
