class Filling:
    """Bytes that are written where they stay, piece by piece; ``capacity`` of them at first.

    Views of it are to be let go before it is asked for anything else.
    """

    def __init__(self, capacity: int) -> None: ...
    def space(self, size: int) -> memoryview:
        """Where the next ``size`` bytes go. ``MemoryError`` where there is no room for them."""

    def advance(self, size: int) -> None:
        """So many of the space are written."""

    def tail(self, size: int) -> memoryview:
        """The last ``size`` bytes that are written."""

    def close(self) -> bytes:
        """All that is written; the filling is empty afterwards."""
