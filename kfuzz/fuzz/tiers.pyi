from collections.abc import Callable

from kfuzz.records import Role
from kfuzz.wire.messages import Schema

# One in so many inputs is a sample.
SAMPLED: int

class First:
    """The first tier of a target: checks in compiled code what holds for any bytes. This one checks nothing."""

class Records(First):
    """Record batches: verdict, rows, columns and the writer agree. As a broker or a log too, if ``role`` says so."""

    def __init__(self, role: Role = "consumer") -> None: ...

class Packed(Records):
    """The same for a batch that ``pack`` compresses first. ``pack`` returns None if the input cannot be compressed."""

    def __init__(self, pack: Callable[[bytes], bytes | None]) -> None: ...

class Messages(First):
    """Messages: check, reader and writer agree. ``schema_of`` returns the schema that an input selects, or None."""

    def __init__(self, schema_of: Callable[[bytes], Schema | None]) -> None: ...

class Tiers:
    """The function that a fuzzer calls with each input.

    Each input meets ``first``. ``second``, the full oracle in Python, gets each input that reaches something new in the
    compiled modules, and one in at most 128 of the others; with ``all_twice`` it gets all of them. A failure of either
    is an exception; ``report`` gets it with its input, if there is one. ``sample`` gets one in 16 of the inputs that
    did not fail.
    """

    def __init__(
        self,
        first: First,
        second: Callable[[bytes], None],
        all_twice: bool = False,
        report: Callable[[bytes, Exception], None] | None = None,
        sample: Callable[[bytes], None] | None = None,
    ) -> None: ...
    def __call__(self, data: bytes) -> None: ...
    @property
    def inputs(self) -> int:
        """How many inputs there were."""
    @property
    def inputs_twice(self) -> int:
        """How many of them met the second tier."""
    def tell_at_exit(self) -> None:
        """Print both numbers when the process ends."""

def refuse_allocations_above(size_bytes: int) -> None:
    """From now on, an allocation of more than ``size_bytes`` through Python's allocators fails.

    ``Tiers`` raises :class:`~kfuzz.fuzz.oracle.MemoryRefused` after an input for which this happened unnoticed.
    """
