"""``python -m benchmarks.dataframes``: the CPU time that reading and making records as Arrow batches takes, per GB.

A corpus of uncompressed records with values of 100 bytes is written to ``--place``, and removed afterwards. GB are
those of the log. Spark's figures are those of what its Python workers do, without a session: they read, copy keys and
values, and write an Arrow stream, here to nowhere. The JVM's part is not measured.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from kfuzz.corpora import generated, logs
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import MIB, Topic, Workload, parse_size, render
from kfuzz.errors import KfuzzError, UsageError

SIZE: Final = "512MiB"
ROUNDS: Final = 3
COLUMNS: Final[dict[str, str | None]] = {"all": None, "offset,value": "offset,value"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dataframes",
        description="CPU-seconds per GB of log, for Arrow in one process and for Spark's workers.",
        epilog="example: python -m benchmarks.dataframes --size 64MiB --no-spark",
    )
    parser.add_argument("--size", default=SIZE, help="size of the corpus (default: %(default)s)")
    parser.add_argument(
        "--place", type=Path, default=Path("/dev/shm"), help="a folder in memory (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help="the best of so many is shown (default: %(default)s)"
    )
    parser.add_argument("--no-spark", action="store_true", help="only Arrow")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each reading; 2 for a wrong request."""
    options = _parser().parse_args(arguments)
    try:
        size = parse_size(options.size)
        if not size or options.rounds < 1:
            raise UsageError("--size is a size such as 512MiB, and --rounds at least 1")
        if not options.place.is_dir():
            raise UsageError(f"{options.place} is not a folder; name one as --place")
        place = Path(tempfile.mkdtemp(prefix="kfuzz-dataframes-", dir=options.place))
        try:
            for name, seconds in _figures(place, size, options):
                print(f"{name:55} {seconds:5.2f} CPU-s per GB", flush=True)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    except KfuzzError as error:
        print(f"python -m benchmarks.dataframes: {error}", file=sys.stderr)
        return 2
    return 0


def _figures(place: Path, size: int, options: argparse.Namespace) -> Iterator[tuple[str, float]]:
    workload = replace(Workload(topics=(Topic("uniform"),)), size=size, segment_bytes=64 * MIB)
    rows = generate(workload, place / "corpus")
    gigabytes = sum(row.bytes for row in rows) / 1e9
    (place / "workload.toml").write_text(render(workload))
    for shown, names in COLUMNS.items():
        columns = None if names is None else names.split(",")

        def log(columns: list[str] | None = columns) -> Iterator[pa.RecordBatch]:
            return logs.read(place / "corpus", columns=columns)

        def made(columns: list[str] | None = columns) -> Iterator[pa.RecordBatch]:
            return generated.read(workload, rows="records", columns=columns)

        yield f"Arrow, kafka-log, {shown}", _best(log, options.rounds) / gigabytes
        yield f"Arrow, kfuzz records, {shown}", _best(made, options.rounds) / gigabytes
    yield "Arrow, kfuzz batches, all", _best(lambda: generated.read(workload), options.rounds) / gigabytes
    if not options.no_spark:
        yield from _of_spark(place, gigabytes, options.rounds)


def _best(reading: Callable[[], Iterator[pa.RecordBatch]], rounds: int) -> float:
    """The least CPU time of a pass over all batches, in seconds."""
    taken = []
    for _ in range(rounds):
        before = time.process_time()
        for _ in reading():
            pass
        taken.append(time.process_time() - before)
    return min(taken)


def _of_spark(place: Path, gigabytes: float, rounds: int) -> Iterator[tuple[str, float]]:
    from pyspark.sql.datasource import CaseInsensitiveDict

    from kfuzz.spark.source import GeneratedSource, KafkaLogSource

    sources: dict[str, tuple[Any, dict[str, str]]] = {
        "kafka-log": (KafkaLogSource, {"path": str(place / "corpus")}),
        "kfuzz records": (GeneratedSource, {"workload": str(place / "workload.toml"), "rows": "records"}),
        "kfuzz batches": (GeneratedSource, {"workload": str(place / "workload.toml")}),
    }
    for name, (source, settings) in sources.items():
        for shown, columns in COLUMNS.items() if name != "kfuzz batches" else [("all", None)]:
            options = settings if columns is None else {**settings, "columns": columns}
            made = source(CaseInsensitiveDict(options))

            def sent(made: Any = made) -> Iterator[pa.RecordBatch]:
                reader = made.reader(schema=made.schema())
                with pa.OSFile(os.devnull, "wb") as sink, pa.ipc.new_stream(sink, reader.arrow) as stream:
                    for share in reader.partitions():
                        for batch in reader.read(share):
                            stream.write_batch(batch)
                            yield batch

            yield f"Spark's worker, {name}, {shown}", _best(sent, rounds) / gigabytes


if __name__ == "__main__":
    sys.exit(main())
