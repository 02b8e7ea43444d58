from collections.abc import Callable
from typing import Any

class Full(Exception):
    """The bound of an output is reached."""

class Output:
    """What comes out of a codec, up to ``room`` bytes: pieces that a library makes, or blocks written where they stay.

    One output has either pieces or blocks.
    """

    # How many bytes more may come, at any time.
    room: int
    # What is wrong with the content though the stream can be read.
    mismatch: str

    def __init__(self, room: int) -> None: ...
    def add(self, piece: bytes) -> None:
        """One more piece; of one that there is no room for as much as there is, and then ``Full``."""

    def fill(self, write: Callable[[Any, memoryview], int], block: Any, most: int, rest: int) -> int:
        """Let ``write`` put what it makes of ``block`` into a space of ``most`` bytes: how many those were.

        ``rest`` bytes of input are left behind the block, from which the room for all is guessed at first. ``Full``
        where more came than there was room for, of which as much is kept. Whatever ``write`` raises is raised, and
        nothing is kept of that block.
        """

    def tail(self, size: int) -> memoryview:
        """The last ``size`` bytes of the blocks; to be let go before the output is asked for anything else."""

    def close(self) -> bytes:
        """All that came; the output is empty afterwards."""
