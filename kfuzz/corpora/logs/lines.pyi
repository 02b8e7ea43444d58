import pyarrow as pa

class Lines:
    """Writes rows of Arrow batches as JSON, one object on each line, in UTF-8.

    The batches are those of :func:`kfuzz.corpora.logs.read`, with the columns of ``schema``. Text is written as text.
    Bytes that are not UTF-8 become ``{"hex": "ff00"}``, null becomes ``null``, headers a list of pairs, and a timestamp
    its milliseconds. With ``key``, only rows with this key are written. Only the first ``shown`` columns are written.

    ``UsageError`` for a type of column that it does not know.
    """

    def __init__(self, schema: pa.Schema, key: bytes | None = None, shown: int | None = None) -> None: ...
    def of(self, batch: pa.RecordBatch, first: int = 0, most: int = ...) -> tuple[memoryview, int, int]:
        """The lines of up to ``most`` rows, from row ``first`` on.

        Returns the bytes, the number of lines, and the first row that was not looked at: lines take about a MiB at a
        time. The bytes are valid until the next call. ``ValueError`` if the batch is not valid Arrow data.
        """

def as_json(data: bytes | None) -> bytes:
    """One value as ``Lines`` writes it; for tests."""
