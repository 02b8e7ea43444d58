"""Read records into Arrow columns, and write columns as record batches.

These functions need pyarrow (``pip install 'kfuzz[arrow]'``). It is imported on the first call.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from kfuzz.errors import EncodeError, UsageError, needs
from kfuzz.findings import Finding, Profile
from kfuzz.records.codecs import compress_parts
from kfuzz.records.model import RecordBatch, Verdict
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.walk import Walk, require_profile_and_role
from kfuzz.records.writer import header_fields, require_known
from kfuzz.wire.columns.reader import Columns
from kfuzz.wire.columns.writer import KINDS, Bytes, ColumnWriter, ends_of_runs
from kfuzz.wire.walk.scan import BATCH, END, Scan

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

# The fields that columns may have.
FIELDS = ("offset", "timestamp", "batch", "key", "value", "headers")


def _arrow() -> Any:
    with needs("columns need pyarrow; install it with: pip install 'kfuzz[arrow]'"):
        import pyarrow
    return pyarrow


def columns(data: Buffer, *, profile: Profile = "kafka", limits: Limits = DEFAULT_LIMITS) -> pa.RecordBatch:
    """Return all records in ``data`` as one ``pyarrow.RecordBatch``, without copying keys and values.

    It has these fields:

    - ``offset`` (int64)
    - ``timestamp`` (int64, milliseconds; null for magic 0)
    - ``batch`` (int32): the index of the batch in ``data``
    - ``key`` and ``value`` (binary_view)
    - ``headers`` (list of structs with ``key`` and ``value``, both binary_view)

    The columns point into ``data`` and into decompressed payloads, and keep both alive. If ``data`` is a mutable
    buffer, do not change it while the columns are in use.

    The bytes are judged by the same loop as in :func:`kfuzz.records.check`. Raises ``RecordsError`` with the first
    fatal finding, and ``UsageError`` if pyarrow is missing.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", None)])])
    >>> records.columns(data).column("key").to_pylist()
    [b'k']
    """
    _arrow()
    require_profile_and_role(profile, "consumer")
    verdict = Verdict()
    made = Columns(memoryview(data).nbytes)
    scan = Scan(data, True, with_headers=True, columns=made, limit=limits.decompressed_bytes)
    Walk(scan, data, profile, limits, into=verdict).run(scan.next())
    verdict.raise_fatal()
    return _table(made)


class Part(NamedTuple):
    """The result of :func:`next_part`: the leading batches of a buffer.

    ``columns`` has their records, with the fields of :func:`columns`. ``places`` and ``counts`` have an entry for each
    batch: where it begins in the buffer, and how many records it has. ``consumed`` is where the last of them ends.
    ``finding`` says why the batch there is refused; None at the end, at a partial batch, and at the limit.

    A batch with very many records is in a part of its own. Then ``more`` gives the records after those in ``columns``,
    some at a time.
    """

    columns: pa.RecordBatch
    places: list[int]
    counts: list[int]
    consumed: int
    finding: Finding | None
    more: Iterator[pa.RecordBatch] = iter(())


class _Counted(Columns):
    """Columns that count the bytes of decompressed payloads that they keep alive."""

    def __init__(self, data: memoryview, raw_headers: bool) -> None:
        super().__init__(data.nbytes, raw_headers=raw_headers)
        self.data = data
        self.payload_bytes = 0

    def add_buffer(self, data: Buffer) -> None:
        super().add_buffer(data)
        if data is not self.data:
            self.payload_bytes += memoryview(data).nbytes


def next_part(
    data: memoryview,
    *,
    limits: Limits = DEFAULT_LIMITS,
    payload_bytes: int = 1 << 26,
    rows_most: int = 0,
    raw_headers: bool = False,
) -> Part:
    """The leading batches of ``data`` as columns, up to the first batch that a consumer refuses.

    It also stops when decompressed payloads take ``payload_bytes`` or more, or with about ``rows_most`` records if that
    is not 0. With ``raw_headers``, the column of headers has their bytes. Does not raise on bad bytes. ``UsageError``
    without pyarrow. ``data`` has less than 2 GiB.
    """
    verdict = Verdict()
    made = _Counted(data, raw_headers)
    scan = Scan(
        data,
        True,
        with_headers=not raw_headers,
        each=True,
        columns=made,
        limit=limits.decompressed_bytes,
        rows_most=rows_most,
    )
    walk = Walk(scan, data, "kafka", limits, into=verdict)
    places, counts = list[int](), list[int]()
    consumed = rows = 0
    while (stop := scan.next()) != END:
        if (stop != BATCH or scan.notes()) and not walk.handle_stop(stop):
            break
        if scan.is_full:
            if places:
                break
            source, begins = scan.records_source()
            end = scan.at + scan.size
            more = _pieces(scan, source, begins, raw_headers)
            first = next(more)
            return Part(first, [scan.at], [first.num_rows], end, None, more)
        places.append(scan.at)
        counts.append(scan.found)
        consumed = scan.at + scan.size
        rows += scan.found
        if made.payload_bytes >= payload_bytes or (rows_most and rows >= rows_most):
            break
    table = _table(made, raw_headers)
    # A refused batch may have left rows.
    return Part(table.slice(0, sum(counts)), places, counts, consumed, verdict.fatal)


def _pieces(scan: Scan, source: Buffer, at: int, raw_headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of the batch at which the scan has stopped, from byte ``at`` of ``source`` on, some at a time."""
    record = 0
    while record < scan.found:
        made = Columns(memoryview(source).nbytes, raw_headers=raw_headers)
        at, record = scan.add_rows(made, source, at, record)
        yield _table(made, raw_headers)


def _table(made: Columns, raw_headers: bool = False) -> pa.RecordBatch:
    # Make the schema before the export: if it failed afterwards, nobody would free the exported data.
    schema = _schema(raw_headers)
    # Arrow's C data interface is used because building the table in Python takes as long as reading 500 records.
    table: pa.RecordBatch = _arrow().RecordBatch._import_from_c(made.export(), schema)
    return table


@cache
def _schema(raw_headers: bool = False) -> pa.Schema:
    """Cached because making it takes as long as making a small table."""
    arrow = _arrow()
    view = arrow.binary_view()
    header = arrow.struct([arrow.field("key", view, nullable=False), arrow.field("value", view)])
    headers = view if raw_headers else arrow.list_(header)
    fields = (arrow.int64(), arrow.int64(), arrow.int32(), view, view, headers)
    made: pa.Schema = arrow.schema(list(zip(FIELDS, fields, strict=True)))
    return made


# ------------------------------------------------------------------------------------------------- writing


def encode_columns(
    columns: pa.RecordBatch | pa.Table,
    *,
    like: RecordBatch | None = None,
    batch_records: int | None = None,
    level: int | None = None,
) -> bytes:
    """Write the rows of ``columns`` as record batches of magic 2. The fields are those of :func:`columns`.

    Every field may be missing. Its default is then:

    - ``key`` and ``value`` (binary, large_binary, binary_view or text): null
    - ``timestamp``: -1
    - ``headers`` (list of structs with ``key`` and ``value``): none
    - ``offset``: counts up from the template's base offset
    - ``batch``: all rows form one batch, or every ``batch_records`` rows do

    Adjacent rows with the same number in ``batch`` form one batch. ``like`` is the template for the codec, timestamp
    type, flags, producer and leader epoch, and for the base and max timestamp if it has them. The producer's sequence
    continues from batch to batch. ``level`` is the codec's compression level.

    Raises ``EncodeError`` if a row does not fit its batch, and ``UsageError`` if a field has the wrong type.

    >>> import pyarrow
    >>> from kfuzz import records
    >>> data = records.encode_columns(pyarrow.record_batch({"value": pyarrow.array([b"one", b"two"])}))
    >>> [record.value for record in records.decode(data)[0].records]
    [b'one', b'two']
    """
    arrow = _arrow()
    like = RecordBatch(0, 0) if like is None else like
    if like.magic != 2:
        raise UsageError(f"columns are written in magic 2; the template has magic {like.magic}")
    require_known(like)
    if not isinstance(columns, arrow.RecordBatch | arrow.Table):
        raise UsageError(f"columns are {type(columns).__name__}; they must be a pyarrow.RecordBatch or pyarrow.Table")
    names = columns.schema.names
    for name in names:
        if name not in FIELDS:
            raise UsageError(f"column {name!r} is unknown; columns of records have {', '.join(FIELDS)}")
        if names.count(name) > 1:
            raise UsageError(f"column {name!r} occurs twice")
    table: pa.RecordBatch = (
        arrow.RecordBatch.from_struct_array(columns.to_struct_array().combine_chunks())
        if isinstance(columns, arrow.Table)
        else columns
    )
    ends = _ends(table, batch_records)
    pack = None if like.compression == "none" else partial(compress_parts, like.compression, level=level)
    try:
        writer = _writer(table)
        # Each batch gets its own last offset, so the template's is not used.
        return writer.batches(ends, header_fields(replace(like, last_offset=like.base_offset)), pack)
    except OverflowError as error:
        raise EncodeError(f"a field does not fit its width: {error}") from None
    except ValueError as error:
        raise EncodeError(f"the columns are not valid Arrow data: {error}") from None


def _ends(columns: pa.RecordBatch, batch_records: int | None) -> list[int]:
    """For each batch, the index one past its last row."""
    count = columns.num_rows
    if count == 0:
        return []
    if "batch" in columns.schema.names:
        if batch_records is not None:
            raise UsageError("the columns have a field batch, so batch_records has no use; leave one of them out")
        number = columns.column("batch")
        if not _arrow().types.is_integer(number.type):
            raise UsageError(f"column batch is {number.type}; it must be an integer")
        if number.null_count:
            raise UsageError("column batch has nulls; each row needs a batch")
        return ends_of_runs(number)
    step = count if batch_records is None else batch_records
    if not isinstance(step, int) or step < 1:
        raise UsageError(f"batch_records is {batch_records}; it must be 1 or more")
    return [*range(step, count, step), count]


def _writer(columns: pa.RecordBatch) -> ColumnWriter:
    parts: dict[str, pa.Array[Any]] = dict(zip(columns.schema.names, columns.columns, strict=True))
    arrow = _arrow()
    keys, values = _bytes("key", parts.get("key")), _bytes("value", parts.get("value"))
    timestamps, offsets, headers = parts.get("timestamp"), parts.get("offset"), parts.get("headers")
    if timestamps is not None:
        kind = timestamps.type
        if not (arrow.types.is_int64(kind) or (arrow.types.is_timestamp(kind) and kind.unit == "ms")):
            raise UsageError(f"column timestamp is {kind}; it must be int64")
    if offsets is not None:
        if not arrow.types.is_int64(offsets.type):
            raise UsageError(f"column offset is {offsets.type}; it must be int64")
        if offsets.null_count:
            raise UsageError("column offset has nulls; each record needs an offset")
    header_keys = header_values = None
    if headers is not None:
        headers, header_keys, header_values = _headers(cast("pa.ListArray[Any]", headers))
    return ColumnWriter(
        columns.num_rows,
        keys=keys,
        values=values,
        timestamps=timestamps,
        offsets=offsets,
        header_ends=headers,
        header_keys=header_keys,
        header_values=header_values,
    )


def _headers(column: pa.ListArray[Any]) -> tuple[pa.ListArray[Any], Bytes | None, Bytes | None]:
    arrow = _arrow()
    kind = column.type
    if not arrow.types.is_list(kind) or not arrow.types.is_struct(kind.value_type):
        raise UsageError(f"column headers is {kind}; it must be a list of structs of key and value")
    names = [kind.value_type[i].name for i in range(kind.value_type.num_fields)]
    if sorted(names) != ["key", "value"]:
        raise UsageError(f"column headers is {kind}; its structs must have a key and a value")
    structs = cast("pa.StructArray", column.values)
    parts = dict(zip(names, structs.flatten(), strict=True))
    return column, _bytes("headers.key", parts["key"]), _bytes("headers.value", parts["value"])


def _bytes(name: str, column: pa.Array[Any] | None) -> Bytes | None:
    """The buffers of a column of bytes, without a copy."""
    if column is None:
        return None
    if str(column.type) not in KINDS:
        raise UsageError(f"column {name} is {column.type}; it must be binary, large_binary or binary_view")
    return Bytes(column)
