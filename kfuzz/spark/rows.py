"""The rows that a task hands to Spark, as an Arrow batch, without the import of pandas."""

from __future__ import annotations

import gc
from array import array
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import pyarrow as pa

__all__ = ["freeze_loaded_objects", "to_batch"]


def to_batch(rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    """``rows`` as a batch of columns of int64 and string; None is null.

    pyarrow's own ``from_pylist`` and ``array`` import pandas, which costs each worker 0.3 CPU-seconds.
    """
    return pa.RecordBatch.from_arrays(
        [_column([row[one.name] for row in rows], one.type) for one in columns], schema=columns
    )


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    present = pa.py_buffer(_bits([value is not None for value in values]))
    if kind == pa.int64():
        numbers = array("q", [0 if value is None else value for value in values])
        return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(numbers)])
    if kind != pa.string():
        raise TypeError(f"a column of {kind} is not supported")
    texts = [b"" if value is None else value.encode() for value in values]
    ends = array("i", [0, *accumulate(map(len, texts))])
    return pa.Array.from_buffers(kind, len(values), [present, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))])


def _bits(flags: Sequence[bool]) -> bytes:
    """Arrow's bitmap: the first flag is the lowest bit of the first byte."""
    number = sum(flag << place for place, flag in enumerate(flags))
    return number.to_bytes((len(flags) + 7) // 8, "little")


@cache
def freeze_loaded_objects() -> None:
    """Make Python's garbage collector skip the objects that are loaded; once in each worker.

    Between two tasks, a worker searches everything that it has loaded for garbage: 40 ms each time without this.
    """
    gc.freeze()
