"""The manifest: one row per segment, stored as Parquet. Verification compares the files with it.

pyarrow is imported only inside the functions that use it: planning and generating in memory do not need it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kfuzz.corpora.snapshot import snapshot_name
from kfuzz.corpora.targets import Target
from kfuzz.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Row",
    "codec_versions",
    "corpus_fingerprint",
    "part_names",
    "read_manifest",
    "require_pyarrow",
    "schema",
    "write_manifest",
]

ROWS_PER_FILE = 100_000
PARTS = "part-*.parquet"
FORMAT = b"kfuzz-manifest/1"


@dataclass(frozen=True, slots=True)
class Row:
    """The manifest's row for one segment.

    ``crc32c`` covers the whole ``.log``. ``fingerprint`` covers its contents, without the lengths and CRCs that depend
    on the codec libraries. ``records`` includes control records; ``aborted_records`` counts the data records of
    transactions that abort, here or in the next segment. ``min_timestamp`` and ``max_timestamp`` are the lowest base
    timestamp (with log-append, a delete horizon or no records: max timestamp) and the highest max timestamp of the
    batch headers (ms), or None if no batch has a timestamp.
    ``valid``, ``acceptable`` and ``invalid`` count the batches by their verdict (role consumer, both profiles).
    """

    segment_id: int
    path: str
    bytes: int
    crc32c: int
    fingerprint: str
    batches: int
    control_batches: int
    records: int
    aborted_records: int
    first_offset: int
    last_offset: int
    min_timestamp: int | None
    max_timestamp: int | None
    index_crc32c: int
    timeindex_crc32c: int
    txnindex_crc32c: int | None
    snapshot_crc32c: int
    valid: int
    acceptable: int
    invalid: int
    codec_versions: str

    def files(self) -> Iterator[tuple[str, int | None]]:
        """The segment's files as (path relative to the corpus, size in bytes). The size is None except for the log."""
        stem = self.path.removesuffix(".log")
        yield self.path, self.bytes
        yield f"{stem}.index", None
        yield f"{stem}.timeindex", None
        if self.txnindex_crc32c is not None:
            yield f"{stem}.txnindex", None
        yield f"{self.path.rpartition('/')[0]}/{snapshot_name(self.last_offset)}", None


def require_pyarrow() -> None:
    """Raise ``UsageError``, with the remedy, if pyarrow is not installed. Only the extra ``corpus`` installs it."""
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError("a corpus' manifest needs pyarrow, which is not installed; pip install 'kfuzz[corpus]'")


@cache
def codec_versions() -> str:
    """The versions of the libraries that compressed bytes depend on, as JSON with sorted keys."""
    import cramjam
    import lz4
    import zstandard

    versions = {
        "zlib": zlib.ZLIB_RUNTIME_VERSION,
        "snappy": f"cramjam-{cramjam.__version__}",
        "lz4": lz4.library_version_string(),
        "zstd": ".".join(map(str, zstandard.ZSTD_VERSION)),
    }
    return json.dumps(versions, sort_keys=True)


def corpus_fingerprint(rows: Iterable[Row]) -> str:
    """SHA-256 over path, size, CRC and content fingerprint of every segment, in the plan's order."""
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.segment_id):
        digest.update(f"{row.path} {row.bytes} {row.crc32c:08x} {row.fingerprint}\n".encode())
    return digest.hexdigest()


def schema() -> pa.Schema:
    """The manifest's columns, with their types and whether they may be null."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {"int": pa.int64(), "str": pa.string()}
    columns = []
    for field in fields(Row):
        kind, _, null = str(field.type).partition(" | ")
        columns.append(pa.field(field.name, kinds[kind], nullable=bool(null)))
    return pa.schema(columns, metadata={b"format": FORMAT})


def write_manifest(place: str | Path | Target, rows: Sequence[Row]) -> None:
    """Write ``rows`` to ``part-*.parquet`` in ``place``, in the plan's order. Equal rows give equal bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Target.of(place)
    ordered = sorted(rows, key=lambda row: row.segment_id)
    for part, start in enumerate(range(0, max(1, len(ordered)), ROWS_PER_FILE)):
        table = pa.Table.from_pylist([asdict(row) for row in ordered[start : start + ROWS_PER_FILE]], schema=schema())
        file = io.BytesIO()
        pq.write_table(table, file, compression="zstd")
        target.write(f"part-{part:05d}.parquet", file.getvalue())


def part_names(target: Target) -> list[str]:
    """The names of the manifest's files in ``target``, in order."""
    return sorted(name for name in target.list().files if fnmatchcase(name, PARTS))


def read_manifest(place: str | Path | Target) -> list[Row]:
    """The rows of the manifest in ``place``, in the plan's order.

    ``UsageError`` if a file cannot be read or has other columns.
    """
    require_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Target.of(place)
    rows: list[Row] = []
    for name in part_names(target):
        path = f"{target}/{name}"
        try:
            # `read_table` would look for a data set of many files, and start threads; that takes twice as long.
            with pq.ParquetFile(pa.BufferReader(target.read(name) or b"")) as file:
                table = file.read(use_threads=False)
            found = table.to_pylist()
        # A damaged file can also hold text that is not UTF-8, or a number that does not fit.
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise UsageError(f"{path} is not a readable Parquet file ({_first_line(error)}); generate again") from None
        required = [column.name for column in schema() if not column.nullable]
        if not table.schema.equals(schema()) or any(row[name] is None for row in found for name in required):
            raise UsageError(f"{path} has other columns than a manifest of this version; generate the corpus again")
        rows += [Row(**row) for row in found]
    return sorted(rows, key=lambda row: row.segment_id)


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
