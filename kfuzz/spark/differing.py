"""Runs a differential on Spark: tasks take ranges of inputs, start the testee, and send back causes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from kfuzz.conformance.differential import Differential
from kfuzz.conformance.differential.sharing import Shared, from_text, merged, to_text
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.spark.rows import Task, columns_of, task_of
from kfuzz.spark.sessions import cores, run, start_programs_as_usual

# One row per part. The result is JSON: it has few causes, whatever the number of inputs.
PARTS = columns_of(part=int, result=str)


def differ_shared(
    spark: SparkSession,
    shared: Shared,
    testee: Testee,
    *,
    tasks: int | None = None,
    set_done: Callable[[int], None] = lambda done: None,
) -> Differential:
    """The result of the differential ``shared`` with ``testee``. ``tasks`` changes nothing in it.

    A testee of ``testees/`` must be there and built on every executor. Raises ``KfuzzError`` if it does not start.
    """
    parts = shared.parts(testee)
    tasks = min(parts, tasks or cores(spark))
    rows = run(spark, parts, tasks, PARTS, _task(asdict(shared), testee.label), set_done).sort_by("part")
    texts: list[Any] = rows.column("result").to_pylist()
    return merged(map(from_text, texts))


def _task(settings: dict[str, object], label: str) -> Task:
    """Parts in, results out."""

    def work(parts: Iterator[int]) -> Iterator[list[dict[str, object]]]:
        start_programs_as_usual()
        shared = Shared(**settings)  # type: ignore[arg-type]
        [testee] = select(all_testees(), [label])
        for part in parts:
            yield [{"part": part, "result": to_text(shared.run(part, testee))}]

    return task_of(PARTS, work)
