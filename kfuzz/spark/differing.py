"""Runs a differential on Spark: tasks take ranges of inputs, start the testee, and send back causes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from kfuzz.conformance.differential import Differential
from kfuzz.conformance.differential.sharing import Shared, from_text, merged, to_text
from kfuzz.conformance.protocol.testees import Testee, all_testees, select
from kfuzz.spark.rows import columns_of, task_of
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
    task = task_of(PARTS, partial(_results, asdict(shared), testee.label))
    rows = run(spark, parts, tasks, PARTS, task, set_done).sort_by("part")
    texts: list[Any] = rows.column("result").to_pylist()
    return merged(map(from_text, texts))


def _results(settings: dict[str, Any], label: str, parts: Iterator[int]) -> Iterator[list[dict[str, object]]]:
    """Parts in, results out."""
    start_programs_as_usual()
    shared = Shared(**settings)
    [testee] = select(all_testees(), [label])
    for part in parts:
        yield [{"part": part, "result": to_text(shared.run(part, testee))}]
