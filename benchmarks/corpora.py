"""``python -m benchmarks.corpora``: how fast corpora are made, beside a builder, the bare codecs and the disk.

CPU time as in ``python -m benchmarks``, and for the disk the time on the clock. Imports ``generation_work`` and
its neighbours.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks import kfuzz_work
from benchmarks.commands import console, exit_code
from benchmarks.generation_work import GeneratedSet, generate_log
from benchmarks.measure import LAP_MS, Contest
from benchmarks.peers import AioKafka, PeerMissing
from benchmarks.remote import Job, compare, made
from kfuzz.corpora.generation import generate
from kfuzz.corpora.targets import LocalTarget, as_they_end
from kfuzz.corpora.workload import MIB, Topic, Workload, parse_size
from kfuzz.errors import UsageError
from kfuzz.files import require_writable

__all__ = ["main"]


class Compared(NamedTuple):
    """kfuzz makes ``made``, and ``against`` names what it is compared with.

    A goal is the least ratio, or the least rate in MB of log before compression for each CPU-second.
    """

    made: GeneratedSet
    against: str
    ratio: float | None = None
    rate: float | None = None


BUILDER, CODEC, DISK = "aiokafka", "bare-codec", "disk"
PATHS: Final = {
    "uncompressed": Compared(GeneratedSet(), BUILDER, 8.0),
    "batches-of-1": Compared(GeneratedSet(each=1), BUILDER, rate=1000),
    "magic-1": Compared(GeneratedSet(magic=1), BUILDER, rate=1000),
    "text-gzip": Compared(GeneratedSet(codec="gzip", kind="text"), CODEC),
    "text-snappy": Compared(GeneratedSet(codec="snappy", kind="text"), CODEC),
    "text-lz4": Compared(GeneratedSet(codec="lz4", kind="text"), CODEC, 0.85),
    "text-zstd": Compared(GeneratedSet(codec="zstd", kind="text"), CODEC, 0.85),
    "random-lz4": Compared(GeneratedSet(codec="lz4"), CODEC, 0.85),
    "random-zstd": Compared(GeneratedSet(codec="zstd"), CODEC, 0.85),
}
DISK_GOAL: Final = 0.9
ROUNDS: Final = 9
DISK_ROUNDS: Final = 5
SEGMENT_BYTES: Final = 64 * MIB
ZEROS: Final = bytes(MIB)


class Result(NamedTuple):
    """A line of the table: ratios above 1 mean that kfuzz is faster. ``rate`` is in MB of log a second."""

    path: str
    against: str
    median: float
    least: float
    most: float
    rate: float
    goal: str


def _parser() -> argparse.ArgumentParser:
    known = [*PATHS, DISK]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.corpora",
        description="Compare the generator of corpora with a builder, the bare codecs and the disk.",
        epilog="example: python -m benchmarks.corpora --path uncompressed disk --in /data",
    )
    parser.add_argument("--path", nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known))
    parser.add_argument(
        "--in", dest="place", type=Path, default=Path(tempfile.gettempdir()), help="directory on the disk to measure"
    )
    parser.add_argument("--size", default="1GiB", help="bytes that the disk gets at a time (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="little data and one round: tests that it works")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and return exit code 0, or 2 for a wrong request."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return exit_code(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    size = parse_size(options.size)
    if not size:
        raise UsageError(f'--size is {options.size!r}; give a size such as "1GiB"')
    require_writable(options.place, directory=True)
    options.place.mkdir(parents=True, exist_ok=True)
    out = console()
    out.print(_table(list(_results(options, size, out))))


def _results(options: argparse.Namespace, size: int, console: Console) -> Iterator[Result]:
    for name in dict.fromkeys(options.path):
        if sys.stderr.isatty():
            print(f"{name} …", file=sys.stderr)
        if name == DISK:
            yield from _on_disk(
                options.place, SEGMENT_BYTES // 16 if options.quick else size, 1 if options.quick else DISK_ROUNDS
            )
            continue
        try:
            yield _in_memory(name, options.quick)
        except PeerMissing as error:
            console.print(f"{name} is not compared: {error}", soft_wrap=True)


def _in_memory(name: str, quick: bool) -> Result:
    path = PATHS[name]
    generated = replace(path.made, megabytes=1) if quick else path.made
    plain = generated.uncompressed
    jobs = {"kfuzz": Job(partial(generate_log, generated))}
    if path.against == BUILDER:
        AioKafka()
        jobs[path.against] = Job(partial(made, AioKafka, "encode", generated))
    else:
        jobs[path.against] = Job(partial(kfuzz_work.bare_compress, plain, generated.codec))
    contest = Contest("kfuzz", path.against, (path.against,))
    rounds, lap_ms = (1, 1) if quick else (ROUNDS, LAP_MS)
    [ratio] = compare(name, jobs, [contest], plain.census, rounds, lap_ms)
    rate = len(plain.log) / plain.census.records / ratio.kfuzz_ns * 1000
    goal = ""
    if path.ratio is not None:
        goal = _verdict(f"≥ {path.ratio:g}", ratio.median >= path.ratio)
    elif path.rate is not None:
        goal = _verdict(f"≥ {path.rate:g} MB/s", rate >= path.rate)
    return Result(name, path.against, ratio.median, ratio.least, ratio.most, rate, goal)


def _verdict(goal: str, met: bool) -> str:
    return f"{goal}, {'met' if met else 'missed'}"


def _on_disk(place: Path, size: int, rounds: int) -> Iterator[Result]:
    """A corpus written to ``place``, beside files of zeros with the same sizes, each with fsync; by the clock.

    The zeros are written by one thread, as ``dd`` does it, and by as many as the generator has.
    """
    workload = replace(Workload(topics=(Topic("uniform"),)), size=size, segment_bytes=SEGMENT_BYTES)
    out = Path(tempfile.mkdtemp(prefix="kfuzz-bench-", dir=place))
    jobs = {DISK: 1, f"{DISK}-parallel": LocalTarget(out).default_jobs()}
    laps = []
    try:
        # The first corpus says which sizes its files have.
        generate(workload, out / "corpus")
        sizes = [path.stat().st_size for path in (out / "corpus").rglob("*.log")]
        order = deque(["corpus", *jobs])
        for _ in range(rounds):
            taken = {}
            for kind in order:
                shutil.rmtree(out)
                out.mkdir()
                os.sync()
                start = time.perf_counter()
                if kind == "corpus":
                    generate(workload, out / "corpus")
                else:
                    _write_zeros(out, sizes, jobs[kind])
                taken[kind] = time.perf_counter() - start
            order.rotate(-1)
            laps.append(taken)
    finally:
        shutil.rmtree(out, ignore_errors=True)
    rate = statistics.median(sum(sizes) / lap["corpus"] / 1e6 for lap in laps)
    for kind in jobs:
        ratios = [lap[kind] / lap["corpus"] for lap in laps]
        median = statistics.median(ratios)
        goal = _verdict(f"≥ {DISK_GOAL:g}", median >= DISK_GOAL) if kind == DISK else ""
        yield Result(kind, "zeros", median, min(ratios), max(ratios), rate, goal)


def _write_zeros(out: Path, sizes: Sequence[int], jobs: int) -> None:
    def write(at: int) -> None:
        with open(out / str(at), "wb", buffering=0) as file:
            for start in range(0, sizes[at], len(ZEROS)):
                file.write(ZEROS[: sizes[at] - start])
            os.fsync(file.fileno())

    for _ in as_they_end(write, range(len(sizes)), jobs):
        pass


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="CPU time of the other divided by kfuzz's; of the disk: time on the clock")
    for name in ("path", "beside"):
        table.add_column(name, no_wrap=True)
    for name in ("ratio", "least", "most", "MB/s", "goal"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in results:
        ratios = (f"{ratio:.2f}" for ratio in (one.median, one.least, one.most))
        table.add_row(one.path, one.against, *ratios, f"{one.rate:.0f}", one.goal)
    return table


if __name__ == "__main__":
    sys.exit(main())
