"""Verifies a corpus on Spark: executors run the checks of ``corpora.verification``, one segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from kfuzz.corpora.manifest import Row, schema
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.targets import Target
from kfuzz.corpora.verification import Corpus, Problem, check_whole, verify_segment
from kfuzz.corpora.workload import parse, render
from kfuzz.spark.generation import columns
from kfuzz.spark.rows import settle, to_batch
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
) -> tuple[Corpus, list[Problem]]:
    """The corpus in ``out`` and everything that is wrong with it, in the plan's order.

    Raises ``UsageError`` if ``out`` is not a corpus, and ``KfuzzError`` if a task fails and its retries fail too.
    """
    corpus = Corpus.open(out)
    problems = check_whole(corpus)
    rows = [asdict(row) for _, row in corpus.segments()]
    if rows:
        tasks = tasks or default_tasks(spark, sum(row["bytes"] for row in rows), len(rows))
        table = spark.createDataFrame(pa.Table.from_pylist(rows, schema=schema()))
        job = table.repartitionByRange(tasks, "segment_id").mapInArrow(
            _task(render(corpus.workload), corpus.out.uri), columns(PROBLEMS)
        )
        found = collect(job, tasks, set_done).to_pylist()
        for problem in sorted(found, key=lambda problem: problem["segment_id"]):
            del problem["segment_id"]
            problems.append(Problem(**problem))
    return corpus, problems


def _task(text: str, out: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: manifest rows in, problems out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        workload = parse(text, "the workload")
        plan = Plan(workload)
        for batch in batches:
            for row in batch.to_pylist():
                problems = verify_segment(out, plan[row["segment_id"]], workload, Row(**row))
                found = [{"segment_id": row["segment_id"], **asdict(problem)} for problem in problems]
                yield to_batch(found, PROBLEMS)
        settle()

    return task
