"""The log directory of a real broker has the records that were produced, as kafka-clients reads them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from conftest import require_kafka_build, the_testee
from corpora.test_corpus_kafka_clients import decoded
from made_corpora import rows_of

from kfuzz import logs, records
from kfuzz.conformance.broker.real import Broker, Marker
from kfuzz.conformance.protocol.session import Limits, Session
from kfuzz.kafka import CODECS, LATEST
from kfuzz.logs.transactions import last_stable_offset
from kfuzz.records import Record, RecordBatch

pytestmark = [pytest.mark.java, pytest.mark.full]

PRODUCERS = 4
# These always write in transactions.
TRANSACTIONAL = 2
BATCHES = 100
RECORDS = 40
CONSUME_S = 60
FIRST_MS = 1_700_000_000_000


@dataclass
class Produced:
    """The records that a broker was sent, and where its log is."""

    topic: str
    data: Path
    # By offset; None for the marker that ends a transaction.
    records: list[Record | None] = field(default_factory=list)
    transactional: list[bool] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    # The records that a consumer in read_committed got: offset, key and value; and where it stopped.
    consumed: list[tuple[int, bytes | None, bytes | None]] = field(default_factory=list)
    stable_offset: int = -1
    while_running: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def produced() -> Iterator[Produced]:
    """Batches of all codecs. Transactions have several batches, and cross segments; the last one stays open."""
    require_kafka_build()
    dice = Random(7)
    with Broker() as broker:
        made = Produced(broker.create_topic(1, {"segment.bytes": str(1 << 20)}), broker.data)
        place = {"topic": made.topic, "partition": 0}
        sequences = [0] * PRODUCERS
        began: dict[int, list[int]] = {}
        for number in range(BATCHES):
            producer = number % PRODUCERS
            in_transaction = producer < TRANSACTIONAL
            first = len(made.records)
            sent = [
                Record(
                    i,
                    FIRST_MS + 10 * (first + i),
                    b"key-%d" % (first + i),
                    None if i == 9 else dice.randbytes(dice.randrange(2400)),
                    ((b"trace", b"%d" % i),) if i % 5 == 0 else (),
                )
                for i in range(RECORDS)
            ]
            batch = RecordBatch(
                0,
                RECORDS - 1,
                sent,
                compression=CODECS[number % len(CODECS)],
                transactional=in_transaction,
                producer_id=4000 + producer,
                producer_epoch=1,
                base_sequence=sequences[producer],
            )
            sequences[producer] += RECORDS
            answer = broker.ask({"operation": "produce", **place, "hex": records.encode([batch]).hex()})
            assert answer["error"] == "NONE", answer
            assert int(answer["base_offset"]) == first
            made.records += sent
            made.transactional += [in_transaction] * RECORDS
            if not in_transaction:
                continue
            began.setdefault(producer, []).extend(range(first, first + RECORDS))
            # One producer's transactions are long.
            if dice.random() < (0.1, 0.6)[producer] and number < BATCHES - PRODUCERS:
                commit = dice.random() < 0.5
                marker = Marker(4000 + producer, 1, 0, commit=commit)
                assert broker.ask(marker.to_request() | place)["error"] == "NONE"
                made.records.append(None)
                made.transactional.append(True)
                written = began.pop(producer)
                made.aborted.update(() if commit else written)
        made.consumed, made.stable_offset = asyncio.run(consume(broker.port, made.topic))
        made.while_running = rows(broker.data)
        broker.stop()
        yield made


async def consume(port: int, topic: str) -> tuple[list[tuple[int, bytes | None, bytes | None]], int]:
    """The records that aiokafka reads in ``read_committed``, and the last stable offset that the broker names."""
    place = TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=f"127.0.0.1:{port}", isolation_level="read_committed", enable_auto_commit=False
    )
    async with consumer:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        found: list[tuple[int, bytes | None, bytes | None]] = []
        end = (await consumer.end_offsets([place]))[place]
        async with asyncio.timeout(CONSUME_S):
            while await consumer.position(place) < end:
                for got in (await consumer.getmany(place, timeout_ms=500)).values():
                    found += [(record.offset, record.key, record.value) for record in got]
        return found, end


def rows(path: Path, **options: Any) -> list[dict[str, Any]]:
    return rows_of(logs.read(path, **options))


def test_every_record_that_was_produced_is_read_under_its_offset(produced: Produced) -> None:
    found = rows(produced.data)
    assert [row["offset"] for row in found] == list(range(len(produced.records)))
    assert {(row["topic"], row["partition"]) for row in found} == {(produced.topic, 0)}
    for row, sent, transactional in zip(found, produced.records, produced.transactional, strict=True):
        assert row["transactional"] == transactional
        assert row["control"] == (sent is None)
        if sent is not None:
            assert (row["key"], row["value"]) == (sent.key, sent.value)
            assert round(row["timestamp"].timestamp() * 1000) == sent.timestamp
            assert [(header["key"], header["value"]) for header in row["headers"]] == list(sent.headers)
    # A segment of a broker, and more than one.
    assert len({row["segment"] for row in found}) > 2
    sequences = [row["sequence"] for row in found if row["producer_id"] == 4001 and not row["control"]]
    assert sequences == list(range(len(sequences)))


def test_records_of_aborted_transactions_are_marked(produced: Produced) -> None:
    found = rows(produced.data)
    assert {row["offset"] for row in found if row["aborted"]} == produced.aborted
    assert produced.aborted
    # A transaction that began in one segment and was aborted in another.
    segments = logs.find_segments(produced.data)
    assert any(one.path.with_suffix(".txnindex").exists() for one in segments)
    parts = list(logs.slices(segments, slice_bytes=64 << 10))
    apart = rows_of(batch for part in parts for batch in logs.read_slice(part, logs.schema()))
    assert apart == found


@pytest.mark.parametrize("spared", ["nothing", "*.snapshot", "*.txnindex", "both"])
def test_read_committed_gives_what_a_consumer_of_the_broker_gets(
    produced: Produced, tmp_path: Path, spared: str
) -> None:
    globs = {"nothing": [], "both": ["*.snapshot", "*.txnindex"]}.get(spared, [spared])
    shutil.copytree(produced.data, tmp_path / "log", ignore=shutil.ignore_patterns(*globs))
    found = rows(tmp_path / "log", isolation="read_committed")
    assert [(row["offset"], row["key"], row["value"]) for row in found] == produced.consumed
    assert 0 < produced.stable_offset < len(produced.records)
    segment = logs.find_segments(tmp_path / "log")[0]
    assert last_stable_offset(segment) == produced.stable_offset
    assert {row["offset"] for row in rows(tmp_path / "log") if row["aborted"]} == produced.aborted


def test_a_running_broker_has_the_same_records(produced: Produced) -> None:
    assert produced.while_running == rows(produced.data)


def test_bounds_and_slices_use_the_indexes_of_a_broker(produced: Produced) -> None:
    everything = rows(produced.data)
    last = len(everything) - 1
    for first, final in ((0, 0), (77, 1234), (last - 1, last + 5)):
        assert rows(produced.data, first_offset=first, last_offset=final) == everything[first : final + 1]
    moment = FIRST_MS + 10 * 1500
    late = [row for row in everything if round(row["timestamp"].timestamp() * 1000) >= moment]
    assert rows(produced.data, min_timestamp=moment) == late
    segments = logs.find_segments(produced.data)
    parts = list(logs.slices(segments, slice_bytes=64 << 10))
    assert len(parts) > 2 * len(segments)
    apart = rows_of(batch for part in parts for batch in logs.read_slice(part, logs.schema()))
    assert apart == everything


def test_kafka_clients_reads_the_same_records(produced: Produced) -> None:
    testee = the_testee(f"kafka-clients@{LATEST}")
    testee.make_ready()
    theirs = []
    with Session(testee.argv, cwd=testee.folder) as session:
        session.start(Limits())
        for segment in logs.find_segments(produced.data):
            found = decoded(session, segment.path.name, segment.path.read_bytes())
            theirs += [(batch, record) for batch in found for record in batch["records"]]
    ours = rows(produced.data)
    assert len(ours) == len(theirs) == len(produced.records)
    for row, (batch, record) in zip(ours, theirs, strict=True):
        assert str(row["offset"]) == record["offset"]
        assert str(round(row["timestamp"].timestamp() * 1000)) == record["timestamp"]
        for name in ("key", "value"):
            assert (None if row[name] is None else row[name].hex()) == record[name]
        assert len(row["headers"]) == len(record["headers"])
        assert row["control"] == batch["control"]
        assert row["transactional"] == batch["transactional"]
        assert str(row["producer_id"]) == batch["producer_id"]
