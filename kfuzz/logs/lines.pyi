from collections.abc import Iterator
from typing import Any

import pyarrow as pa

def values_of(column: pa.Array[Any], name: bytes | None = None) -> list[bytes | None]:
    """The bytes of each row; None is null.

    With ``name``, the column has headers' bytes: the value of the last header with this name, or None without one.
    """

def matching(column: pa.Array[Any], wanted: bytes | None, name: bytes | None = None) -> bytearray:
    """One byte for each row: 1 if its bytes are ``wanted``.

    With ``name``, the column has headers' bytes: 1 if a header with this name has the value ``wanted``, or any value
    if ``wanted`` is None.
    """

class Lines:
    """Writes rows of Arrow batches as JSON, one object on each line, in UTF-8.

    The batches are those of :func:`kfuzz.logs.read_slice`, with the columns of ``schema``; a column ``headers`` has
    the headers' bytes. Text is written as text. Bytes that are not UTF-8 become ``{"hex": "ff00"}``, null becomes
    ``null``, headers a list of pairs, and a timestamp its milliseconds. Characters that a terminal could obey are
    escaped. Columns of strings that are named ``key``, ``value``, ``key_json`` or ``value_json`` have JSON, which is
    written as it is.

    A row that may need more than ``large_bytes`` of JSON is written in pieces. ``UsageError`` for a type of column that
    it does not know.
    """

    def __init__(self, schema: pa.Schema, large_bytes: int = ...) -> None: ...
    def of(self, batch: pa.RecordBatch, first: int = 0, most: int = ...) -> tuple[memoryview, int, int]:
        """The lines of up to ``most`` rows, from row ``first`` on.

        Returns the bytes, the number of lines, and the first row that was not looked at: lines take about a MiB at a
        time. The bytes are valid until the next call. No line, although there are more rows, means that the next row
        is large: ``pieces`` writes it. ``ValueError`` if the batch is not valid Arrow data.
        """

    def pieces(self, batch: pa.RecordBatch, row: int, is_cut: bool = False) -> Iterator[bytes]:
        """The line of one row, in pieces of about a MiB.

        With ``is_cut``, it has the first 256 bytes of each text, and the first 64 headers.
        """
