"""Real producers and consumers, as users drive them: retries, transactions, leaders and coordinators that move."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from serve.asking import SECONDS_MAX

from kfuzz.serve import Server, Settings, Topics
from kfuzz.serve.feeding import done
from kfuzz.serve.written import WrittenPartition

pytestmark = pytest.mark.full

# The clients send these records; a consumer in read_committed gets those with an offset.
SENT = [(b"one", True), (b"two", False), (b"three", True)]
COMMITTED = [(0, b"one"), (4, b"three")]


class Brokers:
    """Three brokers in a thread of their own."""

    def __init__(self) -> None:
        self.address = ""
        self._ready, self._end = threading.Event(), asyncio.Event()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        settings = Settings(brokers=3, fetch_sessions=True, api_versions_fallback=True)
        async with Server(Topics(), settings) as self.server:
            self.address = f"{self.server.host}:{self.server.port}"
            self._ready.set()
            await self._end.wait()

    def __enter__(self) -> Brokers:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(SECONDS_MAX)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(SECONDS_MAX)

    def ask(self, line: bytes) -> Any:
        """Do what a line says, inside the brokers' loop."""

        async def inside() -> Any:
            return done(self.server.broker.cluster, line)

        return asyncio.run_coroutine_threadsafe(inside(), self._loop).result(SECONDS_MAX)

    def move(self, number: int) -> None:
        """Between two transactions, move the leader and the coordinators."""
        for line in (b'{"move": "t", "to": %d}', b'{"coordinator": "x", "to": %d}', b'{"coordinator": "g", "to": %d}'):
            self.ask(line % (number % 3 + 1))


@pytest.fixture
def brokers() -> Iterator[Brokers]:
    with Brokers() as made:
        made.ask(b'{"topic": "t", "produce": true}')
        made.ask(b'{"topic": "i", "produce": true, "errors": ["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"]}')
        yield made


def aiokafka_writes(brokers: Brokers) -> list[int]:
    import aiokafka

    async def write() -> list[int]:
        place = {"bootstrap_servers": brokers.address}
        async with aiokafka.AIOKafkaProducer(**place, enable_idempotence=True) as producer:
            offsets = [(await producer.send_and_wait("i", b"v", partition=0)).offset for _ in range(3)]
        async with aiokafka.AIOKafkaProducer(**place, transactional_id="x") as producer:
            for number, (value, commits) in enumerate(SENT):
                brokers.move(number)
                await producer.begin_transaction()
                await producer.send_and_wait("t", value, partition=0)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        return offsets

    return asyncio.run(write())


def aiokafka_reads(brokers: Brokers) -> list[tuple[int, bytes]]:
    import aiokafka

    async def read() -> list[tuple[int, bytes]]:
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=brokers.address,
            group_id="g",
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        async with consumer:
            found = [await consumer.getone() for _ in COMMITTED]
        return [(one.offset, one.value) for one in found]

    return asyncio.run(read())


def kafka_python_writes(brokers: Brokers) -> list[int]:
    import kafka

    idempotent = kafka.KafkaProducer(bootstrap_servers=brokers.address, enable_idempotence=True)
    offsets = [idempotent.send("i", b"v", partition=0).get(SECONDS_MAX).offset for _ in range(3)]
    idempotent.close()
    producer = kafka.KafkaProducer(bootstrap_servers=brokers.address, transactional_id="x")
    producer.init_transactions()
    for number, (value, commits) in enumerate(SENT):
        brokers.move(number)
        producer.begin_transaction()
        producer.send("t", value, partition=0).get(SECONDS_MAX)
        (producer.commit_transaction if commits else producer.abort_transaction)()
    producer.close()
    return offsets


def kafka_python_reads(brokers: Brokers) -> list[tuple[int, bytes]]:
    import kafka

    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=brokers.address,
        group_id="g",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        consumer_timeout_ms=SECONDS_MAX * 1000,
    )
    found = [next(consumer) for _ in COMMITTED]
    consumer.close()
    return [(one.offset, one.value) for one in found]


def librdkafka_writes(brokers: Brokers) -> list[int]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    offsets: list[int] = []
    idempotent = confluent_kafka.Producer({"bootstrap.servers": brokers.address, "enable.idempotence": True})
    for _ in range(3):
        idempotent.produce("i", b"v", partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
        assert idempotent.flush(SECONDS_MAX) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.address, "transactional.id": "x"})
    producer.init_transactions(SECONDS_MAX)
    for number, (value, commits) in enumerate(SENT):
        brokers.move(number)
        producer.begin_transaction()
        producer.produce("t", value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(SECONDS_MAX)
    return offsets


def librdkafka_reads(brokers: Brokers, **more: Any) -> list[tuple[int, bytes]]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"bootstrap.servers": brokers.address, "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings | {"isolation.level": "read_committed"} | more)
    consumer.subscribe(["t"])
    found = [consumer.poll(SECONDS_MAX) for _ in COMMITTED]
    consumer.close()
    return [(one.offset(), one.value()) for one in found]


def librdkafka_reads_in_a_newer_group(brokers: Brokers) -> list[tuple[int, bytes]]:
    return librdkafka_reads(brokers, **{"group.protocol": "consumer"})


@pytest.mark.parametrize(
    ("writes", "reads"),
    [
        (aiokafka_writes, aiokafka_reads),
        (kafka_python_writes, kafka_python_reads),
        (librdkafka_writes, librdkafka_reads),
        (librdkafka_writes, librdkafka_reads_in_a_newer_group),
    ],
)
def test_a_client_writes_and_reads_while_leaders_and_coordinators_move(
    brokers: Brokers, writes: Callable[[Brokers], list[int]], reads: Callable[[Brokers], list[tuple[int, bytes]]]
) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # The second error comes after the records are stored, so a retry must not store them again.
    assert writes(brokers) == [0, 1, 2]
    [partition] = brokers.server.broker.cluster.topics.by_name["i"].partitions
    assert isinstance(partition, WrittenPartition)
    assert [one.error for one in partition.produced] == [6, 7, 0, 0, 0]
    assert reads(brokers) == COMMITTED
