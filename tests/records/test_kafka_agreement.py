"""The reader and the writer against Apache Kafka's own classes: kafka-clients 4.4.0 judges both."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from typing import Any

import pytest
from mutants import Mutants
from testee_driver import LARGEST_LEAD, RunningTestee, running

from kfuzz import records

pytestmark = pytest.mark.java

INPUTS = 20_000


@pytest.fixture(scope="module")
def kafka() -> Any:
    with running("kafka-clients", "4.4.0") as testee:
        yield testee


def ask_all(kafka: RunningTestee, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answers = []
    for at in range(0, len(requests), LARGEST_LEAD):
        ahead = requests[at : at + LARGEST_LEAD]
        for request in ahead:
            kafka.send_line(json.dumps(request))
        answers += [kafka.read_answer() for _ in ahead]
    return answers


def as_java_tells_it(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Java hands out a header's key as text; what is not UTF-8 in it became U+FFFD."""
    for batch in batches:
        for record in batch["records"]:
            for header in record["headers"]:
                if isinstance(header[0], dict):
                    header[0] = bytes.fromhex(header[0]["hex"]).decode("utf-8", "replace")
    return batches


def disagreement(data: bytes, answer: dict[str, Any]) -> str | None:
    if "OutOfMemoryError" in answer.get("error", ""):
        # Kafka allocates what a length claims before it looks; docs/differences.md.
        return None
    reading = records.read(data)
    accepted = answer["outcome"] == "accepted"
    if accepted != (reading.fatal is None):
        return f"Kafka {answer['outcome']} ({answer.get('error')}), kfuzz {reading.fatal}"
    if accepted and answer["consumed"] != reading.consumed:
        return f"Kafka consumed {answer['consumed']}, kfuzz {reading.consumed}"
    if accepted and answer["batches"] != as_java_tells_it(records.to_json(reading.batches)):
        return f"contents differ: {answer['batches']}"
    return None


def test_profile_kafka_accepts_and_reads_what_kafka_does_on_seeded_mutants(kafka: RunningTestee) -> None:
    inputs = list(islice(Mutants(seed=1), INPUTS))
    requests = [
        {"id": str(i), "operation": "decode-records", "role": "consumer", "hex": data.hex()}
        for i, data in enumerate(inputs)
    ]
    answers = ask_all(kafka, requests)
    outcomes = Counter(answer["outcome"] for answer in answers)
    # The source must keep both sides busy, or agreement means little.
    assert outcomes["accepted"] > INPUTS // 5
    assert outcomes["rejected"] > INPUTS // 5
    differing = [
        f"{reason}\n  {data.hex()}"
        for data, answer in zip(inputs, answers, strict=True)
        if (reason := disagreement(data, answer))
    ]
    assert not differing, f"{len(differing)} of {INPUTS} differ:\n" + "\n".join(differing[:5])


def well_formed(count: int, seed: int) -> list[records.RecordBatch]:
    """Batches that Kafka's builder can express: no empty ones, no delete horizon, no arbitrary control records,
    no offsets that wrap.
    """
    source = Mutants(seed)
    batches = []
    while len(batches) < count:
        batch = source.batch()
        if not batch.records or batch.control or batch.delete_horizon is not None:
            continue
        if not 0 <= batch.base_offset <= batch.last_offset:
            continue
        batch.base_offset = batch.records[0].offset
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
            # A header key is text to Java.
            record.headers = tuple((key.replace(b"\xff\xc0", b"k"), value) for key, value in record.headers)
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


def test_uncompressed_bytes_are_those_that_kafka_writes(kafka: RunningTestee) -> None:
    batches = [batch for batch in well_formed(900, seed=3) if batch.compression == "none"]
    assert len(batches) > 100
    requests = [
        {"id": str(i), "operation": "encode-records", "batches": records.to_json([batch])}
        for i, batch in enumerate(batches)
    ]
    for batch, answer in zip(batches, ask_all(kafka, requests), strict=True):
        assert records.encode_batch(batch).hex() == answer.get("hex"), answer
