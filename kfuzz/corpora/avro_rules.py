"""Rules of the Avro specification that fastavro does not check. Java refuses a schema that breaks one."""

from __future__ import annotations

import re
from typing import Any, Final

from kfuzz.corpora.shaping import member, place_of
from kfuzz.forms import Wrong, shown
from kfuzz.schemas.avro import PRIMITIVES

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMED: Final = ("record", "error", "enum", "fixed")


def require_allowed(schema: Any, path: str = "", space: str = "") -> None:
    """``Wrong`` for a schema that is not allowed. ``space`` is the namespace around it."""
    if isinstance(schema, list):
        kinds = [_kind(one, space) for one in schema]
        if "union" in kinds:
            raise Wrong(f"has a union directly in a union {place_of(path)}", "make one of them")
        if (twice := next((one for one in kinds if kinds.count(one) > 1), None)) is not None:
            raise Wrong(f"has {shown(twice)} twice in a union {place_of(path)}", "remove one")
        for one in schema:
            require_allowed(one, path, space)
    if not isinstance(schema, dict):
        return
    kind = schema["type"]
    if kind in NAMED:
        full = _full(schema, space)
        for one in full.split("."):
            _require_name(one, path)
        space = full.rpartition(".")[0]
    if kind in ("record", "error"):
        _require_fields(schema, path, space)
    elif kind in ("array", "map"):
        require_allowed(schema["items" if kind == "array" else "values"], f"{path}[]", space)
    elif not isinstance(kind, str):
        require_allowed(kind, path, space)
    elif kind in ("bytes", "fixed") and schema.get("logicalType") == "decimal":
        _require_decimal(schema, path)


def _require_fields(schema: dict[str, Any], path: str, space: str) -> None:
    if not isinstance(schema.get("fields"), list):
        raise Wrong(f"has a record without fields {place_of(path)}", "give it a list of fields")
    names = [one["name"] for one in schema["fields"]]
    for name, one in zip(names, schema["fields"], strict=True):
        _require_name(name, path)
        if names.count(name) > 1:
            raise Wrong(f"has two fields {shown(name)} {place_of(path)}", "rename one")
        require_allowed(one["type"], member(path, name), space)


def _require_name(name: Any, path: str) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Wrong(f"has the name {shown(name)} {place_of(path)}", "use letters, digits and _, and no digit first")


def _require_decimal(schema: dict[str, Any], path: str) -> None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if precision is None:
        raise Wrong(f"has a decimal without a precision {place_of(path)}", "give it one")
    if type(precision) is not int or precision < 1:
        raise Wrong(
            f"has a decimal with a precision of {shown(precision)} {place_of(path)}", "give a whole number from 1 on"
        )
    if type(scale) is not int or not 0 <= scale <= precision:
        raise Wrong(f"has a decimal with a scale of {shown(scale)} {place_of(path)}", f"give 0 to {precision}")


def _full(schema: dict[str, Any], space: str) -> str:
    """The name of a type with its namespace."""
    name, space = str(schema["name"]), schema.get("namespace", space) or ""
    return name if "." in name or not space else f"{space}.{name}"


def _kind(schema: Any, space: str) -> str:
    """A union may have one type of each."""
    if isinstance(schema, list):
        return "union"
    if isinstance(schema, dict):
        kind = schema["type"]
        return _full(schema, space) if kind in NAMED else _kind(kind, space)
    name = str(schema)
    return name if name in (*PRIMITIVES, "array", "map") else _full({"name": name}, space)
