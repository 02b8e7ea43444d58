from typing import Any, Literal

from typing_extensions import Buffer

from kfuzz.wire.values import StructValue

# The codes of notes.
CODES: tuple[str, ...]

# (code, offset, found, allowed, steps): a step is a field's name and the element of its array, -1 for none.
Note = tuple[str, int, int, int, list[tuple[str, int]]]

# (offset, size, path, part, value): of a field its value, or the length, count or presence in front of it; of a struct
# its tag count and the tags, and of a tagged field its size. A length, count or size of bytes is as it is read there.
Place = tuple[int, int, str, Literal["value", "length", "count", "presence", "tag-count", "tag", "tag-size"], Any]

class Schema:
    """A message at one version. ``plans`` describe its structs, the message's own fields first.

    ``text_errors`` is the error handler for what is not UTF-8.
    """

    def __init__(
        self,
        name: str,
        version: int,
        plans: list[dict[str, Any]],
        text_errors: str,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int: ...
    def check(self, data: Buffer, /) -> tuple[int, tuple[Note, ...]]:
        """Where the message ends, -1 where it is refused, and what was noted; no value is made."""

    def decode(self, data: bytes, /) -> tuple[int, tuple[Note, ...], dict[str, Any] | None]:
        """The same, and the values."""

    def decode_objects(self, data: bytes, /) -> tuple[int, tuple[Note, ...], StructValue | None]:
        """The same with objects in place of dicts, and tuples in place of lists."""

    def places(self, data: bytes, /) -> tuple[int, tuple[Note, ...], list[Place]]:
        """The same, and where everything of the message stands, up to what it is refused for."""

    def encode(self, message: dict[str, Any] | StructValue, /) -> bytes:
        """The bytes; fields that a dict lacks have their defaults. ``EncodeError`` with a field's path."""

    def size(self, message: dict[str, Any] | StructValue, /) -> int:
        """How many bytes ``encode`` makes."""
