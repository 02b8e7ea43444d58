"""The manifest: one row per segment, stored as Parquet. Verification compares the files with it.

pyarrow is imported only inside the functions that use it: planning and generating in memory do not need it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from kfuzz.errors import UsageError
from kfuzz.logs.snapshot import snapshot_name
from kfuzz.storage import Target

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

ROWS_PER_FILE, ROWS_PER_GROUP = 100_000, 10_000
# No text in a row is as long. A column of few bytes can repeat one text for each row.
TEXT_BYTES_MAX = 1024
# A segment has fewer of each than 2³¹, for its offsets and its positions in bytes have 31 bits.
COUNTS = ("bytes", "batches", "control_batches", "records", "aborted_records", "valid", "acceptable", "invalid")
COUNT_MAX = (1 << 31) - 1
PARTS = "part-*.parquet"
FORMAT = b"kfuzz-manifest/2"
# A generator that makes other bytes of a workload than the one before it has another number.
GENERATOR = 2


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

    def require_types(self) -> None:
        """``TypeError`` if a value has another type than its field: the row came from a file."""
        for field in fields(self):
            kind, _, null = str(field.type).partition(" | ")
            value = getattr(self, field.name)
            if type(value).__name__ != kind and not (null and value is None):
                raise TypeError(field.name)

    def sums(self) -> dict[str, int]:
        """The CRC-32C of each of the segment's files, by its name in the partition's directory."""
        found = (self.crc32c, self.index_crc32c, self.timeindex_crc32c, self.txnindex_crc32c, self.snapshot_crc32c)
        names = [name.rpartition("/")[2] for name, _ in self.files()]
        return dict(zip(names, (one for one in found if one is not None), strict=True))

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
    """The versions that the bytes of a segment depend on, as JSON with sorted keys: the generator's and the codecs'."""
    from kfuzz.records.codecs import library_versions

    return json.dumps({"generator": GENERATOR, **library_versions()}, sort_keys=True)


def corpus_fingerprint(rows: Iterable[Row]) -> str:
    """SHA-256 over path, size, CRC and content fingerprint of every segment. ``rows`` come in the plan's order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.path} {row.bytes} {row.crc32c:08x} {row.fingerprint}\n".encode())
    return digest.hexdigest()


def schema() -> pa.Schema:
    """The manifest's columns, with their types and whether they may be null."""
    return columns_of(Row, FORMAT)


def columns_of(cls: type[Any], about: bytes) -> pa.Schema:
    """The columns for objects of a dataclass whose fields are whole numbers and texts; ``about`` names the format."""
    import pyarrow as pa

    kinds: dict[str, pa.DataType] = {"int": pa.int64(), "str": pa.string()}
    columns = []
    for field in fields(cls):
        kind, _, null = str(field.type).partition(" | ")
        columns.append(pa.field(field.name, kinds[kind], nullable=bool(null)))
    return pa.schema(columns, metadata={b"format": about})


def write_manifest(place: str | Path | Target, rows: Iterable[Row]) -> None:
    """Write ``rows``, which come in the plan's order, to ``part-*.parquet`` in ``place``, in bounded memory.

    Equal rows give equal bytes: where one file ends depends only on the number of rows.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target, left, columns = Target.of(place), iter(rows), schema()
    for part in itertools.count():
        file, written = io.BytesIO(), 0
        with pq.ParquetWriter(file, columns, compression="zstd") as writer:
            while written < ROWS_PER_FILE and (group := list(itertools.islice(left, ROWS_PER_GROUP))):
                arrays = [pa.array([getattr(row, one.name) for row in group], one.type) for one in columns]
                writer.write_table(pa.Table.from_arrays(arrays, schema=columns))
                written += len(group)
        if written or not part:
            target.write(f"part-{part:05d}.parquet", file.getvalue())
        if written < ROWS_PER_FILE:
            return


def part_names(target: Target) -> list[str]:
    """The names of the manifest's files in ``target``, in order."""
    return sorted(name for name in target.list().files if fnmatchcase(name, PARTS))


class Manifest:
    """The rows of the manifest in ``place``, in the order of its files, which is the plan's. They are read again each
    time, a few thousand at once, because a corpus may have millions of them.

    Raises ``UsageError``, here or while reading, if a file cannot be read or has other columns.
    """

    def __init__(self, place: str | Path | Target, names: Sequence[str] | None = None) -> None:
        require_pyarrow()
        self._target = Target.of(place)
        self.parts: list[tuple[str, int, int, int]] = []
        for name in part_names(self._target) if names is None else names:
            with self._opened(name) as file:
                self.parts.append((name, file.metadata.num_rows, *_range_of(file)))
        self._count = sum(count for _, count, _, _ in self.parts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        names = schema().names
        for batch in self.batches():
            yield from map(Row, *(batch.column(name).to_pylist() for name in names))

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows, or some ``columns`` of them, as Arrow."""
        required = [one.name for one in schema() if not one.nullable and (columns is None or one.name in columns)]
        for name, _, _, _ in self.parts:
            with self._opened(name) as file:
                for batch in file.iter_batches(ROWS_PER_GROUP, columns=columns, use_threads=False):
                    if any(batch.column(one).null_count for one in required):
                        raise self._other_columns(name)
                    self._require_counts(name, batch)
                    yield plain(batch)

    def between(self, first: int, last: int) -> Iterator[Row]:
        """The rows of the segments from ``first`` to ``last``."""
        names = [name for name, _, low, high in self.parts if low <= last and first <= high]
        return (row for row in Manifest(self._target, names) if first <= row.segment_id <= last)

    def total(self, column: str) -> int:
        """The sum of a column."""
        import pyarrow.compute as pc

        return sum(pc.sum(batch.column(column)).as_py() or 0 for batch in self.batches([column]))

    def ends(self, low: str, high: str) -> tuple[int | None, int | None]:
        """The lowest value of one column, and the highest of another; None for a column without values."""
        import pyarrow.compute as pc

        batches = self.batches([low, high])
        found = [(pc.min(one.column(low)).as_py(), pc.max(one.column(high)).as_py()) for one in batches]
        lows, highs = ([ends[at] for ends in found if ends[at] is not None] for at in (0, 1))
        return min(lows, default=None), max(highs, default=None)

    def distinct(self, column: str) -> list[str]:
        """The different values of a column of texts, sorted."""
        found = (batch.column(column).unique().to_pylist() for batch in self.batches([column]))
        return sorted({str(value) for values in found for value in values})

    @contextlib.contextmanager
    def _opened(self, name: str) -> Iterator[pq.ParquetFile]:
        import pyarrow as pa

        try:
            with open_parquet(self._target.read(name) or b"", schema()) as file:
                if file is None:
                    raise self._other_columns(name)
                yield file
        # A damaged file can also hold text that is not UTF-8, or a number that does not fit.
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            raise UsageError(
                f"{self._target}/{name} is not a readable Parquet file ({_first_line(error)}); "
                "generate again with --overwrite"
            ) from None

    def _require_counts(self, name: str, batch: pa.RecordBatch) -> None:
        """``UsageError`` for a number of things that no segment has; sums of such numbers would be wrong."""
        for column in COUNTS:
            # Executors do not import pyarrow.compute, which takes long.
            given = batch.column(column).to_pylist() if column in batch.schema.names else []
            found = next((one for one in given if one is not None and not 0 <= one <= COUNT_MAX), None)
            if found is not None:
                raise UsageError(
                    f"{self._target}/{name} has a row with {found} {column.replace('_', ' ')}, and a segment has 0 "
                    f"to {COUNT_MAX}; generate the corpus again with --overwrite"
                )

    def _other_columns(self, name: str) -> UsageError:
        return UsageError(
            f"{self._target}/{name} has other columns than a manifest of this version; "
            "generate the corpus again with --overwrite"
        )


@contextlib.contextmanager
def open_parquet(data: bytes, columns: pa.Schema) -> Iterator[pq.ParquetFile | None]:
    """A Parquet file of short rows; None if it has other columns. Read batches of it through :func:`plain`.

    ``ValueError`` if its rows are larger than ours can be; pyarrow's errors if the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    said = pq.read_metadata(pa.BufferReader(data))
    texts = [one.name for one in columns if one.type == pa.string() and one.name in said.schema.names]
    packed = pa.dictionary(pa.int32(), pa.string())
    expected = pa.schema([one.with_type(packed) if one.name in texts else one for one in columns])
    groups = (said.row_group(at) for at in range(said.num_row_groups))
    if sum(group.total_byte_size for group in groups) > said.num_rows * len(columns) * TEXT_BYTES_MAX + len(data):
        raise ValueError("its rows are too large")
    with pq.ParquetFile(pa.BufferReader(data), metadata=said, read_dictionary=texts) as file:
        yield file if file.schema_arrow.equals(expected) else None


def plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its texts as plain columns. ``ValueError`` for a text that is longer than ours."""
    import pyarrow as pa

    from kfuzz.logs.arrow_rows import texts_of

    columns: list[Any] = list(batch.columns)
    for at, column in enumerate(columns):
        if pa.types.is_dictionary(column.type):
            texts = [b"" if text is None else text.encode() for text in column.dictionary.to_pylist()]
            if any(len(text) > TEXT_BYTES_MAX for text in texts):
                raise ValueError(f"a text has more than {TEXT_BYTES_MAX} bytes")
            columns[at] = texts_of([None if row is None else texts[row] for row in column.indices.to_pylist()])
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _range_of(file: pq.ParquetFile) -> tuple[int, int]:
    """The lowest and the highest segment id in a file; all ids if its statistics do not say."""
    found = [file.metadata.row_group(at).column(0).statistics for at in range(file.metadata.num_row_groups)]
    if not found or not all(one is not None and one.has_min_max for one in found):
        return -(1 << 63), (1 << 63) - 1
    return min(cast(int, one.min) for one in found if one), max(cast(int, one.max) for one in found if one)


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0][:120] if str(error) else type(error).__name__
