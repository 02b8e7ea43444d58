"""Lets a testee read a corpus on Spark: executors start it and ask it each batch of their segments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kfuzz.conformance.judge.corpus import Deviation, SegmentResult, conform_segments
from kfuzz.corpora.targets import Target
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import parse, render
from kfuzz.errors import UsageError
from kfuzz.spark.generation import columns
from kfuzz.spark.rows import settle, to_batch
from kfuzz.spark.sessions import collect, default_tasks, start_programs_as_usual

__all__ = ["conform"]

SEGMENT_FIELDS: list[pa.Field[Any]] = [
    pa.field("segment_id", pa.int64()),
    pa.field("path", pa.string()),
    # Null in the one row that each segment has besides its deviations; only that row has the three counts.
    pa.field("at", pa.int64()),
    pa.field("size_bytes", pa.int64()),
    pa.field("vector", pa.string()),
    pa.field("outcome", pa.string()),
    pa.field("text", pa.string()),
    pa.field("batches", pa.int64()),
    pa.field("hostile", pa.int64()),
    pa.field("unsupported", pa.int64()),
]
RESULTS = pa.schema(SEGMENT_FIELDS)


def conform(
    spark: SparkSession,
    out: str | Path | Target,
    argv: Sequence[str] | None,
    *,
    ship: Sequence[Path] = (),
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
) -> list[SegmentResult]:
    """What the testee ``argv`` does with each segment of the corpus in ``out``, in the plan's order.

    ``ship`` are files that go to the executors; the testee starts in the directory that holds them. None as ``argv``
    is kfuzz's own testee. ``tasks`` changes no result. Raises ``UsageError`` if ``out`` is not a corpus or a file
    cannot be shipped, and ``KfuzzError`` if the testee does not start.
    """
    corpus = Corpus.open(out)
    if not len(corpus.rows):
        return []
    _ship(spark, ship)
    tasks = tasks or default_tasks(spark, corpus.rows.total("bytes"), len(corpus.plan))
    task = _task(render(corpus.workload), corpus.out.uri, argv, bool(ship))
    job = spark.range(0, len(corpus.plan), 1, tasks).mapInArrow(task, columns(RESULTS))
    return _gathered(collect(job, tasks, set_done).to_pylist())


def _ship(spark: SparkSession, files: Sequence[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file} is not a file; name the files of the testee")
        try:
            spark.sparkContext.addFile(str(file.resolve()))
        except PySparkException as error:
            raise UsageError(f"{file} cannot be sent to the executors; install the testee there instead") from error


def _task(
    text: str, out: str, argv: Sequence[str] | None, shipped: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that executors run: segment ids in, results out."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        start_programs_as_usual()
        workload = parse(text, "the workload")
        cwd = Path(SparkFiles.getRootDirectory()) if shipped else None
        for batch in batches:
            ids = [one for one in batch.column(0).to_pylist() if one is not None]
            for result in conform_segments(out, workload, ids, argv, cwd=cwd):
                yield to_batch(_result_rows(result), RESULTS)
        settle()

    return task


def _result_rows(result: SegmentResult) -> list[dict[str, Any]]:
    found = asdict(result)
    deviations: list[dict[str, Any]] = list(found.pop("deviations"))
    empty = dict.fromkeys(RESULTS.names)
    return [empty | found, *(empty | deviation for deviation in deviations)]


def _gathered(rows: Sequence[dict[str, Any]]) -> list[SegmentResult]:
    """The segments' results from the tasks' rows, which come in any order."""
    deviations: dict[int, list[Deviation]] = {}
    names = Deviation.__dataclass_fields__
    for row in sorted(rows, key=lambda row: (row["segment_id"], row["at"] or 0)):
        if row["batches"] is None:
            found = Deviation(**{name: row[name] for name in names})
            deviations.setdefault(row["segment_id"], []).append(found)
    return [
        SegmentResult(
            row["segment_id"],
            row["path"],
            row["batches"],
            row["hostile"],
            row["unsupported"],
            tuple(deviations.get(row["segment_id"], ())),
        )
        for row in sorted(rows, key=lambda row: row["segment_id"])
        if row["batches"] is not None
    ]
