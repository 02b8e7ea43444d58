from typing_extensions import Buffer

class Columns:
    """Columns of the records that a ``Scan`` reads: offset, timestamp (ms), batch, key, value, headers.

    ``expected_bytes`` is the size of all data to come; the columns estimate their room from it. With ``raw_headers``,
    the column of headers is one of views: the bytes of a record's headers, after their count, as they are. So headers
    take no memory until they are read.
    """

    def __init__(self, expected_bytes: int, raw_headers: bool = False) -> None: ...
    def add_buffer(self, data: Buffer) -> None:
        """From now on, new views refer to ``data``."""

    def export(self) -> int:
        """The address of an ``ArrowArray`` (Arrow C data interface): a struct array with one child per column.

        Call it once, and add nothing afterwards; a second call is a ``ValueError``. The columns stay in memory until
        the importer releases the array.
        """
