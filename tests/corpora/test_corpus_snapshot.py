"""Producer snapshots: each is what the log before it gives, from `records.read` and Kafka's rules."""

from __future__ import annotations

import struct
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import pytest
from made_corpora import copy_of, once

from kfuzz import records
from kfuzz.control import EndTransactionMarker, decode_control
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify, verify_segment
from kfuzz.corpora.workload import KIB, Batches, Legacy, Producers, Range, Timestamps, Topic, Transactions, Workload
from kfuzz.java import hash_map_order
from kfuzz.logs.snapshot import Producer, decode, encode
from kfuzz.wire.io.checksum import crc32c

TOPIC = Topic(
    "t",
    partitions=2,
    batches=Batches(records=Range(5, 40), codecs=(("none", 3), ("lz4", 1))),
    producers=Producers(count=13, share=0.4),
    transactions=Transactions(producers=3, share=0.3, records=30, abort_share=0.5),
    legacy=Legacy(magic1=0.1),
)
WORKLOAD = Workload(topics=(TOPIC,), size=512 * KIB, segment_bytes=128 * KIB)

LARGE_KEYS = [
    6973096,
    54755181031506,
    404834,
    1961478570871,
    67526,
    24902229,
    27302383,
    114324735894352,
    14256,
    16412869606277122,
    10624989783,
    1564930102625352,
    29661,
]


def after(batches: list[records.RecordBatch]) -> dict[int, Producer]:
    """A broker's knowledge of each producer after ``batches``, written down from the rules in plain Python."""
    known: dict[int, Producer] = {}
    for batch in batches:
        if batch.magic < 2 or batch.producer_id < 0:
            continue
        before = known.get(batch.producer_id) or Producer(batch.producer_id, 0, -1, -1, 0, -1, -1, -1)
        changed = replace(before, epoch=batch.producer_epoch, timestamp=batch.max_timestamp)
        if batch.control:
            (record,) = batch.records
            marker = decode_control(record.key, record.value).value
            assert isinstance(marker, EndTransactionMarker)
            changed = replace(changed, coordinator_epoch=marker.coordinator_epoch, current_txn_first_offset=-1)
        else:
            delta = len(batch.records) - 1
            changed = replace(
                changed,
                last_sequence=(batch.base_sequence + delta) % (1 << 31),
                last_offset=batch.base_offset + delta,
                offset_delta=delta,
            )
            if batch.transactional and before.current_txn_first_offset < 0:
                changed = replace(changed, current_txn_first_offset=batch.base_offset)
        known[batch.producer_id] = changed
    return known


@pytest.mark.parametrize("kind", ["create", "log-append"])
def test_each_segment_ends_with_the_snapshot_of_all_that_was_written_before(tmp_path: Path, kind: str) -> None:
    topic = replace(TOPIC, timestamps=Timestamps(type=kind, jitter_ms=70))
    generate(replace(WORKLOAD, topics=(topic,)), tmp_path)
    for directory in ("t-0", "t-1"):
        logs = [records.read(log.read_bytes()).batches for log in sorted((tmp_path / directory).glob("*.log"))]
        snapshots = sorted((tmp_path / directory).glob("*.snapshot"))
        assert len(logs) == len(snapshots) > 1
        for batches, path in zip(accumulate(logs), snapshots, strict=True):
            found = decode(path.read_bytes())
            assert found is not None
            assert {one.producer_id: one for one in found} == after(batches)
            assert len(found) == 16
            assert path.name == f"{batches[-1].next_offset:020d}.snapshot"
    assert verify(tmp_path) == []


def test_a_producer_that_is_silent_in_a_short_last_segment_is_in_its_snapshot(tmp_path: Path) -> None:
    topic = replace(TOPIC, partitions=1)
    workload = Workload(topics=(topic,), size=128 * KIB + 2000, segment_bytes=128 * KIB)
    plan = Plan(workload)
    assert len(plan) == 2
    silent = plan[0].producer_ids - plan[1].producer_ids
    assert silent
    rows = list(generate(workload, tmp_path))
    found = decode((tmp_path / plan[1].snapshot_path).read_bytes())
    assert found is not None
    logs = [records.read((tmp_path / row.path).read_bytes()).batches for row in rows]
    assert {one.producer_id: one for one in found} == after(logs[0] + logs[1])
    assert {one.producer_id for one in found} >= silent
    assert verify(tmp_path) == []
    # The last segment alone is the same, whoever makes it.
    alone = write_segment(plan[1], 1, workload, tmp_path / "alone", "a")
    assert alone == rows[1]


def test_without_producers_the_snapshot_is_that_of_none(tmp_path: Path) -> None:
    generate(Workload(topics=(Topic("t"),), size=64 * KIB, segment_bytes=64 * KIB), tmp_path)
    (path,) = tmp_path.glob("t-0/*.snapshot")
    # Version 1, the CRC of the count, no entries.
    assert path.read_bytes() == struct.pack(">hIi", 1, crc32c(bytes(4)), 0)


def test_a_sequence_that_wraps_is_in_the_snapshot_as_kafka_counts(tmp_path: Path) -> None:
    topic = Topic("t", batches=Batches(records=Range(20, 20)), producers=Producers(count=1, share=1.0))
    workload = Workload(topics=(topic,), size=64 * KIB, segment_bytes=64 * KIB)
    planned = Plan(workload)[0]
    offsets = planned.offsets
    for first in (2**31 - offsets, 2**31 - offsets + 1, 2**31 - offsets + 19):
        segment = replace(planned, streams=(replace(planned.streams[0], first_sequence=first),))
        row = write_segment(segment, 0, workload, tmp_path, "a")
        found = decode((tmp_path / segment.snapshot_path).read_bytes())
        assert found is not None
        assert [one.last_sequence for one in found] == [(first + offsets - 1) % 2**31]
        assert verify_segment(tmp_path, segment, workload, row) == []


pristine, corpus = once(WORKLOAD), copy_of("pristine")


def test_a_wrong_value_under_a_right_crc_is_named_with_both_values(corpus: Path) -> None:
    path = sorted(corpus.glob("t-0/*.snapshot"))[0]
    producers = decode(path.read_bytes()) or []
    chosen = next(at for at, one in enumerate(producers) if one.producer_id == 5)
    producers[chosen] = replace(producers[chosen], last_sequence=7)
    path.write_bytes(encode(producers))
    (problem,) = verify(corpus)
    assert (problem.code, problem.path) == ("snapshot-mismatch", f"t-0/{path.name}")
    assert problem.message.startswith("says of producer 5: {'producer_id': 5, 'epoch': 0, 'last_sequence': 7,")


def test_a_missing_and_a_foreign_producer_are_named(corpus: Path) -> None:
    path = sorted(corpus.glob("t-0/*.snapshot"))[0]
    producers = decode(path.read_bytes()) or []
    path.write_bytes(encode(one for one in producers if one.producer_id != 5))
    assert "says of producer 5: nothing; the log gives: {" in verify(corpus)[0].message
    path.write_bytes(encode([*producers, replace(producers[0], producer_id=99)]))
    # The next snapshot is made from this one, so it seems to lack the foreign producer.
    problem, following = verify(corpus)
    assert (problem.path, following.code) == (f"t-0/{path.name}", "snapshot-mismatch")
    assert "says of producer 99: {" in problem.message
    assert problem.message.endswith("the log gives: nothing")


@pytest.mark.parametrize("data", [b"", b"\0\1", struct.pack(">hIi", 2, crc32c(bytes(4)), 0), bytes(10)])
def test_a_broken_snapshot_is_read_as_none(data: bytes) -> None:
    assert decode(data) is None


def test_a_snapshot_that_counts_more_entries_than_it_has_is_none() -> None:
    body = struct.pack(">i", 1 << 30)
    assert decode(struct.pack(">hI", 1, crc32c(body)) + body) is None


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        # As Java 17 prints a HashMap whose keys were put in ascending order.
        (range(1, 13), list(range(1, 13))),
        (range(10, 22), [16, 17, 18, 19, 20, 21, 10, 11, 12, 13, 14, 15]),
        # The thirteenth key makes Java double its 16 buckets.
        (range(10, 23), list(range(10, 23))),
        (sorted(LARGE_KEYS), LARGE_KEYS),
    ],
)
def test_keys_come_in_the_order_of_javas_hash_map(keys: list[int], order: list[int]) -> None:
    assert hash_map_order(keys) == order
