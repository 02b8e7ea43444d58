"""Generates a corpus on Spark, with the same plan and the same bytes as in one process.

Tasks keep the rows of the segments that they have written in the corpus (``corpora.rows``) and return only counts. So
the driver's memory hardly grows with the corpus.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from kfuzz.corpora.finished import Ids, KeptRows, RowWriter
from kfuzz.corpora.generation import Resume, claimed, finish, planned, prepare, verify_row
from kfuzz.corpora.locks import Lock
from kfuzz.corpora.manifest import Manifest, Row
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.storage import Target
from kfuzz.corpora.workload import Workload, parse, render
from kfuzz.spark.rows import freeze_loaded_objects, to_batch
from kfuzz.spark.sessions import collect, default_tasks

__all__ = ["columns", "generate"]

Write = Callable[..., Row]
Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
COUNT_FIELDS: list[pa.Field[Any]] = [pa.field("segments", pa.int64()), pa.field("bytes", pa.int64())]
COUNTS = pa.schema(COUNT_FIELDS)
BAD_FIELDS: list[pa.Field[Any]] = [pa.field("segment_id", pa.int64())]
BAD = pa.schema(BAD_FIELDS)


def generate(
    spark: SparkSession,
    workload: Workload,
    out: str | Path | Target,
    *,
    tasks: int | None = None,
    overwrite: bool = False,
    resume: Resume = "no",
    lock: Lock | None = None,
    name: str = "the workload",
    set_done: Callable[[int], None] = lambda done: None,
    set_failed: Callable[[int], None] = lambda failed: None,
    write: Write = write_segment,
) -> Manifest:
    """Make the corpus in ``out`` and return the manifest's rows. The driver and every executor must reach ``out``.

    ``lock`` is the caller's on ``out``; without it, the lock is held during this call only. ``tasks`` is the number of
    Spark tasks and changes no byte; None uses ``default_tasks``. ``resume`` is that of ``corpora.generation.generate``.
    ``set_done`` is called with the number of finished tasks, ``set_failed`` with that of failed attempts. ``write`` is
    called by a task for each segment, with the arguments of ``write_segment``. Raises ``UsageError`` like ``claimed``
    and ``publish`` of ``corpora.generation``, and ``KfuzzError`` if a task fails and its retries fail too.
    """
    target = Target.of(out)
    plan = planned(target, workload, name)
    workload = plan.workload
    own = claimed(target, plan, overwrite=overwrite, resume=resume)
    with contextlib.nullcontext(lock) if lock else own as held:
        work = prepare(target, workload, overwrite=overwrite, resume=resume)
        tasks = tasks or default_tasks(spark, workload.size, len(plan))
        text = render(workload)
        if resume == "verify":
            kept = Ids(row.segment_id for row in work.kept(KeptRows.of(target, workload)))
            job = spark.range(0, len(kept), 1, tasks).mapInArrow(_verify(text, target.uri, kept), columns(BAD))
            work.rewrite(one for one in collect(job, tasks).column("segment_id").to_pylist() if one is not None)
        if work.left:
            task = _task(text, target.uri, held.id, work.run, work.left, write)
            collect(
                spark.range(0, len(work.left), 1, tasks).mapInArrow(task, columns(COUNTS)), tasks, set_done, set_failed
            )
        return finish(target, plan, work, held)


def _task(text: str, out: str, owner: str, run: int, left: Ids, write: Write) -> Task:
    """The function that executors run: places in ``left`` in, counts out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workload = parse(text, "the workload")
        plan, target = Plan(workload), Target.of(out)
        place = out if "://" in out else Path(out)
        context = TaskContext.get()
        attempt = f"{owner}-task-{context.taskAttemptId()}" if context is not None else f"{owner}-task"
        segments = size = 0
        with RowWriter(target, workload, run, attempt) as writer:
            for batch in batches:
                for at in batch.column(0).to_pylist():
                    assert at is not None
                    row = write(plan[left[at]], left[at], workload, place, attempt)
                    writer.add(row)
                    segments, size = segments + 1, size + row.bytes
        yield to_batch([{"segments": segments, "bytes": size}], COUNTS)
        freeze_loaded_objects()

    return task


def _verify(text: str, out: str, kept: Ids) -> Task:
    """The function that executors run: places in ``kept`` in, the ids of segments that must be written again out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workload = parse(text, "the workload")
        plan, target = Plan(workload), Target.of(out)
        rows = KeptRows.of(target, workload)
        for batch in batches:
            ids = [kept[at] for at in batch.column(0).to_pylist() if at is not None]
            wanted = set(ids)
            found = (row for row in rows.between(ids[0], ids[-1]) if row.segment_id in wanted)
            bad = [{"segment_id": row.segment_id} for row in found if verify_row(target, plan, row)]
            yield to_batch(bad, BAD)
        freeze_loaded_objects()

    return task


def columns(fields: pa.Schema) -> str:
    """An Arrow schema of integers and strings, as a Spark DDL string."""
    kinds = {pa.int64(): "bigint", pa.string(): "string"}
    return ", ".join(f"`{field.name}` {kinds[field.type]}" for field in fields)
