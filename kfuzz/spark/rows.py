"""Tasks of Spark jobs: numbers in, rows out as Arrow batches, without the import of pandas."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from kfuzz.logs.arrow_rows import numbers, texts_of

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
KINDS: dict[type, pa.DataType] = {int: pa.int64(), str: pa.string()}


def columns_of(**kinds: type) -> pa.Schema:
    """Columns of whole numbers (``int``) and texts (``str``)."""
    return pa.schema([(name, KINDS[kind]) for name, kind in kinds.items()])


def ddl(columns: pa.Schema) -> str:
    """These columns as a Spark DDL string."""
    kinds = {pa.int64(): "bigint", pa.string(): "string"}
    return ", ".join(f"`{field.name}` {kinds[field.type]}" for field in columns)


def task_of(columns: pa.Schema, work: Callable[[Iterator[int]], Iterable[Sequence[Mapping[str, Any]]]]) -> Task:
    """The function that executors run: ``work`` gets the task's numbers of a ``spark.range``, and yields groups of rows
    with these columns.
    """

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for rows in work(one for batch in batches for one in batch.column(0).to_pylist() if one is not None):
            yield to_batch(rows, columns)
        freeze_loaded_objects()

    return task


def to_batch(rows: Sequence[Mapping[str, Any]], columns: pa.Schema) -> pa.RecordBatch:
    """``rows`` as a batch of columns of int64 and string; None is null.

    pyarrow's own ``from_pylist`` and ``array`` import pandas, which costs each worker 0.3 CPU-seconds.
    """
    return pa.RecordBatch.from_arrays(
        [_column([row[one.name] for row in rows], one.type) for one in columns], schema=columns
    )


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    if kind == pa.string():
        return texts_of([None if value is None else value.encode() for value in values])
    if kind != pa.int64():
        raise TypeError(f"a column of {kind} is not supported")
    there = np.array([value is not None for value in values], np.bool_)
    return numbers(kind, np.array([0 if value is None else value for value in values], np.int64), there)


@cache
def freeze_loaded_objects() -> None:
    """Make Python's garbage collector skip the objects that are loaded; once in each worker.

    Between two tasks, a worker searches everything that it has loaded for garbage: 40 ms each time without this.
    """
    gc.freeze()
