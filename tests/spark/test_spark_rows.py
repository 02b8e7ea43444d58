"""Rows for Spark: the batches that pyarrow would make, and workers that never import pandas."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from programs import run_program

from kfuzz.corpora.manifest import schema
from kfuzz.spark.rows import to_batch

COLUMNS = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])
ROOT = Path(__file__).parents[2]
# An executor's work with a task, without Spark.
TASKS = """
import gc, sys
from pathlib import Path
import pyarrow as pa
from kfuzz.corpora import generation
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.finished import KeptRows
from kfuzz.storage import Target
from kfuzz.corpora.workload import Topic, Workload, render
from kfuzz.spark import generation as on_spark, verification

workload = Workload(topics=(Topic("t"),), size=1 << 17, segment_bytes=1 << 16)
out, text = sys.argv[1], render(workload)
plan = Plan(workload)
work = generation.prepare(out, workload)
ids = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(bytes(8) + bytes([1]) + bytes(7))])
places = pa.RecordBatch.from_arrays([ids], names=["id"])
[counts] = on_spark._task(text, out, "owner", work.run, work.left, on_spark.write_segment)(iter([places]))
assert counts.column(0)[0].as_py() == 2
assert gc.get_freeze_count() > 10_000
assert not {"pandas", "pyarrow.compute"} & sys.modules.keys()
# The driver may import what it likes.
generation.publish(out, plan, KeptRows.of(Target.of(out), workload))
Path(out, plan[1].path).write_bytes(b"")
"""
# An executor's work with a task of verification.
CHECKS = """
import sys
import pyarrow as pa
from kfuzz.corpora.resolution import held
from kfuzz.storage import Target
from kfuzz.corpora.workload import render
from kfuzz.spark import verification

out = sys.argv[1]
ids = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(bytes(8) + bytes([1]) + bytes(7))])
places = pa.RecordBatch.from_arrays([ids], names=["id"])
text = render(held(Target.of(out)))
found = list(verification._task(text, out, ["part-00000.parquet"])(iter([places])))
assert [batch.num_rows > 0 for batch in found] == [False, True]
print(*sorted(name for name in ("pandas", "pyarrow.compute", "rich") if name in sys.modules))
"""


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [(1, "one")],
        [(None, None)],
        [(-(1 << 63), ""), ((1 << 63) - 1, "Ünïcödé €"), (None, "x"), (0, None)],
        [(number, None if number % 3 else "t" * number) for number in range(20)],
    ],
)
def test_a_batch_is_the_one_that_pyarrow_makes(rows: list[tuple[Any, Any]]) -> None:
    values = [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]
    made = to_batch(values, COLUMNS)
    made.validate(full=True)
    assert made.equals(pa.RecordBatch.from_pylist(values, schema=COLUMNS))
    assert [column.null_count for column in made.columns] == [
        sum(row[place] is None for row in rows) for place in range(2)
    ]


def test_the_manifests_columns_are_supported_and_others_are_refused() -> None:
    assert to_batch([], schema()).schema == schema()
    with pytest.raises(TypeError, match="float"):
        to_batch([{"x": 1.0}], pa.schema([pa.field("x", pa.float32())]))


@pytest.mark.spark
def test_the_tasks_of_generation_and_verification_do_not_import_pandas(tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="pyspark is missing; run pip install 'kfuzz[spark]'")
    for program, output in ((TASKS, ""), (CHECKS, "\n")):
        done = run_program(sys.executable, "-c", program, tmp_path / "out", cwd=ROOT)
        assert done.stdout == output
