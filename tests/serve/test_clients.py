"""Real producers and consumers, as users drive them: retries, transactions, leaders and coordinators that move."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from serve.asking import SECONDS_MAX

import kfuzz
from kfuzz.relay.local import LocalCluster

pytestmark = pytest.mark.full

# The clients send these records; a consumer in read_committed gets those with an offset.
SENT = [(b"one", True), (b"two", False), (b"three", True)]
COMMITTED = [(0, b"one"), (4, b"three")]
READING = {"group_id": "g", "isolation_level": "read_committed", "auto_offset_reset": "earliest"}


def move(brokers: LocalCluster, number: int) -> None:
    """Between two transactions, move the leader and the coordinators."""
    brokers.move("t", to=number % 3 + 1)
    for key in ("x", "g"):
        brokers.line(coordinator=key, to=number % 3 + 1)


@pytest.fixture
def brokers() -> Iterator[LocalCluster]:
    with kfuzz.cluster(3) as made:
        made.line(broker={"fetch_sessions": True, "api_versions_fallback": True})
        made.topic("t")
        made.line(topic="i", produce=True, errors=["NOT_LEADER_OR_FOLLOWER", "REQUEST_TIMED_OUT"])
        yield made


def aiokafka_writes(brokers: LocalCluster) -> list[int]:
    import aiokafka

    async def write() -> list[int]:
        place = {"bootstrap_servers": brokers.bootstrap}
        async with aiokafka.AIOKafkaProducer(**place, enable_idempotence=True) as producer:
            offsets = [(await producer.send_and_wait("i", b"v", partition=0)).offset for _ in range(3)]
        async with aiokafka.AIOKafkaProducer(**place, transactional_id="x") as producer:
            for number, (value, commits) in enumerate(SENT):
                move(brokers, number)
                await producer.begin_transaction()
                await producer.send_and_wait("t", value, partition=0)
                await (producer.commit_transaction() if commits else producer.abort_transaction())
        return offsets

    return asyncio.run(asyncio.wait_for(write(), SECONDS_MAX))


def aiokafka_reads(brokers: LocalCluster) -> list[tuple[int, bytes]]:
    import aiokafka

    async def read() -> list[tuple[int, bytes]]:
        async with aiokafka.AIOKafkaConsumer("t", bootstrap_servers=brokers.bootstrap, **READING) as consumer:
            found = [await consumer.getone() for _ in COMMITTED]
        return [(one.offset, one.value) for one in found]

    return asyncio.run(asyncio.wait_for(read(), SECONDS_MAX))


def in_transactions(brokers: LocalCluster, producer: Any, send: Callable[[bytes], object]) -> None:
    producer.init_transactions()
    for number, (value, commits) in enumerate(SENT):
        move(brokers, number)
        producer.begin_transaction()
        send(value)
        (producer.commit_transaction if commits else producer.abort_transaction)()


def kafka_python_writes(brokers: LocalCluster) -> list[int]:
    import kafka

    idempotent = kafka.KafkaProducer(bootstrap_servers=brokers.bootstrap, enable_idempotence=True)
    offsets = [idempotent.send("i", b"v", partition=0).get(SECONDS_MAX).offset for _ in range(3)]
    idempotent.close()
    producer = kafka.KafkaProducer(bootstrap_servers=brokers.bootstrap, transactional_id="x")
    in_transactions(brokers, producer, lambda value: producer.send("t", value, partition=0).get(SECONDS_MAX))
    producer.close()
    return offsets


def kafka_python_reads(brokers: LocalCluster) -> list[tuple[int, bytes]]:
    import kafka

    limits = {"consumer_timeout_ms": SECONDS_MAX * 1000}
    consumer = kafka.KafkaConsumer("t", bootstrap_servers=brokers.bootstrap, **READING, **limits)
    found = [next(consumer) for _ in COMMITTED]
    consumer.close()
    return [(one.offset, one.value) for one in found]


def librdkafka_writes(brokers: LocalCluster) -> list[int]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    offsets: list[int] = []
    idempotent = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "enable.idempotence": True})
    for _ in range(3):
        idempotent.produce("i", b"v", partition=0, on_delivery=lambda error, message: offsets.append(message.offset()))
        assert idempotent.flush(SECONDS_MAX) == 0
    producer = confluent_kafka.Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "x"})

    def send(value: bytes) -> None:
        producer.produce("t", value, partition=0)
        assert producer.flush(SECONDS_MAX) == 0

    in_transactions(brokers, producer, send)
    return offsets


def librdkafka_reads(brokers: LocalCluster, **more: Any) -> list[tuple[int, bytes]]:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {name.replace("_", "."): value for name, value in READING.items()}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": brokers.bootstrap} | settings | more)
    consumer.subscribe(["t"])
    found = [consumer.poll(SECONDS_MAX) for _ in COMMITTED]
    consumer.close()
    return [(one.offset(), one.value()) for one in found]


librdkafka_reads_in_a_newer_group = partial(librdkafka_reads, **{"group.protocol": "consumer"})


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
    brokers: LocalCluster,
    writes: Callable[[LocalCluster], list[int]],
    reads: Callable[[LocalCluster], list[tuple[int, bytes]]],
) -> None:
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    # The second error comes after the records are stored, so a retry must not store them again.
    assert writes(brokers) == [0, 1, 2]
    assert [one["error"] for one in brokers.line(topic="i")["produced"]] == [6, 7, 0, 0, 0]
    assert reads(brokers) == COMMITTED
