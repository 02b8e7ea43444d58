"""``python -m benchmarks.dumping``: kfuzz show and cat beside Kafka's DumpLogSegments and kcat, on the same segment.

Each run is a process of its own, as a user starts it, with its output to /dev/null. CPU time of the process, all of its
threads and its start included. Java runs with its own defaults. kcat reads no files: a real broker on this machine
serves the segment, and its time does not count. Imports ``measure`` alone.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, NamedTuple

from rich.table import Table

from benchmarks.commands import console, exit_code
from benchmarks.measure import NotTheSameWork
from kfuzz.conformance.broker.real import Broker, BrokerFailed, kafka_tool
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import MIB, Batches, Topic, Workload, parse_size
from kfuzz.errors import UsageError
from kfuzz.files import require_writable

__all__ = ["main"]

DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
HEAP: Final = "-Xmx1g"
ROUNDS: Final = 3
QUICK_BYTES: Final = 4 * MIB
SEGMENT_BYTES_MOST: Final = 1 << 30
# Of the broker: room for an entry each 4096 bytes of the largest segment, and more.
INDEX_BYTES: Final = 10 * MIB
TIMEOUT_S: Final = 3600


class Compared(NamedTuple):
    """What kfuzz and another tool do, with their options, and what is counted in their output."""

    ours: tuple[str, ...]
    tool: Literal["DumpLogSegments", "kcat"]
    theirs: tuple[str, ...]
    counted: Literal["batches", "records"]
    goal: float | None


class Result(NamedTuple):
    """CPU seconds of kfuzz and of the other tool, and the ratios of the rounds."""

    path: str
    log: str
    ours_s: float
    theirs_s: float
    ratios: list[float]
    goal: float | None


PATHS: Final = {
    # Both read every record: kfuzz judges it, and DumpLogSegments prints a line about it, without key and value.
    "show": Compared(("show", "--list", "--no-pager"), "DumpLogSegments", ("--deep-iteration",), "batches", 10.0),
    # Keys and values too.
    "cat": Compared(("cat",), "DumpLogSegments", ("--print-data-log",), "records", 5.0),
    # DumpLogSegments reads only headers and CRCs; kfuzz does the same as in `show`.
    "headers": Compared(("show", "--list", "--no-pager"), "DumpLogSegments", (), "batches", None),
    # Keys and values as JSON. kcat checks no CRC by default; kfuzz does.
    "kcat": Compared(("cat",), "kcat", ("-J", "-q"), "records", None),
}
# The logs: batches as a producer makes them by default, without a codec and with all of them.
LOGS: Final = {
    "plain": Batches(),
    "mixed": Batches(codecs=(("none", 2), ("gzip", 1), ("snappy", 1), ("lz4", 2), ("zstd", 2))),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dumping",
        description="Compare kfuzz show and kfuzz cat with Kafka's DumpLogSegments and kcat on the same segment.",
        epilog="example: python -m benchmarks.dumping --path show --size 256MiB",
    )
    parser.add_argument(
        "--path", nargs="+", choices=PATHS, default=[*PATHS], metavar="NAME", help=f"{', '.join(PATHS)}; all by default"
    )
    parser.add_argument(
        "--log", nargs="+", choices=LOGS, default=[*LOGS], metavar="NAME", help=f"{', '.join(LOGS)}; both by default"
    )
    parser.add_argument(
        "--in",
        dest="place",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="directory for the segment (%(default)s)",
    )
    parser.add_argument("--size", default="1GiB", help="bytes of the segment before compression (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each path (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="little data and one round: tests that it works")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print a table, and return exit code 0, or 2 for a wrong request or if both did not do the same."""
    parser = _parser()
    options = parser.parse_args(arguments)
    return exit_code(parser.prog, lambda: _run(options))


def _run(options: argparse.Namespace) -> None:
    size = parse_size(options.size)
    if not size or size > SEGMENT_BYTES_MOST:
        raise UsageError(f'--size is {options.size!r}; give a size up to that of a segment, "1GiB"')
    if options.rounds < 1:
        raise UsageError(f"--rounds is {options.rounds}; give at least 1")
    require_writable(options.place, directory=True)
    if not options.place.is_dir():
        raise UsageError(f"{options.place} does not exist; make the directory, or name another one with --in")
    try:
        kafka_tool(DUMP)
    except UsageError as error:
        console().print(f"DumpLogSegments is not compared: {error}", soft_wrap=True)
        return
    paths = list(dict.fromkeys(options.path))
    if "kcat" in paths and shutil.which("kcat") is None:
        console().print("kcat is not compared: it is not installed; install Debian's package kcat", soft_wrap=True)
        paths.remove("kcat")
    console().print(_table(list(_results(options, QUICK_BYTES if options.quick else size, paths))))


def _results(options: argparse.Namespace, size: int, paths: Sequence[str]) -> Iterator[Result]:
    for log in dict.fromkeys(options.log):
        with tempfile.TemporaryDirectory(prefix="kfuzz-bench-", dir=options.place) as folder:
            workload = Workload(topics=(Topic("dumped", batches=LOGS[log]),), size=size, segment_bytes=size, seed=1)
            generate(workload, Path(folder) / "corpus")
            (segment,) = Path(folder).rglob("*.log")
            for name in paths:
                with _command(PATHS[name], segment) as theirs:
                    yield _measured(name, log, segment, theirs, 1 if options.quick else options.rounds)


@contextmanager
def _command(path: Compared, segment: Path) -> Iterator[list[str]]:
    """The command line of the other tool; around kcat's, a broker runs that serves the segment."""
    if path.tool == "DumpLogSegments":
        yield kafka_tool(DUMP, *path.theirs, "--files", str(segment), java_options=(HEAP,))
        return
    try:
        with Broker({"log.index.size.max.bytes": str(INDEX_BYTES)}) as broker:
            topic = broker.create_topic(1)
            broker.replace_log(topic, segment.parent.iterdir())
            address = f"127.0.0.1:{broker.port}"
            yield ["kcat", "-C", "-b", address, "-t", topic, "-p", "0", "-o", "beginning", "-e", *path.theirs]
    except BrokerFailed as error:
        raise UsageError(f"no broker serves the segment to kcat: {error}") from None


def _measured(name: str, log: str, segment: Path, theirs: Sequence[str], rounds: int) -> Result:
    path = PATHS[name]
    ours = [sys.executable, "-m", "kfuzz", *path.ours, str(segment)]
    counts = [_count(argv, tool, path.counted) for argv, tool in ((ours, "kfuzz"), (theirs, path.tool))]
    if counts[0] != counts[1]:
        raise NotTheSameWork(f"{name}: kfuzz printed {counts[0]} {path.counted}, {path.tool} {counts[1]}")
    laps = []
    for round_ in range(rounds):
        if sys.stderr.isatty():
            print(f"{log}, {name}, round {round_ + 1} of {rounds} …", file=sys.stderr)
        # Who comes first changes, because the first one may find less of the file in memory.
        taken = {id(argv): _cpu_s(argv) for argv in ((ours, theirs) if round_ % 2 == 0 else (theirs, ours))}
        laps.append((taken[id(ours)], taken[id(theirs)]))
    ours_s, theirs_s = (statistics.median(lap[at] for lap in laps) for at in (0, 1))
    return Result(name, log, ours_s, theirs_s, [theirs / ours for ours, theirs in laps], path.goal)


def _cpu_s(argv: Sequence[str]) -> float:
    """The CPU seconds of a process with its output to /dev/null."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIMEOUT_S)
    _require(argv, done.returncode, done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _count(argv: Sequence[str], tool: str, what: str) -> int:
    """The batches or records that a process prints. This is not timed."""
    total = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stderr
        for line in run.stdout:
            if tool == "DumpLogSegments":
                total += line.startswith(b"baseOffset:" if what == "batches" else b"| offset:")
            else:
                # A line for each record; the list of batches has further lines.
                total += what == "records" or line[:8].strip().isdigit()
        told = run.stderr.read()
    _require(argv, run.returncode, told)
    return total


def _require(argv: Sequence[str], code: int, told: bytes) -> None:
    if code:
        last = told.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no error was printed"]
        raise UsageError(f"{os.path.basename(argv[0])} ended with exit code {code}: {last[0]}")


def _table(results: Sequence[Result]) -> Table:
    table = Table(title="CPU time of DumpLogSegments or kcat divided by kfuzz's")
    for name in ("path", "log"):
        table.add_column(name, no_wrap=True)
    for name in ("ratio", "least", "most", "kfuzz s", "theirs s", "goal"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in results:
        median = statistics.median(one.ratios)
        ratios = (f"{ratio:.1f}" for ratio in (median, min(one.ratios), max(one.ratios)))
        goal = "" if one.goal is None else f"≥ {one.goal:g}, {'met' if median >= one.goal else 'missed'}"
        table.add_row(one.path, one.log, *ratios, f"{one.ours_s:.2f}", f"{one.theirs_s:.2f}", goal)
    return table


if __name__ == "__main__":
    sys.exit(main())
