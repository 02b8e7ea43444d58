from collections.abc import Callable
from typing import Any

import pyarrow as pa
from typing_extensions import Buffer

from kfuzz.wire.batch_writer import HeaderFields

# Arrow's types, by name, that a column of bytes may have; text is bytes.
KINDS: dict[str, int]

# Whether the registers of 512 bits are used: this machine has them, and KFUZZ_PORTABLE=1 was not set at the import.
WIDE: bool

class Bytes:
    """A column of nullable bytes, where its buffers are.

    ``ValueError`` where the buffers are too small for its length. Where the bytes are is checked before they are read.
    """

    def __init__(self, array: pa.Array[Any]) -> None: ...

class ColumnWriter:
    """``length`` rows of columns as record batches; a column that is None is null, -1, or without headers.

    ``timestamps`` (ms, null for -1) and ``offsets`` (without nulls) are int64; ``header_ends`` is the list that says
    which of the header keys and values are whose, null for none. ``wide`` False does without the wide registers, for
    tests.
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
        """Batches of the rows up to each of ``ends``, one after the other.

        ``fields`` are the first header's; length, CRC, record count and last offset delta are made here, timestamps of
        None too. A base offset is what the offsets say, or goes on from the batch before; so does a sequence. ``pack``
        makes a payload's compressed parts. ``EncodeError`` where a row is not valid Arrow data or does not fit a batch.
        """

def ends_of_runs(array: pa.Array[Any]) -> list[int]:
    """Where runs of one number end in a column of integers."""
