"""JSON values compared with their JSON Schema. Imported on first use."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, Final
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

# How long a value may be compared with its schema, and each byte of it, in seconds of this process.
VALUE_S_MAX: Final = 2.0
BYTE_S_MAX: Final = 1e-5


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


@contextlib.contextmanager
def _limited(limit_s: float) -> Iterator[None]:
    """``ValueError`` if the block takes longer, but only in the main thread: no other can be interrupted.

    A pattern such as ``([a-z]+)+0`` takes time that doubles with each character, as do schemas that refer twice to
    another. libFuzzer needs the usual timer.
    """

    def end(number: int, frame: Any) -> None:
        raise ValueError(
            f"comparing it with the schema takes over {limit_s:.0f} s; simplify its patterns and references"
        )

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


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
            with _limited(VALUE_S_MAX + len(data) * BYTE_S_MAX):
                wrong = best_match(made.iter_errors(value))
        except Unresolvable as error:
            path = foreign_text(error.ref, bytes_max=100)
            raise ValueError(f"{name} needs {path}, which neither it nor a schema that it refers to has") from None
        if wrong is not None:
            raise ValueError(f"{wrong.json_path}: {wrong.message}")
        return form

    return check
