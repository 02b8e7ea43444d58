"""kfuzz diff of the topics of a real broker that were sent the same records, one of them cleaned by its log cleaner."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from conftest import require_kafka_build

from kfuzz import records
from kfuzz.conformance.broker.real import Broker
from kfuzz.logs.comparing import Compared, compare
from kfuzz.records import Record, RecordBatch

pytestmark = [pytest.mark.java, pytest.mark.full]

SETTINGS = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "200"}
CLEANED = {
    "cleanup.policy": "compact", "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "1000", "segment.ms": "1000", "delete.retention.ms": "1",
}  # fmt: skip
CLEAN_S = 60
FIRST_MS = 1_700_000_000_000


def only(a: Path, b: Path) -> Compared:
    [one] = compare(a, b)
    return one


def test_what_a_broker_keeps_of_the_same_records_is_told_apart() -> None:
    require_kafka_build()
    dice = Random(1)
    with Broker(SETTINGS) as broker:
        topics = [broker.create_topic(1, config) for config in ({}, {"compression.type": "zstd"}, {}, CLEANED)]
        for _ in range(40):
            rows = [
                Record(i, FIRST_MS + i, b"%d" % dice.randrange(90), dice.choice((None, dice.randbytes(3000))))
                for i in range(20)
            ]
            data = records.encode([RecordBatch(0, 19, rows)]).hex()
            for topic in topics:
                answer = broker.ask({"operation": "produce", "topic": topic, "partition": 0, "hex": data})
                assert answer["error"] == "NONE", answer
        source, packed, same, cleaned = (broker.data / f"{topic}-0" for topic in topics)
        end = time.monotonic() + CLEAN_S
        # One look in each round, until the cleaner has written a segment again.
        while only(source, cleaned).verdict != "different" and time.monotonic() < end:
            time.sleep(0.2)
        broker.stop()
        assert only(source, same).verdict == "equal"
        other = only(source, packed)
        assert (other.verdict, other.batches, other.fields) == (
            "records are equal, batches differ",
            0,
            {"attributes": 40},
        )
        found = only(source, cleaned)
        assert found.sides[0].records > 100
        assert not found.sides[1].ranges
        [latest] = compare(source, cleaned, compacted=True)
        assert (latest.verdict, latest.records) == ("equal", 0)
