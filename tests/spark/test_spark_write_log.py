"""``df.write.format("kafka-log")`` writes what brokers and kfuzz read; ``readStream`` follows it and loses nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cli_driver import outcome
from conftest import require_kafka_build
from made_corpora import MIXED, once
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from kfuzz import logs
from kfuzz.conformance.broker.real import kafka_tool
from kfuzz.corpora.manifest import Manifest
from kfuzz.corpora.partitioners import partition_of
from kfuzz.corpora.workload import MIB, load
from kfuzz.errors import UsageError
from kfuzz.spark.source import FORMAT, KafkaLogSource, register
from kfuzz.spark.writing import KafkaLogWriter
from kfuzz.wire.io.checksum import crc32c

pytestmark = pytest.mark.spark

corpus = once(replace(load(MIXED), size=3 * MIB, segment_bytes=MIB), "session")
SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def rows(first: int, count: int) -> pa.RecordBatch:
    names = range(first, first + count)
    return pa.RecordBatch.from_pydict({"key": [f"k{n % 50}" for n in names], "value": [b"v%d" % n * 9 for n in names]})


def writer(out: Any, *, overwrite: bool = False, **options: str) -> KafkaLogWriter:
    options = {"path": str(out), "topic": "t", **options}
    return KafkaLogWriter(CaseInsensitiveDict(options), SCHEMA, overwrite)


def held(out: Any, column: str = "value") -> list[Any]:
    found = logs.read(str(out), columns=["partition", "offset", column])
    return [row for batch in found for row in batch.to_pylist()]


def test_tasks_follow_each_other_in_a_partition_and_an_append_follows_them(tmp_path: Path) -> None:
    out = tmp_path / "log"
    for first in (0, 1000):
        made = writer(out, codec="lz4", batch_records="64", segment_bytes="8KiB")
        # A task that runs twice leaves nothing of its first attempt.
        starts = (first, first, first + 500)
        messages = [made.write(iter([rows(one, 300), rows(one + 300, 200)])) for one in starts]
        made.commit(messages[1:])
    assert held(out) == [{"partition": 0, "offset": n, "value": b"v%d" % n * 9} for n in range(2000)]
    code, said, _ = outcome("check", out)
    assert (code, "2000 records" in said) == (0, True), said
    found = list(Manifest(out / "_manifest"))
    assert len(found) == 8
    assert sorted(path.name for path in out.iterdir()) == ["_manifest", "t-0"]
    for row in found:
        assert crc32c((out / row.path).read_bytes()) == row.crc32c
        assert row.last_offset - row.first_offset + 1 == row.records


@pytest.mark.parametrize("place", ["directory", "memory"])
def test_nothing_has_a_final_name_before_all_tasks_have_ended(place: str, tmp_path: Path) -> None:
    out = tmp_path if place == "directory" else f"memory://{tmp_path.name}"
    made = writer(out, partitions="3")
    lost = made.write(iter([rows(0, 100)]))
    message = made.write(iter([rows(0, 600)]))
    with pytest.raises(UsageError, match=r"has no log segments|has no files"):
        held(out)
    made.abort([lost])
    message = made.write(iter([rows(0, 600)]))
    made.commit([message, None])
    for row in held(out, "key"):
        assert partition_of("murmur2", row["key"], 3) == row["partition"]
    replacing = writer(out, overwrite=True)
    replacing.commit([replacing.write(iter([rows(7, 2)]))])
    assert [row["value"] for row in held(out)] == [b"v7" * 9, b"v8" * 9]
    with pytest.raises(UsageError, match="is a log; name another directory"):
        writer(out, error_if_exists="true")


def test_a_commit_counts_if_only_its_own_folder_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an error, Spark's user would write the same rows again."""

    def refuse(*place: object, **more: object) -> None:
        raise PermissionError(13, "Permission denied")

    made = writer(tmp_path)
    message = made.write(iter([rows(0, 5)]))
    monkeypatch.setattr(os, "rmdir", refuse)
    made.commit([message])
    assert len(held(tmp_path)) == 5


def test_columns_say_topic_partition_and_time(tmp_path: Path) -> None:
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    columns = {"topic": ["a", "b", "a"], "partition": [5, 0, 5], "timestamp": [moment, None, moment]}
    batch = pa.RecordBatch.from_pydict(columns)
    fields = StructType([StructField(name, StringType()) for name in columns])
    made = KafkaLogWriter({"path": str(tmp_path)}, fields, False)
    made.commit([made.write(iter([batch]))])
    found = [row for one in logs.read(tmp_path, columns=["topic", "partition", "timestamp"]) for row in one.to_pylist()]
    at = datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
    assert [(row["topic"], row["partition"], row["timestamp"]) for row in found[:2]] == [("a", 5, at)] * 2
    for column, values in (("topic", ["..", "b", "a"]), ("partition", [-1, 0, 0]), ("topic", [None, "b", "a"])):
        with pytest.raises(UsageError, match=r"is no topic's name|partitions -1 to 0|no topic or no partition"):
            made.write(iter([pa.RecordBatch.from_pydict({**columns, column: pa.array(values)})]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"codec": "rar"}, "codec 'rar' does not exist"),
        ({"partitions": "0"}, "option partitions is '0'; give a number"),
        ({"compression": "zstd"}, "option 'compression' does not exist"),
    ],
)
def test_a_wrong_write_is_one_sentence(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        writer(tmp_path, **options)
    (tmp_path / "meta.properties").touch()
    with pytest.raises(UsageError, match="is a broker or a corpus"):
        writer(tmp_path, overwrite=True)


def test_a_stream_reads_each_record_once_while_the_log_grows(corpus: Path, tmp_path: Path) -> None:
    start: dict[str, int] = {}
    found: list[Any] = []
    for share in (0.2, 0.2001, 0.6, 1):
        for segment in logs.find_segments(corpus):
            live = tmp_path / segment.path.parent.name / segment.path.name
            live.parent.mkdir(exist_ok=True)
            live.write_bytes(segment.path.read_bytes()[: int(segment.size * share)])
            if share == 1 and (index := segment.path.with_suffix(".index")).exists():
                shutil.copy(index, live.parent)
        # Each time as after a restart, from the offsets alone.
        source = KafkaLogSource(CaseInsensitiveDict({"path": str(tmp_path), "columns": "topic,partition,offset,value"}))
        stream = source.streamReader(source.schema())
        end = stream.latestOffset(start, None)  # type: ignore[arg-type]
        for part in stream.partitions(start, end):
            found += [row for batch in stream.read(part) for row in batch.to_pylist()]  # type: ignore[union-attr]
        start = end
    columns = ["topic", "partition", "offset", "value"]
    wanted = [row for one in logs.read(corpus, columns=columns) for row in one.to_pylist()]
    place = lambda row: (row["topic"], row["partition"], row["offset"])  # noqa: E731
    assert sorted(found, key=place) == sorted(wanted, key=place)
    live.write_bytes(b"")
    with pytest.raises(UsageError, match="records were deleted; begin with a new checkpoint"):
        stream.latestOffset(start, None)  # type: ignore[arg-type]


@pytest.mark.full
def test_spark_writes_and_follows_a_log(spark: Any, tmp_path: Path) -> None:
    register(spark)
    frame = spark.range(0, 5000, 1, 4).selectExpr(
        "cast(id % 7 as string) key",
        "to_json(struct(id)) value",
        "timestamp_millis(id) timestamp",
        "array(struct('h' as key, cast(cast(id as string) as binary) as value)) headers",
        "'t' topic",
        "cast(id % 2 as int) partition",
    )
    for written in (5000, 10000):
        frame.write.format(FORMAT).option("codec", "zstd").mode("append").save(str(tmp_path / "log"))
        query = (
            spark.readStream.format(FORMAT)
            .load(str(tmp_path / "log"))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        query.awaitTermination()
        table = spark.read.parquet(str(tmp_path / "table"))
        assert (table.count(), table.select("partition", "offset").distinct().count()) == (written, written)
    assert outcome("check", tmp_path / "log")[0] == 0
    ids = spark.read.format(FORMAT).load(str(tmp_path / "log")).where("offset < 2500 and partition = 1")
    assert [int(row.value[6:-1]) for row in ids.orderBy("offset").collect()] == list(range(1, 5000, 2))


@pytest.mark.full
def test_kafkas_own_tool_finds_no_mismatch(tmp_path: Path) -> None:
    require_kafka_build()
    for first in (0, 1000):
        made = writer(tmp_path, codec="gzip", batch_records="20", segment_bytes="16KiB")
        made.commit([made.write(iter([rows(first, 1000)]))])
    files = ",".join(str(path) for path in (tmp_path / "t-0").iterdir() if path.name != "leader-epoch-checkpoint")
    argv = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", files)
    said = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert (said.returncode, said.stdout.count("isvalid: true"), "ismatch" in said.stdout) == (0, 100, False), (
        said.stdout
    )
    assert "offset: 1999 " in said.stdout
