"""``spark_jobs/lake_ingest.py`` says whether a table holds every record of a corpus."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame

from kfuzz import logs

pytestmark = [pytest.mark.spark, pytest.mark.full]

JOB = Path(__file__).parents[2] / "spark_jobs" / "lake_ingest.py"


@pytest.fixture
def job() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lake_ingest", JOB)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.nightly
def test_every_record_arrives_in_the_table_and_a_missing_one_is_noticed(
    spark: Any,
    job: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert job.main(["--out", str(tmp_path / "lake"), "--size", "1MiB"]) == 0
    told = capsys.readouterr().out
    assert told.endswith("the table holds what the manifest says\n")
    # pyarrow reads the same table.
    found = ds.dataset(tmp_path / "lake" / "table", partitioning="hive").to_table(columns=["topic", "offset"])
    expected = [row for batch in logs.read(tmp_path / "lake" / "corpus") for row in batch.select([0, 2]).to_pylist()]
    assert sorted(row["offset"] for row in found.to_pylist()) == sorted(row["offset"] for row in expected)
    assert {path.name for path in (tmp_path / "lake" / "table").glob("topic=*")} == {"topic=audit", "topic=orders"}
    # A table is not filled twice.
    assert job.main(["--out", str(tmp_path / "lake")]) == 2
    assert "table exists; name another directory as --out" in capsys.readouterr().err
    ingest = job.ingest

    def losing(log: DataFrame, table: str, kind: str) -> None:
        ingest(log.where("not (topic = 'orders' and partition = 1 and offset = 77)"), table, kind)

    monkeypatch.setattr(job, "ingest", losing)
    assert job.main(["--out", str(tmp_path / "other"), "--size", "1MiB"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 segments differ from the manifest"
    assert lines[-2].startswith("orders-1, segment 0: the table has records ")
    assert "; sum_of_offsets " in lines[-2]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--size", "much"], "--size is 'much'; give a size"),
        (["--workload", "/absent.toml"], "/absent.toml"),
        (["--size", "1"], "size leaves"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    job: ModuleType, tmp_path: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.main(["--out", str(tmp_path / "out"), *arguments]) == 2
    assert told in capsys.readouterr().err
