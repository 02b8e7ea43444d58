"""The plan: closed forms agree with what adding up the predecessors gives."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.workload import GIB, KIB, MIB, Keys, Legacy, Producers, Range, Topic, Transactions, Values, Workload
from kfuzz.corpora.writers import SEQUENCES
from kfuzz.records import Record, RecordBatch, encode_batch

BUSY = Topic(
    "busy",
    partitions=2,
    producers=Producers(count=3, share=0.35),
    transactions=Transactions(producers=2, share=0.3, records=40, abort_share=0.5),
    legacy=Legacy(magic0=0.05, magic1=0.1),
)
WORKLOAD = Workload(topics=(BUSY, Topic("plain", weight=2)), size=3 * MIB, segment_bytes=256 * KIB, seed=9)


def test_segments_of_a_partition_follow_each_other_without_gap_or_overlap() -> None:
    plan = Plan(WORKLOAD)
    following: dict[str, int] = {}
    for segment in plan:
        assert segment.first_offset == following.get(segment.directory, 0)
        following[segment.directory] = segment.last_offset + 1
    assert following == {
        f"{planned.topic.name}-{at}": planned.offsets_per_partition
        for planned in plan.topics
        for at in range(planned.topic.partitions)
    }


def test_first_sequences_wrap_from_int32_max_to_zero() -> None:
    workload = replace(WORKLOAD, size=1 << 50, segment_bytes=GIB // 4)
    plan = Plan(workload)
    segment = plan[600_000]
    stream = segment.streams[0]
    full = stream.records
    assert segment.index * full > SEQUENCES
    assert stream.first_sequence == segment.index * full % SEQUENCES


def test_a_segment_far_out_is_planned_without_its_predecessors() -> None:
    plan = Plan(replace(WORKLOAD, size=1 << 60))
    assert len(plan) > 1 << 40
    segment = plan[len(plan) - 1]
    assert segment.path.startswith("plain-0/0")
    assert segment.last_offset + 1 == plan.topics[1].offsets_per_partition


def test_ids_outside_the_plan_are_refused() -> None:
    plan = Plan(WORKLOAD)
    for segment_id in (-1, len(plan)):
        with pytest.raises(IndexError):
            plan[segment_id]


def test_every_segment_has_a_seed_of_its_own_and_a_topic_shares_its_keys() -> None:
    segments = list(Plan(WORKLOAD))
    assert len({segment.seed for segment in segments}) == len(segments)
    assert len({segment.key_seed for segment in segments}) == 2


def test_records_counts_what_the_segments_hold() -> None:
    plan = Plan(WORKLOAD)
    assert plan.records == sum(stream.records for segment in plan for stream in segment.streams)


def test_the_guess_of_what_an_offset_takes_is_right_where_nothing_is_left_to_chance() -> None:
    topic = Topic(
        "t", keys=Keys(size=Range(10, 10), null_share=0.0), values=Values(size=Range(100, 100), null_share=0.0)
    )
    assert topic.batches.records == Range(100, 100)
    assert topic.timestamps.records_per_second == 1000
    batch = RecordBatch(0, 99, [Record(at, 1000 + at, b"k" * 10, b"v" * 100) for at in range(100)])
    assert offset_bytes_mean(topic) == pytest.approx(len(encode_batch(batch)) / 100)
