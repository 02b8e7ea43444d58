from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

# The codes of notes.
CODES: tuple[str, ...]

# (code, offset, found, allowed, steps): a step is a field's name and the element of its array, -1 for none.
Note = tuple[str, int, int, int, list[tuple[str, int]]]

class Schema:
    """A message at one version. ``plans`` describe its structs, the message's own fields first.

    ``keyed`` makes what stands for an array with map keys; ``text_errors`` is the error handler for what is not UTF-8.
    """

    def __init__(
        self,
        name: str,
        version: int,
        plans: list[dict[str, Any]],
        keyed: Callable[[list[Any], tuple[str, ...]], Any],
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

    def encode(self, message: dict[str, Any]) -> bytes:
        """The bytes; fields that are not given have their defaults. ``EncodeError`` with a field's path."""

    def size(self, message: dict[str, Any]) -> int:
        """How many bytes ``encode`` makes."""
