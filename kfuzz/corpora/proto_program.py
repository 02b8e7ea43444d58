"""Protobuf schemas as programs; protoc compiles them. Imported on first use: it needs protobuf and grpcio-tools."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor as Field

from kfuzz.corpora import programs
from kfuzz.corpora.programs import Body
from kfuzz.corpora.shaping import NAME_BYTES, Schemed, Shaper, member
from kfuzz.forms import Wrong
from kfuzz.schemas.proto import NAME_TAG, chosen
from kfuzz.wire.io.cursor import uvarint

# The encodings of numbers: the least and the largest, bytes at most, the step's keys, and the wire type.
NUMBERS: Final[dict[int, tuple[int, int, int, dict[str, Any], int]]] = {
    kind: (-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1, most, form, wire)
    for kind, bits, signed, most, form, wire in (
        (Field.TYPE_INT32, 32, 1, 10, {"form": programs.VARINT}, 0),
        (Field.TYPE_INT64, 64, 1, 10, {"form": programs.VARINT}, 0),
        (Field.TYPE_UINT32, 32, 0, 5, {"form": programs.VARINT}, 0),
        (Field.TYPE_UINT64, 63, 0, 10, {"form": programs.VARINT}, 0),
        (Field.TYPE_SINT32, 32, 1, 5, {"form": programs.ZIGZAG}, 0),
        (Field.TYPE_SINT64, 64, 1, 10, {"form": programs.ZIGZAG}, 0),
        (Field.TYPE_FIXED32, 32, 0, 4, {"form": programs.LITTLE, "size": 4}, 5),
        (Field.TYPE_SFIXED32, 32, 1, 4, {"form": programs.LITTLE, "size": 4}, 5),
        (Field.TYPE_FIXED64, 63, 0, 8, {"form": programs.LITTLE, "size": 8}, 1),
        (Field.TYPE_SFIXED64, 64, 1, 8, {"form": programs.LITTLE, "size": 8}, 1),
    )
}
WIRE: Final = {
    Field.TYPE_BOOL: 0,
    Field.TYPE_ENUM: 0,
    Field.TYPE_DOUBLE: 1,
    Field.TYPE_FLOAT: 5,
    Field.TYPE_GROUP: 3,
    **{kind: wire for kind, (*_, wire) in NUMBERS.items()},
}
GROUP_END: Final = 4
LENGTH: Final = 2
# The record's timestamp in messages of google.protobuf.
TIMESTAMP: Final = {"seconds": {"divide": 1000}, "nanos": {"modulo": 1000, "times": 1_000_000}}


def _tag(field: Any, wire: int) -> bytes:
    return uvarint(field.number << 3 | wire)


class Compiler(Shaper):
    """Adds the steps of a message."""

    text_form = programs.VARINT

    def compile(self, side: Schemed) -> None:
        """Add the steps of the message that ``side`` names. ``Wrong`` if it cannot be generated."""
        message, indexes = chosen(side.texts[-1][1], side.texts[:-1], str(side.schema), side.message)
        if side.framed == "confluent":
            self.ahead += indexes
        elif side.framed.startswith("apicurio"):
            if message.containing_type is not None:
                raise Wrong("is in another message, which Apicurio cannot name", "name an outer one", ".message")
            # A message of its own, which has the name.
            name = bytes([NAME_TAG]) + self.encoded(message.name)
            self.ahead += uvarint(len(name)) + name
        self._message(message, "")

    def _message(self, message: Any, path: str) -> None:
        self.inside(message.full_name, path, lambda first: self._fields(message, first))

    def _fields(self, message: Any, path: str) -> None:
        for field in sorted(message.fields, key=lambda one: int(one.number)):
            here = member(path, field.name)
            group = field.containing_oneof
            # An optional field of proto3 is the only one of a group.
            if group is not None and (len(group.fields) > 1 or group.name != f"_{field.name}"):
                if field.number == min(one.number for one in group.fields):
                    self._group(group, path)
            elif message.full_name == "google.protobuf.Timestamp":
                self.flush()
                self.ahead += _tag(field, 0)
                self.add(programs.MOMENT, 10, form=programs.VARINT, omits=True, **TIMESTAMP[field.name])
            elif message.full_name == "google.protobuf.Any":
                # Nothing is known of what it holds.
                continue
            elif field.is_repeated:
                self._repeated(field, here)
            elif field.has_presence and not field.is_required:
                self.union(here, {"": (b"", partial(self._value, field, here))}, b"")
            else:
                self._value(field, here, omits=not field.has_presence)

    def _group(self, group: Any, path: str) -> None:
        branches = {one.name: (b"", partial(self._value, one, member(path, one.name))) for one in group.fields}
        self.union(member(path, group.name), branches, b"")

    def _repeated(self, field: Any, path: str) -> None:
        entry = field.message_type if field.type == Field.TYPE_MESSAGE else None
        count = self.count_of(path)
        if entry is not None and entry.GetOptions().map_entry:
            self.loop(count, lambda: self._scope(field, partial(self._entry, entry, path)))
        elif field.is_packed:
            self.flush()
            items = partial(self.loop, count, partial(self._value, field, f"{path}[]", tagged=False))
            self._scope(field, items, omits=True)
        else:
            self.loop(count, partial(self._value, field, f"{path}[]"))

    def _scope(self, field: Any, body: Body, *, omits: bool = False) -> None:
        self.ahead += _tag(field, LENGTH)
        self.scope(body, omits=omits)

    def _entry(self, entry: Any, path: str) -> None:
        """Add a pair of a map"""
        key, value = entry.fields
        if key.type == Field.TYPE_STRING:
            self.ahead += _tag(key, LENGTH) + uvarint(NAME_BYTES)
            self.unique()
        else:
            form = NUMBERS.get(key.type, NUMBERS[Field.TYPE_INT32])[3]
            self.ahead += _tag(key, WIRE[key.type])
            # The second item of a map by booleans is true, as are those after it.
            self.add(programs.ITEM, 10, **form)
        self._value(value, f"{path}[]")

    def _value(self, field: Any, path: str, *, omits: bool = False, tagged: bool = True) -> None:
        kind = field.type
        tag = _tag(field, WIRE.get(kind, LENGTH)) if tagged else b""
        if omits:
            # Only the tag is left out with a 0.
            self.flush()
        if kind == Field.TYPE_BOOL:
            self.boolean(self.given(path, "share", 0.5), tag + b"\1", b"" if omits else tag + b"\0")
            return
        if kind == Field.TYPE_ENUM:
            numbers = [(one.name, one.number) for one in field.enum_type.values]
            self.enum(
                path, {name: tag + uvarint(one & (1 << 64) - 1) if one or not omits else b"" for name, one in numbers}
            )
            return
        self.ahead += tag
        if kind in NUMBERS:
            low, high, most, form, _ = NUMBERS[kind]
            self.number(path, low, high, most, omits=omits, **form)
        elif kind in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT):
            self.real(path, 8, form=programs.DOUBLE if kind == Field.TYPE_DOUBLE else programs.FLOAT, omits=omits)
        elif kind == Field.TYPE_STRING:
            self.text(path)
        elif kind == Field.TYPE_BYTES:
            self.raw(path)
        elif kind == Field.TYPE_GROUP:
            self._message(field.message_type, path)
            self.ahead += _tag(field, GROUP_END)
        else:
            self.scope(lambda: self._message(field.message_type, path))
