"""aiokafka as a testee: reads the records of a fetch like its consumer, and checks CRCs.

It follows ``aiokafka.consumer.fetcher.PartitionRecords``, but it also reads and shows control batches, which the
consumer skips. For streams it uses that class itself. aiokafka does not expose a batch's size and leader epoch, and it
exposes almost nothing of a legacy batch. Batches are written with the builders of its producer.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
import kfuzz_testee

try:
    import aiokafka
    from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
    from aiokafka.errors import CorruptRecordException, KafkaError
    from aiokafka.record.default_records import DefaultRecordBatchBuilder
    from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
    from aiokafka.record.memory_records import MemoryRecords
    from aiokafka.structs import TopicPartition

    # Before 0.8 an unknown codec is an error of kafka-python.
    errors = importlib.import_module("aiokafka.errors")
    UnsupportedCodecError = (
        errors if hasattr(errors, "UnsupportedCodecError") else importlib.import_module("kafka.errors")
    ).UnsupportedCodecError
    # Before 0.9 it uses the codecs of kafka-python.
    codec = importlib.import_module("aiokafka.codec" if importlib.util.find_spec("aiokafka.codec") else "kafka.codec")
except ImportError as error:
    sys.exit(f"aiokafka cannot be imported ({error}); install it into {sys.executable}")

# The exceptions that the library documents for bad records.
REJECTIONS = (KafkaError,)


def read(data: bytes) -> Iterator[tuple[dict[str, Any], None]]:
    memory = MemoryRecords(data)
    while memory.has_next():
        batch = memory.next_batch()
        if not batch.validate_crc():
            raise CorruptRecordException("Invalid CRC")
        records = [kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers) for r in batch]
        yield batch_json(batch) | {"records": records}, None


def read_stream(
    data: bytes, committed: bool, aborted: list[tuple[int, int]], fetch_offset: int, records: list[dict[str, Any]]
) -> int:
    isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
    fetch = PartitionRecords(
        TopicPartition("kfuzz", 0), MemoryRecords(data), aborted, fetch_offset, None, None, True, isolation
    )
    for r in fetch:
        records.append(kfuzz_testee.record_json(r.offset, r.timestamp, r.key, r.value, r.headers))
    return int(fetch.next_fetch_offset)


def batch_json(batch: Any) -> dict[str, Any]:
    exposed = {
        "next_offset": str(batch.next_offset),
        "transactional": bool(batch.is_transactional),
        "control": bool(batch.is_control_batch),
    }
    if not hasattr(batch, "base_offset"):  # a legacy batch
        return exposed
    return exposed | {
        "base_offset": str(batch.base_offset),
        "last_offset": str(batch.base_offset + batch.last_offset_delta),
        "magic": batch.magic,
        "compression": kfuzz_testee.codec_name(batch.compression_type),
        "timestamp_type": kfuzz_testee.TIMESTAMP_TYPES[batch.timestamp_type],
        "producer_id": str(batch.producer_id),
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
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
            "name": "aiokafka",
            "version": aiokafka.__version__,
            "roles": ["consumer"],
            "magic": [0, 1, 2],
            "codecs": ["none", *(name for name, there in installed.items() if there)],
            "checks_crc": True,
            "control": "shown",
        },
        read,
        rejections=REJECTIONS,
        stream=read_stream,
        write=kfuzz_testee.producer_writer(
            DefaultRecordBatchBuilder, LegacyRecordBatchBuilder, (UnsupportedCodecError,)
        ),
        package="aiokafka",
    )
