"""Rows for Spark: the batches that pyarrow would make, and workers that never import pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kfuzz.corpora.manifest import schema
from kfuzz.spark.rows import to_batch

COLUMNS = pa.schema([pa.field("number", pa.int64()), pa.field("text", pa.string())])
ROOT = Path(__file__).parents[2]
# What an executor does with a task, without Spark.
TASKS = """
import gc, sys
from pathlib import Path
import pyarrow as pa
from kfuzz.corpora import generation, manifest
from kfuzz.corpora.workload import Topic, Workload, render
from kfuzz.spark import generation as on_spark, verification

workload = Workload(topics=(Topic("t"),), size=1 << 17, segment_bytes=1 << 16)
out = Path(sys.argv[1])
generation.prepare(out, workload)
ids = pa.Array.from_buffers(pa.int64(), 2, [None, pa.py_buffer(bytes(8) + bytes([1]) + bytes(7))])
task = on_spark._task(render(workload), str(out), on_spark.write_segment)
batches = list(task(iter([pa.RecordBatch.from_arrays([ids], names=["id"])])))
assert [batch.num_rows for batch in batches] == [1, 1]
assert gc.get_freeze_count() > 10_000
(out / batches[1].column(1)[0].as_py()).write_bytes(b"")
found = list(verification._task(render(workload), str(out))(iter(batches)))
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
    done = subprocess.run(
        [sys.executable, "-c", TASKS, tmp_path / "out"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "\n"
