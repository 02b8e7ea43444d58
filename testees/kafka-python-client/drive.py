"""Drives whole clients of kafka-python: KafkaConsumer and KafkaProducer, as a user makes them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_driver
import kfuzz_testee
from kfuzz_driver import COMMIT_S_MAX, HEARTBEAT_MS, LARGEST_REQUEST_BYTES, PRODUCE_S_MAX, Failed, Opening

try:
    import kafka
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError
    from kafka.structs import OffsetAndMetadata
except ImportError as error:
    sys.exit(f"kafka-python cannot be imported ({error}); install it into {sys.executable}")


# The first versions have no headers, idempotent producers or transactions.
HAS_HEADERS = "headers" in inspect.signature(KafkaProducer.send).parameters
SETTINGS = getattr(KafkaProducer, "DEFAULT_CONFIG", None) or KafkaProducer._DEFAULT_CONFIG
RECONNECT = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 1}
HAS_TRANSACTIONS = "transactional_id" in SETTINGS


class Consumer:
    """A consumer that assigns its partition by itself. Its checks of CRCs are on, which is the default."""

    def __init__(self, opening: Opening) -> None:
        self.partition = TopicPartition(opening.topic, 0)
        self.has_position = opening.group is None and opening.reset is None
        settings: dict[str, Any] = {}
        # Versions before 2.3 always read what is not committed.
        if "isolation_level" in KafkaConsumer.DEFAULT_CONFIG:
            settings["isolation_level"] = opening.isolation
        if opening.request_timeout_ms is not None:
            settings.update(RECONNECT, request_timeout_ms=opening.request_timeout_ms)
        if opening.group is not None:
            settings.update(group_id=opening.group, heartbeat_interval_ms=HEARTBEAT_MS)
        self.consumer = KafkaConsumer(
            bootstrap_servers=opening.address,
            enable_auto_commit=False,
            auto_offset_reset=opening.reset or "none",
            fetch_max_wait_ms=1,
            retry_backoff_ms=1,
            **settings,
        )
        if opening.group is not None:
            self.consumer.subscribe([opening.topic])
            return
        self.consumer.assign([self.partition])
        if opening.reset is None:
            self.consumer.seek(self.partition, opening.offset)

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        try:
            found = self.consumer.poll(timeout_ms=round(timeout_s * 1000))
        except KafkaError as error:
            if "Failed to make progress" not in str(error):
                raise
            # It wants larger fetches, as for a batch that is cut.
            raise Failed("rejected", kfuzz_testee.describe(error), self.consumer.position(self.partition)) from error
        return kfuzz_driver.in_json(chain.from_iterable(found.values()))

    def offsets(self) -> dict[str, int | None]:
        if not self.has_position:
            return {}
        return {
            "position": self.consumer.position(self.partition),
            "high_watermark": self.consumer.highwater(self.partition),
        }

    def commit(self) -> None:
        # The first versions wait without a limit.
        has_limit = "timeout_ms" in inspect.signature(KafkaConsumer.commit).parameters
        self.consumer.commit(**({"timeout_ms": COMMIT_S_MAX * 1000} if has_limit else {}))

    def close(self) -> None:
        self.consumer.close()


def send(producer: KafkaProducer, record: kfuzz_driver.Given) -> Any:
    if record.headers and not HAS_HEADERS:
        raise Failed("unsupported", "the library does not have headers")
    with kfuzz_driver.refusals():
        return producer.send(
            record.topic,
            partition=0,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            **({"headers": record.headers} if HAS_HEADERS else {}),
        )


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
        "acks": "all",
        "compression_type": None if compression == "none" else compression,
        "enable_idempotence": idempotent,
        "transactional_id": transactional_id,
        "max_request_size": LARGEST_REQUEST_BYTES,
        # Records wait until they are flushed, so that they share batches.
        "batch_size": LARGEST_REQUEST_BYTES,
        "linger_ms": 1000,
        "retry_backoff_ms": 1,
        "max_block_ms": PRODUCE_S_MAX * 1000,
        "request_timeout_ms": request_timeout_ms or PRODUCE_S_MAX * 500,
        "delivery_timeout_ms": PRODUCE_S_MAX * 1000,
    }
    if not HAS_TRANSACTIONS:
        settings["buffer_memory"] = 2 * LARGEST_REQUEST_BYTES  # for one batch, which the first versions make at once
    known = {name: value for name, value in settings.items() if name in SETTINGS}
    producer = KafkaProducer(bootstrap_servers=address, **known)

    def send_all(records: list[kfuzz_driver.Given]) -> Callable[[], list[int | None]]:
        if group is not None:
            producer.begin_transaction()
        sent = [send(producer, record) for record in records]

        def wait() -> list[int | None]:
            producer.flush(PRODUCE_S_MAX)
            offsets = [one.get(PRODUCE_S_MAX).offset for one in sent]
            if group is not None:
                committed = OffsetAndMetadata(kfuzz_driver.COMMITTED_OFFSET, "", -1)
                place = TopicPartition(records[0].topic, 0)
                producer.send_offsets_to_transaction({place: committed}, group)
                producer.commit_transaction()
            return offsets

        return wait

    is_one = transactional_id is not None and group is None
    try:
        if transactional_id is not None:
            producer.init_transactions()
        if is_one:
            producer.begin_transaction()
        yield send_all
        if is_one and abort:
            producer.abort_transaction()
        elif is_one:
            producer.commit_transaction()
    finally:
        producer.close(PRODUCE_S_MAX)


if __name__ == "__main__":
    kfuzz_driver.drive(
        {
            "version": kafka.__version__,
            "produces": [*kfuzz_driver.ALL_PRODUCES, "groups"] if HAS_TRANSACTIONS else ("sends", "topics"),
            "converses": ["reset", "group", "timeout", *(["abort"] if HAS_TRANSACTIONS else [])],
        },
        Consumer,
        producing,
        rejections=(KafkaError,),
        package="kafka",
    )
