"""Records as Arrow columns, and columns as record batches. May import ``kfuzz.wire`` and its neighbours, and pyarrow.

pyarrow comes with the extra ``arrow``; it is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfuzz.errors import UsageError
from kfuzz.records.findings import Profile
from kfuzz.records.model import RecordBatch
from kfuzz.records.reader import DEFAULT_LIMITS, Limits, Walk
from kfuzz.wire.columns import Columns
from kfuzz.wire.scan import Scan

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from kfuzz.wire.columns import Views

__all__ = ["columns"]


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise UsageError("columns need pyarrow; install it with: pip install 'kfuzz[arrow]'") from None
    return pyarrow


class _ColumnWalk(Walk):
    """The reader's walk with columns as its sink."""

    def __init__(self, data: Buffer, profile: Profile, limits: Limits) -> None:
        super().__init__(data, profile, "consumer", limits, objects=False)
        self.columns = Columns(len(self.view))
        self.scan = Scan(
            data if type(data) is bytes else self.view, with_rows=True, with_headers=True, columns=self.columns
        )

    def message(self, at: int, size: int) -> RecordBatch:
        batch = super().message(at, size)
        self.columns.add_records(batch.records, self.scan.batch_count)
        return batch


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
    walk = _ColumnWalk(data, profile, limits)
    walk.run().raise_fatal()
    count = len(walk.columns)
    buffers = [arrow.py_buffer(buffer) for buffer in walk.columns.buffers]
    untimed = walk.columns.untimed
    made = walk.columns.close()

    def fixed(type_: pa.DataType, data: Buffer, missing: list[int]) -> pa.Array:
        validity = _validity(count, missing) if missing else None
        return arrow.Array.from_buffers(type_, count, [validity, arrow.py_buffer(data)], null_count=len(missing))

    def views(column: Views, length: int) -> pa.Array:
        validity, nulls, data = column
        bits = None if validity is None else arrow.py_buffer(validity)
        return arrow.Array.from_buffers(
            arrow.binary_view(), length, [bits, arrow.py_buffer(data), *buffers], null_count=nulls
        )

    header = arrow.StructArray.from_arrays(
        [views(made["header_key"], made["header_count"]), views(made["header_value"], made["header_count"])],
        fields=[arrow.field("key", arrow.binary_view(), nullable=False), arrow.field("value", arrow.binary_view())],
    )
    ends = arrow.py_buffer(made["header_ends"] if count else bytes(4))
    headers = arrow.Array.from_buffers(arrow.list_(header.type), count, [None, ends], null_count=0, children=[header])
    return arrow.RecordBatch.from_arrays(
        [
            fixed(arrow.int64(), made["offset"], []),
            fixed(arrow.int64(), made["timestamp"], untimed),
            fixed(arrow.int32(), made["batch"], []),
            views(made["key"], count),
            views(made["value"], count),
            headers,
        ],
        names=["offset", "timestamp", "batch", "key", "value", "headers"],
    )


def _validity(count: int, missing: list[int]) -> pa.Buffer:
    """Arrow's bits for ``count`` values of which those at ``missing`` are null."""
    bits = bytearray(b"\xff" * ((count + 7) // 8))
    for i in missing:
        bits[i // 8] &= ~(1 << i % 8)
    return _arrow().py_buffer(bytes(bits))
