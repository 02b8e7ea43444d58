"""Generates a corpus on Spark, with the same plan and the same bytes as in one process.

Tasks keep the rows of the segments that they have written in the corpus (``corpora.rows``) and return only counts. So
the driver's memory hardly grows with the corpus.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import SparkSession

from kfuzz.corpora.finished import KeptRows, RowWriter
from kfuzz.corpora.generation import Resume, claimed, finish, planned, prepare, verify_row
from kfuzz.corpora.locks import Lock
from kfuzz.corpora.manifest import Manifest, Row
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.workload import Workload, parse, render
from kfuzz.spark.rows import Task, columns_of, task_of
from kfuzz.spark.sessions import default_tasks, run
from kfuzz.storage import Target

Write = Callable[..., Row]
COUNTS = columns_of(segments=int, bytes=int)
BAD = columns_of(segment_id=int)


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
            kept = array("q", (row.segment_id for row in work.kept(KeptRows.of(target, workload))))
            bad = run(spark, len(kept), tasks, BAD, _verify(text, target.uri, kept))
            work.rewrite(one for one in bad.column("segment_id").to_pylist() if one is not None)
        if work.left:
            task = _task(text, target.uri, held.id, work.run, work.left, write)
            run(spark, len(work.left), tasks, COUNTS, task, set_done, set_failed)
        return finish(target, plan, work, held)


def _task(text: str, out: str, owner: str, run: int, left: Sequence[int], write: Write) -> Task:
    """Places in ``left`` in, counts out."""

    def work(places: Iterator[int]) -> Iterator[list[dict[str, int]]]:
        workload = parse(text, "the workload")
        plan, target = Plan(workload), Target.of(out)
        place = out if "://" in out else Path(out)
        context = TaskContext.get()
        attempt = f"{owner}-task-{context.taskAttemptId()}" if context is not None else f"{owner}-task"
        segments = size = 0
        with RowWriter(target, workload, run, attempt) as writer:
            for at in places:
                row = write(plan[left[at]], left[at], workload, place, attempt)
                writer.add(row)
                segments, size = segments + 1, size + row.bytes
        yield [{"segments": segments, "bytes": size}]

    return task_of(COUNTS, work)


def _verify(text: str, out: str, kept: Sequence[int]) -> Task:
    """Places in ``kept`` in, the ids of segments that must be written again out."""

    def work(places: Iterator[int]) -> Iterator[list[dict[str, int]]]:
        wanted = {kept[at] for at in places}
        if wanted:
            workload = parse(text, "the workload")
            plan, target = Plan(workload), Target.of(out)
            found = KeptRows.of(target, workload).between(min(wanted), max(wanted))
            mine = (row for row in found if row.segment_id in wanted)
            yield [{"segment_id": row.segment_id} for row in mine if verify_row(target, plan, row)]

    return task_of(BAD, work)
