"""A replay to a broker that only acknowledges, and a producer that sends the same batches.

Imports ``measure``, ``corpus_work``, ``kfuzz.replay`` and ``kfuzz.corpora``; a peer's library only when that peer is
requested.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.measure import InProcess, NotTheSameWork
from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import Topic, Workload
from kfuzz.replay import Address, Settings, find_parts, replay

__all__ = ["PEER", "ReplayCensus", "aiokafka_producer", "make_log", "replay_log"]

ROOT: Final = Path(__file__).resolve().parents[1]
TOPIC: Final = "uniform"
# The peer whose producer is the other contestant.
PEER: Final = "aiokafka"
LOG_BYTES: Final = 64 * 1024 * 1024
LOG_BYTES_MIN: Final = 4 * 1024 * 1024
# Large enough for a batch of the set.
BATCH_BYTES_MAX: Final = 1 << 20


class ReplayCensus(NamedTuple):
    """The counts that the broker acknowledged."""

    records: int
    batches: int


class _Acknowledged(InProcess):
    """Work with a broker of its own, in another process."""

    def __init__(self, send: Callable[[int], ReplayCensus]) -> None:
        self.broker = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.acknowledger", TOPIC],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self.broker.stdout is not None
        port = int(self.broker.stdout.readline())
        super().__init__(lambda: send(port).records, lambda: send(port))

    def close(self) -> None:
        self.broker.communicate()


def make_log(out: Path, share: float) -> ReplayCensus:
    """Generate a partition of uncompressed batches with values of 100 bytes; say what it holds."""
    workload = Workload(topics=(Topic(TOPIC),))
    rows = generate(replace(workload, size=max(round(LOG_BYTES * share), LOG_BYTES_MIN)), out)
    return ReplayCensus(sum(row.records for row in rows), sum(row.batches for row in rows))


def replay_log(out: Path) -> InProcess:
    """A replay of the log as it is, as ``kfuzz corpus replay --pipeline`` does it."""

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
    import aiokafka

    ready = [
        [(one.timestamp, one.key, one.value) for one in batch.records]
        for log in sorted(out.rglob("*.log"))
        for batch in records.decode(log.read_bytes())
    ]

    def send(port: int) -> ReplayCensus:
        return asyncio.run(_produced(aiokafka, port, ready))

    return _Acknowledged(send)


async def _produced(aiokafka: Any, port: int, ready: list[list[tuple[Any, ...]]]) -> ReplayCensus:
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=f"127.0.0.1:{port}", acks="all", max_batch_size=BATCH_BYTES_MAX, enable_idempotence=False
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
