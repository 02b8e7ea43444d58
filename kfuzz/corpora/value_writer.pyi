from collections.abc import Sequence

from kfuzz.corpora.programs import Program

class ValueWriter:
    """Writes values by the steps of a program, in compiled code; see ``kfuzz.corpora.programs``."""

    def __init__(self, program: Program, count: int = 1, key_bytes_max: int = 0) -> None:
        """Room for ``count`` values, whose fields hold keys of up to ``key_bytes_max`` bytes."""

    def values(self, seeds: Sequence[int], offsets: Sequence[int], timestamp: int, key_size: int = -1) -> list[bytes]:
        """The values of records with these seeds and offsets, for tests and statistics. Their keys are letters."""

    def size(self, count: int, timestamp: int, key_size: int = -1) -> int:
        """The size of the values of records 0 to ``count``, each with its offset as seed, written and forgotten."""
