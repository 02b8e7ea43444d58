from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

class Dice:
    """Random numbers that depend only on ``seed``, ``stream`` and the number of earlier draws (splitmix64)."""

    def __init__(self, seed: int, stream: int = 0) -> None: ...
    def below(self, n: int, /) -> int:
        """A number in [0, n); ``n`` is from 1 to 2^32, otherwise ``ValueError``."""

    def chance(self, probability: float, /) -> bool:
        """True with that probability."""

    def pick(self, choices: Sequence[T], /) -> T:
        """One of ``choices``, which must not be empty."""

    def octets(self, n: int, /) -> bytes:
        """``n`` random bytes."""
