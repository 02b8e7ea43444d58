"""Records as Arrow columns, and columns as record batches.

pyarrow comes with the extra ``arrow``; it is imported when it is first asked for.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, cast

from kfuzz.errors import EncodeError, UsageError
from kfuzz.findings import Profile
from kfuzz.records.codecs import compress_parts
from kfuzz.records.model import RecordBatch, Verdict
from kfuzz.records.read.limits import DEFAULT_LIMITS, Limits
from kfuzz.records.read.walk import Walk, require_profile_and_role
from kfuzz.records.writer import header_fields, require_known
from kfuzz.wire.column_writer import KINDS, Bytes, ColumnWriter, ends_of_runs
from kfuzz.wire.columns import Columns
from kfuzz.wire.scan import Scan

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

__all__ = ["columns", "encode_columns"]

# The fields that columns may have.
FIELDS = ("offset", "timestamp", "batch", "key", "value", "headers")


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UsageError("columns need pyarrow; install it with: pip install 'kfuzz[arrow]'") from None
    return pyarrow


def columns(data: Buffer, *, profile: Profile = "kafka", limits: Limits = DEFAULT_LIMITS) -> pa.RecordBatch:
    """All records in ``data`` as one ``pyarrow.RecordBatch``, keys and values left where they stand.

    The fields: ``offset`` (int64), ``timestamp`` (int64, milliseconds, null for magic 0), ``batch`` (int32, which batch
    of ``data`` it is in), ``key`` and ``value`` (binary_view), ``headers`` (list of struct of ``key`` and ``value``,
    binary_view). The columns refer to ``data`` and to decompressed payloads and keep them alive; do not change a
    mutable buffer while they are in use.

    By the loop of :func:`kfuzz.records.check`. ``RecordsError`` with the first fatal finding, ``UsageError`` without
    pyarrow.

    >>> from kfuzz import records
    >>> data = records.encode([records.RecordBatch(0, 0, [records.Record(0, 1, b"k", None)])])
    >>> records.columns(data).column("key").to_pylist()
    [b'k']
    """
    arrow = _arrow()
    require_profile_and_role(profile, "consumer")
    verdict = Verdict()
    made = Columns(memoryview(data).nbytes)
    scan = Scan(data, True, with_headers=True, columns=made, limit=limits.decompressed_bytes)
    Walk(scan, data, profile, limits, into=verdict).run(scan.next())
    verdict.raise_fatal()
    # First, for whatever is exported has to be imported.
    schema = _schema()
    # Arrow's own C data interface: to put the table together from Python would take as long as 500 records.
    table: pa.RecordBatch = arrow.RecordBatch._import_from_c(made.export(), schema)
    return table


@cache
def _schema() -> pa.Schema:
    """Made once: it costs as much as a small table."""
    arrow = _arrow()
    view = arrow.binary_view()
    header = arrow.struct([arrow.field("key", view, nullable=False), arrow.field("value", view)])
    fields = (arrow.int64(), arrow.int64(), arrow.int32(), view, view, arrow.list_(header))
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
    """Record batches of magic 2 with the rows of ``columns``, which has the fields that :func:`columns` makes.

    Every field may be missing: ``key`` and ``value`` (binary, large_binary, binary_view, or text) are then null,
    ``timestamp`` is -1, ``headers`` (list of struct of ``key`` and ``value``) are none, and ``offset`` goes on from the
    template's base offset. Neighbouring rows with the same number in ``batch`` make a batch; without it all rows do, or
    ``batch_records`` at a time. ``like`` is the template: its codec, timestamp type, flags, producer (whose sequence
    goes on from batch to batch) and leader epoch; its timestamps where they are given. ``level`` is the codec's own.

    ``EncodeError`` where a row does not fit its batch, ``UsageError`` where a field is of another type.

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
            raise UsageError(f"column {name!r} is there twice")
    table: pa.RecordBatch = (
        arrow.RecordBatch.from_struct_array(columns.to_struct_array().combine_chunks())
        if isinstance(columns, arrow.Table)
        else columns
    )
    ends = _ends(table, batch_records)
    pack = None if like.compression == "none" else partial(compress_parts, like.compression, level=level)
    try:
        writer = _writer(table)
        # The template's last offset is each batch's own.
        return writer.batches(ends, header_fields(replace(like, last_offset=like.base_offset)), pack)
    except OverflowError as error:
        raise EncodeError(f"a field does not fit its width: {error}") from None
    except ValueError as error:
        raise EncodeError(f"the columns are not valid Arrow data: {error}") from None


def _ends(columns: pa.RecordBatch, batch_records: int | None) -> list[int]:
    """Where each batch's rows end."""
    count = columns.num_rows
    if count == 0:
        return []
    if "batch" in columns.schema.names:
        if batch_records is not None:
            raise UsageError("batch_records is given, and the columns have a batch each row is in; leave one out")
        number = columns.column("batch")
        if not _arrow().types.is_integer(number.type):
            raise UsageError(f"column batch is {number.type}; it must be an integer")
        if number.null_count:
            raise UsageError("column batch has nulls; each row is in a batch")
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
            raise UsageError("column offset has nulls; each record has an offset")
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
    """The buffers of a column of bytes, where they are."""
    if column is None:
        return None
    if str(column.type) not in KINDS:
        raise UsageError(f"column {name} is {column.type}; it must be binary, large_binary or binary_view")
    return Bytes(column)
