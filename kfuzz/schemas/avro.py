"""Avro values as JSON, decoded by fastavro.

A schema is rewritten first: types that JSON lacks get logical types of kfuzz's own, for which fastavro calls the
functions below. msgspec writes times, dates, decimals and UUIDs as text. Imported on first use: it needs fastavro.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from io import BytesIO
from struct import Struct
from typing import Any, Final
from uuid import UUID

from fastavro import parse_schema, schemaless_reader
from fastavro.read import LOGICAL_READERS
from fastavro.schema import UnknownType

from kfuzz.documents import load_json
from kfuzz.errors import UsageError
from kfuzz.records.contents import bytes_form
from kfuzz.schemas.plain import encode, number_form, single_form
from kfuzz.text import foreign_text

PREFIX: Final = "kfuzz-"
# A field that is added to records which may be recursive.
GUARD: Final = "\0"
# Of the schemas of such records inside each other. fastavro calls itself once or twice for each.
LEVELS_MAX: Final = 1000
UUID_BYTES: Final = 16
DURATION: Final = Struct("<III")
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
KINDS: Final = (*PRIMITIVES, "record", "error", "enum", "array", "map", "fixed")


def decoder(text: str, references: Iterable[tuple[str, str]], name: str) -> Callable[..., bytes]:
    """A function that gives the JSON of the value that begins at a byte of some bytes, and fills the rest of them.

    ``references`` are the names and texts of the schemas that this one needs, in the order of their use.
    ``UsageError`` for a schema that is wrong. The function raises any exception for a value that does not fit.
    """
    known: dict[str, Any] = {}
    given: Any = None
    now = name
    try:
        for now, one in (*references, (name, text)):
            given = schema_of(one, now)
            parsed = parse_schema(_rewritten(given), named_schemas=known)
        _require_bounded(parsed, known)
    except UsageError:
        raise
    # fastavro raises errors of many classes.
    except Exception as error:
        if isinstance(error, UnknownType) and isinstance(error.name, str) and error.name:
            kind = foreign_text(error.name, bytes_max=100)
            raise UsageError(f"{now} names the type {kind}, which neither it nor a schema before it has") from None
        raise UsageError(f"{now} is not an Avro schema: {str(error) or 'it is empty'}") from None

    def decode(data: bytes, at: int, indexes: bytes = b"") -> bytes:
        _depth.now = 0
        file = BytesIO(data)
        file.seek(at)
        value = schemaless_reader(file, parsed, None)
        if (left := len(data) - file.tell()) != 0:
            raise ValueError(f"{left} bytes follow the value")
        return encode(value)

    def decode_bytes(data: bytes, at: int, indexes: bytes = b"") -> bytes:
        try:
            return decode(data, at)
        # Java's serializer writes no length before bytes that are the whole value; fastavro does.
        except (EOFError, ValueError):
            return encode(bytes_form(data[at:]))

    return decode_bytes if given in ("bytes", {"type": "bytes"}) else decode


def schema_of(text: str, name: str) -> Any:
    """The schema in a text. A type's name alone is allowed, and is not JSON then."""
    return load_json(text, name) if text.lstrip()[:1] in ("{", "[", '"') else text.strip()


def _rewritten(schema: Any) -> Any:
    """The schema with kfuzz's own logical types in place of all others."""
    if isinstance(schema, list):
        return [_rewritten(one) for one in schema]
    if isinstance(schema, str):
        return {"type": schema, "logicalType": PREFIX + schema} if schema in ("bytes", "float", "double") else schema
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    kind, logical = made.get("type"), made.pop("logicalType", None)
    if kind in ("record", "error") and isinstance(made.get("fields"), list):
        made["fields"] = [
            one | {"type": _rewritten(one["type"])} if isinstance(one, dict) and "type" in one else one
            for one in made["fields"]
        ]
        if _has_names(made["fields"]):
            levels = _levels(made["fields"])
            guard = {"name": GUARD, "type": {"type": "null", "logicalType": PREFIX + "enter", "levels": levels}}
            made |= {"fields": [guard, *made["fields"]], "logicalType": PREFIX + "leave", "levels": levels}
    elif kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        made[inner] = _rewritten(made.get(inner))
    elif isinstance(kind, str) and kind in (*PRIMITIVES, "fixed"):
        for known in (f"{PREFIX}{logical}", PREFIX + kind):
            if f"{kind}-{known}" in LOGICAL_READERS:
                made["logicalType"] = known
                break
    elif kind != "enum":
        made["type"] = _rewritten(kind)
    return made


def _has_names(schema: Any) -> bool:
    """Whether a type is used by its name anywhere inside. Only such records nest deeper than their document."""
    if isinstance(schema, str):
        return schema not in KINDS
    return any(map(_has_names, _inner(schema)))


def _inner(schema: Any) -> list[Any]:
    """The types directly inside a union, a type or a list of fields."""
    if isinstance(schema, dict):
        return [schema[key] for key in ("type", "items", "values", "fields") if key in schema]
    return schema if isinstance(schema, list) else []


def _levels(schema: Any) -> int:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else None
    return 0 if inner is None else 1 + max(map(_levels, inner), default=0)


def _require_bounded(schema: Any, known: dict[str, Any]) -> None:
    """``UsageError`` for an array of values that take no bytes: a few bytes could claim any number of them."""
    if isinstance(schema, dict) and schema["type"] == "array" and _is_empty(schema["items"], known):
        raise UsageError("an array holds values that take no bytes; kfuzz decodes no such array")
    for one in _inner(schema):
        _require_bounded(one, known)


def _is_empty(schema: Any, known: dict[str, Any]) -> bool:
    schema = known.get(schema, schema) if isinstance(schema, str) else schema
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if schema["type"] in ("record", "error"):
        return all(_is_empty(one["type"], known) for one in schema["fields"])
    return bool(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0))


# ------------------------------------------------------------------------------------- the forms of single values


# Each value begins at 0.
_depth: Final = threading.local()


def _enter(value: Any, schema: Any, *_: Any) -> None:
    # fastavro would use up the stack, which ends the process.
    _depth.now += schema["levels"]
    if _depth.now > LEVELS_MAX:
        raise ValueError("it is nested too deeply")


def _leave(value: dict[str, Any], schema: Any, *_: Any) -> dict[str, Any]:
    _depth.now -= schema["levels"]
    del value[GUARD]
    return value


def _duration(data: bytes, schema: Any, *_: Any) -> Any:
    if len(data) != DURATION.size:
        return bytes_form(data)
    return dict(zip(("months", "days", "milliseconds"), DURATION.unpack(data), strict=True))


def _or_plain(read: Callable[..., Any]) -> Callable[..., Any]:
    """The same reader, but what its type cannot hold, such as a date after the year 9999, stays a number or a text."""

    def read_or_keep(value: Any, *more: Any) -> Any:
        try:
            return read(value, *more)
        except (ArithmeticError, ValueError):
            return bytes_form(value) if isinstance(value, bytes) else value

    return read_or_keep


_READERS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _or_plain(read) for name, read in LOGICAL_READERS.items()},
    "null-enter": _enter,
    "record-leave": _leave,
    "error-leave": _leave,
    "bytes-bytes": lambda data, *_: bytes_form(data),
    "fixed-fixed": lambda data, *_: bytes_form(data),
    "fixed-duration": _duration,
    "fixed-uuid": lambda data, *_: str(UUID(bytes=data)) if len(data) == UUID_BYTES else bytes_form(data),
    "float-float": lambda value, *_: single_form(value),
    "double-double": lambda value, *_: number_form(value),
}
LOGICAL_READERS.update({name.replace("-", f"-{PREFIX}", 1): read for name, read in _READERS.items()})
