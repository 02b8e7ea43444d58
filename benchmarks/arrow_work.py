"""Records as Arrow batches: of a log, and made in memory. In one process, and as Spark's Python workers do it.

A worker reads, copies keys and values, and writes an Arrow stream, here to nowhere and without a session. The JVM's
work is not measured.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa

from benchmarks.measure import InProcess
from benchmarks.peers import library
from kfuzz import logs
from kfuzz.corpora import generated
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import MIB, Topic, Workload, load, render

__all__ = ["Rows", "make_corpus", "read", "read_as_worker"]

CORPUS: Final = "corpus"
WORKLOAD: Final = "workload.toml"


class Rows(NamedTuple):
    """How many rows the batches have."""

    rows: int


def make_corpus(place: Path, size: int, rows: str) -> tuple[int, Rows]:
    """Write a corpus with values of 100 bytes and its workload; the bytes of its logs, and its records or batches."""
    workload = replace(Workload(topics=(Topic("uniform"),)), size=size, segment_bytes=64 * MIB)
    made = list(generate(workload, place / CORPUS))
    (place / WORKLOAD).write_text(render(workload))
    return sum(row.bytes for row in made), Rows(sum(getattr(row, rows) for row in made))


def read(place: Path, source: str, rows: str, columns: Sequence[str] | None) -> InProcess:
    """Read the log of ``source``, or make its rows in memory."""
    names = None if columns is None else list(columns)
    if source == "log":
        return _counted(lambda: logs.read(place / CORPUS, columns=names))
    workload = load(place / WORKLOAD)
    return _counted(lambda: generated.read(workload, rows=rows, columns=names))  # type: ignore[arg-type]


def read_as_worker(place: Path, source: str, rows: str, columns: Sequence[str] | None) -> InProcess:
    """The same through the data source of Spark, into an Arrow stream."""
    options = library("pyspark.sql.datasource", "spark").CaseInsensitiveDict(
        ({"path": str(place / CORPUS)} if source == "log" else {"workload": str(place / WORKLOAD), "rows": rows})
        | ({} if columns is None else {"columns": ",".join(columns)})
    )
    sources = library("kfuzz.spark.source", "spark")
    made: Any = (sources.KafkaLogSource if source == "log" else sources.GeneratedSource)(options)

    def sent() -> Iterator[pa.RecordBatch]:
        reader = made.reader(schema=made.schema())
        with pa.OSFile(os.devnull, "wb") as sink, pa.ipc.new_stream(sink, reader.arrow) as stream:
            for share in reader.partitions():
                for batch in reader.read(share):
                    stream.write_batch(batch)
                    yield batch

    return _counted(sent)


def _counted(reading: Callable[[], Iterator[pa.RecordBatch]]) -> InProcess:
    def run() -> int:
        return sum(batch.num_rows for batch in reading())

    return InProcess(run, lambda: Rows(run()))
