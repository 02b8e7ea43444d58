"""Verifies a corpus on Spark: executors run the checks of ``corpora.verification``, one segment at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from kfuzz.corpora.layout import MANIFEST
from kfuzz.corpora.manifest import Manifest
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verification import Corpus, Problem, check_whole, verify_segment
from kfuzz.corpora.workload import parse, render
from kfuzz.spark.rows import Task, columns_of, task_of
from kfuzz.spark.sessions import default_tasks, run
from kfuzz.storage import Target

PROBLEMS = columns_of(segment_id=int, path=str, at=int, code=str, message=str)


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
        found = run(spark, len(corpus.plan), tasks, PROBLEMS, task, set_done, set_failed).to_pylist()
        for problem in sorted(found, key=lambda problem: problem["segment_id"]):
            del problem["segment_id"]
            problems.append(Problem(**problem))
    return corpus, problems


def _task(text: str, out: str, parts: list[str]) -> Task:
    """Segment ids in, problems out. Each task reads its rows from the manifest."""

    def work(numbers: Iterator[int]) -> Iterator[list[dict[str, Any]]]:
        workload = parse(text, "the workload")
        plan, target = Plan(workload), Target.of(out)
        if ids := list(numbers):
            for row in Manifest(target.child(MANIFEST), parts).between(ids[0], ids[-1]):
                problems = verify_segment(target, plan[row.segment_id], workload, row)
                yield [{"segment_id": row.segment_id, **asdict(problem)} for problem in problems]

    return task_of(PROBLEMS, work)
