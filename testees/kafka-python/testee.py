"""kafka-python as a testee: reads the records of a fetch like its consumer, and checks CRCs.

It follows ``kafka.consumer.fetcher.Fetcher.PartitionRecords``, but it also reads and shows control batches, which the
consumer skips. For streams it uses that class itself. kafka-python does not expose a delete horizon. Of a legacy batch
it exposes no offsets except those of the records.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee

try:
    import kafka
    from kafka import codec
    from kafka.consumer.fetcher import Fetcher, IsolationLevel
    from kafka.errors import CorruptRecordError, KafkaError
    from kafka.record.memory_records import MemoryRecords
    from kafka.structs import TopicPartition
except ImportError as error:
    sys.exit(f"kafka-python cannot be imported ({error}); install it into {sys.executable}")


class AbortedTransaction(NamedTuple):
    """The fields of an aborted transaction in a fetch response that the library uses."""

    producer_id: int
    first_offset: int


def read(data: bytes) -> Iterator[tuple[dict[str, Any], int]]:
    memory = MemoryRecords(data)
    batch = memory.next_batch()
    while batch is not None:
        if not batch.validate_crc():
            raise CorruptRecordError(f"Record batch at offset {batch.base_offset} failed crc check")
        size_bytes = batch.size_in_bytes
        records = []
        for record in batch:
            if not record.validate_crc():
                raise CorruptRecordError(f"Record at offset {record.offset} failed crc check")
            records.append(
                kfuzz_testee.record_json(record.offset, record.timestamp, record.key, record.value, record.headers)
            )
        yield batch_json(batch) | {"records": records}, size_bytes
        batch = memory.next_batch()


def read_stream(
    data: bytes, committed: bool, aborted: list[tuple[int, int]], fetch_offset: int, records: list[dict[str, Any]]
) -> int:
    transactions = [AbortedTransaction(producer_id, first_offset) for producer_id, first_offset in aborted]
    fetch = Fetcher.PartitionRecords(
        fetch_offset,
        TopicPartition("kfuzz", 0),
        MemoryRecords(data),
        isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
        aborted_transactions=transactions,
    )
    while fetch and (taken := fetch.take(1)):
        for r in taken:
            records.append(kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers))
    return int(fetch.next_fetch_offset)


def batch_json(batch: Any) -> dict[str, Any]:
    exposed = {
        "magic": batch.magic,
        "compression": kfuzz_testee.codec_name(batch.compression_type),
        "timestamp_type": kfuzz_testee.TIMESTAMP_TYPES[batch.timestamp_type],
    }
    if batch.magic < 2:  # its base_offset is the wrapper's own offset, which is not Kafka's base offset
        return exposed
    return exposed | {
        "base_offset": str(batch.base_offset),
        "last_offset": str(batch.last_offset),
        "next_offset": str(batch.next_offset),
        "transactional": batch.is_transactional,
        "control": batch.is_control_batch,
        "producer_id": str(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "partition_leader_epoch": batch.leader_epoch,
    }


if __name__ == "__main__":
    installed = {
        "gzip": codec.has_gzip(),
        "snappy": codec.has_snappy(),
        "lz4": codec.has_lz4(),
        "zstd": codec.has_zstd(),
    }
    kfuzz_testee.serve(
        {
            "name": "kafka-python",
            "version": kafka.__version__,
            "roles": ["consumer"],
            "magic": [0, 1, 2],
            "codecs": ["none", *(name for name, there in installed.items() if there)],
            "checks_crc": True,
            "control": "shown",
        },
        read,
        rejections=(KafkaError,),
        stream=read_stream,
    )
