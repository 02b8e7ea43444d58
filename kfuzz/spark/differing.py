"""Runs a differential on Spark: tasks take ranges of inputs, start the testee, and send back causes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kfuzz.conformance.differential import Differential
from kfuzz.conformance.differential.sharing import Shared, from_text, merged, to_text
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.spark.generation import columns
from kfuzz.spark.rows import freeze_loaded_objects, to_batch
from kfuzz.spark.sessions import collect, cores, start_programs_as_usual

__all__ = ["differ_shared"]

# One row per part. The result is JSON: it has few causes, whatever the number of inputs.
FIELDS: list[pa.Field[Any]] = [pa.field("part", pa.int64()), pa.field("result", pa.string())]
PARTS = pa.schema(FIELDS)


def differ_shared(
    spark: SparkSession,
    shared: Shared,
    testee: Testee,
    *,
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
) -> Differential:
    """The result of the differential ``shared`` with ``testee``. ``tasks`` changes nothing in it.

    A testee of ``testees/`` must be there and built on every executor. Raises ``KfuzzError`` if it does not start.
    """
    parts = shared.parts(testee)
    tasks = min(parts, tasks or cores(spark))
    job = spark.range(0, parts, 1, tasks).mapInArrow(_task(asdict(shared), testee.label), columns(PARTS))
    rows = collect(job, tasks, set_done).sort_by("part").to_pylist()
    return merged(from_text(row["result"]) for row in rows)


def _task(settings: dict[str, object], label: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: parts in, results out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_programs_as_usual()
        shared = Shared(**settings)  # type: ignore[arg-type]
        [testee] = select(all_testees(), [label])
        for batch in batches:
            for row in batch.to_pylist():
                part = row["id"]
                yield to_batch([{"part": part, "result": to_text(shared.run(part, testee))}], PARTS)
        freeze_loaded_objects()

    return task
