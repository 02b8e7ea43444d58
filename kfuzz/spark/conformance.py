"""Lets a testee read a corpus on Spark: executors start it and ask it each batch of their segments."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkFiles
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kfuzz.conformance.judge.causes import Deviation
from kfuzz.conformance.judge.corpus import SegmentResult, conform_segments
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import parse, render
from kfuzz.errors import UsageError
from kfuzz.spark.rows import columns_of, task_of
from kfuzz.spark.sessions import default_tasks, run, start_programs_as_usual
from kfuzz.storage import Target

# The deviations are in JSON.
RESULTS = columns_of(segment_id=int, path=str, batches=int, hostile=int, unsupported=int, deviations=str)


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
    task = task_of(RESULTS, partial(_results, render(corpus.workload), corpus.out.uri, argv, bool(ship)))
    rows = run(spark, len(corpus.plan), tasks, RESULTS, task, set_done)
    # The rows come in any order.
    return [
        SegmentResult(**row | {"deviations": tuple(map(Deviation.from_json, json.loads(row["deviations"])))})
        for row in rows.sort_by("segment_id").to_pylist()
    ]


def _ship(spark: SparkSession, files: Sequence[Path]) -> None:
    for file in files:
        if not file.is_file():
            raise UsageError(f"{file} is not a file; name the files of the testee")
        try:
            spark.sparkContext.addFile(str(file.resolve()))
        except PySparkException as error:
            raise UsageError(f"{file} cannot be sent to the executors; install the testee there instead") from error


def _results(
    text: str, out: str, argv: Sequence[str] | None, shipped: bool, ids: Iterator[int]
) -> Iterator[list[dict[str, Any]]]:
    """Segment ids in, results out."""
    start_programs_as_usual()
    workload = parse(text, "the workload")
    cwd = Path(SparkFiles.getRootDirectory()) if shipped else None
    for result in conform_segments(out, workload, ids, argv, cwd=cwd):
        found = result.to_json()
        yield [found | {"deviations": json.dumps(found["deviations"], sort_keys=True)}]
