from typing_extensions import Buffer

# Whether the registers of 512 bits are used: this machine has them, and KFUZZ_PORTABLE=1 was not set at the import.
WIDE: bool

class Columns:
    """Columns of the records that a ``Scan`` goes over: offset, timestamp (ms), batch, key, value, headers.

    ``expected_bytes`` is the size of all that is to be read, from which the room is guessed. ``wide`` False does
    without the registers of 512 bits that are used where the processor has them, for tests.
    """

    def __init__(self, expected_bytes: int, wide: bool = ...) -> None: ...
    def __len__(self) -> int: ...
    def add_buffer(self, data: Buffer) -> None:
        """The views to come refer to ``data``."""

    def export(self) -> int:
        """The address of the Arrow C data interface's array of them, a struct with a child for each; once.

        Nothing may be added afterwards. They stay in memory until the array is released, as whoever imports it does.
        """
