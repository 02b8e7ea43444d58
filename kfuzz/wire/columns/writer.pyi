from collections.abc import Callable
from typing import Any

import pyarrow as pa
from typing_extensions import Buffer

from kfuzz.wire.records.batch_writer import HeaderFields

# The Arrow types, by name, that a column of bytes may have. Strings count as bytes.
KINDS: dict[str, int]

# Whether 512-bit registers are used: this machine has them, and KFUZZ_PORTABLE=1 was not set at import.
WIDE: bool

class Bytes:
    """A column of nullable bytes that refers to the array's own buffers.

    ``ValueError`` if the buffers are too small for its length. Every offset is checked before bytes are read.
    """

    def __init__(self, array: pa.Array[Any]) -> None: ...

class ColumnWriter:
    """Writes ``length`` rows of columns as record batches.

    A column of None means null keys or values, timestamps of -1, consecutive offsets, or no headers. ``timestamps``
    (ms, null for -1) and ``offsets`` (without nulls) are int64. ``header_ends`` is a list array: its int32 ends say
    which header keys and values belong to which row; a null row has no headers. ``wide=False`` avoids the 512-bit
    registers, for tests. ``ValueError`` if a column does not have ``length`` rows.
    """

    def __init__(
        self,
        length: int,
        *,
        keys: Bytes | None,
        values: Bytes | None,
        timestamps: pa.Array[Any] | None,
        offsets: pa.Array[Any] | None,
        header_ends: pa.Array[Any] | None,
        header_keys: Bytes | None,
        header_values: Bytes | None,
        wide: bool = ...,
    ) -> None: ...
    def batches(
        self, ends: list[int], fields: HeaderFields, pack: Callable[[bytes], list[Buffer]] | None = None
    ) -> bytes:
        """The bytes of the batches, one after the other; each batch has the rows up to one of ``ends``.

        ``fields`` is the first batch's header. Length, CRC, record count and last offset delta are computed, and so are
        timestamps given as None. A base offset comes from the offset column; without one it continues from the previous
        batch. The base sequence continues too. ``pack`` returns the parts of a compressed payload. ``EncodeError`` if a
        row is not valid Arrow data or does not fit a batch.
        """

def ends_of_runs(array: pa.Array[Any]) -> list[int]:
    """Return the ends (exclusive row indices) of the runs of equal numbers in a column of integers."""
