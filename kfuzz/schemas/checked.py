"""JSON values compared with their JSON Schema. Imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from jsonschema import Draft7Validator
from jsonschema.exceptions import SchemaError, best_match
from jsonschema.validators import validator_for
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.schemas.plain import json_form
from kfuzz.text import foreign_text


def registry_of(references: Iterable[tuple[str, str]]) -> Any:
    """The registry of schemas, given by names and texts."""
    known = [(path, Resource.from_contents(load_json(one, path), DRAFT7)) for path, one in references]
    return Registry().with_resources(known)


def checker(text: str, references: Iterable[tuple[str, str]], name: str) -> Callable[[bytes], bytes]:
    """A function that gives the JSON of a value, and raises ``ValueError`` for one that the schema refuses.

    ``references`` are the schemas that it refers to, by name; nothing is fetched.
    """
    schema, known = load_json(text, name), registry_of(references)
    kind = validator_for(schema, Draft7Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise UsageError(f"{name} is not a JSON Schema: {error.json_path}: {foreign_text(error.message)}") from None
    made = kind(schema, registry=known)

    def check(data: bytes) -> bytes:
        form = json_form(data)
        try:
            value = load_json(data, "the value")
        except UsageError as error:
            raise ValueError(str(error)) from None
        if (wrong := best_match(made.iter_errors(value))) is not None:
            raise ValueError(f"{wrong.json_path}: {wrong.message}")
        return form

    return check
