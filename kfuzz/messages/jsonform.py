"""The JSON form of messages. The testee protocol and the command line share it.

An object has every field of the version. Its keys are the definition's names with the first letter in lower case. An
int64 is decimal text, bytes and records are hex, and a uuid is Kafka's text. A float64 is a number, ``"NaN"``,
``"Infinity"`` or ``"-Infinity"``. Unknown tagged fields are ``"_unknownTaggedFields": [{"tag": 9, "hex": "…"}]``.
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import Any, Final

from kfuzz.errors import UsageError
from kfuzz.messages.model import INT_RANGES, Definition, Field, key_of
from kfuzz.messages.schemas import default_of
from kfuzz.text import foreign_text
from kfuzz.wire.messages.values import UNKNOWN_TAGGED_FIELDS, StructValue

_NO_NUMBERS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(definition: Definition, version: int, values: dict[str, Any] | StructValue) -> dict[str, Any]:
    """The JSON form of a message's values. Fields that are not given have their defaults."""
    in_dicts = values.to_dict() if isinstance(values, StructValue) else values
    return _struct_to(definition, definition.fields, version, in_dicts)


def from_json(definition: Definition, version: int, form: Any) -> dict[str, Any]:
    """The values of a JSON form. Fields may be left out. Raises ``UsageError`` with the field's path for a wrong form.

    Fields of other versions are accepted; the writer decides whether they may be given.
    """
    return _struct_from(definition, definition.fields, version, form, definition.name)


def uuid_text(value: bytes) -> str:
    """A uuid as Kafka writes it: 16 bytes of zeros are ``AAAAAAAAAAAAAAAAAAAAAA``."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _struct_to(
    definition: Definition, fields: tuple[Field, ...], version: int, values: dict[str, Any]
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in fields:
        if version in field.versions:
            name = key_of(field.name)
            value = values[name] if name in values else default_of(definition, field, version)
            made[name] = _value_to(definition, field, version, value)
    if values.get(UNKNOWN_TAGGED_FIELDS):
        made[UNKNOWN_TAGGED_FIELDS] = [{"tag": tag, "hex": data.hex()} for tag, data in values[UNKNOWN_TAGGED_FIELDS]]
    return made


def _value_to(definition: Definition, field: Field, version: int, value: Any) -> Any:
    if value is None:
        return None
    if field.type.array:
        return [_element_to(definition, field, version, element) for element in value]
    return _element_to(definition, field, version, value)


def _element_to(definition: Definition, field: Field, version: int, value: Any) -> Any:
    if field.type.struct is not None:
        # Elements of an array are never null in a message, but the caller may give None.
        return None if value is None else _struct_to(definition, definition.fields_of(field.type), version, value)
    if field.type.name == "int64":
        return str(value)
    if field.type.name == "uuid":
        return uuid_text(value)
    if field.type.name in ("bytes", "records"):
        return value.hex()
    if field.type.name == "float64" and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _struct_from(
    definition: Definition, fields: tuple[Field, ...], version: int, form: Any, path: str
) -> dict[str, Any]:
    if not isinstance(form, dict):
        raise UsageError(f"{path} is {_name_of(form)}; it must be an object")
    known = {key_of(field.name): field for field in fields}
    made: dict[str, Any] = {}
    for name, value in form.items():
        if name == UNKNOWN_TAGGED_FIELDS:
            made[name] = _unknown_from(value, f"{path}.{name}")
        elif name in known:
            made[name] = _value_from(definition, known[name], version, value, f"{path}.{name}")
        else:
            unknown = foreign_text(name, bytes_max=100)
            raise UsageError(f"{path}.{unknown} is not a field; the fields are {', '.join(known) or 'none'}")
    return made


def _unknown_from(form: Any, path: str) -> list[tuple[int, bytes]]:
    if not isinstance(form, list):
        raise UsageError(f"{path} is {_name_of(form)}; it must be a list")
    made = []
    for i, one in enumerate(form):
        if not isinstance(one, dict) or set(one) != {"tag", "hex"} or type(one["tag"]) is not int:
            raise UsageError(f'{path}[{i}] must be an object such as {{"tag": 9, "hex": "00"}}')
        made.append((one["tag"], _hex(one["hex"], f"{path}[{i}].hex")))
    return made


def _value_from(definition: Definition, field: Field, version: int, form: Any, path: str) -> Any:
    if form is None:
        return None
    if not field.type.array:
        return _element_from(definition, field, version, form, path)
    if not isinstance(form, list):
        raise UsageError(f"{path} is {_name_of(form)}; it must be a list")
    return [_element_from(definition, field, version, element, f"{path}[{i}]") for i, element in enumerate(form)]


def _element_from(definition: Definition, field: Field, version: int, form: Any, path: str) -> Any:
    name = field.type.name
    if field.type.struct is not None:
        return _struct_from(definition, definition.fields_of(field.type), version, form, path)
    if name in ("bytes", "records"):
        return _hex(form, path)
    if name == "uuid":
        return _uuid(form, path)
    if name == "int64":
        return _int64(form, path)
    if name == "float64":
        if isinstance(form, str) and form in _NO_NUMBERS:
            return _NO_NUMBERS[form]
        if type(form) in (int, float):
            return form
        raise UsageError(f'{path} is {_name_of(form)}; it must be a number, "NaN", "Infinity" or "-Infinity"')
    wanted = str if name == "string" else bool if name == "bool" else int
    if type(form) is not wanted:
        raise UsageError(f"{path} is {_name_of(form)}; it must be {_WORDS[wanted]}")
    return form


def _int64(form: Any, path: str) -> int:
    if isinstance(form, str) and len(form) <= 20 and form.removeprefix("-").isdecimal() and form.isascii():
        return int(form)
    if type(form) is int:
        return form
    least, most = INT_RANGES["int64"]
    raise UsageError(f"{path} is {_name_of(form)}; it must be a decimal string from {least} to {most}")


def _hex(form: Any, path: str) -> bytes:
    if isinstance(form, str):
        try:
            return binascii.unhexlify(form)
        except ValueError:
            pass
    raise UsageError(f"{path} is {_name_of(form)}; it must be a string of hex digits, two for each byte")


def _uuid(form: Any, path: str) -> bytes:
    if isinstance(form, str) and len(form) == 22 and form.isascii():
        try:
            data = base64.urlsafe_b64decode(form + "==")
        except ValueError:
            data = b""
        if len(data) == 16 and base64.urlsafe_b64encode(data).decode().startswith(form):
            return data
    raise UsageError(
        f"{path} is {_name_of(form)}; it must be a uuid as Kafka writes it, such as AAAAAAAAAAAAAAAAAAAAAA"
    )


_WORDS: Final = {str: "a string", int: "a whole number", bool: "true or false"}


def _name_of(form: Any) -> str:
    if form is None:
        return "null"
    words = {bool: "a bool", int: "a number", float: "a number", str: "the string " + repr(form)[:40], list: "a list"}
    return words.get(type(form), "an object")
