"""A real broker serves what a replay has sent: the sendable part of the log, record by record, in both isolations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replay.hand_made import FIRST_MS, Seen, batch, marker, old, sendable, write_log

from kfuzz.conformance.broker.real import Broker
from kfuzz.corpora.generation import generate
from kfuzz.corpora.workload import parse
from kfuzz.kafka import CODECS, ISOLATIONS
from kfuzz.records import RecordBatch
from kfuzz.replay import Address, Report, Settings, find_parts, replay

pytestmark = pytest.mark.java

POLLS = 120
WORKLOAD = """
size = "3MiB"
segment_bytes = "512KiB"
seed = 5

[[topics]]
name = "orders"
partitions = 2
keys.null_share = 0.1
values = { size = { min = 20, max = 400 }, null_share = 0.05 }
headers.share = 0.2
batches = { records = { min = 1, max = 200 }, codecs = { none = 2, gzip = 1, snappy = 1, lz4 = 1, zstd = 1 } }
producers.share = 0.3
transactions = { share = 0.4, records = 100, abort_share = 0.3 }
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated topic, and one by hand with everything that a compacted log of an upgraded cluster may have."""
    out = tmp_path_factory.mktemp("log") / "out"
    generate(parse(WORKLOAD, "workload"), out)
    write_log(out, "hand-0", hand_made())
    write_log(out, "hand-0", [batch(900, 5)], base_offset=900)
    return out


def hand_made() -> Iterator[RecordBatch | bytes]:
    yield from (old(i, 1, magic=0) for i in range(20))
    yield from (old(i, 1, magic=1) for i in range(20, 30))
    for codec in CODECS[1:4]:
        first = 20 + 10 * CODECS.index(codec)
        yield old(first, 10, magic=1, compression=codec)
    for number, codec in enumerate(CODECS):
        yield batch(100 + 10 * number, compression=codec)
    # The cleaner leaves these: gaps inside, gaps at the end, nothing, a horizon.
    yield batch(200, 5, step=3, last=220, compression="lz4")
    yield batch(230, 0, last=240)
    yield batch(250, 10, delete_horizon=FIRST_MS + 1, base_timestamp=FIRST_MS + 1)
    yield batch(260, timestamp_type="log-append", max_timestamp=FIRST_MS + 5000)
    # An idempotent producer from the middle of its sequences, with a gap in a batch.
    yield batch(300, producer_id=9, producer_epoch=4, base_sequence=2**31 - 5)
    yield batch(310, 4, step=2, last=319, producer_id=9, producer_epoch=4, base_sequence=5)
    yield batch(320, producer_id=9, producer_epoch=4, base_sequence=15)
    # Transactions that overlap: committed, aborted, a marker of an unknown one, one that stays open.
    in_5 = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    in_6 = {"producer_id": 6, "producer_epoch": 2, "transactional": True}
    yield batch(400, **in_5, base_sequence=0)
    yield batch(410, **in_6, base_sequence=70)
    yield batch(420, **in_5, base_sequence=10, compression="zstd")
    yield marker(430, 6, 2, commit=False)
    yield batch(431, 3)
    yield marker(434, 5, 0, commit=True)
    yield batch(440, **in_5, base_sequence=20)
    yield marker(450, 5, 0, commit=True)
    yield marker(451, 77, 0, commit=True)
    yield batch(460, 7, **in_6, base_sequence=80)
    yield batch(470, 3)


def consumed(broker: Broker, places: dict[tuple[str, int], int], isolation: str) -> dict[tuple[str, int], list[Seen]]:
    """The records that kafka-python's consumer gets. ``places`` says how many records are waited for."""
    from kafka import KafkaConsumer, TopicPartition

    found: dict[tuple[str, int], list[Seen]] = {place: [] for place in places}
    consumer = KafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{broker.port}",
        isolation_level=isolation,
        enable_auto_commit=False,
        group_id=None,
        auto_offset_reset="earliest",
    )
    try:
        consumer.assign([TopicPartition(*place) for place in places])
        # Markers are written after the answer to the request that ends a transaction.
        left = POLLS
        while left:
            # One more time after the last record.
            left = 0 if all(len(found[place]) >= count for place, count in places.items()) else left - 1
            for place, got in consumer.poll(500).items():
                found[place.topic, place.partition] += [as_seen(one) for one in got]
    finally:
        consumer.close()
    return found


def as_seen(record: Any) -> Seen:
    headers = tuple((key.encode(), value) for key, value in record.headers)
    return Seen(record.timestamp, record.key, record.value, headers)


def sent(broker: Broker, log: Path, prefix: str, **settings: Any) -> Report:
    parts = find_parts(log)
    names = {part.topic: f"{prefix}-{part.topic}" for part in parts}
    chosen = Settings(Address("127.0.0.1", broker.port), create=True, names=names, transactional_id=prefix, **settings)
    return replay(parts, chosen)


@pytest.mark.full
@pytest.mark.parametrize("isolation", ISOLATIONS)
@pytest.mark.parametrize("convert", [True, False], ids=["convert", "as-is"])
def test_a_consumer_reads_the_sendable_part_of_the_log(
    broker: Broker, log: Path, convert: bool, isolation: str, request: pytest.FixtureRequest
) -> None:
    prefix = "converted" if convert else "as-is"
    reports = request.getfixturevalue("reports")
    if prefix not in reports:
        reports[prefix] = sent(broker, log, prefix, convert=convert, connections=2)
    report = reports[prefix]
    assert report.failure is None
    assert [topic.failed for topic in report.topics.values()] == [{}, {}]
    expected = {
        (f"{prefix}-{topic}", partition): both[ISOLATIONS.index(isolation)]
        for (topic, partition), both in sendable(log, convert=convert).items()
    }
    assert sum(map(len, expected.values())) > 500
    found = consumed(broker, {place: len(rows) for place, rows in expected.items()}, isolation)
    for place, wanted in expected.items():
        assert found[place] == wanted


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {}


@pytest.mark.full
def test_batches_that_are_not_sent_are_counted_by_reason(broker: Broker, log: Path, reports: dict[str, Report]) -> None:
    report = reports.get("as-is") or sent(broker, log, "counted")
    [hand] = [topic for name, topic in report.topics.items() if name.endswith("-hand")]
    counts = {reason: (count.batches, count.records) for reason, count in hand.refused.items()}
    assert counts == {
        "magic-not-produced": (33, 60),
        "last-offset-delta-not-count": (2, 9),
        "record-count-zero": (1, 0),
        "delete-horizon-produced": (1, 10),
        "timestamp-type-not-create": (1, 10),
    }
    assert dict(hand.transactions) == {"committed": 2, "aborted": 1, "open": 1, "unmatched": 1}
    assert not report.is_clean
