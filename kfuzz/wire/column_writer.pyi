from collections.abc import Callable

from typing_extensions import Buffer

from kfuzz.wire.record_batch import HeaderFields

# Arrow's types that a column may have; text is bytes.
KINDS: dict[str, int]

class Bytes:
    """A column of nullable bytes in Arrow's layout: ``length`` rows from row ``first`` of its buffers on.

    ``ValueError`` where the buffers are too small for that. Where the bytes are is checked before they are read.
    """

    def __init__(
        self, kind: str, first: int, length: int, valid: Buffer | None, places: Buffer | None, data: list[Buffer]
    ) -> None: ...

class ColumnWriter:
    """``length`` rows of columns as record batches; a column that is None is null, -1, or without headers.

    ``timestamps`` (ms) and ``offsets`` are int64; ``header_ends`` has one int32 more than there are rows.
    """

    def __init__(
        self,
        length: int,
        *,
        keys: Bytes | None,
        values: Bytes | None,
        timestamps: Buffer | None,
        offsets: Buffer | None,
        header_ends: Buffer | None,
        header_keys: Bytes | None,
        header_values: Bytes | None,
    ) -> None: ...
    def batches(self, ends: Buffer, fields: HeaderFields, pack: Callable[[bytes], list[bytes]] | None = None) -> bytes:
        """Batches of the rows up to each of ``ends`` (int64), one after the other.

        ``fields`` are the first header's; length, CRC, record count and last offset delta are made here, timestamps of
        None too. A base offset is what the offsets say, or goes on from the batch before; so does a sequence. ``pack``
        makes a payload's compressed parts. ``EncodeError`` where a row is not valid Arrow data or does not fit a batch.
        """
