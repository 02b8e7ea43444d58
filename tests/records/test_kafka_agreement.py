"""The writer against Apache Kafka's own classes; tests/conformance/test_differential.py has the reader's turn."""

from __future__ import annotations

import pytest
from kafka_tools import ask_all
from testee_driver import RunningTestee

from kfuzz import records
from kfuzz.mutate import well_formed as source
from kfuzz.mutate.dice import Dice

pytestmark = pytest.mark.java


def well_formed(count: int, seed: int) -> list[records.RecordBatch]:
    """Batches that Kafka's builder can express: no empty ones, no delete horizon, no arbitrary control records,
    no offsets that wrap.
    """
    dice = Dice(seed)
    batches = []
    while len(batches) < count:
        batch = source.batch(dice)
        if not batch.records or batch.control or batch.delete_horizon is not None:
            continue
        if not 0 <= batch.base_offset <= batch.last_offset:
            continue
        batch.base_offset, batch.last_offset = batch.records[0].offset, batch.records[-1].offset
        batch.partition_leader_epoch = 3 if batch.magic == 2 else -1
        batch.producer_id, batch.producer_epoch, batch.base_sequence = -1, -1, -1
        batch.transactional = False
        if batch.magic == 2 and batch.records[0].offset % 2:
            batch.producer_id, batch.producer_epoch, batch.base_sequence = 7, 1, 100
            batch.transactional = True
        if batch.timestamp_type == "log-append":
            for record in batch.records:
                record.timestamp = 1_700_000_000_000
        for record in batch.records:
            # A header key is text to Java, and should hold no null character.
            record.headers = tuple((b"k" if key in (b"\xff\xc0", b"\0") else key, v) for key, v in record.headers)
        batches.append(batch)
    return batches


def test_bytes_that_kafka_wrote_read_as_what_it_was_told_to_write(kafka: RunningTestee) -> None:
    batches = well_formed(500, seed=2)
    requests = [
        {"id": str(i), "operation": "encode-records", "batches": records.to_json([batch])}
        for i, batch in enumerate(batches)
    ]
    for batch, answer in zip(batches, ask_all(kafka, requests), strict=True):
        assert answer["outcome"] == "accepted", answer
        read = records.read(bytes.fromhex(answer["hex"]))
        assert read.findings == []
        assert records.to_json(read.batches) == records.to_json([batch])


def test_a_record_above_the_limit_in_a_small_batch_is_accepted_by_kafkas_consumer_and_broker(
    kafka: RunningTestee,
) -> None:
    large = records.Record(0, 1_700_000_000_000, None, bytes(5_000_000))
    for compression in ("gzip", "snappy", "lz4", "zstd", "none"):
        data = records.encode_batch(records.RecordBatch(0, 0, [large], compression=compression))
        read = kafka.ask(operation="decode-records", role="consumer", hex=data.hex())
        appended = kafka.ask(operation="decode-records", role="broker", hex=data.hex())
        assert read["outcome"] == "accepted"
        if compression == "none":
            assert (appended["outcome"], "RecordTooLarge" in appended["error"]) == ("rejected", True), appended["error"]
        else:
            assert appended["outcome"] == "accepted", appended


def test_uncompressed_bytes_are_those_that_kafka_writes(kafka: RunningTestee) -> None:
    batches = [batch for batch in well_formed(900, seed=3) if batch.compression == "none"]
    assert len(batches) > 100
    requests = [
        {"id": str(i), "operation": "encode-records", "batches": records.to_json([batch])}
        for i, batch in enumerate(batches)
    ]
    for batch, answer in zip(batches, ask_all(kafka, requests), strict=True):
        assert records.encode_batch(batch).hex() == answer.get("hex"), answer
