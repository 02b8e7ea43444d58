"""Fill a table from Kafka log segments on Spark, and check that every record has arrived.

python spark_jobs/lake_ingest.py --out out/lake
python spark_jobs/lake_ingest.py --out out/delta --format delta
python spark_jobs/lake_ingest.py --out out/iceberg --format iceberg
spark-submit --master spark://host:7077 spark_jobs/lake_ingest.py --out /shared/lake --size 100GiB

It generates a corpus in OUT/corpus, reads its logs as a DataFrame, and writes OUT/table: Parquet or Delta, partitioned
by topic and day, or Parquet files that PyIceberg (pip install 'pyiceberg[sql-sqlite]') adds to an Iceberg table.
Then it aggregates the table by segment, and compares counts, offsets and sums with the corpus' manifest. Exit code 1
means that they differ. docs/dataframes.md explains the columns.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import load
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import local_path, require_writable
from kfuzz.spark.generation import generate
from kfuzz.spark.sessions import session_of_ours
from kfuzz.spark.source import register
from kfuzz.units import parse_size

WORKLOAD = Path(__file__).parent / "workloads" / "mixed.toml"
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
DELTA_SETTINGS = (
    # Spark has it.
    "--exclude-packages org.slf4j:slf4j-api "
    "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
    "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog"
)
KEYS = ("topic", "partition", "segment")
SUMS = ("records", "first_offset", "last_offset", "sum_of_offsets", "newest_ms", "control_records")


def ingest(log: DataFrame, table: str, kind: str = "parquet") -> None:
    """Write the records to a table with a folder for each topic and day; for Iceberg, to the files of a table."""
    if kind == "iceberg":
        log.write.parquet(table)
        _iceberg(table).add_files([str(path) for path in sorted(Path(table).glob("*.parquet"))])
        return
    # A record of magic 0 has no timestamp, and so no day.
    day = F.to_date("timestamp").alias("day")
    log.select("*", day).write.format(kind).partitionBy("topic", "day").save(table)


def _iceberg(table: str) -> Any:
    """The Iceberg table of the files in ``table``. Its catalog is a file beside them."""
    import pyarrow.dataset as ds
    from pyiceberg.catalog.sql import SqlCatalog

    around = Path(table).parent
    catalog = SqlCatalog("lake", uri=f"sqlite:///{around}/catalog.db", warehouse=f"file://{around}/iceberg")
    catalog.create_namespace_if_not_exists("kafka")
    return catalog.create_table_if_not_exists("kafka.log", ds.dataset(table, format="parquet").schema)


def open_table(spark: SparkSession, table: str, kind: str = "parquet") -> DataFrame:
    """The table as its own reader gives it."""
    if kind != "iceberg":
        return spark.read.format(kind).load(table)
    wanted = (*KEYS, "offset", "timestamp", "control")
    return spark.createDataFrame(_iceberg(table).scan(selected_fields=wanted).to_arrow())


def sums_of_table(table: DataFrame) -> DataFrame:
    """The counts of each segment in the table."""
    return table.groupBy(*KEYS).agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.sum("offset").alias("sum_of_offsets"),
        F.max(F.unix_millis("timestamp")).alias("newest_ms"),
        F.count_if("control").alias("control_records"),
    )


def sums_of_manifest(spark: SparkSession, corpus: str) -> DataFrame:
    """The counts of each segment in the manifest. Its path is <topic>-<partition>/<base offset>.log."""
    path = r"^(.+)-(\d+)/(\d+)\.log$"
    return spark.read.parquet(f"{corpus}/_manifest").select(
        F.regexp_extract("path", path, 1).alias("topic"),
        F.regexp_extract("path", path, 2).cast("int").alias("partition"),
        F.regexp_extract("path", path, 3).cast("long").alias("segment"),
        "records",
        "first_offset",
        "last_offset",
        F.expr("(first_offset + last_offset) * (last_offset - first_offset + 1) div 2").alias("sum_of_offsets"),
        F.col("max_timestamp").alias("newest_ms"),
        F.col("control_batches").alias("control_records"),
    )


def differences(found: DataFrame, told: DataFrame) -> list[str]:
    """A sentence for each segment of which the table does not hold what the manifest says."""
    joined = found.alias("found").join(told.alias("told"), [*KEYS], "full")
    is_equal = F.lit(True)
    for name in SUMS:
        is_equal = is_equal & F.col(f"found.{name}").eqNullSafe(F.col(f"told.{name}"))
    return [_told(row) for row in joined.where(~is_equal).orderBy(*KEYS).collect()]


def _told(row: Any) -> str:
    found, told = row[len(KEYS) : len(KEYS) + len(SUMS)], row[len(KEYS) + len(SUMS) :]
    wrong = [f"{name} {a}, not {b}" for name, a, b in zip(SUMS, found, told, strict=True) if a != b]
    return f"{row.topic}-{row.partition}, segment {row.segment}: the table has {'; '.join(wrong)}"


def run(options: argparse.Namespace) -> int:
    """Generate, ingest, compare; returns the exit code."""
    size = parse_size(options.size)
    if not size:
        raise UsageError(f'--size is {options.size!r}; give a size such as "64MiB"')
    workload = load(options.workload).resized(size)
    corpus, table = options.out.resolve() / "corpus", options.out.resolve() / "table"
    if table.exists():
        raise UsageError(f"{table} exists; name another directory as --out, or remove it")
    # Starting a session takes seconds, so refuse first what cannot be planned or written.
    require_writable(options.out, directory=True)
    Plan(workload, str(options.workload))
    if options.format == "delta":
        # spark-submit takes these options itself.
        os.environ.setdefault("PYSPARK_SUBMIT_ARGS", f"--packages {DELTA} {DELTA_SETTINGS} pyspark-shell")
    with session_of_ours(options.master, "kfuzz lake ingest") as spark:
        register(spark)
        generate(spark, workload, corpus, name=str(options.workload))
        # PyIceberg does not read the older type of timestamps.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        ingest(spark.read.format("kafka-log").load(str(corpus)), str(table), options.format)
        found = sums_of_table(open_table(spark, str(table), options.format)).cache()
        for row in found.groupBy("topic").agg(F.sum("records").alias("records")).orderBy("topic").collect():
            print(f"{row.topic}: {row.records} records")
        wrong = differences(found, sums_of_manifest(spark, str(corpus)))
    for line in wrong:
        print(line)
    print(f"{len(wrong)} segments differ from the manifest" if wrong else "the table holds what the manifest says")
    return 1 if wrong else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the arguments and run; 2 for a wrong request."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0],
        epilog="example: python spark_jobs/lake_ingest.py --out out/lake --size 64MiB",
    )
    parser.add_argument("--out", type=local_path, required=True, help="a new directory that all executors share")
    parser.add_argument("--format", choices=("parquet", "delta", "iceberg"), default="parquet", help="of the table")
    parser.add_argument("--workload", type=local_path, default=WORKLOAD, help="a workload in TOML (default: mixed)")
    parser.add_argument("--size", default="16MiB", help="uncompressed size of the corpus (default: %(default)s)")
    parser.add_argument("--master", help="Spark master (default: that of spark-submit, otherwise local[*])")
    try:
        return run(parser.parse_args(arguments))
    except KfuzzError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    # py4j logs the traceback of an interrupted call.
    logging.disable()
    sys.exit(main())
