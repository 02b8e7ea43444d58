from kfuzz.corpora.programs import Program

class ValueWriter:
    """Writes values by the steps of a program, in compiled code; see ``kfuzz.corpora.programs``."""

    def __init__(self, program: Program) -> None: ...
    def sample(self, count: int, timestamp: int, key_size: int = -1) -> list[bytes]:
        """The values of records 0 to ``count``, each with its offset as seed. Their keys are letters."""
