"""Every format in full: whatever can be read can be written again, and Apache Kafka reads in it what kfuzz does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from kafka_tools import ask, readable
from testee_driver import RunningTestee

from kfuzz import records
from kfuzz.java import through_java


def is_mixed(reading: records.Reading) -> bool:
    """Whether messages inside a wrapper have another magic than it (KAFKA-4298): the writer mends that."""
    return any(finding.code == "inner-magic-mismatch" for finding in reading.findings)


def as_java(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The JSON form, with header keys that are no text as Java's text."""
    for batch in batches:
        for record in batch["records"]:
            record["headers"] = [
                [through_java(bytes.fromhex(key["hex"])).decode() if isinstance(key, dict) else key, value]
                for key, value in record["headers"]
            ]
    return batches


def features(batch: records.RecordBatch) -> list[str]:
    """The features of the format that this batch shows; Kafka must agree about each several times below."""
    kept = batch.records
    offsets = [record.offset for record in kept]
    shown = {
        f"magic {batch.magic} {batch.compression} {batch.timestamp_type}": True,
        "empty": not kept,
        "null value": any(record.value is None for record in kept),
        "transactional": batch.transactional,
        "control": batch.control,
        "delete horizon": batch.delete_horizon is not None,
        "offset gaps": batch.last_offset - batch.base_offset >= len(kept) > 0,
        "offsets out of order": offsets != sorted(offsets),
        "producer": batch.producer_id >= 0,
        "headers": any(record.headers for record in kept),
    }
    return [name for name, present in shown.items() if present]


EXPECTED = {
    "empty", "null value", "transactional", "control", "delete horizon", "offset gaps", "offsets out of order",
    "producer", "headers",
    *(f"magic 0 {codec} none" for codec in ("none", "gzip", "snappy", "lz4")),
    *(f"magic 1 {codec} {kind}" for codec in ("none", "gzip", "snappy", "lz4") for kind in ("create", "log-append")),
    *(f"magic 2 {codec} {kind}" for codec in records.CODECS for kind in ("create", "log-append")),
}  # fmt: skip


def test_whatever_is_read_can_be_written_again_and_reads_the_same() -> None:
    seen: Counter[str] = Counter()
    for data, reading in readable(6000, seed=41):
        if is_mixed(reading):
            continue
        again = records.read(records.encode(reading.batches))
        assert again.batches == reading.batches, data.hex()
        seen.update(feature for batch in reading.batches for feature in features(batch))
    assert set(seen) >= EXPECTED


@pytest.mark.full
@pytest.mark.java
def test_kafka_reads_what_was_written_again_as_kfuzz_does(kafka: RunningTestee) -> None:
    seen: Counter[str] = Counter()
    for _, reading in readable(4000, seed=42):
        data = records.encode(reading.batches)
        if max(len(record.value or b"") for batch in reading.batches for record in [*batch.records, EMPTY]) > 65536:
            continue
        mine = records.read(data)
        answer = ask(kafka, "decode-records", data, role="consumer")
        assert answer is not None
        assert answer["outcome"] == ("accepted" if mine.fatal is None else "rejected"), data.hex()
        assert answer.get("batches", []) == as_java(records.to_json(mine.batches)), data.hex()
        seen.update(feature for batch in mine.batches for feature in features(batch))
    assert set(seen) >= EXPECTED


EMPTY = records.Record(0, 0, None, None)
