from collections.abc import Callable
from typing import Any

class Filling:
    """Bytes that are written where they stay, piece by piece; ``capacity`` of them at first."""

    def __init__(self, capacity: int) -> None: ...
    def put(self, write: Callable[[Any, memoryview], int], block: Any, most: int) -> int:
        """Let ``write`` put what it makes of ``block`` into a space of ``most`` bytes: how many those were.

        Whatever it raises is raised, and nothing is kept of that block.
        """

    def drop(self, size: int) -> None:
        """Take the last ``size`` bytes back."""

    def tail(self, size: int) -> memoryview:
        """The last ``size`` bytes that are written; to be let go before it is asked for anything else."""

    def close(self) -> bytes:
        """All that is written; the filling is empty afterwards."""
