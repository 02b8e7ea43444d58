"""Generates a corpus on Spark, with the same plan and the same bytes as in one process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kfuzz.corpora.generation import claimed, prepare, publish
from kfuzz.corpora.locks import Lock
from kfuzz.corpora.manifest import Row, schema
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.targets import Target
from kfuzz.corpora.workload import Workload, parse, render
from kfuzz.spark.rows import settle, to_batch
from kfuzz.spark.sessions import collect, default_tasks

__all__ = ["columns", "generate"]

Write = Callable[..., Row]


def generate(
    spark: SparkSession,
    workload: Workload,
    out: str | Path | Target,
    *,
    tasks: int | None = None,
    overwrite: bool = False,
    lock: Lock | None = None,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
    write: Write = write_segment,
) -> list[Row]:
    """Make the corpus in ``out`` and return the manifest's rows. The driver and every executor must reach ``out``.

    ``lock`` is the caller's on ``out``; without it, the lock is held during this call only. ``tasks`` is the number of
    Spark tasks and changes no byte; None uses ``default_tasks``. ``set_done`` is called with the number of finished
    tasks. ``write`` is called by a task for each segment, with the arguments of ``write_segment``. Raises
    ``UsageError`` like ``claimed`` and ``publish`` of ``corpora.generation``, and ``KfuzzError`` if a task fails and
    its retries fail too.
    """
    target = Target.of(out)
    workload = resolve(workload, target, name=name)
    plan = Plan(workload, name)
    with contextlib.nullcontext(lock) if lock else claimed(target, plan, overwrite=overwrite) as held:
        prepare(target, workload, overwrite=overwrite)
        tasks = tasks or default_tasks(spark, workload.size, len(plan))
        ids = spark.range(0, len(plan), 1, tasks)
        job = ids.mapInArrow(_task(render(workload), target.uri, held.id, write), columns(schema()))
        rows = [Row(**row) for row in collect(job, tasks, set_done).to_pylist()]
        held.check()
        publish(target, plan, rows)
    return rows


def _task(
    text: str, out: str, owner: str, write: Write
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: segment ids in, manifest rows out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workload = parse(text, "the workload")
        plan = Plan(workload)
        place = out if "://" in out else Path(out)
        context = TaskContext.get()
        attempt = f"{owner}-task-{context.taskAttemptId()}" if context is not None else f"{owner}-task"
        for batch in batches:
            for segment_id in batch.column(0).to_pylist():
                assert segment_id is not None
                row = write(plan[segment_id], segment_id, workload, place, attempt)
                yield to_batch([asdict(row)], schema())
        settle()

    return task


def columns(fields: pa.Schema) -> str:
    """An Arrow schema of integers and strings, as a Spark DDL string."""
    kinds = {pa.int64(): "bigint", pa.string(): "string"}
    return ", ".join(f"`{field.name}` {kinds[field.type]}" for field in fields)
