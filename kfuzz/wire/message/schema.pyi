from collections.abc import Mapping
from typing import Any

from typing_extensions import Buffer

from kfuzz.wire.message.checker import Note
from kfuzz.wire.message.explainer import Place
from kfuzz.wire.message.plan import Program
from kfuzz.wire.values import StructValue

class Schema(Program):
    def check(self, data: Buffer, /) -> tuple[int, tuple[Note, ...]]:
        """Where the message ends, -1 where it is refused, and what was noted; no value is made."""

    def decode(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """The same, and the values."""

    def decode_whole(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """The same with the fields that this version lacks, which have their defaults."""

    def decode_objects(self, data: bytes, /) -> tuple[int, tuple[Note, ...], StructValue | None]:
        """As ``decode_whole`` with objects in place of dicts, and tuples in place of lists."""

    def places(self, data: bytes, /) -> tuple[int, tuple[Note, ...], list[Place]]:
        """The same, and where everything of the message stands, up to what it is refused for."""

    def encode(self, message: Mapping[str, Any] | StructValue, /) -> bytes:
        """The bytes; fields that are not given have their defaults. ``EncodeError`` with a field's path.

        A struct is a dict, another mapping, or an object; a number is an int or has ``__index__`` (``IntEnum``);
        bytes are ``bytes`` or bytes-like (``bytearray``, ``memoryview``). Dicts, ints and ``bytes`` are the fastest.
        """

    def size(self, message: Mapping[str, Any] | StructValue, /) -> int:
        """How many bytes ``encode`` makes."""
