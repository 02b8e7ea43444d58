"""Definitions of messages, from little more than their fields; for tests only."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kfuzz.messages import Definition, parse_definition

Form = dict[str, Any]


def field(name: str, type: str, versions: str = "0+", tag: int | None = None, **more: Any) -> Form:
    """A field. One with a tag has it in all of its versions. ``more`` has other members by Kafka's names."""
    tagged = {} if tag is None else {"tag": tag, "taggedVersions": versions}
    return {"name": name, "type": type, "versions": versions} | tagged | more


def struct(name: str, *fields: Form) -> Form:
    """A struct that several fields may have as their type."""
    return {"name": name, "versions": "0+", "fields": fields}


def message_of(
    *fields: Form, name: str = "Data", versions: str = "0", flexible: str = "none", structs: Sequence[Form] = ()
) -> Definition:
    """A message of type data with these fields and common structs."""
    form = {"name": name, "type": "data", "validVersions": versions, "flexibleVersions": flexible}
    return parse_definition(json.dumps(form | {"fields": fields, "commonStructs": structs}))
