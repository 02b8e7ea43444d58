"""The last record of each key of a partition, in memory that does not grow with the number of keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.errors import UsageError
from kfuzz.kafka import INT64_MAX
from kfuzz.logs.lines import values_of

# Keys, offsets and values beyond this are on disk.
MEMORY_KIB: Final = 64 << 10

# Key, offset and value of a record.
Keyed = tuple[bytes, int, bytes | None]


class Latest:
    """Of the records of each key, the last one of ``records``; on disk if there are many keys."""

    def __init__(self, records: Iterable[Keyed]) -> None:
        """``UsageError`` if the disk is full."""
        # Most runs need no database.
        import sqlite3

        # An empty name makes a file that SQLite removes itself.
        self._found = sqlite3.connect("")
        try:
            self._found.executescript(f"pragma cache_size = -{MEMORY_KIB}; pragma journal_mode = off")
            self._found.execute("create table latest (key blob primary key, row integer, value blob) without rowid")
            self._found.executemany("insert or replace into latest values (?, ?, ?)", records)
            self._found.execute("create index rows on latest (row)")
        except sqlite3.OperationalError as error:
            raise UsageError(
                f"the keys do not fit on the disk of temporary files: {error}; free space there, or set SQLITE_TMPDIR"
            ) from None

    def by(self, order: str) -> Iterator[Keyed]:
        """The records in the order of ``key`` or of their offsets, ``row``."""
        return iter(self._found.execute(f"select key, row, value from latest order by {order}"))

    def mask(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which of these offsets are the last ones of their keys."""
        bounds = (int(offsets.min()), int(offsets.max()))
        rows = self._found.execute("select row from latest where row between ? and ?", bounds)
        return np.isin(offsets, np.fromiter((row for (row,) in rows), np.int64))


def last_records(batch: pa.RecordBatch, below: int = INT64_MAX) -> Iterable[Keyed]:
    """The last record of each key with an offset under ``below``; those without a key are left out.

    ``batch`` has columns ``offset`` and ``key``; without a column ``value``, all values are None.
    """
    offsets: list[Any] = batch.column("offset").to_pylist()
    values = values_of(batch.column("value")) if "value" in batch.schema.names else [None] * len(offsets)
    rows = zip(values_of(batch.column("key")), offsets, values, strict=True)
    last = {key: (key, offset, value) for key, offset, value in rows if offset < below and key is not None}
    return last.values()
