"""Fill a Parquet table from Kafka log segments on Spark, and check that every record has arrived.

python spark_jobs/lake_ingest.py --out out/lake
spark-submit --master spark://host:7077 spark_jobs/lake_ingest.py --out /shared/lake --size 100GiB

It generates a corpus in OUT/corpus, reads its logs as a DataFrame, and writes OUT/table, partitioned by topic and day.
Then it aggregates the table by segment, and compares counts, offsets and sums with the corpus' manifest. Exit code 1
means that they differ. docs/dataframes.md explains the columns.
"""

from __future__ import annotations

import argparse
import logging
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
KEYS = ("topic", "partition", "segment")
SUMS = ("records", "first_offset", "last_offset", "sum_of_offsets", "newest_ms", "control_records")


def ingest(log: DataFrame, table: str) -> None:
    """Write the records to a Parquet table with a folder for each topic and day."""
    # A record of magic 0 has no timestamp, and so no day.
    day = F.to_date("timestamp").alias("day")
    log.select("*", day).write.partitionBy("topic", "day").parquet(table)


def sums_of_table(spark: SparkSession, table: str) -> DataFrame:
    """The counts of each segment in the table."""
    return (
        spark.read.parquet(table)
        .groupBy(*KEYS)
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first_offset"),
            F.max("offset").alias("last_offset"),
            F.sum("offset").alias("sum_of_offsets"),
            F.max(F.unix_millis("timestamp")).alias("newest_ms"),
            F.count_if("control").alias("control_records"),
        )
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
    with session_of_ours(options.master, "kfuzz lake ingest") as spark:
        register(spark)
        generate(spark, workload, corpus, name=str(options.workload))
        ingest(spark.read.format("kafka-log").load(str(corpus)), str(table))
        found = sums_of_table(spark, str(table)).cache()
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
