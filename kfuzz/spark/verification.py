"""Verifies a corpus on Spark: executors run the checks of ``corpora.verification``, one segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kfuzz.corpora.layout import MANIFEST
from kfuzz.corpora.manifest import Manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.storage import Target
from kfuzz.corpora.verification import Corpus, Problem, check_whole, verify_segment
from kfuzz.corpora.workload import parse, render
from kfuzz.spark.generation import columns
from kfuzz.spark.rows import freeze_loaded_objects, to_batch
from kfuzz.spark.sessions import collect, default_tasks

__all__ = ["verify"]

PROBLEM_FIELDS: list[pa.Field[Any]] = [
    pa.field("segment_id", pa.int64()),
    pa.field("path", pa.string()),
    pa.field("at", pa.int64()),
    pa.field("code", pa.string()),
    pa.field("message", pa.string()),
]
PROBLEMS = pa.schema(PROBLEM_FIELDS)


def verify(
    spark: SparkSession,
    out: str | Path | Target,
    *,
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
    set_failed: Callable[[int], None] = lambda failed: None,
) -> tuple[Corpus, list[Problem]]:
    """The corpus in ``out`` and everything that is wrong with it, in the plan's order.

    Raises ``UsageError`` if ``out`` is not a corpus, and ``KfuzzError`` if a task fails and its retries fail too.
    """
    corpus = Corpus.open(out)
    problems = check_whole(corpus)
    if len(corpus.plan) and len(corpus.rows):
        tasks = tasks or default_tasks(spark, corpus.rows.total("bytes"), len(corpus.plan))
        task = _task(render(corpus.workload), corpus.out.uri, [name for name, _, _, _ in corpus.rows.parts])
        job = spark.range(0, len(corpus.plan), 1, tasks).mapInArrow(task, columns(PROBLEMS))
        found = collect(job, tasks, set_done, set_failed).to_pylist()
        for problem in sorted(found, key=lambda problem: problem["segment_id"]):
            del problem["segment_id"]
            problems.append(Problem(**problem))
    return corpus, problems


def _task(text: str, out: str, parts: list[str]) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: segment ids in, problems out. Each task reads its rows from the manifest."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workload = parse(text, "the workload")
        plan, target = Plan(workload), Target.of(out)
        rows: Manifest | None = None
        for batch in batches:
            ids = batch.column(0).to_pylist()
            if not ids or ids[0] is None or ids[-1] is None:
                continue
            rows = rows or Manifest(target.child(MANIFEST), parts)
            for row in rows.between(ids[0], ids[-1]):
                problems = verify_segment(target, plan[row.segment_id], workload, row)
                found = [{"segment_id": row.segment_id, **asdict(problem)} for problem in problems]
                yield to_batch(found, PROBLEMS)
        freeze_loaded_objects()

    return task
