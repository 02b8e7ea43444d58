"""Drives whole clients of librdkafka, by confluent-kafka. librdkafka has no entry point below its consumer."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import confluent_kafka
import kfuzz_driver
import kfuzz_testee
from confluent_kafka import (
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kfuzz_driver import HEARTBEAT_MS, LARGEST_REQUEST_BYTES, PRODUCE_S_MAX, Ended, Failed, Opening

# Connection errors say nothing about the bytes.
CONNECTION_ERRORS = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
TIMESTAMP_TYPES = {
    TIMESTAMP_NOT_AVAILABLE: "none",
    TIMESTAMP_CREATE_TIME: "create",
    TIMESTAMP_LOG_APPEND_TIME: "log-append",
}
M_ARENA_MAX = -8
RECORDS_MAX = 1000
# 1.2.0; before that, a consumer sees everything.
HAS_ISOLATION = 0x01020000
# 2.4.0, the first with the groups of KIP-848.
HAS_NEW_GROUPS = 0x02040000
RECONNECT = {"reconnect.backoff.ms": 1, "reconnect.backoff.max.ms": 1}


class Consumer:
    """A consumer that assigns its partition by itself."""

    def __init__(self, opening: Opening) -> None:
        self.waiting: list[confluent_kafka.Message] = []
        # Without an offset, the library resets it.
        self.partition = TopicPartition(opening.topic, 0, *([opening.offset] if opening.reset is None else []))
        settings = {
            "bootstrap.servers": opening.address,
            "group.id": opening.group or "kfuzz",
            "enable.auto.commit": False,
            "auto.offset.reset": opening.reset or "error",
            "check.crcs": True,
            "enable.partition.eof": True,
            "isolation.level": opening.isolation,
            "fetch.wait.max.ms": 1,
            "fetch.error.backoff.ms": 1,
            "socket.nagle.disable": True,
            "log_level": 0,
        }
        if confluent_kafka.libversion()[1] < HAS_ISOLATION:
            del settings["isolation.level"]
        if opening.request_timeout_ms is not None:
            settings.update(RECONNECT, **{"socket.timeout.ms": opening.request_timeout_ms})
        if opening.protocol is not None:
            settings["group.protocol"] = opening.protocol
        elif opening.group is not None:
            settings["heartbeat.interval.ms"] = HEARTBEAT_MS
        self.consumer = confluent_kafka.Consumer(settings)
        if opening.group is not None:
            self.consumer.subscribe([opening.topic])
        else:
            self.consumer.assign([self.partition])

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        # With the end of the partition among them, so that the library sees several messages at once.
        if not self.waiting:
            self.waiting = self.consumer.consume(RECORDS_MAX, timeout_s)
        records: list[dict[str, Any]] = []
        while self.waiting:
            error = self.waiting[0].error()
            if error and records and error.code() not in CONNECTION_ERRORS:
                return records
            message = self.waiting.pop(0)
            if error is None:
                records.append(_record(message))
            elif error.code() in CONNECTION_ERRORS:
                return records
            elif error.code() == KafkaError._PARTITION_EOF:
                raise Ended
            else:
                raise _failed(error)
        return records

    def offsets(self) -> dict[str, int | None]:
        [partition] = self.consumer.position([self.partition])
        # Below 0 before the first message. It counts what waits here as well.
        return {} if self.waiting or partition.offset < 0 else {"position": partition.offset}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


def _failed(error: KafkaError) -> Failed:
    # Asked to read a cut batch, the library wants larger fetches, until it gives up.
    return Failed("rejected", f"{error.name()}: {error.str()}", kfuzz_driver.short_at(error.str()))


def _record(message: confluent_kafka.Message) -> dict[str, Any]:
    kind, timestamp = message.timestamp()
    record = kfuzz_testee.record_json(
        message.offset(),
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        message.key(),
        message.value(),
        message.headers() or (),
    )
    return {**record, "timestamp_type": TIMESTAMP_TYPES[kind]}


@contextmanager
def producing(
    address: str,
    *,
    compression: str,
    idempotent: bool,
    transactional_id: str | None,
    group: str | None = None,
    abort: bool = False,
    request_timeout_ms: int | None = None,
) -> Iterator[kfuzz_driver.Send]:
    settings = {
        "bootstrap.servers": address,
        "compression.type": compression,
        "enable.idempotence": idempotent,
        "message.max.bytes": LARGEST_REQUEST_BYTES,
        "linger.ms": 20,
        "retry.backoff.ms": 1,
        "message.timeout.ms": PRODUCE_S_MAX * 1000,
        "socket.nagle.disable": True,
        "log_level": 0,
    }
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
        settings["transaction.timeout.ms"] = PRODUCE_S_MAX * 1000
    if request_timeout_ms is not None:
        settings["socket.timeout.ms"] = request_timeout_ms
    producer = Producer(settings)

    def send(records: list[kfuzz_driver.Given]) -> Callable[[], list[int | None]]:
        errors: list[KafkaError] = []
        # Messages to one partition are delivered in their order.
        offsets: list[int | None] = []

        def on_delivery(error: KafkaError | None, message: confluent_kafka.Message) -> None:
            errors.extend([error] if error else [])
            offsets.append(None if message.offset() == OFFSET_INVALID else message.offset())

        def wait() -> list[int | None]:
            left = producer.flush(PRODUCE_S_MAX)
            if errors:
                raise _failed(errors[0])
            if left:
                raise Failed("stalled", f"{left} records are not acknowledged after {PRODUCE_S_MAX} s")
            if group is not None:
                place = TopicPartition(records[0].topic, 0, kfuzz_driver.COMMITTED_OFFSET)
                producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), PRODUCE_S_MAX)
                producer.commit_transaction(PRODUCE_S_MAX)
            return offsets

        if group is not None:
            producer.begin_transaction()
        for record in records:
            # Without a timestamp, librdkafka takes the clock's.
            when = {} if record.timestamp is None else {"timestamp": record.timestamp}
            producer.produce(
                record.topic,
                partition=0,
                key=record.key,
                value=record.value,
                headers=record.headers,
                on_delivery=on_delivery,
                **when,
            )
        return wait

    is_one = transactional_id is not None and group is None
    # The library takes the group from a consumer, which need not consume.
    member = group and confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": group, "log_level": 0})
    if transactional_id is not None:
        producer.init_transactions(PRODUCE_S_MAX)
    if is_one:
        producer.begin_transaction()
    yield send
    if is_one and abort:
        producer.abort_transaction(PRODUCE_S_MAX)
    elif is_one:
        producer.commit_transaction(PRODUCE_S_MAX)
    if member:
        member.close()


if __name__ == "__main__":
    # Each thread of a consumer would map 64 MiB for its own allocations, and the referee limits what is mapped.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    kfuzz_driver.drive(
        {
            "version": confluent_kafka.libversion()[0],
            "produces": [*kfuzz_driver.ALL_PRODUCES, "groups"],
            "converses": [
                *("reset", "group", "abort", "timeout"),
                *(["consumer-group"] if confluent_kafka.libversion()[1] >= HAS_NEW_GROUPS else []),
            ],
        },
        Consumer,
        producing,
        rejections=(KafkaException,),
    )
