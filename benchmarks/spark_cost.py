"""``python -m benchmarks.spark_cost``: what a corpus costs in CPU time on Spark, beside one process without Spark.

Python's workers and Spark's JVM are counted apart: the workers' share grows with the corpus, and most of the JVM's does
not. docs/spark.md shows the figures. Imports ``kfuzz.corpora`` and ``kfuzz.spark``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.commands import exit_code
from kfuzz.corpora.generation import generate
from kfuzz.corpora.manifest import Manifest, Row
from kfuzz.corpora.workload import MIB, Workload, load
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import require_writable
from kfuzz.units import parse_size, show_size

DEMO: Final = Path(__file__).resolve().parents[1] / "spark_jobs/workloads/demo.toml"
# The first lap also pays for memory that the system hands out for the first time.
LAPS: Final = 3
CORES: Final = 2
# The system counts CPU time in hundredths of a second.
LEAST_S: Final = 0.1


class Spent(NamedTuple):
    """CPU-seconds by who spent them."""

    here: float
    workers: float
    jvm: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return exit code 0, or 2 for a wrong request."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_cost",
        description="Generate one corpus in this process and on Spark with two cores; print the CPU time of both.",
        epilog="example: python -m benchmarks.spark_cost --size 2GiB --in /dev/shm",
    )
    parser.add_argument("--size", default="1GiB", help="uncompressed size of the corpus (default: 1GiB)")
    parser.add_argument("--workload", type=Path, default=DEMO, help="workload in TOML (default: demo.toml)")
    parser.add_argument(
        "--in", dest="place", type=Path, default=Path(tempfile.gettempdir()), help="directory for the corpus"
    )
    options = parser.parse_args(arguments)
    return exit_code(parser.prog, lambda: _measure(options.workload, options.size, options.place))


def _measure(file: Path, wanted: str, place: Path) -> None:
    size = parse_size(wanted)
    if not size:
        raise UsageError(f'--size is {wanted!r}; give a size such as "2GiB"')
    require_writable(place, directory=True)
    workload = load(file).resized(size)

    from kfuzz.spark.generation import generate as on_spark
    from kfuzz.spark.sessions import session_of_ours

    small = replace(workload, size=CORES * MIB, segment_bytes=MIB)
    tasks = max(CORES, -(-workload.size >> 30))
    # A folder of its own, removed at the end: nobody wants gigabytes to stay.
    out = Path(tempfile.mkdtemp(prefix="kfuzz-cost-", dir=place))

    def lap(run: Callable[[], Manifest]) -> tuple[Spent, list[Row]]:
        before = _spent()
        # The manifest is read when it is asked, and is removed here.
        rows = list(run())
        after = _spent()
        shutil.rmtree(out)
        return Spent(*(b - a for a, b in zip(before, after, strict=True))), rows

    try:
        with session_of_ours(f"local[{CORES}]", "cost") as spark:
            session = _spent()
            start, _ = lap(lambda: on_spark(spark, small, out, tasks=CORES))
            plain, spread = [], []
            rows: list[Row] = []
            # In turns, so that a busy machine disturbs both.
            for _ in range(LAPS):
                one, rows = lap(lambda: generate(workload, out))
                plain.append(one.here)
                other, same = lap(lambda: on_spark(spark, workload, out, tasks=tasks))
                spread.append(other)
                if [row.fingerprint for row in rows] != [row.fingerprint for row in same]:
                    raise KfuzzError("Spark made another corpus than this process")
    finally:
        shutil.rmtree(out, ignore_errors=True)
    if min(plain) < LEAST_S:
        raise UsageError(
            f"{show_size(workload.size)} takes one process {min(plain):.2f} CPU-seconds; give a larger --size"
        )
    _show(workload, rows, min(plain), min(spread, key=lambda one: one.workers), start, session.jvm)


def _show(workload: Workload, rows: list[Row], plain: float, spread: Spent, start: Spent, session_jvm: float) -> None:
    gigabytes = sum(row.bytes for row in rows) / 1e9
    size = show_size(workload.size)
    print(f"{size} in {len(rows)} segments, {gigabytes:.2f} GB on {CORES} cores, best of {LAPS} laps")
    print("CPU-seconds                    in all    per GB")
    for name, seconds in (
        ("one process", plain),
        ("Python workers, running", spread.workers),
        ("driver's Python", spread.here),
        ("JVM, running", spread.jvm),
    ):
        print(f"{name:28} {seconds:8.2f}  {seconds / gigabytes:8.2f}")
    for name, seconds in (
        ("Python workers, start", start.workers),
        ("JVM, start and first job", session_jvm + start.jvm),
    ):
        print(f"{name:28} {seconds:8.2f}  once")
    print(f"the workers' part of a terabyte: {spread.workers / gigabytes * 1000 / 3600:.2f} core-hours")
    print(f"workers with their start, of {size}: {(spread.workers + start.workers) / plain:.2f} times one process")


def _spent() -> Spent:
    """The CPU time of this process and Spark's until now, with processes that have ended."""
    us = psutil.Process()
    mine = us.cpu_times()
    workers = jvm = 0.0
    for child in us.children(recursive=True):
        times = child.cpu_times()
        if "java" in child.name():
            jvm += times.user + times.system
        else:
            workers += times.user + times.system + times.children_user + times.children_system
    return Spent(mine.user + mine.system, workers, jvm)


if __name__ == "__main__":
    sys.exit(main())
