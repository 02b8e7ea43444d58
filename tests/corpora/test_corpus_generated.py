"""A workload's rows, made in memory, are those that are read of the corpus once it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from corpora.test_corpus_logs_transactions import make_log
from made_corpora import MIXED, in_ms, once
from made_corpora import rows_of as rows

from kfuzz import logs, records
from kfuzz.corpora import generated
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.workload import KIB, MIB, Batches, Legacy, Range, Topic, Workload, load
from kfuzz.errors import UsageError
from kfuzz.wire.records.framing import frames

WORKLOAD = replace(load(MIXED), size=6 * MIB, segment_bytes=MIB, seed=5)


# All codecs and magics, headers, producers and transactions, in several segments.
corpus = once(WORKLOAD)


def in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["topic"], row["partition"], row["segment"], row["position"]))


def test_records_are_those_of_the_written_corpus(corpus: Path) -> None:
    found = in_order(rows(generated.read(WORKLOAD, rows="records")))
    assert found == rows(logs.read(corpus))
    assert any(row["aborted"] for row in found)
    assert len(found) > 5000


@pytest.mark.parametrize(
    "options",
    [
        {"topics": "ord*"},
        {"first_offset": 900, "last_offset": 1300},
        {"last_offset": 12},
        {"min_timestamp": 1_700_000_001_000, "max_timestamp": 1_700_000_001_500},
        {"columns": ["aborted", "value", "topic", "partition", "segment", "position"]},
        {"isolation": "read_committed"},
        {"isolation": "read_uncommitted", "first_offset": 500},
    ],
)
def test_arguments_mean_what_they_mean_for_a_log(corpus: Path, options: dict[str, Any]) -> None:
    expected = rows(logs.read(corpus, **options))
    assert expected
    assert in_order(rows(generated.read(WORKLOAD, rows="records", **options))) == expected


@pytest.mark.parametrize("batch_records", [1, 100])
def test_bounds_hold_after_segments_of_an_old_format(batch_records: int) -> None:
    """These have fewer or more offsets than the segments after them."""
    topic = Topic("t", batches=Batches(Range(batch_records, batch_records)), legacy=Legacy(magic0_segments=3))
    workload = Workload((topic,), size=512 * KIB, segment_bytes=64 * KIB)
    [planned] = Plan(workload).topics
    first, end = planned.first_offset(3), planned.counts[0]
    for low, high in ((first - 1, first), (first + 1, first + 1), (end - 1, end), (end, end + 9), (-9, -1)):
        found = rows(generated.read(workload, rows="records", columns=["offset"], first_offset=low, last_offset=high))
        assert [row["offset"] for row in found] == [one for one in range(low, high + 1) if 0 <= one < end]


def expected_batches(corpus: Path) -> Iterator[dict[str, Any]]:
    """The batches of the written corpus, by way of objects."""
    for segment in logs.find_segments(corpus):
        data = segment.path.read_bytes()
        for (at, size, magic), batch in zip(frames(data), records.batches(data), strict=True):
            yield {
                "topic": segment.topic,
                "partition": segment.partition,
                "base_offset": batch.base_offset if magic == 2 else batch.records[0].offset,
                "last_offset": batch.last_offset,
                "records": len(batch.records),
                "magic": magic,
                "codec": batch.compression,
                "timestamp_type": {"create": 0, "log-append": 1}[batch.timestamp_type] if magic else -1,
                "max_timestamp": max(record.timestamp for record in batch.records) if magic else None,
                "leader_epoch": batch.partition_leader_epoch if magic == 2 else -1,
                "producer_id": batch.producer_id,
                "producer_epoch": batch.producer_epoch,
                "base_sequence": batch.base_sequence,
                "transactional": batch.transactional,
                "control": batch.control,
                "segment": segment.base_offset,
                "position": at,
                "size": size,
                "batch": data[at : at + size],
            }


def test_batches_are_those_of_the_written_corpus(corpus: Path) -> None:
    found = in_ms(in_order(rows(generated.read(WORKLOAD))), "max_timestamp")
    expected = list(expected_batches(corpus))
    assert len(found) == len(expected) > 500
    for ours, theirs in zip(found, expected, strict=True):
        assert ours == theirs
    for segment in logs.find_segments(corpus):
        here = [row for row in found if (row["topic"], row["partition"]) == (segment.topic, segment.partition)]
        assert b"".join(row["batch"] for row in here if row["segment"] == segment.base_offset) == (
            segment.path.read_bytes()
        )
    for name in ("magic", "codec", "records", "timestamp_type", "transactional", "control"):
        assert len({row[name] for row in found}) > 1, name


@pytest.mark.parametrize(
    ("options", "holds"),
    [
        ({"first_offset": 700, "last_offset": 1500}, lambda row: 700 <= row["base_offset"] <= 1500),
        (
            {"min_timestamp": 1_700_000_001_000, "max_timestamp": 1_700_000_001_500},
            lambda row: (
                row["max_timestamp"] is not None and 1_700_000_001_000 <= row["max_timestamp"] <= 1_700_000_001_500
            ),
        ),
        ({"topics": "audit"}, lambda row: row["topic"] == "audit"),
    ],
)
def test_bounds_select_batches(options: dict[str, Any], holds: Any) -> None:
    expected = [row for row in in_ms(rows(generated.read(WORKLOAD)), "max_timestamp") if holds(row)]
    assert expected
    assert in_ms(rows(generated.read(WORKLOAD, **options)), "max_timestamp") == expected


def test_segments_outside_of_the_bounds_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    chunks = generated.log_chunks

    def spy(segment: Segment, workload: Workload) -> Iterator[memoryview]:
        made.append((segment.first_offset, segment.last_offset))
        return chunks(segment, workload)

    monkeypatch.setattr(generated, "log_chunks", spy)
    found = rows(generated.read(WORKLOAD, rows="records", topics="audit", first_offset=5000, last_offset=5001))
    assert [row["offset"] for row in found] == [5000, 5001]
    assert len(made) == 1


@pytest.mark.parametrize("name", ["WINDOW_BYTES", "PAYLOAD_BYTES"])
def test_the_size_of_windows_changes_no_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = WORKLOAD.resized(3 * MIB)
    expected = rows(generated.read(small, rows="records"))
    monkeypatch.setattr(generated, name, 1)
    assert rows(generated.read(small, rows="records")) == expected


@pytest.mark.parametrize("window", [64, 4 * MIB])
@pytest.mark.parametrize("seed", range(3))
def test_transactions_that_end_in_a_later_segment_are_followed(
    tmp_path: Path, seed: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(tmp_path / "orders-0", seed)
    found = logs.find_segments(tmp_path)
    expected = rows(logs.read(tmp_path))
    like = Plan(WORKLOAD)[0]
    topic = replace(like.topic, name="orders")
    ends = [*(one.base_offset for one in found[1:]), expected[-1]["offset"] + 1]

    class Made(list[Segment]):
        workload = WORKLOAD

    plan = Made(
        replace(like, topic=topic, first_offset=one.base_offset, offsets=end - one.base_offset, index=at)
        for at, (one, end) in enumerate(zip(found, ends, strict=True))
    )
    # Another partition follows.
    plan.append(replace(plan[0], partition=1))

    def chunks(segment: Segment, workload: Workload) -> Iterator[memoryview]:
        data = memoryview((tmp_path / "orders-0" / f"{segment.first_offset:020}.log").read_bytes())
        return (data[at : at + size] for at, size, _ in frames(data))

    monkeypatch.setattr(generated, "log_chunks", chunks)
    monkeypatch.setattr(generated, "WINDOW_BYTES", window)
    query = generated.Query("records", generated.schema("records"))
    assert expected == [
        row
        for at in range(len(found))
        for row in rows(generated.read_segment(plan, at, query))  # type: ignore[arg-type]
    ]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rows": "values"}, "rows 'values' do not exist; take one of batches, records"),
        ({"columns": ["offset"]}, "column 'offset' does not exist; take some of topic, partition, base_offset"),
        ({"rows": "records", "columns": ["batch"]}, "column 'batch' does not exist; take some of topic, partition, of"),
        ({"topics": "none*"}, r"no topic of the workload matches 'none\*'; there are orders, audit"),
        ({"isolation": "read_committed"}, "batches have no isolation; leave isolation out, or choose records as rows"),
        ({"rows": "records", "isolation": "x"}, "isolation 'x' does not exist"),
    ],
)
def test_a_wrong_argument_is_answered_in_one_sentence(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        generated.read(WORKLOAD, **options)


def test_a_workload_that_cannot_be_planned_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match="size leaves"):
        generated.read(WORKLOAD.resized(4), rows="records")


def test_batches_need_no_more_memory_than_their_windows() -> None:
    small = replace(WORKLOAD, size=2 * MIB, segment_bytes=64 * KIB)
    sizes = [batch.num_rows for batch in generated.read(small, columns=["size"])]
    assert len(sizes) == len(Plan(small))
