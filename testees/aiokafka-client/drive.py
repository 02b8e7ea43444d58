"""Drives whole clients of aiokafka: AIOKafkaConsumer and AIOKafkaProducer, as a user makes them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_driver
import kfuzz_testee
from kfuzz_driver import LARGEST_REQUEST_BYTES, PRODUCE_S_MAX, Failed

try:
    import aiokafka
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError, RecordTooLargeError
except ImportError as error:
    sys.exit(f"aiokafka cannot be imported ({error}); install it into {sys.executable}")

LOOP = asyncio.new_event_loop()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return LOOP.run_until_complete(work)


class Consumer:
    """A consumer that assigns its partition by itself. Its checks of CRCs are on, which is the default."""

    def __init__(self, address: str, topic: str, isolation: str, offset: int, request_timeout_ms: int | None) -> None:
        self.partition = TopicPartition(topic, 0)
        self.is_committed = isolation == "read_committed"
        hurry = {} if request_timeout_ms is None else {"request_timeout_ms": request_timeout_ms}
        run(self._start(address, isolation, offset, hurry))

    async def _start(self, address: str, isolation: str, offset: int, hurry: dict[str, int]) -> None:
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=address,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level=isolation,
            fetch_max_wait_ms=1,
            retry_backoff_ms=1,
            **hurry,
        )
        await self.consumer.start()
        self.consumer.assign([self.partition])
        self.consumer.seek(self.partition, offset)

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        try:
            found = run(self.consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        except RecordTooLargeError as error:
            # It wants larger fetches, as for a batch that is cut.
            at = run(self.consumer.position(self.partition))
            raise Failed("rejected", kfuzz_testee.describe(error), at) from error
        return kfuzz_driver.in_json(chain.from_iterable(found.values()))

    def offsets(self) -> dict[str, int | None]:
        stable = self.consumer.last_stable_offset(self.partition) if self.is_committed else None
        position = run(self.consumer.position(self.partition))
        return {
            "position": position,
            "high_watermark": self.consumer.highwater(self.partition),
            "last_stable_offset": stable,
        }

    def close(self) -> None:
        run(self.consumer.stop())


async def send(producer: AIOKafkaProducer, record: kfuzz_driver.Given) -> Any:
    with kfuzz_driver.refusals():
        return await producer.send(
            record.topic,
            partition=0,
            timestamp_ms=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )


@contextmanager
def producing(
    address: str,
    *,
    compression: str,
    idempotent: bool,
    transactional_id: str | None,
    group: str | None = None,
) -> Iterator[kfuzz_driver.Send]:
    end_s = LOOP.time() + PRODUCE_S_MAX

    def run_in_time(work: Coroutine[Any, Any, Any]) -> Any:
        return run(asyncio.wait_for(work, end_s - LOOP.time()))

    def send_all(records: list[kfuzz_driver.Given]) -> Callable[[], list[int | None]]:
        async def start() -> list[Any]:
            if group is not None:
                await producer.begin_transaction()
            return [await send(producer, record) for record in records]

        async def wait() -> list[int | None]:
            offsets = [one.offset for one in await asyncio.gather(*sent)]
            if group is not None:
                committed = {TopicPartition(records[0].topic, 0): kfuzz_driver.COMMITTED_OFFSET}
                await producer.send_offsets_to_transaction(committed, group)
                await producer.commit_transaction()
            return offsets

        sent = run_in_time(start())
        return lambda: run_in_time(wait())

    async def made() -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=address,
            acks="all",
            compression_type=None if compression == "none" else compression,
            enable_idempotence=idempotent,
            transactional_id=transactional_id,
            max_request_size=LARGEST_REQUEST_BYTES,
            max_batch_size=LARGEST_REQUEST_BYTES,
            retry_backoff_ms=1,
            # Half of the time for all sends: aiokafka looks for a topic with an error until this has passed.
            request_timeout_ms=PRODUCE_S_MAX * 1000 // 2,
        )

    producer = run(made())
    run_in_time(producer.start())
    try:
        is_one = transactional_id is not None and group is None
        if is_one:
            run_in_time(producer.begin_transaction())
        yield send_all
        if is_one:
            run_in_time(producer.commit_transaction())
    finally:
        run(producer.stop())


if __name__ == "__main__":
    kfuzz_driver.drive(
        {"version": aiokafka.__version__, "produces": [*kfuzz_driver.ALL_PRODUCES, "groups"]},
        Consumer,
        producing,
        rejections=(KafkaError,),
        package="aiokafka",
    )
