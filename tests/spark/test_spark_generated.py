"""The data source ``kfuzz`` gives the rows that ``kfuzz.corpora.generated`` makes: those of the written corpus."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from made_corpora import MIXED, rows_of
from pyspark.sql.datasource import CaseInsensitiveDict, EqualTo, GreaterThan, In, LessThanOrEqual
from test_spark_kafka_log import FIRST, in_order, plain, read

from kfuzz.corpora import generated
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import MIB, Workload, load, render
from kfuzz.errors import UsageError
from kfuzz.spark.arrow_reader import Share
from kfuzz.spark.sessions import reason
from kfuzz.spark.source import GENERATED_FORMAT, GeneratedReader, GeneratedSource, register

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "dataframes.md"


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Workload]:
    """Small segments; all codecs and magics, headers, producers and transactions."""
    made = replace(load(MIXED), size=MIB, segment_bytes=MIB)
    path = tmp_path_factory.mktemp("workload") / "mixed.toml"
    path.write_text(render(made))
    return path, made.resized(3 * MIB)


def reader(path: Path, **options: str) -> GeneratedReader:
    """As Spark makes it."""
    source = GeneratedSource(CaseInsensitiveDict({"workload": str(path), "size": "3MiB", **options}))
    return source.reader(schema=source.schema())


def here(workload: Workload, **options: Any) -> list[dict[str, Any]]:
    return rows_of(generated.read(workload, **options))


# ---------------------------------------------------------------------------------------- without a session


@pytest.mark.parametrize("rows", generated.ROWS)
def test_a_task_makes_some_segments(workload: tuple[Path, Workload], rows: str) -> None:
    path, made = workload
    expected = here(made, rows=rows)
    for size, shares in (("64KiB", len(Plan(made))), ("2MiB", -(-len(Plan(made)) // 2)), ("1GiB", 1)):
        source = reader(path, rows=rows, split_bytes=size)
        assert len(source.partitions()) == shares
        assert read(source) == expected


@pytest.mark.parametrize(
    ("filters", "holds"),
    [
        ([EqualTo(("topic",), "orders"), In(("partition",), (0, 2))], lambda row: row["partition"] in (0, 2)),
        ([GreaterThan(("base_offset",), 500)], lambda row: row["base_offset"] > 500),
        ([LessThanOrEqual(("base_offset",), 90), EqualTo(("topic",), "audit")], lambda row: row["base_offset"] <= 90),
        (
            [LessThanOrEqual(("max_timestamp",), FIRST)],
            lambda row: row["max_timestamp"] is not None and row["max_timestamp"] <= FIRST,
        ),
    ],
)
def test_filters_leave_out_batches(workload: tuple[Path, Workload], filters: list[Any], holds: Any) -> None:
    path, made = workload
    source = reader(path)
    assert list(source.pushFilters(filters)) == []
    topic = next((one.value for one in filters if one.attribute == ("topic",)), None)
    assert read(source) == [row for row in here(made) if holds(row) and topic in (None, row["topic"])]


def test_filters_leave_out_segments(workload: tuple[Path, Workload]) -> None:
    path, made = workload
    source = reader(path, rows="records")
    source.pushFilters([EqualTo(("topic",), "orders"), EqualTo(("partition",), 1), EqualTo(("offset",), 77)])
    [share] = source.partitions()
    assert isinstance(share, Share)
    assert len(share.parts) == 1
    assert [row["offset"] for row in read(source)] == [77]
    source.pushFilters([EqualTo(("topic",), "none")])
    [share] = source.partitions()
    assert isinstance(share, Share)
    assert share.parts == []
    assert len(Plan(made)) > 1


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colour": "red"}, "option 'colour' does not exist; take some of workload, size, rows"),
        ({"workload": "/absent.toml"}, "/absent.toml"),
        ({"size": "much"}, "option size is 'much'; give a size such as"),
        ({"size": "3"}, "size leaves"),
        ({"rows": "values"}, "rows 'values' do not exist"),
        ({"columns": "key"}, "column 'key' does not exist; take some of topic, partition, base_offset"),
        ({"topics": "x"}, "no topic of the workload matches 'x'; there are orders, audit"),
        ({"isolation": "read_committed"}, "batches have no isolation"),
        ({"split_bytes": "1"}, "option split_bytes is '1'; give at least 4096 bytes"),
    ],
)
def test_a_wrong_option_is_answered_in_one_sentence(
    workload: tuple[Path, Workload], options: dict[str, str], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        GeneratedSource(CaseInsensitiveDict({"workload": str(workload[0])} | options)).schema()
    with pytest.raises(UsageError, match="no workload is given; name a TOML file"):
        GeneratedSource(CaseInsensitiveDict()).schema()


# ------------------------------------------------------------------------------------------------ on Spark


@pytest.mark.full
def test_spark_makes_the_records_that_are_read_of_the_written_corpus(
    spark: Any,
    workload: tuple[Path, Workload],
    tmp_path: Path,
) -> None:
    path, made = workload
    register(spark)
    generate(made, tmp_path / "out")
    frame = spark.read.format(GENERATED_FORMAT).option("workload", str(path)).option("size", "3MiB")
    found = frame.option("rows", "records").option("isolation", "read_committed").load().toArrow()
    arrow = pa.schema([*reader(path, rows="records").arrow])
    assert in_order(found.cast(arrow).to_pylist()) == in_order(plain(tmp_path / "out", isolation="read_committed"))


@pytest.mark.full
def test_spark_makes_batches_and_passes_filters_on(spark: Any, workload: tuple[Path, Workload]) -> None:
    path, made = workload
    register(spark)
    frame = spark.read.format(GENERATED_FORMAT).option("workload", f"file://{path}").option("size", "3MiB").load()
    chosen = frame.where("topic = 'orders' and partition = 2 and base_offset >= 300")
    found = chosen.select("base_offset", "batch").orderBy("base_offset").collect()
    expected = [row for row in here(made, topics="orders", first_offset=300) if row["partition"] == 2]
    assert [(row.base_offset, bytes(row.batch)) for row in found] == [
        (row["base_offset"], row["batch"]) for row in expected
    ]
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        spark.read.format(GENERATED_FORMAT).load()
    assert reason(str(caught.value)).startswith("no workload is given; name a TOML file")


@pytest.mark.full
def test_the_examples_of_the_guide_print_what_it_shows(
    spark: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate(load(MIXED).resized(64 * MIB), tmp_path / "out")
    text = GUIDE.read_text()
    shown = re.findall(r"^```python\n([^`]*?)^```\n\n```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    examples = [(example, output) for example, output in shown if "kfuzz.spark" in example]
    assert len(examples) == 3
    for example, output in examples:
        # Spark looks for relative paths where it was started.
        example = (
            example.replace('"out/corpus"', f'"{tmp_path}/out"')
            .replace('"out/', f'"{tmp_path}/')
            .replace('"spark_jobs', f'"{ROOT}/spark_jobs')
        )
        exec(example, {})
        assert capsys.readouterr().out.strip() == output.strip()
