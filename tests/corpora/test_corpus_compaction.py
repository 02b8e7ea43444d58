"""Cleaned segments: they have what Kafka's log cleaner leaves of the same segments."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from made_corpora import SegmentBytes, generate_segment

from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import (
    KIB,
    Batches,
    Compaction,
    Headers,
    Keys,
    Producers,
    Range,
    Timestamps,
    Topic,
    Transactions,
    Values,
    Workload,
)
from kfuzz.kafka import CODECS
from kfuzz.records.compaction import BatchRetention, compact

TOPIC = Topic(
    "cleaned",
    partitions=2,
    leader_epoch_offsets=300,
    keys=Keys(size=Range(4, 12), cardinality=1000, null_share=0.05),
    values=Values(size=Range(0, 80), null_share=0.05),
    headers=Headers(share=0.2),
    timestamps=Timestamps(jitter_ms=30),
    batches=Batches(records=Range(1, 12), codecs=tuple((codec, 1) for codec in CODECS)),
    producers=Producers(count=3, share=0.4, epoch_records=200, first_sequence=2**31 - 40),
    transactions=Transactions(
        producers=2, share=0.4, records=8, abort_share=0.3, partitions=2, cross_share=0.7, epoch_transactions=9
    ),
    compaction=Compaction(segments=3, keep=0.3),
)
WORKLOAD = Workload(topics=(TOPIC,), size=2 * 5 * 64 * KIB, segment_bytes=64 * KIB, seed=1)
LOG_APPEND = replace(WORKLOAD, topics=(replace(TOPIC, timestamps=replace(TOPIC.timestamps, type="log-append")),))
PLAIN = replace(WORKLOAD, topics=(replace(TOPIC, compaction=Compaction()),))


def before_of(workload: Workload) -> Workload:
    """The same workload without compaction."""
    return replace(workload, topics=(replace(workload.topics[0], compaction=Compaction()),))


def shape(batch: records.RecordBatch) -> tuple[object, ...]:
    """A batch without its codec's bytes and the bytes of its values, which depend on their places."""
    contents = [
        (record.offset, record.timestamp, record.key, record.value and len(record.value), len(record.headers))
        for record in batch.records
    ]
    return (
        batch.base_offset, batch.last_offset, batch.partition_leader_epoch, batch.compression, batch.timestamp_type,
        batch.transactional, batch.control, batch.producer_id, batch.producer_epoch, batch.base_sequence,
        batch.delete_horizon, batch.base_timestamp, batch.max_timestamp, contents,
    )  # fmt: skip


def cleaned_by_kafka(before: SegmentBytes, after: SegmentBytes, segment: Segment) -> list[tuple[object, ...]]:
    """Two passes of Kafka's cleaner over ``before``. ``after`` says only which records are the last of their keys."""
    survivors = {record.offset for batch in records.decode(after.log) if not batch.control for record in batch.records}
    aborted = {
        (producer_id, marker) for _, producer_id, _, marker, _ in struct.iter_unpack(">hqqqq", before.transaction_index)
    }
    last = {
        batch.producer_id: batch.last_offset
        for batch in records.decode(before.log)
        if batch.producer_id >= 0 and not batch.control
    }
    open_before = {stream.producer_id for stream in segment.streams if stream.continues}
    data = before.log
    for _ in range(2):
        # As CleanedTransactionMetadata: which transactions have a batch left, and which of them abort.
        seen, has_data = set(open_before), {}
        batches = records.decode(data)
        for batch in batches:
            if batch.control:
                has_data[batch.producer_id, batch.base_offset] = batch.producer_id in seen
                seen.discard(batch.producer_id)
            elif batch.transactional:
                seen.add(batch.producer_id)
        aborts: dict[int, bool] = {}
        drops = set()
        for batch in reversed(batches):
            if batch.control:
                aborts[batch.producer_id] = (batch.producer_id, batch.base_offset) in aborted
            elif batch.transactional and aborts.get(batch.producer_id, _aborts_later(segment, batch)):
                drops.add(batch.base_offset)

        def retain(batch: records.RecordBatch, record: records.Record, drops: set[int] = drops) -> bool:
            return batch.control or (batch.base_offset not in drops and record.offset in survivors)

        def retention(batch: records.RecordBatch) -> BatchRetention:
            return "retain-empty" if last.get(batch.producer_id) == batch.last_offset else "delete-empty"

        def empty(batch: records.RecordBatch, has_data: dict[tuple[int, int], bool] = has_data) -> bool:
            return batch.control and not has_data[batch.producer_id, batch.base_offset]

        data = compact(
            data,
            retain,
            now_ms=segment.delete_horizon_ms - 1000,
            delete_retention_ms=1000,
            batch_retention=retention,
            marks_empty_transaction=empty,
        ).data
    return [shape(batch) for batch in records.decode(data)]


def _aborts_later(segment: Segment, batch: records.RecordBatch) -> bool:
    """Whether the transaction that is open at the segment's end aborts in the next segment."""
    following = Plan(PLAIN)[segment.partition * 5 + segment.index + 1]
    markers = {
        found.producer_id: (found.records[0].key or b"")[3] == 0
        for found in reversed(records.decode(generate_segment(following, PLAIN).log))
        if found.control
    }
    return markers[batch.producer_id]


@pytest.mark.full
@pytest.mark.parametrize("workload", [WORKLOAD, LOG_APPEND], ids=["create", "log-append"])
def test_cleaned_segments_have_what_kafkas_cleaner_leaves(workload: Workload) -> None:
    seen: Counter[str] = Counter()
    plain = list(Plan(before_of(workload)))
    for segment, original in zip(Plan(workload), plain, strict=True):
        made = generate_segment(segment, workload)
        before = generate_segment(original, before_of(workload))
        if segment.index >= 3:
            assert made == before
            continue
        batches = records.decode(made.log)
        assert [shape(batch) for batch in batches] == cleaned_by_kafka(before, made, segment)
        for batch in batches:
            seen["empty"] += not batch.records
            seen["gap"] += 0 < len(batch.records) < batch.last_offset - batch.base_offset + 1
            seen["tombstones"] += batch.delete_horizon is not None and not batch.control
            seen["markers with horizon"] += batch.delete_horizon is not None and batch.control
            seen["markers without"] += batch.delete_horizon is None and batch.control
            assert all(record.key is not None for record in batch.records)
        kept = sum(len(batch.records) for batch in batches if not batch.control)
        seen["kept"] += kept
        seen["before"] += sum(len(batch.records) for batch in records.decode(before.log) if not batch.control)
        # The cleaner keeps an entry as it was, as long as a batch of the transaction remains.
        horizons = {batch.base_offset for batch in batches if batch.control and batch.delete_horizon is not None}
        entries = list(struct.iter_unpack(">hqqqq", before.transaction_index))
        assert list(struct.iter_unpack(">hqqqq", made.transaction_index)) == [
            entry for entry in entries if entry[3] not in horizons
        ]
        seen["entries"] += len(made.transaction_index) // 34
        seen["entries dropped"] += len(entries) - len(made.transaction_index) // 34
    assert min(seen.values()) > 0, seen
    assert seen["kept"] / seen["before"] == pytest.approx(0.3 * 0.95 * 0.88, abs=0.03)


@pytest.mark.parametrize("workload", [WORKLOAD, LOG_APPEND], ids=["create", "log-append"])
def test_a_cleaned_corpus_is_verified_and_counts_what_consumers_get(workload: Workload, tmp_path: Path) -> None:
    rows = generate(workload, tmp_path / "out")
    assert verify(tmp_path / "out") == []
    for partition in (0, 1):
        mine = [row for row in rows if row.path.startswith(f"cleaned-{partition}/")]
        batches = [batch for row in mine for batch in records.decode((tmp_path / "out" / row.path).read_bytes())]
        data = sum(len(batch.records) for batch in batches if not batch.control)
        assert data == sum(row.records - row.control_batches for row in mine)
        committed = sum(len(batch.records) for batch in records.read_committed(batches))
        assert committed == data - sum(row.aborted_records for row in mine)


@pytest.mark.parametrize("keep", [0.0, 1.0])
def test_all_or_nothing_may_be_kept(keep: float, tmp_path: Path) -> None:
    topic = replace(TOPIC, compaction=Compaction(segments=2, keep=keep))
    rows = generate(replace(WORKLOAD, topics=(topic,)), tmp_path / "producers")
    assert all(int(TOPIC.timestamps.start) <= (row.min_timestamp or 0) <= (row.max_timestamp or 0) for row in rows)
    assert verify(tmp_path / "producers") == []
    # Without producers, not one batch may remain.
    alone = replace(topic, producers=Producers(), transactions=Transactions())
    rows = generate(replace(WORKLOAD, topics=(alone,)), tmp_path / "plain")
    assert verify(tmp_path / "plain") == []
    assert [row.min_timestamp is None for row in rows] == [row.bytes == 0 for row in rows]
    assert [row.bytes == 0 for row in rows] == [keep == 0.0 and at % 5 < 2 for at in range(10)]


def test_the_last_segment_is_never_cleaned() -> None:
    for size in (1, 2, 3):
        workload = WORKLOAD.resized(2 * size * 64 * KIB)
        assert [segment.is_cleaned for segment in Plan(workload)][:size] == [True] * (size - 1) + [False]


def damaged(
    out: Path, find: Callable[[records.RecordBatch], bool], change: Callable[[records.RecordBatch], object]
) -> str:
    """Change the first batch of segment 1 that ``find`` accepts, with a right CRC."""
    segment = Plan(WORKLOAD)[1]
    path = out / segment.path
    pieces, done = [], False
    for batch in records.decode(path.read_bytes()):
        if not done and find(batch):
            change(batch)
            done = True
        pieces.append(records.encode_batch(batch))
    path.write_bytes(b"".join(pieces))
    assert done
    return segment.path


def of_producer(batch: records.RecordBatch) -> bool:
    return batch.producer_id >= 0 and not batch.transactional and len(batch.records) > 1


def raise_horizon(batch: records.RecordBatch) -> None:
    batch.delete_horizon = (batch.delete_horizon or 0) + 1


def has_horizon(control: bool) -> Callable[[records.RecordBatch], bool]:
    return lambda batch: batch.delete_horizon is not None and batch.control == control


@pytest.mark.parametrize(
    ("find", "change", "code"),
    [
        (of_producer, lambda batch: setattr(batch, "base_sequence", batch.base_sequence - 1), "sequence-off-plan"),
        (of_producer, lambda batch: setattr(batch.records[0], "key", None), "compaction-off-plan"),
        (of_producer, lambda batch: batch.records.clear(), "compaction-off-plan"),
        (has_horizon(False), raise_horizon, "compaction-off-plan"),
        (has_horizon(True), lambda batch: setattr(batch, "delete_horizon", None), "compaction-off-plan"),
    ],
    ids=["sequence", "key", "empty", "horizon", "marker"],
)
def test_verify_finds_records_that_the_cleaner_never_leaves(
    tmp_path: Path,
    find: Callable[[records.RecordBatch], bool],
    change: Callable[[records.RecordBatch], object],
    code: str,
) -> None:
    generate(WORKLOAD, tmp_path / "out")
    path = damaged(tmp_path / "out", find, change)
    found = verify(tmp_path / "out")
    assert code in {problem.code for problem in found if problem.path == path}, [str(problem) for problem in found]


def test_a_gap_in_a_segment_that_is_not_cleaned_is_found(tmp_path: Path) -> None:
    generate(PLAIN, tmp_path / "out")
    segment = Plan(PLAIN)[1]
    write_segment(Plan(WORKLOAD)[1], 1, PLAIN, tmp_path / "out", "a")
    codes = {problem.code for problem in verify(tmp_path / "out") if problem.path == segment.path}
    assert "offset-off-plan" in codes


def test_a_record_missing_inside_a_batch_that_is_not_cleaned_is_found(tmp_path: Path) -> None:
    generate(PLAIN, tmp_path / "out")
    path = damaged(tmp_path / "out", lambda batch: len(batch.records) > 2, lambda batch: batch.records.pop(1))
    messages = [problem.message for problem in verify(tmp_path / "out") if problem.path == path]
    assert any("though the segment is not cleaned" in message for message in messages), messages
