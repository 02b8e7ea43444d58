"""Rows and columns of Arrow tables, by way of numpy. Arrow itself cannot choose rows of columns of views."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VIEW_BYTES: Final = 16
# A view begins with the length and the first four bytes.
LENGTH_BYTES: Final = 4
BEGINNING_BYTES: Final = 4

# numpy's types; Arrow would import pandas to find out.
NUMBERS: Final[dict[pa.DataType, type[np.generic]]] = {
    pa.bool_(): np.bool_,
    pa.int8(): np.int8,
    pa.int16(): np.int16,
    pa.int32(): np.int32,
    pa.int64(): np.int64,
}

TEXT: Final = pa.string()

Rows = npt.NDArray[Any]


def array_of(buffer: pa.Buffer | None, kind: Any) -> npt.NDArray[Any]:
    """The contents of one of Arrow's buffers, without a copy."""
    found: Any = buffer
    return np.frombuffer(found, kind)


def select_rows(table: pa.RecordBatch, rows: Rows) -> pa.RecordBatch:
    """The given rows of ``table``, in this order. The bytes that views point to are not copied."""
    if len(rows) == 0:
        return table.slice(0, 0)
    if rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(rows[0], len(rows))
    return pa.RecordBatch.from_arrays([_select(column, rows) for column in table.columns], schema=table.schema)


def _select(column: pa.Array[Any], rows: Rows) -> pa.Array[Any]:
    if pa.types.is_binary_view(column.type):
        return _views(column, rows)
    if pa.types.is_list(column.type):
        return _lists(cast("pa.ListArray[Any]", column), rows)
    return column.take(numbers(pa.int64(), rows.astype(np.int64, copy=False)))


def _views(column: pa.Array[Any], rows: Rows) -> pa.Array[Any]:
    validity, views, *data = column.buffers()
    chosen: Any = array_of(views, f"V{VIEW_BYTES}")[rows + column.offset]
    nulls: Any = None
    if column.null_count:
        bits = _bits(validity)[rows + column.offset]
        nulls = pa.py_buffer(cast(Any, np.packbits(bits, bitorder="little")))
    return pa.Array.from_buffers(column.type, len(rows), [nulls, pa.py_buffer(chosen), *data])


def _bits(validity: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    return np.unpackbits(array_of(validity, np.uint8), bitorder="little")


def _lists(column: pa.ListArray[Any], rows: Rows) -> pa.Array[Any]:
    """Lists of structs, none of them null."""
    ends = column.offsets.to_numpy()
    counts = (ends[1:] - ends[:-1])[rows]
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    children = np.repeat(ends[:-1][rows] - offsets[:-1], counts) + np.arange(offsets[-1])
    structs = cast("pa.StructArray", column.values)
    fields = [_select(structs.field(at), children) for at in range(structs.type.num_fields)]
    made = pa.StructArray.from_arrays(fields, fields=list(structs.type))
    return pa.ListArray.from_arrays(cast(Any, numbers(pa.int32(), offsets)), made, type=column.type)


def numbers(kind: pa.DataType, values: npt.NDArray[Any], there: npt.NDArray[np.bool_] | None = None) -> pa.Array[Any]:
    """The same numbers for Arrow, without the import of pandas that ``pyarrow.array`` makes: it takes 0.2 seconds.

    Where ``there`` is false, the number is null.
    """
    data: Any = np.packbits(values, bitorder="little") if kind == pa.bool_() else np.ascontiguousarray(values)
    validity: Any = None if there is None else pa.py_buffer(cast(Any, np.packbits(there, bitorder="little")))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(data)])


def views_of(data: memoryview, places: Rows, sizes: Rows) -> pa.Array[Any]:
    """A column of stretches of ``data``, which has less than 2 GiB. Each is longer than 12 bytes; none is copied."""
    made = np.empty((len(places), 4), np.int32)
    made[:, 0] = sizes
    beginning: Any = np.ndarray((len(data) - BEGINNING_BYTES + 1,), np.int32, data, strides=(1,))
    made[:, 1] = beginning[places]
    made[:, 2] = 0
    made[:, 3] = places
    buffers = [None, pa.py_buffer(cast(Any, made)), pa.py_buffer(cast(Any, data))]
    return pa.Array.from_buffers(pa.binary_view(), len(places), buffers)


def beginnings(column: pa.Array[Any], rows: Rows) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The lengths of the given views, -1 for null, and their first four bytes. Bytes that a view lacks are 0."""
    validity, views, *_ = column.buffers()
    raw = array_of(views, np.uint8).reshape(-1, VIEW_BYTES)[rows + column.offset]
    lengths = np.ascontiguousarray(raw[:, :LENGTH_BYTES]).view(np.int32).reshape(-1)
    if column.null_count:
        lengths = np.where(_bits(validity)[rows + column.offset] == 0, np.int32(-1), lengths)
    return lengths, raw[:, LENGTH_BYTES : LENGTH_BYTES + BEGINNING_BYTES]


# Columns of one value, by type and value: the longest that was asked for. Batches share them.
ALIKE: Final[dict[tuple[pa.DataType, Any], pa.Array[Any]]] = {}
ALIKE_MOST: Final = 64


def alike(kind: Any, value: Any, count: int) -> pa.Array[Any]:
    """A column of ``count`` rows that all have this number, truth value or text; None is null."""
    made = ALIKE.get((kind, value))
    if made is None or len(made) < count:
        if len(ALIKE) >= ALIKE_MOST:
            ALIKE.clear()
        # With room for batches that are a little longer.
        length = count + count // 2
        if value is None:
            made = pa.nulls(length, kind)
        elif isinstance(value, str):
            made = texts(value, length)
        else:
            made = numbers(kind, np.full(length, value, NUMBERS[kind]))
        ALIKE[kind, value] = made
    return made.slice(0, count)


def texts_of(values: Sequence[bytes | None], kind: pa.DataType = TEXT) -> pa.Array[Any]:
    """A column of texts or bytes, without the import of pandas; None is null."""
    present = [one or b"" for one in values]
    ends: Any = np.cumsum([0, *map(len, present)], dtype=np.int32)
    there: Any = np.packbits(np.array([one is not None for one in values], np.bool_), bitorder="little")
    buffers: list[pa.Buffer | None] = [pa.py_buffer(there), pa.py_buffer(ends), pa.py_buffer(b"".join(present))]
    return pa.Array.from_buffers(kind, len(values), buffers)


def texts(text: str, count: int) -> pa.Array[Any]:
    """An array of one text, again and again."""
    data = text.encode()
    ends: Any = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(data * count)])
