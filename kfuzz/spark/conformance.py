"""Lets a testee read a corpus on Spark: executors start it and ask it each batch of their segments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.judge.corpus import SegmentResult, conform_segments
from kfuzz.corpora.storage import Target
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import parse, render
from kfuzz.errors import UsageError
from kfuzz.spark.generation import columns
from kfuzz.spark.rows import freeze_loaded_objects, to_batch
from kfuzz.spark.sessions import collect, default_tasks, start_programs_as_usual

__all__ = ["conform"]

SEGMENT_FIELDS: list[pa.Field[Any]] = [
    pa.field("segment_id", pa.int64()),
    pa.field("path", pa.string()),
    pa.field("batches", pa.int64()),
    pa.field("hostile", pa.int64()),
    pa.field("unsupported", pa.int64()),
    # In JSON.
    pa.field("deviations", pa.string()),
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
    """The result of the testee ``argv`` on each segment of the corpus in ``out``, in the plan's order.

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
    # The rows come in any order.
    rows = sorted(collect(job, tasks, set_done).to_pylist(), key=lambda row: row["segment_id"])
    return list(map(_result, rows))


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
                yield to_batch([_row(result)], RESULTS)
        freeze_loaded_objects()

    return task


def _row(result: SegmentResult) -> dict[str, Any]:
    found = result.to_json()
    return found | {"deviations": json.dumps(found["deviations"], sort_keys=True)}


def _result(row: Mapping[str, Any]) -> SegmentResult:
    deviations = tuple(map(Deviation.from_json, json.loads(row["deviations"])))
    return SegmentResult(**{**row, "deviations": deviations})
