from collections.abc import Iterable
from typing import Any, Literal

from typing_extensions import Buffer

# The codes of notes.
CODES: tuple[str, ...]

# (code, offset, found, allowed, steps): a step is a field's name and the element of its array, -1 for none.
Note = tuple[str, int, int, int, list[tuple[str, int]]]

# (offset, size, path, part, value): of a field its value, or the length, count or presence in front of it; of a struct
# its tag count and the tags, and of a tagged field its size. A length, count or size of bytes is as it is read there.
Place = tuple[int, int, str, Literal["value", "length", "count", "presence", "tag-count", "tag", "tag-size"], Any]

class Keyed(list[dict[str, Any]]):
    """The elements of an array that has map keys, in their order; ``find`` looks one up in O(1).

    >>> topics = Keyed([{"name": "a", "id": 1}, {"name": "b", "id": 2}], ("name",))
    >>> topics.find(name="b")
    {'name': 'b', 'id': 2}
    """

    def __init__(self, elements: Iterable[dict[str, Any]] = (), keys: tuple[str, ...] = ()) -> None: ...
    @property
    def keys(self) -> tuple[str, ...]: ...
    def find(self, **values: Any) -> dict[str, Any] | None:
        """The first element with these values of all its keys, or None. ``UsageError`` where they are other keys."""

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
    def check(self, data: Buffer) -> tuple[int, list[Note]]:
        """Where the message ends, -1 where it is refused, and what was noted; no value is made."""

    def decode(self, data: bytes) -> tuple[int, list[Note], dict[str, Any] | None]:
        """The same, and the values."""

    def places(self, data: bytes) -> tuple[int, list[Note], list[Place]]:
        """The same, and where everything of the message stands, up to what it is refused for."""

    def encode(self, message: dict[str, Any]) -> bytes:
        """The bytes; fields that are not given have their defaults. ``EncodeError`` with a field's path."""

    def size(self, message: dict[str, Any]) -> int:
        """How many bytes ``encode`` makes."""
