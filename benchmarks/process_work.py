"""``kfuzz show`` and ``kfuzz cat``, and Kafka's DumpLogSegments and kcat, on the same segment.

Each lap is a process, as a user starts it, with its output to /dev/null: the CPU time of the process, with all of its
threads and its start. Java runs with its own defaults. kcat reads no files: a real broker on this machine serves the
segment, and its time does not count.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final, Literal, NamedTuple

from benchmarks.contestant import Job
from benchmarks.corpus_work import made
from benchmarks.measure import Lap
from benchmarks.peers import PeerMissing
from kfuzz.conformance.broker.real import Broker, BrokerFailed, kafka_tool
from kfuzz.corpora.workload import MIB, Batches, Topic, Workload
from kfuzz.errors import UsageError

DUMP: Final = "org.apache.kafka.tools.DumpLogSegments"
PERF: Final = "org.apache.kafka.tools.ProducerPerformance"
PERF_OPTIONS: Final = ("--record-size", "100")
# Records in a second.
LOAD_RATE, LOAD_PARTITIONS = 50_000, 4
# The batches have the size of the other producers'.
LOAD_BATCH_RECORDS: Final = 145
LOADED: Final = f"""
[[topics]]
name = "{{topic}}"
partitions = {LOAD_PARTITIONS}
keys.null_share = 1.0
values.size = 100
batches.records = {LOAD_BATCH_RECORDS}
"""
SEGMENT_BYTES_MOST: Final = 1 << 30
# Of the broker: room for an entry each 4096 bytes of the largest segment, and more.
INDEX_BYTES: Final = 10 * MIB
TIMEOUT_S: Final = 3600


class Mode(NamedTuple):
    """The work of kfuzz and of another tool, with their options, and how their output is counted."""

    ours: tuple[str, ...]
    tool: Literal["DumpLogSegments", "kcat"]
    theirs: tuple[str, ...]
    counted: Literal["batches", "records"]


MODES: Final = {
    # Both read every record: kfuzz judges it, and DumpLogSegments prints a line about it, without key and value.
    "show": Mode(("show", "--list", "--no-pager"), "DumpLogSegments", ("--deep-iteration",), "batches"),
    # The same, with keys and values.
    "cat": Mode(("cat",), "DumpLogSegments", ("--print-data-log",), "records"),
    # DumpLogSegments reads only headers and CRCs; kfuzz does the same as in `show`.
    "headers": Mode(("show", "--list", "--no-pager"), "DumpLogSegments", (), "batches"),
    # Keys and values as JSON. kcat checks no CRC by default; kfuzz does.
    "kcat": Mode(("cat",), "kcat", ("-J", "-q"), "records"),
}
# The beginning of a line that counts; without an entry every line does.
BEGINNINGS: Final = {
    ("kfuzz", "batches"): rb"(?=[ \d]{8}) *\d",
    ("DumpLogSegments", "batches"): b"baseOffset:",
    ("DumpLogSegments", "records"): rb"\| offset:",
}
# The logs: batches as a producer makes them by default, without a codec and with all of them.
LOGS: Final = {
    "plain": Batches(),
    "mixed": Batches(codecs=(("none", 2), ("gzip", 1), ("snappy", 1), ("lz4", 2), ("zstd", 2))),
}


class Printed(NamedTuple):
    """How many batches or records a process printed."""

    printed: int


class Command:
    """Work that is a process for each lap. ``beginning`` is a pattern for the lines that count."""

    def __init__(self, argv: Sequence[str], beginning: bytes = b"") -> None:
        self.argv = argv
        self.beginning = beginning
        self.printed = 0

    def census(self) -> Printed:
        with subprocess.Popen(self.argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            assert run.stdout
            assert run.stderr
            self.printed = sum(re.match(self.beginning, line) is not None for line in run.stdout)
            errors = run.stderr.read()
        self._require(run.returncode, errors)
        return Printed(self.printed)

    def warm_up(self) -> None:
        """The census has read the segment."""

    def lap(self, lap_ms: int) -> Lap:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(self.argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=TIMEOUT_S)
        self._require(done.returncode, done.stderr)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Lap(round(seconds * 1e9), self.printed)

    def close(self) -> None:
        """No process is left."""

    def _require(self, code: int, errors: bytes) -> None:
        if code:
            last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no error was printed"]
            raise UsageError(f"{os.path.basename(self.argv[0])} ended with exit code {code}: {last[0]}")


def make_segment(folder: Path, log: str, size: int, mode: str) -> tuple[Path, Printed]:
    """A segment of ``size`` bytes before compression, and what must be printed of it."""
    if size > SEGMENT_BYTES_MOST:
        raise UsageError(f"a segment has at most {SEGMENT_BYTES_MOST >> 30} GiB; give a smaller --size")
    topic = Topic("dumped", batches=LOGS[log])
    held = made(folder / "corpus", Workload(topics=(topic,), size=size, segment_bytes=size, seed=1))
    (segment,) = folder.rglob("*.log")
    return segment, Printed(getattr(held, MODES[mode].counted))


def dump(mode: str, segment: Path) -> Command:
    """kfuzz prints the segment."""
    argv = [sys.executable, "-m", "kfuzz", *MODES[mode].ours, str(segment)]
    return Command(argv, BEGINNINGS.get(("kfuzz", MODES[mode].counted), b""))


def other_tool(mode: str, segment: Path, stack: ExitStack) -> Job:
    """The other tool's work, to run. kcat's broker runs until ``stack`` ends. ``PeerMissing`` without the tool."""
    _, tool, options, counted = MODES[mode]
    if tool == "kcat":
        argv = _kcat(options, segment, stack)
    else:
        try:
            argv = kafka_tool(DUMP, *options, "--files", str(segment), java_options=("-Xmx1g",))
        except UsageError as error:
            raise PeerMissing(str(error)) from None
    return partial(Command, argv, BEGINNINGS.get((tool, counted), b""))


def _kcat(options: Sequence[str], segment: Path, stack: ExitStack) -> list[str]:
    if shutil.which("kcat") is None:
        raise PeerMissing("kcat is not installed; install Debian's package kcat")
    try:
        broker = stack.enter_context(Broker({"log.index.size.max.bytes": str(INDEX_BYTES)}))
    except (BrokerFailed, UsageError) as error:
        raise PeerMissing(f"no broker serves the segment to kcat: {error}") from None
    topic = broker.create_topic(1)
    broker.replace_log(topic, segment.parent.iterdir())
    return ["kcat", "-C", "-b", f"127.0.0.1:{broker.port}", "-t", topic, "-p", "0", "-o", "beginning", "-e", *options]


def loads(folder: Path, records: int, stack: ExitStack) -> dict[str, Job]:
    """``kfuzz load``, Kafka's perf test and a loop of confluent-kafka: the same records at the same rate."""
    try:
        broker = stack.enter_context(Broker())
        perf = kafka_tool(PERF, *PERF_OPTIONS, "--num-records", str(records), "--throughput", str(LOAD_RATE))
    except (BrokerFailed, UsageError) as error:
        raise PeerMissing(f"no broker takes a load: {error}") from None
    place, topic = f"127.0.0.1:{broker.port}", broker.create_topic(LOAD_PARTITIONS)
    perf += ["--topic", topic, "--producer-props", f"bootstrap.servers={place}"]
    workload = folder / "load.toml"
    workload.write_text(LOADED.format(topic=topic))
    bounds = ["--records", str(records), "--rate", str(LOAD_RATE)]
    ours = [sys.executable, "-m", "kfuzz", "load", str(workload), "--bootstrap", place, *bounds]
    loop = [sys.executable, "-m", "benchmarks.produce", place, topic, str(records), str(LOAD_RATE)]
    return {
        "kfuzz": partial(Command, ours, topic.encode() + b": .* batch"),
        "perf-test": partial(Command, perf, b".* 99.9th"),
        "confluent": partial(Command, loop, b"%d records sent" % records),
    }
