"""Reads and writes single primitives, the parts that messages are made of.

Most primitives are types of fields; the compiled code for fields reads and writes them. ``varint``, ``varlong`` and
``unsigned-varint`` occur in records and inside the compact forms. Mirrors
``org.apache.kafka.common.protocol.types.Type``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kfuzz.errors import EncodeError, UsageError
from kfuzz.findings import Profile
from kfuzz.java import AS_JAVA
from kfuzz.messages.codec import MessageReading, reading_of, require_profile
from kfuzz.messages.jsonform import from_json, to_json
from kfuzz.messages.model import ALL, NONE, Definition, Field, Type
from kfuzz.wire.io.cursor import uvarint, uvarint_of
from kfuzz.wire.messages import Schema

if TYPE_CHECKING:
    from kfuzz.wire.messages import Note

FIXED: Final = ("bool", "int8", "int16", "uint16", "int32", "uint32", "int64", "float64", "uuid")
# The number of bits of each varint, and the largest number of bytes that it may take.
VARINTS: Final = {"varint": (32, 5), "varlong": (64, 10), "unsigned-varint": (32, 5)}
# The forms of types with a length or a count: (nullable, compact). Arrays have int32 elements.
_FORMS: Final = {
    "": (False, False),
    "nullable-": (True, False),
    "compact-": (False, True),
    "compact-nullable-": (True, True),
}
PRIMITIVES: Final = (*FIXED, *VARINTS, *(form + kind for kind in ("string", "bytes", "array") for form in _FORMS))


@dataclass(frozen=True, slots=True)
class _Shape:
    """A definition whose only field is the primitive, and its program."""

    definition: Definition
    schema: Schema


def read(primitive: str, data: bytes, *, profile: Profile = "kafka") -> MessageReading:
    """Read the primitive at the start of ``data``: ``{"value": …}`` and findings. Bad bytes raise nothing.

    Raises ``UsageError`` for an unknown primitive or profile.

    >>> from kfuzz.messages.primitives import read
    >>> read("compact-string", b"\\x03ab").message
    {'value': 'ab'}
    """
    _require(primitive)
    require_profile(profile)
    if primitive in VARINTS:
        return _read_varint(primitive, data, profile)
    consumed, notes, value = _shape(primitive).schema.decode(bytes(data))
    return reading_of(primitive, consumed, notes, value, profile)


def write(primitive: str, value: Any) -> bytes:
    """The bytes of a primitive. Raises ``EncodeError`` if the value does not fit.

    Raises ``UsageError`` for an unknown primitive.

    >>> from kfuzz.messages.primitives import write
    >>> write("varint", -3).hex()
    '05'
    """
    _require(primitive)
    if primitive not in VARINTS:
        return _shape(primitive).schema.encode({"value": value})
    bits = VARINTS[primitive][0]
    least, most = (0, 2**32 - 1) if primitive == "unsigned-varint" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    if type(value) is not int or not least <= value <= most:
        raise EncodeError(f"{primitive} is {value!r}; it must be a whole number from {least} to {most}")
    return uvarint(value if primitive == "unsigned-varint" else value << 1 ^ value >> (bits - 1))


def to_json_value(primitive: str, value: Any) -> Any:
    """The value in the JSON form of messages. A varlong is decimal text, like an int64."""
    if primitive in VARINTS:
        return str(value) if primitive == "varlong" else value
    return to_json(_shape(primitive).definition, 0, {"value": value})["value"]


def from_json_value(primitive: str, form: Any) -> Any:
    """The value of a JSON form. Raises ``UsageError`` if the form is wrong."""
    same_form = {"varlong": "int64"}.get(primitive, "int32") if primitive in VARINTS else primitive
    return from_json(_shape(same_form).definition, 0, {"value": form})["value"]


def _require(primitive: str) -> None:
    if primitive not in PRIMITIVES:
        raise UsageError(f"there is no primitive {primitive!r}; take one of {', '.join(PRIMITIVES)}")


@cache
def _shape(primitive: str) -> _Shape:
    form, _, kind = primitive.rpartition("-")
    nullable, compact = _FORMS[f"{form}-" if form else ""]
    array = kind == "array"
    type_ = Type("int32", array=True) if array else Type(kind)
    default = "" if kind == "string" else 0
    field = Field("value", type_, ALL, nullable=ALL if nullable else NONE, default=default)
    definition = Definition(primitive, "data", None, ALL, NONE, (field,), {})
    described = {
        "name": "value",
        "kind": type_.name,
        "array": array,
        "nullable": nullable,
        "compact": compact,
        "there": True,
        "tag": -1,
        "plan": 0,
        "default": [] if array else {"bytes": b"", "uuid": bytes(16)}.get(kind, default),
    }
    # The plan is not flexible even for compact forms: flexible structs end with tags, and a single primitive has none.
    plan = {"name": primitive, "flexible": False, "fields": [described], "tagged": [], "absent": {}, "map_keys": ()}
    return _Shape(definition, Schema(primitive, 0, [plan], AS_JAVA))


def _read_varint(primitive: str, data: bytes, profile: Profile) -> MessageReading:
    bits, longest = VARINTS[primitive]
    raw, size = uvarint_of(data, longest)
    steps = [("value", -1)]
    if size == -1:
        return reading_of(primitive, -1, [("message-cut", len(data), 0, 1, steps)], None, profile)
    if size == -2:
        return reading_of(primitive, -1, [("varint-too-long", 0, longest + 1, longest, steps)], None, profile)
    notes: list[Note] = []
    # In the longest form, the last byte must be below this.
    fits = 2 ** (bits - 7 * (longest - 1))
    if size > 1 and (data[size - 1] == 0 or (size == longest and data[size - 1] >= fits)):
        notes.append(("varint-overlong", 0, size, longest, steps))
    if size < len(data):
        notes.append(("bytes-after-message", size, len(data) - size, 0, []))
    raw &= (1 << bits) - 1
    value = raw if primitive == "unsigned-varint" else (raw >> 1) ^ -(raw & 1)
    return reading_of(primitive, size, notes, {"value": value}, profile)
