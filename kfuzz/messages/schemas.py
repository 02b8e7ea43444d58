"""Compiles one version of a definition to the flat program that ``kfuzz.wire.messages`` runs."""

from __future__ import annotations

from typing import Any, Final

from kfuzz.errors import UsageError
from kfuzz.java import AS_JAVA
from kfuzz.messages.model import Definition, Field, Type, key_of
from kfuzz.wire.messages import Schema
from kfuzz.wire.messages.values import Keyed

__all__ = ["Keyed", "default_of", "is_compact", "schema"]

# The defaults of types for which a definition can give none. A struct's default has the defaults of its fields.
_DEFAULTS: Final = {"bytes": b"", "uuid": bytes(16)}


def schema(definition: Definition, version: int) -> Schema:
    """The program for one version, compiled once. Raises ``UsageError`` if the message has no such version."""
    program: Schema | None = definition.programs.get(version)
    if program is None:
        if version not in definition.valid_versions:
            versions = definition.valid_versions
            raise UsageError(f"{definition.name} has no version {version}; its versions are {versions}")
        program = definition.programs[version] = _Compiler(definition, version).schema()
    return program


def is_compact(definition: Definition, field: Field, version: int) -> bool:
    """Whether lengths and counts of the field are sent as unsigned varints of the number plus one."""
    # A field may have flexible versions of its own; they count only in flexible versions of the message.
    return version in definition.flexible_versions and field.is_flexible(version, definition.flexible_versions)


def default_of(definition: Definition, field: Field, version: int | None) -> Any:
    """The value of a field that is not given. If ``version`` is None, a struct has its fields of all versions."""
    if field.null_default:
        return None
    inner = [one for one in definition.fields_of(field.type) if version is None or version in one.versions]
    if field.type.array:
        keys = tuple(key_of(one.name) for one in inner if one.map_key)
        return Keyed((), keys) if keys else []
    if field.type.struct is not None:
        return {key_of(one.name): default_of(definition, one, version) for one in inner}
    return _DEFAULTS.get(field.type.name, field.default)


def _struct_names(definition: Definition, field: Field) -> tuple[str, dict[str, Any]] | None:
    """For a field whose default is a struct: the struct's name, and the same for each of its fields. Otherwise None."""
    if field.null_default or field.type.array or field.type.struct is None:
        return None
    inner = definition.fields_of(field.type)
    return field.type.struct, {key_of(one.name): _struct_names(definition, one) for one in inner}


class _Compiler:
    def __init__(self, definition: Definition, version: int) -> None:
        self.definition = definition
        self.version = version
        self.flexible = version in definition.flexible_versions
        # The message's own fields come first. The number of a struct is its index in ``order``.
        self.numbers: dict[str, int] = {}
        self.order: list[tuple[str, tuple[Field, ...]]] = [(definition.name, definition.fields)]

    def schema(self) -> Schema:
        made: list[dict[str, Any]] = []
        # ``plan`` appends the structs that it meets to ``order``.
        while len(made) < len(self.order):
            made.append(self.plan(*self.order[len(made)]))
        return Schema(self.definition.name, self.version, made, AS_JAVA)

    def plan(self, name: str, fields: tuple[Field, ...]) -> dict[str, Any]:
        version = self.version
        plain = [field for field in fields if version in field.versions and version not in field.tagged]
        tagged = sorted((field for field in fields if field.tag is not None), key=lambda field: field.tag or 0)
        there = {field.name for field in plain} | {field.name for field in tagged if version in field.tagged}
        return {
            "name": name,
            "flexible": self.flexible,
            "fields": [self.field(field, -1) for field in plain],
            "tagged": [self.field(field, field.tag or 0) for field in tagged],
            # A default with the fields of all versions: readers return it, and writers compare it with the value given.
            "absent": {
                key_of(field.name): (
                    default_of(self.definition, field, None),
                    field.ignorable,
                    _struct_names(self.definition, field),
                )
                for field in fields
                if field.name not in there
            },
            "map_keys": tuple(key_of(field.name) for field in plain if field.map_key),
        }

    def field(self, field: Field, tag: int) -> dict[str, Any]:
        """Describe a plain field (``tag`` is -1) or a tagged one.

        Versions without a tagged field know its tag too, so that they can refuse it.
        """
        version = self.version
        return {
            "name": key_of(field.name),
            "kind": "struct" if field.type.struct is not None else field.type.name,
            "array": field.type.array,
            "nullable": version in field.nullable,
            "compact": is_compact(self.definition, field, version),
            "there": tag < 0 or version in field.tagged,
            "tag": tag,
            "plan": self.number(field.type),
            "default": default_of(self.definition, field, version),
        }

    def number(self, type_: Type) -> int:
        if type_.struct is None:
            return 0
        if type_.struct not in self.numbers:
            self.numbers[type_.struct] = len(self.order)
            self.order.append((type_.struct, self.definition.structs[type_.struct].fields))
        return self.numbers[type_.struct]
