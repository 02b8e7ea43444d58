"""Generate a small corpus, read it as a DataFrame on Spark, and compare sums of its records with its manifest.

python spark_jobs/corpus_dataframe.py
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import load
from kfuzz.spark.sessions import session_of_ours
from kfuzz.spark.source import register

WORKLOAD = Path(__file__).parent / "workloads" / "mixed.toml"


def sums_of_records(spark: SparkSession, out: str) -> DataFrame:
    log = spark.read.format("kafka-log").load(out)
    return log.groupBy("topic", "partition").agg(
        F.count("*").alias("records"),
        F.min("offset").alias("first_offset"),
        F.max("offset").alias("last_offset"),
        F.countDistinct("segment", F.when(F.col("control"), F.col("position"))).alias("control_batches"),
    )


def sums_of_manifest(spark: SparkSession, out: str) -> DataFrame:
    manifest = spark.read.parquet(f"{out}/_manifest")
    # A path is <topic>-<partition>/<base offset>.log.
    folder = F.regexp_extract("path", r"^(.+)-(\d+)/", 1), F.regexp_extract("path", r"^(.+)-(\d+)/", 2).cast("int")
    return manifest.groupBy(folder[0].alias("topic"), folder[1].alias("partition")).agg(
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("control_batches").alias("control_batches"),
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as out, session_of_ours("local[2]", "corpus as a DataFrame") as spark:
        generate(load(WORKLOAD).resized(16 << 20), out)
        register(spark)
        found = sums_of_records(spark, out).orderBy("topic", "partition").collect()
        told = sums_of_manifest(spark, out).orderBy("topic", "partition").collect()
    for row in found:
        print(*(f"{name}={value}" for name, value in row.asDict().items()))
    print("the manifest has the same sums" if found == told else f"the manifest has other sums: {told}")
    return 0 if found == told else 1


if __name__ == "__main__":
    sys.exit(main())
