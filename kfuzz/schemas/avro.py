"""Avro values as JSON, decoded by fastavro.

A schema is rewritten first: its types get logical types of kfuzz's own, for which fastavro calls the functions below.
So a decoded value has only what JSON has, or what msgspec writes as text. Imported on first use: it needs fastavro.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from io import BytesIO
from typing import Any, Final
from uuid import UUID

from fastavro import parse_schema, schemaless_reader
from fastavro.read import LOGICAL_READERS

from kfuzz.documents import DEPTH_MAX, load_json
from kfuzz.errors import UsageError
from kfuzz.schemas.plain import bytes_form, encode, number_form, single_form

PREFIX: Final = "kfuzz-"
# A field that is added to records which may be recursive.
GUARD: Final = "\0"
# A decimal of more digits is shown as its bytes.
DECIMAL_BYTES_MAX: Final = 1024
SCALE_MAX: Final = 1024
EPOCH: Final = datetime(1970, 1, 1)
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
KINDS: Final = (*PRIMITIVES, "record", "error", "enum", "array", "map", "fixed")


def decoder(text: str, references: Iterable[str], name: str) -> Callable[..., bytes]:
    """A function that gives the JSON of the value that begins at a byte of some bytes, and fills the rest of them.

    ``references`` are the schemas that this one needs, in the order of their use. ``UsageError`` for a schema that is
    wrong. The function raises any exception for a value that does not fit.
    """
    known: dict[str, Any] = {}
    try:
        for one in (*references, text):
            # A name alone is allowed, and is not JSON then.
            given = load_json(one, name) if one.lstrip()[:1] in ("{", "[", '"') else one.strip()
            parsed = parse_schema(_rewritten(given), named_schemas=known)
        _require_bounded(parsed, known)
    except UsageError:
        raise
    # fastavro raises errors of many classes.
    except Exception as error:
        raise UsageError(f"{name} is not an Avro schema: {error}") from None

    def decode(data: bytes, at: int, indexes: bytes = b"") -> bytes:
        _depth.now = 0
        file = BytesIO(data)
        file.seek(at)
        value = schemaless_reader(file, parsed, None)
        if (left := len(data) - file.tell()) != 0:
            raise ValueError(f"{left} bytes follow the value")
        return encode(value)

    return decode


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
        guard = {"name": GUARD, "type": {"type": "null", "logicalType": PREFIX + "enter"}}
        if _has_names(made["fields"]):
            made |= {"fields": [guard, *made["fields"]], "logicalType": PREFIX + "leave"}
    elif kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        made[inner] = _rewritten(made.get(inner))
    elif isinstance(kind, str) and kind in (*PRIMITIVES, "fixed"):
        known = f"{kind}-{PREFIX}{logical if isinstance(logical, str) else kind}"
        known = known if known in LOGICAL_READERS else f"{kind}-{PREFIX}{kind}"
        if known in LOGICAL_READERS:
            made["logicalType"] = known.removeprefix(f"{kind}-")
    elif kind != "enum":
        made["type"] = _rewritten(kind)
    return made


def _has_names(schema: Any) -> bool:
    """Whether a type is used by its name anywhere inside. Only such records nest deeper than their document."""
    if isinstance(schema, dict):
        return any(_has_names(schema.get(key)) for key in ("type", "items", "values", "fields"))
    if isinstance(schema, list):
        return any(map(_has_names, schema))
    return isinstance(schema, str) and schema not in KINDS


def _require_bounded(schema: Any, known: dict[str, Any]) -> None:
    """``UsageError`` for an array of values that take no bytes: a few bytes could claim any number of them."""
    if isinstance(schema, list):
        for one in schema:
            _require_bounded(one, known)
    elif isinstance(schema, dict):
        if "items" in schema and _is_empty(schema["items"], known):
            raise UsageError("an array holds values that take no bytes; kfuzz decodes no such array")
        for one in (schema.get("items"), schema.get("values"), *(one["type"] for one in schema.get("fields", ()))):
            _require_bounded(one, known)


def _is_empty(schema: Any, known: dict[str, Any]) -> bool:
    schema = known.get(schema, schema) if isinstance(schema, str) else schema
    if not isinstance(schema, dict):
        return bool(schema == "null")
    if schema["type"] in ("record", "error"):
        return all(_is_empty(one["type"], known) for one in schema["fields"])
    return bool(schema["type"] == "null" or (schema["type"] == "fixed" and schema["size"] == 0))


# ------------------------------------------------------------------------------------- the forms of single values


class _Depth(threading.local):
    now = 0


_depth: Final = _Depth()


def _enter(value: Any, schema: Any, *_: Any) -> None:
    # fastavro would use up the stack, which ends the process.
    _depth.now += 1
    if _depth.now > DEPTH_MAX:
        raise ValueError(f"it is nested deeper than {DEPTH_MAX} levels")


def _leave(value: dict[str, Any], schema: Any, *_: Any) -> dict[str, Any]:
    _depth.now -= 1
    del value[GUARD]
    return value


def _decimal(data: bytes, schema: Any, *_: Any) -> Any:
    scale = schema.get("scale", 0)
    if len(data) > DECIMAL_BYTES_MAX or not isinstance(scale, int) or not 0 <= scale <= SCALE_MAX:
        return bytes_form(data)
    # Three digits are more than a byte holds.
    exact = Context(prec=3 * len(data) + 1)
    return format(Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, exact), "f")


def _duration(data: bytes, schema: Any, *_: Any) -> Any:
    if len(data) != 12:
        return bytes_form(data)
    return {unit: int.from_bytes(data[at : at + 4], "little") for unit, at in UNITS}


UNITS: Final = (("months", 0), ("days", 4), ("milliseconds", 8))


def _moment(per_second: int, zone: str) -> Callable[..., Any]:
    """A reader of times since 1970. A time that is beyond the calendar stays a number."""
    tz = UTC if zone else None
    start = EPOCH.replace(tzinfo=tz)
    micros = 1_000_000 // per_second

    def read(value: int, schema: Any, *_: Any) -> Any:
        try:
            return start + timedelta(microseconds=value * micros)
        except OverflowError:
            return value

    def read_nanos(value: int, schema: Any, *_: Any) -> Any:
        seconds, rest = divmod(value, per_second)
        return f"{(EPOCH + timedelta(seconds=seconds)).isoformat()}.{rest:09d}{zone}"

    return read if micros else read_nanos


def _time(per_second: int) -> Callable[..., Any]:
    def read(value: int, schema: Any, *_: Any) -> Any:
        in_day = 0 <= value < 86_400 * per_second
        return (EPOCH + timedelta(microseconds=value * (1_000_000 // per_second))).time() if in_day else value

    return read


def _date(value: int, schema: Any, *_: Any) -> Any:
    try:
        return date.fromordinal(EPOCH.toordinal() + value)
    except (ValueError, OverflowError):
        return value


def _uuid(data: bytes, schema: Any, *_: Any) -> Any:
    return str(UUID(bytes=data)) if len(data) == 16 else bytes_form(data)


def _of_bytes(data: bytes, schema: Any, *_: Any) -> Any:
    return bytes_form(data)


_READERS: Final[dict[str, Callable[..., Any]]] = {
    "null-enter": _enter,
    "record-leave": _leave,
    "error-leave": _leave,
    "bytes-bytes": _of_bytes,
    "fixed-fixed": _of_bytes,
    "bytes-decimal": _decimal,
    "fixed-decimal": _decimal,
    "fixed-duration": _duration,
    "fixed-uuid": _uuid,
    "float-float": lambda value, *_: single_form(value),
    "double-double": lambda value, *_: number_form(value),
    "int-date": _date,
    "int-time-millis": _time(1000),
    "long-time-micros": _time(1_000_000),
    **{
        f"long-{local}timestamp-{unit}": _moment(per_second, zone)
        for local, zone in (("", "Z"), ("local-", ""))
        for unit, per_second in (("millis", 1000), ("micros", 1_000_000), ("nanos", 1_000_000_000))
    },
}
LOGICAL_READERS.update({name.replace("-", f"-{PREFIX}", 1): read for name, read in _READERS.items()})
