"""Sends a log or a workload on Spark: each task sends some of the partitions, and the reports are added up."""

from __future__ import annotations

import base64
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kfuzz.errors import KfuzzError, UsageError
from kfuzz.places import opened
from kfuzz.replay import (
    Load,
    Part,
    Report,
    Settings,
    find_parts,
    first_timestamp,
    load_shares,
    prepare_topics,
    run_load,
)
from kfuzz.replay import replay as replay_here
from kfuzz.spark.rows import Task, columns_of, task_of
from kfuzz.spark.sessions import cores, run
from kfuzz.storage import Target

REPORT = columns_of(task=int, report=str)
SPECULATION = "spark.speculation"


# Topics and partitions.
Places = Sequence[tuple[str, int]]


def shares(parts: Sequence[Part], settings: Settings, tasks: int) -> list[tuple[Places, Settings]]:
    """At most ``tasks`` shares of about the same size. Rate and number of records are divided by size.

    The sum of the bounds is that of ``settings``.
    """
    held: list[list[Part]] = [[] for _ in range(min(tasks, len(parts)))]
    sizes = [0] * len(held)
    for part in sorted(parts, key=lambda part: (-part.size, part.topic, part.partition)):
        least = sizes.index(min(sizes))
        held[least].append(part)
        sizes[least] += part.size
    total = sum(sizes) or 1
    made: list[tuple[Places, Settings]] = []
    before = 0
    for group, size in zip(held, sizes, strict=True):
        own = replace(settings.part(before, size, total), rate=settings.rate.part(size / total))
        before += size
        made.append((sorted((part.topic, part.partition) for part in group), own))
    return made


def replay(
    spark: SparkSession,
    path: str | Path,
    settings: Settings,
    *,
    topics: str = "*",
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
) -> Report:
    """Send a log that the driver and every executor see under ``path``, a directory or a URI. ``topics`` is a glob.

    ``tasks`` is the number of Spark tasks; None takes one for each core, so that all run at the same time.
    ``set_done`` is called with the number of finished tasks.

    A task that fails is not run again, because its batches would be sent twice: the report then has a failure. Raises
    ``UsageError`` as ``kfuzz.replay.replay`` does, and if ``spark.speculation`` is on. ``KfuzzError`` if the job fails.
    """
    _require_single(spark)
    with opened(path) as here:
        parts = find_parts(here, topics=topics)
        prepare_topics(parts, settings)
        if settings.speed is not None and settings.first_timestamp is None:
            settings = replace(settings, first_timestamp=first_timestamp(parts, settings))
    made = shares(parts, settings, tasks or cores(spark))
    return _total(spark, [partial(_sent, Target.of(path).uri, topics, *share) for share in made], set_done)


def load(
    spark: SparkSession,
    load: Load,
    settings: Settings,
    *,
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
) -> Report:
    """Send a workload, as ``kfuzz.replay.run_load`` does. Tasks and errors as for :func:`replay`."""
    _require_single(spark)
    made = load_shares(load, settings, tasks or cores(spark))
    return _total(spark, [partial(_sent_once, "the load", partial(run_load, *share)) for share in made], set_done)


def _require_single(spark: SparkSession) -> None:
    if spark.conf.get(SPECULATION, "false") == "true":
        raise UsageError(f"{SPECULATION} is on, and would send batches twice; set it to false for this job")


def _total(spark: SparkSession, made: Sequence[Callable[[], Report]], set_done: Callable[[int], None]) -> Report:
    """The sum of the reports that the tasks make."""
    reports = run(spark, len(made), len(made), REPORT, _task(made), set_done).sort_by("task")
    total = Report()
    packed: list[Any] = reports.column("report").to_pylist()
    for report in packed:
        total.add(pickle.loads(base64.b64decode(report)))
    return total


def _task(made: Sequence[Callable[[], Report]]) -> Task:
    """Numbers of shares in, reports out."""

    def work(shares: Iterator[int]) -> Iterator[list[dict[str, Any]]]:
        for number in shares:
            yield [{"task": number, "report": base64.b64encode(pickle.dumps(made[number]())).decode()}]

    return task_of(REPORT, work)


def _sent(path: str, topics: str, places: Places, settings: Settings) -> Report:
    wanted = frozenset(places)

    def send() -> Report:
        with opened(path) as here:
            parts = [part for part in find_parts(here, topics=topics) if (part.topic, part.partition) in wanted]
            return replay_here(parts, settings)

    return _sent_once(", ".join(f"{topic}-{partition}" for topic, partition in places), send)


def _sent_once(names: str, send: Callable[[], Report]) -> Report:
    """The report of a task. Errors are in it: Spark would try a task again that raises one."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        told = f"an earlier attempt at {names} ended without a report; it may have sent a part of them"
        return Report(began=time.time(), failure=told)
    try:
        return send()
    except KfuzzError as error:
        return Report(began=time.time(), failure=f"{names}: {error}")
