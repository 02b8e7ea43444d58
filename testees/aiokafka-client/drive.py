"""Drives whole clients of aiokafka: AIOKafkaConsumer and AIOKafkaProducer, as a user makes them."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_driver
import kfuzz_testee
from kfuzz_driver import COMMIT_S_MAX, HEARTBEAT_MS, LARGEST_REQUEST_BYTES, PRODUCE_S_MAX, Failed, Opening

try:
    import aiokafka
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.errors import KafkaError, RecordTooLargeError
except ImportError as error:
    sys.exit(f"aiokafka cannot be imported ({error}); install it into {sys.executable}")

LOOP = asyncio.new_event_loop()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, LOOP).result()


class Consumer:
    """A consumer that assigns its partition by itself. Its checks of CRCs are on, which is the default."""

    def __init__(self, opening: Opening) -> None:
        self.partition = TopicPartition(opening.topic, 0)
        self.is_committed = opening.isolation == "read_committed"
        self.has_position = opening.group is None and opening.reset is None
        run(self._start(opening))

    async def _start(self, opening: Opening) -> None:
        settings: dict[str, Any] = {}
        if opening.request_timeout_ms is not None:
            settings["request_timeout_ms"] = opening.request_timeout_ms
        if opening.group is not None:
            settings.update(group_id=opening.group, heartbeat_interval_ms=HEARTBEAT_MS)
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=opening.address,
            enable_auto_commit=False,
            auto_offset_reset=opening.reset or "none",
            isolation_level=opening.isolation,
            fetch_max_wait_ms=1,
            retry_backoff_ms=1,
            **settings,
        )
        await self.consumer.start()
        if opening.group is not None:
            self.consumer.subscribe([opening.topic])
            return
        self.consumer.assign([self.partition])
        if opening.reset is None:
            self.consumer.seek(self.partition, opening.offset)

    def poll(self, timeout_s: float) -> list[dict[str, Any]]:
        try:
            found = run(self.consumer.getmany(timeout_ms=round(timeout_s * 1000)))
        except RecordTooLargeError as error:
            # It wants larger fetches, as for a batch that is cut.
            at = run(self.consumer.position(self.partition))
            raise Failed("rejected", kfuzz_testee.describe(error), at) from error
        return kfuzz_driver.in_json(chain.from_iterable(found.values()))

    def offsets(self) -> dict[str, int | None]:
        if not self.has_position:
            return {}
        stable = self.consumer.last_stable_offset(self.partition) if self.is_committed else None
        position = run(self.consumer.position(self.partition))
        return {
            "position": position,
            "high_watermark": self.consumer.highwater(self.partition),
            "last_stable_offset": stable,
        }

    def commit(self) -> None:
        run(asyncio.wait_for(self.consumer.commit(), COMMIT_S_MAX))

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
    abort: bool = False,
    request_timeout_ms: int | None = None,
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
            request_timeout_ms=request_timeout_ms or PRODUCE_S_MAX * 1000 // 2,
        )

    producer = run(made())
    run_in_time(producer.start())
    try:
        is_one = transactional_id is not None and group is None
        if is_one:
            run_in_time(producer.begin_transaction())
        yield send_all
        if is_one:
            run_in_time(producer.abort_transaction() if abort else producer.commit_transaction())
    finally:
        run(producer.stop())


if __name__ == "__main__":
    # The library's tasks must run while nothing is asked, as in an application.
    threading.Thread(target=LOOP.run_forever, daemon=True).start()
    kfuzz_driver.drive(
        {
            "version": aiokafka.__version__,
            "produces": [*kfuzz_driver.ALL_PRODUCES, "groups"],
            "converses": ["reset", "group", "abort", "timeout"],
        },
        Consumer,
        producing,
        rejections=(KafkaError,),
        package="aiokafka",
    )
