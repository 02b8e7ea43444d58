"""The data source ``kafka-log`` gives the records that ``kfuzz.logs`` reads, takes filters, reports errors."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from made_corpora import MIXED, flip, once, rows_of
from pyspark.sql.datasource import (
    CaseInsensitiveDict,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.types import LongType, StructField, StructType

from kfuzz import logs, records, storage
from kfuzz.corpora.workload import KIB, MIB, load
from kfuzz.errors import UsageError
from kfuzz.records import Record, RecordBatch
from kfuzz.spark.arrow_reader import ArrowReader, Share
from kfuzz.spark.sessions import reason
from kfuzz.spark.source import FORMAT, KafkaLogReader, KafkaLogSource, register

pytestmark = pytest.mark.spark

FIRST = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


# All codecs and magics, headers, producers and transactions.
corpus = once(replace(load(MIXED), size=3 * MIB, segment_bytes=MIB), "session")


def plain(path: Path, **options: Any) -> list[dict[str, Any]]:
    """The rows as the reader without Spark gives them."""
    return rows_of(logs.read(path, **options))


def in_order(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


def reader(path: Path | str, **options: str) -> KafkaLogReader:
    """As Spark makes it."""
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(path), **options}))
    return source.reader(schema=source.schema())


def read(made: ArrowReader) -> list[dict[str, Any]]:
    return rows_of(batch for share in made.partitions() for batch in made.read(share))


# ---------------------------------------------------------------------------------------- without a session


def test_shares_are_cut_inside_segments_and_hold_small_segments_together(corpus: Path) -> None:
    segments = logs.find_segments(corpus)
    expected = plain(corpus)
    for size, fits in ((64 * KIB, lambda n: n > 2 * len(segments)), (64 * MIB, lambda n: n == 1)):
        made = reader(corpus, split_bytes=str(size))
        assert fits(len(made.partitions()))
        assert read(made) == expected


def test_an_executor_opens_an_archive_itself(corpus: Path, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "backup"), "gztar", corpus)
    made = reader(Path(archive), split_bytes=str(64 * KIB))
    shares = made.partitions()
    # As Spark sends them; nothing of the driver's copy is left.
    again: KafkaLogReader = pickle.loads(pickle.dumps(made))
    rows = rows_of(batch for share in pickle.loads(pickle.dumps(shares)) for batch in again.read(share))
    assert rows == plain(corpus)


@pytest.mark.parametrize("isolation", ["log", "read_committed"])
def test_a_segment_of_a_store_is_fetched_by_its_reader_only(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    store = storage.Target.of(f"memory://{tmp_path.name}/data")
    for path in corpus.glob("*-*/*"):
        store.write(path.relative_to(corpus).as_posix(), path.read_bytes())
    fetched, fetch = list[str](), storage.RemoteTarget.copy

    def copy(target: storage.RemoteTarget, name: str, file: BinaryIO) -> bool:
        fetched.append(name)
        return fetch(target, name, file)

    monkeypatch.setattr(storage.RemoteTarget, "copy", copy)
    made = reader(str(store), split_bytes=str(64 * KIB), isolation=isolation)
    assert list(made.pushFilters([GreaterThan(("offset",), 70)])) == []
    shares = made.partitions()
    # The last stable offset is known only to the last segment of each partition.
    assert isolation == "read_committed" or fetched == []
    fetched.clear()
    rows = rows_of(batch for share in shares for batch in made.read(share))
    assert rows == [row for row in plain(corpus, isolation=isolation) if row["offset"] > 70] != []
    found = [name for name in fetched if name.endswith(".log")]
    assert sorted(found) == sorted(path.relative_to(corpus).as_posix() for path in corpus.glob("*-*/*.log"))


@pytest.mark.parametrize(
    ("filters", "holds"),
    [
        ([EqualTo(("offset",), 77)], lambda row: row["offset"] == 77),
        ([GreaterThan(("offset",), 70), LessThan(("offset",), 300)], lambda row: 70 < row["offset"] < 300),
        (
            [GreaterThanOrEqual(("offset",), 70), LessThanOrEqual(("offset",), 300), LessThan(("offset",), 4000)],
            lambda row: 70 <= row["offset"] <= 300,
        ),
        ([EqualTo(("topic",), "audit")], lambda row: row["topic"] == "audit"),
        (
            [In(("topic",), ("orders", "none")), In(("partition",), (0, 2)), EqualTo(("partition",), 2)],
            lambda row: row["topic"] == "orders" and row["partition"] == 2,
        ),
        (
            [GreaterThan(("timestamp",), FIRST + timedelta(microseconds=400_500))],
            lambda row: row["timestamp"] is not None and row["timestamp"] > FIRST + timedelta(microseconds=400_500),
        ),
        (
            [GreaterThanOrEqual(("timestamp",), FIRST), LessThan(("timestamp",), FIRST + timedelta(milliseconds=80))],
            lambda row: row["timestamp"] is not None and row["timestamp"] < FIRST + timedelta(milliseconds=80),
        ),
        ([EqualTo(("timestamp",), FIRST + timedelta(microseconds=1))], lambda row: False),
    ],
)
def test_the_reader_applies_filters_on_topic_partition_offset_and_timestamp(
    corpus: Path, filters: list[Any], holds: Any
) -> None:
    made = reader(corpus)
    assert list(made.pushFilters(filters)) == []
    assert read(made) == [row for row in plain(corpus) if holds(row)]


def test_other_filters_are_left_to_spark(corpus: Path) -> None:
    made = reader(corpus)
    others = [
        IsNotNull(("offset",)),
        Not(EqualTo(("offset",), 7)),
        EqualTo(("key",), b"x"),
        EqualTo(("offset",), "7"),
        GreaterThan(("partition",), 1),
        EqualTo(("headers", "key"), b"x"),
        In(("offset",), (1, 2)),
    ]
    assert list(made.pushFilters(others)) == others
    assert read(made) == plain(corpus)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_the_reader_selects_as_a_consumer_does(corpus: Path, isolation: str) -> None:
    expected = plain(corpus, isolation=isolation)
    everything = plain(corpus)
    left_out = {"control"} if isolation == "read_uncommitted" else {"control", "aborted"}
    assert expected == [row for row in everything if not any(row[name] for name in left_out)]
    assert len(expected) < len(everything)
    for size in ("64KiB", "64MiB"):
        assert read(reader(corpus, isolation=isolation, split_bytes=size)) == expected


def test_a_timestamp_that_spark_cannot_hold_is_null_and_within_no_bounds(tmp_path: Path) -> None:
    times = [-(1 << 62), -1, 0, FIRST.timestamp() * 1000, 1 << 62]
    made = [Record(i, int(moment), None, b"v") for i, moment in enumerate(times)]
    (tmp_path / "a.log").write_bytes(records.encode([RecordBatch(0, 4, made, partition_leader_epoch=0)]))
    shown = reader(tmp_path / "a.log", columns="offset,timestamp")
    [batch] = [batch for share in shown.partitions() for batch in shown.read(share)]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [None, -1000, 0, int(times[3]) * 1000, None]
    bounded = reader(tmp_path / "a.log", columns="offset")
    assert list(bounded.pushFilters([LessThan(("timestamp",), FIRST)])) == []
    assert read(bounded) == [{"offset": 1}, {"offset": 2}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"colour": "red"}, "option 'colour' does not exist; take some of path, topics, "),
        ({"columns": "key, colour"}, "column 'colour' does not exist"),
        ({"mode": "lax"}, "mode 'lax' does not exist"),
        ({"isolation": "serial"}, "isolation 'serial' does not exist; take one of log, read_unc"),
        ({"split_bytes": "12"}, "option split_bytes is '12'; give at least 4096 bytes"),
        ({"split_bytes": "many"}, "many"),
        ({"topics": "none*"}, r"matches 'none\*'; there are audit, orders"),
        ({"path": "/absent"}, "/absent does not exist; name a log directory"),
    ],
)
def test_a_wrong_option_is_answered_in_one_sentence(corpus: Path, options: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        KafkaLogSource(CaseInsensitiveDict({"path": str(corpus)} | options)).schema()
    with pytest.raises(UsageError, match="no path is given"):
        KafkaLogSource(CaseInsensitiveDict()).schema()


def test_a_schema_of_other_columns_is_refused(corpus: Path) -> None:
    source = KafkaLogSource(CaseInsensitiveDict({"path": str(corpus)}))
    with pytest.raises(UsageError, match="leave schema out, and choose columns by the option columns"):
        source.reader(StructType([StructField("offset", LongType())]))


def test_without_anything_selected_there_is_one_empty_share(corpus: Path) -> None:
    made = reader(corpus)
    made.pushFilters([EqualTo(("topic",), "none")])
    [share] = made.partitions()
    assert isinstance(share, Share)
    assert share.parts == []


# ------------------------------------------------------------------------------------------------ on Spark


def test_spark_reads_every_record_of_a_corpus(spark: Any, corpus: Path) -> None:
    register(spark)
    frame = spark.read.format(FORMAT).option("split_bytes", "128KiB").load(str(corpus))
    found = frame.toArrow().cast(pa.schema([*reader(corpus).arrow])).to_pylist()
    assert in_order(found) == in_order(plain(corpus))


@pytest.mark.full
def test_spark_passes_filters_on(spark: Any, corpus: Path) -> None:
    register(spark)
    frame = spark.read.format(FORMAT).load(f"file://{corpus}")
    chosen = frame.where(
        "topic = 'orders' and partition in (0, 1) and offset between 100 and 900 "
        "and timestamp < timestamp'2023-11-14 22:13:20.300Z'"
    )
    expected = [
        row
        for row in plain(corpus, topics="orders", first_offset=100, last_offset=900)
        if row["partition"] < 2 and row["timestamp"] < FIRST + timedelta(milliseconds=300)
    ]
    assert 0 < len(expected) < 801 * 2
    assert sorted(row.offset for row in chosen.select("offset").collect()) == sorted(row["offset"] for row in expected)
    # The filters that Spark still applies itself.
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    [left] = [line for line in plan.splitlines() if "Filter (" in line]
    assert left.count("isnotnull") == left.count("(topic") + left.count("(offset") + left.count("(timestamp")
    assert not any(sign in left for sign in "<>=")


def test_damage_stops_a_strict_job_in_one_sentence_and_is_a_row_of_a_tolerant_one(
    spark: Any,
    corpus: Path,
    tmp_path: Path,
) -> None:
    register(spark)
    segment = logs.find_segments(corpus, topics="audit")[0]
    place = tmp_path / "audit-0"
    place.mkdir()
    log = Path(shutil.copy(segment.path, place))
    flip(log, 5000)
    with pytest.raises(Exception, match="crc-mismatch") as caught:
        spark.read.format(FORMAT).load(str(tmp_path)).toArrow()
    told = reason(str(caught.value))
    assert told.startswith(f"{log} at byte ")
    frame = spark.read.format(FORMAT).option("mode", "tolerant").option("columns", "offset").load(str(tmp_path))
    [bad] = [row.finding for row in frame.where("finding is not null").collect()]
    assert told.endswith(bad)
    assert frame.where("finding is null").count() == len(plain(log, mode="tolerant")) - 1


def test_a_wrong_path_is_reported_at_load(spark: Any) -> None:
    register(spark)
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        spark.read.format(FORMAT).load("/absent")
    assert reason(str(caught.value)) == (
        "/absent does not exist; name a log directory, a partition folder or a segment file"
    )
