from collections.abc import Callable
from typing import Any

class Full(Exception):
    """The output has reached its size limit."""

class Output:
    """Collects a codec's output, up to ``room`` bytes.

    An output takes either pieces, which a library allocates, or blocks, which are written directly into its memory.
    """

    # How many more bytes the output may take; below 0 after ``Full``.
    room: int
    # Describes an error in the content of a stream that can be read all the same, such as a wrong checksum.
    mismatch: str

    def __init__(self, room: int) -> None: ...
    def add(self, piece: bytes) -> None:
        """Add a piece. If it does not fit, add the part that fits and raise ``Full``."""

    def fill(self, write: Callable[[Any, memoryview], int], block: Any, most: int, rest: int) -> int:
        """Call ``write(block, space)`` with a space of ``most`` bytes; return how many bytes it wrote.

        ``rest`` bytes of input follow the block; the first call estimates the total size from them. ``Full`` if the
        bytes exceed ``room``; those that fit are kept. If ``write`` raises, the exception goes to the caller, and
        nothing of the block is kept.
        """

    def tail(self, size: int) -> memoryview:
        """The last ``size`` bytes of the blocks. Release the view before any other use of the output."""

    def close(self) -> bytes:
        """Return the whole output and leave it empty."""
