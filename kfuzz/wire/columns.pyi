from typing import TypedDict

from typing_extensions import Buffer

from kfuzz.wire.record import Record

# (validity bits or None, nulls, views)
Views = tuple[Buffer | None, int, Buffer]

class Made(TypedDict):
    """The buffers of the columns, in Arrow's layout; numbers are in the machine's byte order."""

    offset: Buffer
    timestamp: Buffer
    batch: Buffer
    header_ends: Buffer
    key: Views
    value: Views
    header_count: int
    header_key: Views
    header_value: Views

class Columns:
    """Columns of the records that a ``Scan`` goes over: offset, timestamp (ms), batch, key, value, headers.

    ``expected_bytes`` is the size of all that is to be read, from which the room is guessed.
    """

    def __init__(self, expected_bytes: int) -> None: ...
    def __len__(self) -> int: ...
    @property
    def buffers(self) -> list[Buffer]:
        """What views refer to, by number."""

    @property
    def untimed(self) -> list[int]:
        """Indices of the records that have no timestamp, as in magic 0."""

    def add_records(self, records: list[Record], batch: int) -> None:
        """Append records that are objects, without headers, as those of magic 0 and 1 are."""

    def add_buffer(self, data: Buffer) -> None:
        """The views to come refer to ``data``."""

    def close(self) -> Made:
        """Hand the columns over; they are empty afterwards."""
