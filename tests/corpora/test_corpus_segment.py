"""Segment bytes: a pure function of the plan, read back by kfuzz.records to what the workload says."""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from made_corpora import batches_of, generate_segment

from kfuzz import records
from kfuzz.corpora import segment as segment_module
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import (
    CODECS,
    KIB,
    MIB,
    Batches,
    Compaction,
    Headers,
    Keys,
    Legacy,
    Producers,
    Range,
    Timestamps,
    Topic,
    Transactions,
    Values,
    Workload,
)
from kfuzz.kafka import Role
from kfuzz.records.stream import ProducerState
from kfuzz.units import show_size

MIXED = Topic(
    "mixed",
    keys=Keys(kind="zipf", size=Range(0, 20), cardinality=50, null_share=0.1),
    values=Values(size=Range(0, 300, 2), kind="text", null_share=0.1),
    headers=Headers(share=0.3, count=Range(0, 4), size=Range(0, 20)),
    timestamps=Timestamps(records_per_second=700, jitter_ms=50),
    batches=Batches(records=Range(1, 60), codecs=tuple((codec, 1) for codec in CODECS)),
    producers=Producers(count=3, share=0.3),
    transactions=Transactions(producers=3, share=0.3, records=25, abort_share=0.5),
    legacy=Legacy(magic0=0.05, magic1=0.1, codecs=(("none", 1), ("gzip", 1))),
)
PLAIN = Topic("plain", batches=Batches(records=Range(10, 20)))


def workload_of(topic: Topic, size: int = 512 * KIB, **more: Any) -> Workload:
    return Workload(topics=(topic,), size=size, segment_bytes=128 * KIB, **more)


def all_records(batches: list[records.RecordBatch]) -> list[records.Record]:
    return [record for batch in batches if not batch.control for record in batch.records]


@pytest.mark.parametrize("topic", [MIXED, PLAIN], ids=lambda topic: topic.name)
def test_a_segment_holds_exactly_the_offsets_of_the_plan(topic: Topic) -> None:
    workload = workload_of(topic)
    for segment in Plan(workload):
        offsets = [record.offset for batch in batches_of(segment, workload) for record in batch.records]
        assert offsets == list(range(segment.first_offset, segment.last_offset + 1))


def test_a_segment_generated_alone_equals_the_one_generated_after_all_others() -> None:
    workload = workload_of(MIXED)
    plan = Plan(workload)
    whole = [generate_segment(segment, workload) for segment in plan]
    assert len(whole) >= 4
    for segment_id in reversed(range(len(plan))):
        assert generate_segment(Plan(workload)[segment_id], workload) == whole[segment_id]


def test_segments_partitions_topics_and_seeds_all_differ() -> None:
    topics = (replace(PLAIN, partitions=2), replace(PLAIN, name="other"))
    bodies = set()
    for seed in (0, 1):
        workload = Workload(topics=topics, size=512 * KIB, segment_bytes=128 * KIB, seed=seed)
        # The first batch's payload: it has no offset of its own in it.
        bodies |= {generate_segment(segment, workload).log[61:500] for segment in Plan(workload)}
    assert len(bodies) == 2 * len(Plan(workload))


def test_uncompressed_bytes_never_change_between_versions_of_kfuzz() -> None:
    codecs = (("none", 1),)
    topic = replace(MIXED, batches=replace(MIXED.batches, codecs=codecs), legacy=replace(MIXED.legacy, codecs=codecs))
    workload = workload_of(topic, seed=5)
    made = generate_segment(Plan(workload)[1], workload)
    digest = hashlib.sha256(made.log + made.offset_index + made.time_index + made.transaction_index)
    assert digest.hexdigest() == "ee32f5d0fcc996f6ea724b048fa4075f75d17cab2429cfcac42c7fbfe01a0673"


def test_the_offset_index_points_at_batches_an_interval_apart() -> None:
    workload = workload_of(PLAIN, index_interval_bytes=5000)
    for segment in Plan(workload):
        made = generate_segment(segment, workload)
        entries = list(struct.iter_unpack(">ii", made.offset_index))
        assert len(entries) > 10
        for relative, position in entries:
            batch = records.read(made.log[position:]).batches[0]
            assert batch.last_offset == segment.first_offset + relative
        assert all(after[1] - before[1] > 5000 for before, after in pairwise(entries))


def test_the_time_index_rises_and_ends_with_the_largest_timestamp() -> None:
    workload = workload_of(MIXED)
    for segment in Plan(workload):
        made = generate_segment(segment, workload)
        entries = list(struct.iter_unpack(">qi", made.time_index))
        assert entries == sorted(set(entries))
        largest = max(batch.max_timestamp or -1 for batch in batches_of(segment, workload))
        assert entries[-1][0] == largest


def test_distributions_are_those_of_the_workload() -> None:
    workload = workload_of(MIXED, size=4 * MIB)
    batches = [batch for segment in Plan(workload) for batch in batches_of(segment, workload)]
    modern = [batch for batch in batches if batch.magic == 2 and not batch.control]
    made = all_records(modern)
    total = len(made)
    assert total > 10_000

    def share(count: int) -> float:
        return count / total

    assert share(sum(record.key is None for record in made)) == pytest.approx(0.1, abs=0.02)
    assert share(sum(record.value is None for record in made)) == pytest.approx(0.1, abs=0.02)
    with_headers = sum(len(record.headers) > 0 for record in made)
    assert share(with_headers) == pytest.approx(0.3 * 4 / 5, abs=0.02)
    sizes = [len(record.value) for record in made if record.value is not None]
    assert min(sizes) >= 0
    assert max(sizes) == pytest.approx(300, abs=10)
    assert sum(sizes) / len(sizes) == pytest.approx(MIXED.values.size.mean, rel=0.05)
    keys = Counter(record.key for record in made if record.key is not None)
    assert len(keys) <= 50
    assert keys.most_common(1)[0][1] > 5 * total / 50
    assert {batch.compression for batch in modern} == set(CODECS)
    assert {len(batch.records) for batch in modern} <= set(range(1, 61))
    assert Counter(batch.magic for batch in batches).keys() == {0, 1, 2}
    everything = sum(len(batch.records) for batch in batches)
    for magic, expected in ((0, 0.05), (1, 0.1)):
        held = sum(len(batch.records) for batch in batches if batch.magic == magic)
        assert held / everything == pytest.approx(expected, abs=0.01)
    idempotent = sum(len(b.records) for b in modern if b.producer_id >= 0 and not b.transactional)
    assert idempotent / everything == pytest.approx(0.3, abs=0.01)


def test_tombstones_are_null_values_of_records_with_a_key() -> None:
    values = Values(tombstone_share=0.25, null_share=0.1)
    topic = Topic("t", keys=Keys(null_share=0.5), values=values)
    workload = workload_of(topic, size=4 * MIB)
    made = all_records([batch for segment in Plan(workload) for batch in batches_of(segment, workload)])
    for has_key, expected in ((True, 0.35), (False, 0.1)):
        nulls = [record.value is None for record in made if (record.key is not None) == has_key]
        assert len(nulls) > 10_000
        assert sum(nulls) / len(nulls) == pytest.approx(expected, abs=0.02)
    everything = sum(len(generate_segment(segment, workload).log) for segment in Plan(workload))
    assert everything / len(made) == pytest.approx(offset_bytes_mean(topic), rel=0.01)


def test_log_append_time_gives_a_batch_one_timestamp() -> None:
    topic = replace(MIXED, timestamps=replace(MIXED.timestamps, type="log-append"))
    workload = workload_of(topic)
    for batch in batches_of(Plan(workload)[0], workload):
        if batch.magic > 0:
            assert batch.timestamp_type == "log-append"
            assert {record.timestamp for record in batch.records} == {batch.max_timestamp}


def test_text_compresses_and_random_bytes_do_not() -> None:
    ratio = {}
    for kind in ("text", "random"):
        topic = replace(PLAIN, values=Values(size=Range(500, 500), kind=kind), batches=Batches(codecs=(("zstd", 1),)))
        workload = workload_of(topic)
        ratio[kind] = len(generate_segment(Plan(workload)[0], workload).log) / workload.segment_bytes
    assert ratio["text"] < 0.3
    assert ratio["random"] > 0.95


@pytest.mark.parametrize("topic", [MIXED, PLAIN], ids=lambda topic: topic.name)
def test_uncompressed_segments_come_within_five_percent_of_segment_bytes(topic: Topic) -> None:
    none = replace(topic, batches=replace(topic.batches, codecs=(("none", 1),)), legacy=Legacy(0.1, 0.1))
    workload = Workload(topics=(none,), size=4 * MIB, segment_bytes=MIB)
    sizes = [len(generate_segment(segment, workload).log) for segment in list(Plan(workload))[:3]]
    assert sizes == pytest.approx([MIB] * 3, rel=0.05), [show_size(size) for size in sizes]


def test_the_content_fingerprint_does_not_depend_on_how_well_a_codec_compresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = workload_of(MIXED)
    segment = Plan(workload)[0]
    one = write_segment(segment, 0, workload, tmp_path / "one", "a")
    plain = segment_module.compress
    monkeypatch.setattr(segment_module, "compress", lambda codec, data, magic: plain(codec, data, magic=magic, level=1))
    two = write_segment(segment, 0, workload, tmp_path / "two", "a")
    assert one.crc32c != two.crc32c
    assert one.fingerprint == two.fingerprint
    other = workload_of(MIXED, seed=1)
    three = write_segment(Plan(other)[0], 0, other, tmp_path / "three", "a")
    assert three.fingerprint != one.fingerprint


@pytest.mark.parametrize("topic", [MIXED, PLAIN], ids=lambda topic: topic.name)
def test_the_logs_checksum_is_that_of_its_bytes(topic: Topic, tmp_path: Path) -> None:
    workload = workload_of(topic)
    for segment_id, segment in enumerate(Plan(workload)):
        row = write_segment(segment, segment_id, workload, tmp_path, "a")
        for name, size in row.files():
            data = (tmp_path / name).read_bytes()
            assert size in (None, len(data))
            suffix = Path(name).suffix.removeprefix(".")
            assert crc32c(data) == getattr(row, "crc32c" if suffix == "log" else f"{suffix}_crc32c")


def test_batches_larger_than_the_chunk_are_whole() -> None:
    topic = Topic("big", values=Values(size=Range(5000, 5000)), batches=Batches(records=Range(200, 200)))
    workload = Workload(topics=(topic,), size=4 * MIB, segment_bytes=4 * MIB)
    batches = batches_of(Plan(workload)[0], workload)
    assert {len(batch.records) for batch in batches[:-1]} == {200}
    assert {len(record.value or b"") for record in all_records(batches)} == {5000}


def any_workload(seed: int) -> Workload:
    """Some workload with every feature drawn, the corners of its ranges included."""
    draw = random.Random(seed)

    def some_range(low: int, high: int) -> Range:
        ends = sorted(draw.choice((low, high, draw.randint(low, high))) for _ in range(2))
        return Range(*ends, skew=draw.choice((1, 2, 16)))

    def share() -> float:
        return draw.choice((0.0, 0.1, 0.25))

    old = draw.random() < 0.5
    topic = Topic(
        "any",
        partitions=draw.choice((1, 2)),
        leader_epoch_offsets=draw.choice((0, 0, 50, 1000)),
        keys=Keys(
            kind=draw.choice(("uniform", "zipf", "sequential")),
            size=some_range(3, 40),
            cardinality=draw.choice((1, 1000)),
            null_share=draw.choice((0.0, 0.2, 1.0)),
        ),
        values=Values(
            size=some_range(0, 700), kind=draw.choice(("random", "text")), null_share=draw.choice((0.0, 0.2))
        ),
        headers=Headers(share=draw.choice((0.0, 0.5, 1.0)), count=some_range(0, 100), size=some_range(0, 30)),
        timestamps=Timestamps(
            type=draw.choice(("create", "log-append")),
            start=draw.choice((0, 1 << 40)),
            records_per_second=draw.choice((1, 999, 10**6)),
            jitter_ms=draw.choice((0, 1 << 30)),
        ),
        batches=Batches(records=some_range(1, 900), codecs=((draw.choice(CODECS), 1),)),
        producers=Producers(
            count=draw.choice((1, 7)),
            share=share(),
            epoch_records=draw.choice((0, 1, 60)),
            first_sequence=draw.choice((0, 2**31 - 30)),
        ),
        transactions=Transactions(
            producers=draw.choice((1, 3)),
            share=share(),
            records=draw.choice((2, 7, 300)),
            cross_share=draw.choice((0.0, 0.5, 1.0)),
            epoch_transactions=draw.choice((0, 1, 5)),
            coordinator_epoch_transactions=draw.choice((0, 1, 5)),
            first_sequence=draw.choice((0, 2**31 - 30)),
        ),
        legacy=Legacy(share(), share(), draw.choice((0, 1)), draw.choice((0, 1)), ((draw.choice(("none", "gzip")), 1),))
        if old
        else Legacy(),
        compaction=Compaction() if old else Compaction(draw.choice((0, 2)), draw.choice((0.0, 0.1, 0.7, 1.0))),
    )
    segments = 4 * topic.partitions
    if topic.partitions == 2:
        topic = replace(topic, transactions=replace(topic.transactions, partitions=draw.choice((1, 2))))
    return Workload(topics=(topic,), size=segments * 64 * KIB, segment_bytes=64 * KIB, seed=seed)


@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(16, 40))])
def test_any_workload_makes_segments_that_keep_to_the_documents_and_the_plan(seed: int, tmp_path: Path) -> None:
    workload = any_workload(seed)
    rows = generate(workload, tmp_path / "out")
    assert len(rows) == 4 * workload.topics[0].partitions
    assert verify(tmp_path / "out") == []
    states: dict[str, ProducerState] = {}
    for segment in Plan(workload):
        # A log that was cleaned has gaps in its sequences, so only a broker that follows would take it.
        role: Role = "log" if workload.topics[0].compaction.segments else "broker"
        state = states.setdefault(segment.directory, ProducerState(role=role))
        batches = batches_of(segment, workload)
        assert all(state.append(batch).finding is None for batch in batches)
        if not segment.is_cleaned:
            assert sum(len(batch.records) for batch in batches) == segment.offsets
    assert not any(state.open_transactions for state in states.values())
