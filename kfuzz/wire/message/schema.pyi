from collections.abc import Mapping
from typing import Any

from typing_extensions import Buffer

from kfuzz.wire.message.checker import Note
from kfuzz.wire.message.explainer import Place
from kfuzz.wire.message.plan import Program
from kfuzz.wire.values import StructValue

class Schema(Program):
    def check(self, data: Buffer, /) -> tuple[int, tuple[Note, ...]]:
        """Check a message without making values: ``(end, notes)``. The end is -1 if the message is refused."""

    def decode(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """``(end, notes, values)``, where the values are None if the message is refused."""

    def decode_whole(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """The same with the fields that this version lacks, which have their defaults."""

    def decode_objects(self, data: bytes, /) -> tuple[int, tuple[Note, ...], StructValue | None]:
        """The same as ``decode_whole``, with objects instead of dicts and tuples instead of lists."""

    def places(self, data: bytes, /) -> tuple[int, tuple[Note, ...], list[Place]]:
        """``(end, notes, places)``: the places of all parts of the message, up to the point where it is refused."""

    def encode(self, message: Mapping[str, Any] | StructValue, /) -> bytes:
        """Encode a message. Missing fields get their defaults. ``EncodeError`` names the field's path.

        A struct is a dict, another mapping, or an object; a number is an int or has ``__index__`` (``IntEnum``);
        bytes are ``bytes`` or bytes-like (``bytearray``, ``memoryview``). Dicts, ints and ``bytes`` are the fastest.
        """

    def size(self, message: Mapping[str, Any] | StructValue, /) -> int:
        """The number of bytes that ``encode`` would return. ``EncodeError`` as for ``encode``."""
