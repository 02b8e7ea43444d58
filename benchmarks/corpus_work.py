"""kfuzz's work on corpora, and what it is compared with: making logs, writing, verifying and replaying them, and their
records as Arrow batches.

Imports ``measure``, ``mixed``, ``kfuzz_work``, ``kfuzz.records``, ``kfuzz.logs`` and ``kfuzz.corpora``; a peer's
library, Spark's data source and ``kfuzz.replay`` only in the work that needs them.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pyarrow as pa

from benchmarks.kfuzz_work import census_of
from benchmarks.measure import InProcess, Lap, NotTheSameWork
from benchmarks.mixed import Content, MixedSet
from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import log_chunks, synthesiser
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import (
    BATCH_BYTES_MAX,
    MIB,
    Batches,
    Legacy,
    Range,
    Topic,
    Transactions,
    Values,
    Workload,
    load,
    render,
)
from kfuzz.logs import checking
from kfuzz.logs.comparing import compare
from kfuzz.records import Codec
from kfuzz.storage import LocalTarget, as_they_end

ROOT: Final = Path(__file__).resolve().parents[1]
MIXED: Final = ROOT / "spark_jobs/workloads/mixed.toml"
# As verification allows.
LIMITS: Final = records.Limits(decompressed_bytes=2 * BATCH_BYTES_MAX)
SEGMENT_BYTES: Final = 64 * MIB
ZEROS: Final = bytes(MIB)
# The topic of uniform corpora: uncompressed batches of 100 records with values of 100 bytes.
TOPIC: Final = "uniform"


class LogCensus(NamedTuple):
    """The contents of logs."""

    records: int
    batches: int
    bytes: int


def uniform(size: int) -> Workload:
    """A workload of ``size`` bytes of :data:`TOPIC`."""
    return replace(Workload(topics=(Topic(TOPIC),)), size=size, segment_bytes=SEGMENT_BYTES)


def made(out: Path, workload: Workload) -> LogCensus:
    """Generate the corpus; what it holds."""
    rows = list(generate(workload, out))
    return LogCensus(*(sum(getattr(row, name) for row in rows) for name in LogCensus._fields))


# --- verification ---------------------------------------------------------------------------------------------------


def verify_corpus(out: Path, expected: LogCensus) -> InProcess:
    """A ``verify`` of the corpus in ``out``. It finds no problem only if it met exactly what the manifest says."""

    def run() -> int:
        if problems := verify(out, jobs=1):
            raise NotTheSameWork(f"verification of the corpus found a problem: {problems[0]}")
        return expected.records

    return InProcess(run, lambda: expected._replace(records=run()))


def check_corpus(out: Path) -> InProcess:
    """A strict ``records.check`` of each log, mapped as verification maps it."""
    logs = sorted(out.rglob("*.log"))

    def census() -> LogCensus:
        record_count = batch_count = size = 0
        for log in logs:
            with open(log, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
                verdict = records.check(mapped, profile="strict", limits=LIMITS)
                if verdict.findings:
                    raise NotTheSameWork(f"{log.name}: {verdict.findings[0]}")
                record_count += verdict.record_count
                batch_count += verdict.batch_count
                size += len(mapped)
        return LogCensus(record_count, batch_count, size)

    return InProcess(lambda: census().records, census)


def diff_corpora(folder: Path, expected: LogCensus) -> InProcess:
    """``kfuzz diff`` of the equal logs ``a`` and ``b`` in ``folder``; ``expected`` is what both have together."""

    def run() -> int:
        found = list(compare(folder / "a", folder / "b"))
        if {one.verdict for one in found} != {"equal"} or 2 * sum(one.batches for one in found) != expected.batches:
            raise NotTheSameWork(f"the copy differs: {[one.to_json() for one in found]}")
        return expected.records

    return InProcess(run, lambda: expected._replace(records=run()))


# --- a log directory as a whole -------------------------------------------------------------------------------------


def checked(size: int, batch_records: int, transactional: bool) -> Workload:
    """A workload of one segment of ``size`` bytes."""
    transactions = Transactions(share=float(transactional), records=5 * batch_records)
    topic = Topic(TOPIC, batches=Batches(records=Range(batch_records, batch_records)), transactions=transactions)
    return Workload(topics=(topic,), size=size, segment_bytes=size)


def check_directory(out: Path) -> InProcess:
    """Judge the corpus in ``out`` as ``kfuzz check DIR`` does."""

    def census() -> LogCensus:
        counts, size = checking.Counts(), 0
        for one in checking.check_directory(out, counts, role="log"):
            if one.findings:
                raise NotTheSameWork(f"{one.path}: {one.findings[0]}")
            size += one.size if one.title == checking.SEGMENT_TITLE else 0
        return LogCensus(counts.records, counts.batches, size)

    return InProcess(lambda: census().records, census)


# --- the generator in memory ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GeneratedSet(MixedSet):
    """The records of one segment of ``megabytes`` MiB before compression: keys of 10 bytes, values of 100."""

    batches: int = 0
    each: int = 100
    codec: Codec = "none"
    kind: Literal["random", "text"] = "random"
    megabytes: int = 64

    @property
    def workload(self) -> Workload:
        """The generator's output: ``each`` records to a batch, all in one format."""
        codecs = ((self.codec, 1),)
        topic = Topic(
            "generated",
            values=Values(size=Range(100, 100), kind=self.kind),
            batches=Batches(records=Range(self.each, self.each), codecs=codecs),
            legacy=Legacy(magic1=float(self.magic == 1), codecs=codecs),
        )
        return Workload(topics=(topic,), size=self.megabytes * MIB, segment_bytes=self.megabytes * MIB)

    @cached_property
    def log(self) -> bytes:
        """The segment's log."""
        workload = self.workload
        return b"".join(bytes(chunk) for segment in Plan(workload) for chunk in log_chunks(segment, workload))

    @cached_property
    def contents(self) -> list[list[Content]]:
        rows = [
            [Content(one.timestamp or 0, one.key, one.value, []) for one in batch.records]
            for batch in records.decode(self.log)
        ]
        if self.magic == 2:
            return rows
        # Each message is a batch of its own here; a builder gets as many as a batch of magic 2 has.
        flat = [content for batch in rows for content in batch]
        return [flat[at : at + self.each] for at in range(0, len(flat), self.each)]


def generate_log(wanted: GeneratedSet) -> InProcess:
    """Make the segment's log, indexes and sums in memory. Nothing is written."""
    workload = wanted.workload
    plan = Plan(workload)

    def run() -> int:
        count = 0
        for segment in plan:
            making = synthesiser(segment, workload.index_interval_bytes)
            while making.fill():
                pass
            count += making.records
        return count

    return InProcess(run, lambda: census_of([wanted.log]))


# --- writing, by the clock ------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """The bytes of the logs that were written."""

    bytes: int


class _OnClock(InProcess):
    """``write`` fills the folder ``out``, which is emptied before. A lap is one pass, by the clock."""

    def __init__(self, out: Path, write: Callable[[], int]) -> None:
        super().__init__(write, lambda: Written(write()))
        self._out = out

    def warm_up(self) -> None:
        """The census has written once."""

    def lap(self, lap_ms: int) -> Lap:
        shutil.rmtree(self._out)
        self._out.mkdir()
        os.sync()
        start = time.perf_counter_ns()
        written = self.run()
        return Lap(time.perf_counter_ns() - start, written)


def log_sizes(out: Path, size: int) -> list[int]:
    """The sizes of the logs of a corpus of ``size`` bytes, which is written to ``out``."""
    return [row.bytes for row in generate(uniform(size), out / "corpus")]


def generate_corpus(out: Path, size: int) -> InProcess:
    """Write a corpus with all processors."""
    return _OnClock(out, lambda: made(out / "corpus", uniform(size)).bytes)


def write_zeros(out: Path, sizes: Sequence[int], threads: int | None) -> InProcess:
    """Write files of zeros with these sizes, each with fsync; with None as many at a time as the generator."""

    def write(at: int) -> None:
        with open(out / str(at), "wb", buffering=0) as file:
            for start in range(0, sizes[at], len(ZEROS)):
                file.write(ZEROS[: sizes[at] - start])
            os.fsync(file.fileno())

    def write_all() -> int:
        for _ in as_they_end(write, range(len(sizes)), threads or LocalTarget(out).default_jobs()):
            pass
        return sum(sizes)

    return _OnClock(out, write_all)


# --- Arrow batches --------------------------------------------------------------------------------------------------

# A worker of Spark reads, copies keys and values, and writes an Arrow stream, here to nowhere and without a session.
# The JVM's work is not measured.
CORPUS: Final = "corpus"
WORKLOAD: Final = "workload.toml"


class Rows(NamedTuple):
    """How many rows the batches have."""

    rows: int


def make_rows(place: Path, size: int, rows: str) -> tuple[int, Rows]:
    """Write a uniform corpus and its workload; the bytes of its logs, and its records or batches."""
    workload = uniform(size)
    held = made(place / CORPUS, workload)
    (place / WORKLOAD).write_text(render(workload))
    return held.bytes, Rows(getattr(held, rows))


def read_rows(place: Path, source: str, rows: Any, columns: list[str] | None) -> InProcess:
    """Read the log of ``source``, or make its rows in memory."""
    from kfuzz import logs
    from kfuzz.corpora import generated

    if source == "log":
        return _counted(lambda: logs.read(place / CORPUS, columns=columns))
    workload = load(place / WORKLOAD)
    return _counted(lambda: generated.read(workload, rows=rows, columns=columns))


def read_rows_as_worker(place: Path, source: str, rows: str, columns: list[str] | None) -> InProcess:
    """The same through the data source of Spark, into an Arrow stream."""
    from pyspark.sql.datasource import CaseInsensitiveDict

    from kfuzz.spark.source import GeneratedSource, KafkaLogSource

    chosen = {} if columns is None else {"columns": ",".join(columns)}
    reading: Any
    if source == "log":
        reading = KafkaLogSource(CaseInsensitiveDict({"path": str(place / CORPUS)} | chosen))
    else:
        reading = GeneratedSource(CaseInsensitiveDict({"workload": str(place / WORKLOAD), "rows": rows} | chosen))

    def sent() -> Iterator[pa.RecordBatch]:
        reader = reading.reader(schema=reading.schema())
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


# --- replays, to a broker that only acknowledges --------------------------------------------------------------------

# Large enough for a batch of the log.
PRODUCED_BYTES_MAX: Final = 1 << 20


class ReplayCensus(NamedTuple):
    """The counts that the broker acknowledged."""

    records: int
    batches: int


class _Acknowledged(InProcess):
    """Work with a broker of its own, in another process."""

    def __init__(self, send: Callable[[int], ReplayCensus]) -> None:
        self.broker = subprocess.Popen(
            [sys.executable, ROOT / "benchmarks" / "acknowledger.py", TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.broker.stdout is not None
        port = int(self.broker.stdout.readline())
        super().__init__(lambda: send(port).records, lambda: send(port))

    def close(self) -> None:
        self.broker.communicate()


def replay_log(out: Path) -> InProcess:
    """A replay of the log as it is, as ``kfuzz corpus replay --pipeline`` does it."""
    from kfuzz.replay import Address, Settings, find_parts, replay

    def send(port: int) -> ReplayCensus:
        report = replay(find_parts(out), Settings(Address("127.0.0.1", port), pipelined=True))
        if not report.is_clean:
            raise NotTheSameWork(f"the replay did not send everything: {report.to_json()}")
        return ReplayCensus(report.sent.records, report.sent.batches)

    return _Acknowledged(send)


def aiokafka_producer(out: Path) -> InProcess:
    """The cheapest loop of aiokafka's producer: its compiled builder for each batch, and ``send_batch``.

    The values are ready before, and the batches have the log's records. Five of them may be on their way.
    """
    from aiokafka import AIOKafkaProducer

    ready = [
        [(one.timestamp, one.key, one.value) for one in batch.records]
        for log in sorted(out.rglob("*.log"))
        for batch in records.decode(log.read_bytes())
    ]

    async def produced(port: int) -> ReplayCensus:
        producer = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port}",
            acks="all",
            max_batch_size=PRODUCED_BYTES_MAX,
            enable_idempotence=False,
        )
        await producer.start()
        counted = 0
        try:
            answers = []
            for rows in ready:
                builder = producer.create_batch()
                for timestamp, key, value in rows:
                    builder.append(timestamp=timestamp, key=key, value=value)
                builder.close()
                answers.append(await producer.send_batch(builder, TOPIC, partition=0))
                counted += builder.record_count()
            await asyncio.gather(*answers)
        finally:
            await producer.stop()
        return ReplayCensus(counted, len(answers))

    return _Acknowledged(lambda port: asyncio.run(produced(port)))
