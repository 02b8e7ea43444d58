from collections.abc import Mapping
from typing import Any

from typing_extensions import Buffer

from kfuzz.wire.messages.checker import Note
from kfuzz.wire.messages.explainer import Place
from kfuzz.wire.messages.plan import Program
from kfuzz.wire.messages.values import StructValue

# Where the fields of type ``records`` are (offset, size), how often each error is there, and whether there is a host.
Picked = tuple[list[tuple[int, int]], dict[int, int], bool]

class Schema(Program):
    def check(self, data: Buffer, /) -> tuple[int, tuple[Note, ...]]:
        """The offset where the message ends (-1 if it is refused), and the notes. No values are made."""

    def elements(self, data: bytes, /) -> int:
        """How many elements all arrays have together, and tagged fields, up to a refusal. No values are made."""

    def decode(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """The same and the values, which are None if the message is refused."""

    def decode_whole(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """As ``decode``, and dicts also have the fields that this version lacks, with their defaults."""

    def decode_objects(self, data: bytes, /) -> tuple[int, tuple[Note, ...], StructValue | None]:
        """As ``decode_whole``, with objects instead of dicts and tuples instead of lists."""

    def places(self, data: bytes, most: int = 0, /) -> tuple[int, tuple[Note, ...], list[Place]]:
        """As ``check``, and the places of all parts of the message, up to the byte that is refused.

        If ``most`` is not 0, the list ends with so many places.
        """

    def pick(self, data: Buffer, /) -> tuple[int, tuple[Note, ...], Picked | None]:
        """As ``check``, and what a proxy wants to know; None if the message is refused. No values are made."""

    def flat(self) -> bytes:
        """The schema as plain numbers for code without Python; ``kfuzz/wire/messages/schema.h`` describes them."""

    def encode(self, message: Mapping[str, Any] | StructValue, /) -> bytes:
        """The bytes. Fields that are not given have their defaults. Raises ``EncodeError`` with a field's path.

        A struct is a dict, another mapping, or an object; a number is an int or has ``__index__`` (``IntEnum``);
        bytes are ``bytes`` or bytes-like (``bytearray``, ``memoryview``). Dicts, ints and ``bytes`` are the fastest.
        """

    def size(self, message: Mapping[str, Any] | StructValue, /) -> int:
        """The number of bytes that ``encode`` makes."""
