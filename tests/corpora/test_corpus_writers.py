"""The batches that producers write: the formulas agree with a simulation that goes through a corpus from its start."""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_corpora import BUSY, copy_of, generate_segment, once

from kfuzz import records
from kfuzz.corpora.generation import generate
from kfuzz.corpora.manifest import Row
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.segment import write_segment
from kfuzz.corpora.turns import opened
from kfuzz.corpora.verification import verify
from kfuzz.corpora.workload import KIB, MIB, Legacy, Producers, Topic, Transactions, Workload
from kfuzz.corpora.writers import (
    IDEMPOTENT,
    PLAIN,
    PRODUCER_EPOCH_MAX,
    SEQUENCES,
    TRANSACTIONAL,
    Stream,
    Writers,
    cut,
    split,
    transaction_of,
)
from kfuzz.records.stream import ProducerState

OTHER = replace(BUSY, name="other", partitions=1, transactions=Transactions(share=0.5, records=50))
WORKLOAD = Workload(topics=(BUSY, OTHER), size=2 * MIB, segment_bytes=64 * KIB, seed=3)

pristine, corpus = once(WORKLOAD), copy_of("pristine")


topics = st.builds(
    Topic,
    st.just("t"),
    partitions=st.integers(4, 7),
    producers=st.builds(
        Producers,
        count=st.integers(1, 4),
        share=st.sampled_from([0.0, 0.1, 0.5]),
        epoch_records=st.sampled_from([0, 1, 7, 300]),
        first_sequence=st.sampled_from([0, 2**31 - 1, 2**31 - 40]),
    ),
    transactions=st.builds(
        Transactions,
        producers=st.integers(1, 4),
        share=st.sampled_from([0.1, 0.5]),
        records=st.integers(2, 30),
        partitions=st.integers(1, 4),
        cross_share=st.sampled_from([0.0, 0.5, 1.0]),
        epoch_transactions=st.sampled_from([0, 1, 3, 10]),
        first_sequence=st.sampled_from([0, 2**31 - 1, 2**31 - 40]),
    ),
)


@given(topics, st.integers(1, 400), st.integers(1, 6), st.integers(0, 1 << 40))
def test_the_formulas_agree_with_a_simulation(topic: Topic, offsets: int, segments: int, seed: int) -> None:
    writers = Writers(topic, seed, 1, offsets)
    for partition in range(topic.partitions):
        last = max(writers.offsets_min, offsets // 3)
        simulated: dict[int, Simulated] = defaultdict(Simulated)
        total = 0
        for k in range(segments):
            here = last if k == segments - 1 else offsets
            streams = writers.streams(partition, k, here, is_last=k == segments - 1)
            assert sum(stream.records + stream.markers for stream in streams) == here
            total += sum(stream.records for stream in streams)
            for stream in streams:
                if stream.producer_id >= 0:
                    simulated[stream.producer_id].add(topic, partition, stream)
        assert total == writers.records(partition, segments, last)
        assert not any(one.is_open for one in simulated.values())


class Simulated:
    """One producer in one partition, as it goes on from segment to segment."""

    def __init__(self) -> None:
        self.epoch, self.sequence = 0, -1
        self.written = self.ended = 0
        self.is_open = False

    def add(self, topic: Topic, partition: int, stream: Stream) -> None:
        assert stream.written == self.written
        if stream.kind == IDEMPOTENT:
            self.enter(self.written // (topic.producers.epoch_records or 1 << 60), topic.producers.first_sequence)
            assert (stream.producer_epoch, stream.first_sequence) == (self.epoch, self.sequence)
            for _ in range(stream.records):
                self.enter(self.written // (topic.producers.epoch_records or 1 << 60), 0)
                self.write(1)
            return
        assert stream.continues == self.is_open
        assert stream.first_transaction == self.ended
        for at in range(stream.pieces):
            epoch = transaction_of(topic, partition, self.ended) // (topic.transactions.epoch_transactions or 1 << 60)
            self.enter(epoch, topic.transactions.first_sequence)
            if at == 0:
                assert (stream.producer_epoch, stream.first_sequence) == (self.epoch, self.sequence)
            count = cut(stream, at + 1) - cut(stream, at)
            # Only a transaction that began before may end here without a record.
            assert count >= 1 or (stream.continues and stream.records == 0)
            self.write(count)
            self.ended += at < stream.markers
        self.is_open = stream.stays_open

    def enter(self, epoch: int, first_sequence: int) -> None:
        if self.sequence < 0 or epoch != self.epoch:
            self.epoch, self.sequence = epoch, 0 if epoch else first_sequence

    def write(self, count: int) -> None:
        self.sequence = (self.sequence + count) % SEQUENCES
        self.written += count


@given(st.integers(1, 9), st.data())
def test_each_transaction_covers_as_many_partitions_as_the_workload_says(partitions: int, data: st.DataObject) -> None:
    span = data.draw(st.integers(1, partitions))
    topic = Topic("t", partitions=partitions, transactions=Transactions(partitions=span))
    covered: dict[int, list[int]] = defaultdict(list)
    for partition in range(partitions):
        for number in range(10):
            covered[transaction_of(topic, partition, number)].append(partition)
    whole = 10 * partitions // span
    assert all(len(set(covered[t])) == span == len(covered[t]) for t in range(whole))


def whole_partitions(workload: Workload) -> dict[str, list[Segment]]:
    found: dict[str, list[Segment]] = defaultdict(list)
    for segment in Plan(workload):
        found[segment.directory].append(segment)
    return found


def marker_of(batch: records.RecordBatch) -> tuple[int, int]:
    """The type of a marker (0 aborts, 1 commits) and its coordinator's epoch."""
    key, value = batch.records[0].key, batch.records[0].value
    return struct.unpack(">hh", key or b"")[1], struct.unpack(">hi", value or b"")[1]


@pytest.fixture(scope="module")
def logs() -> dict[str, list[tuple[Segment, list[records.RecordBatch], bytes]]]:
    """Each partition's segments, with their batches and transaction indexes."""
    made = {}
    for directory, segments in whole_partitions(WORKLOAD).items():
        made[directory] = []
        for segment in segments:
            files = generate_segment(segment, WORKLOAD)
            batches = records.read(files.log, profile="strict").batches
            made[directory].append((segment, batches, files.transaction_index))
    return made


Logs = dict[str, list[tuple[Segment, list[records.RecordBatch], bytes]]]


def test_a_broker_would_append_every_batch_of_a_partition_one_after_the_other(logs: Logs) -> None:
    for segments in logs.values():
        state = ProducerState()
        for _, batches, _ in segments:
            for batch in batches:
                appended = state.append(batch)
                assert (appended.outcome, appended.base_offset) == ("appended", batch.base_offset), appended.finding
        assert state.open_transactions == 0


def test_a_broker_that_follows_the_log_builds_the_same_transaction_indexes(logs: Logs) -> None:
    crossed = 0
    for segments in logs.values():
        state = ProducerState(role="log")
        for segment, batches, index in segments:
            expected = []
            for batch in batches:
                completed = state.append(batch).completed
                if completed is not None and completed.aborted:
                    stable = state.last_stable_offset
                    expected.append((0, completed.producer_id, completed.first_offset, completed.last_offset, stable))
                    crossed += completed.first_offset < segment.first_offset
            assert list(struct.iter_unpack(">hqqqq", index)) == expected
    assert crossed >= 3


def test_a_transaction_has_one_outcome_and_one_epoch_in_all_partitions(logs: Logs) -> None:
    ends: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for directory, segments in logs.items():
        if not directory.startswith("busy"):
            continue
        partition = int(directory.rpartition("-")[2])
        ended: Counter[int] = Counter()
        for _, batches, _ in segments:
            for batch in batches:
                if batch.control:
                    t = transaction_of(BUSY, partition, ended[batch.producer_id])
                    ended[batch.producer_id] += 1
                    ends[batch.producer_id, t].append((*marker_of(batch), batch.producer_epoch))
    assert all(len(set(found)) == 1 for found in ends.values())
    assert all(found[0][1:] == (t // 17, t // 11) for (_, t), found in ends.items())
    assert sum(len(found) == 2 for found in ends.values()) > 0.9 * len(ends) > 100
    aborted = sum(found[0][0] == 0 for found in ends.values())
    assert aborted / len(ends) == pytest.approx(0.4, abs=0.06)


def test_epochs_change_and_sequences_wrap_in_the_segments(logs: Logs) -> None:
    wrapped, epochs = set(), defaultdict(set)
    for batch in (batch for segments in logs.values() for _, batches, _ in segments for batch in batches):
        if batch.producer_id >= 0 and not batch.control:
            epochs[batch.transactional].add(batch.producer_epoch)
            if batch.base_sequence + len(batch.records) > SEQUENCES:
                wrapped.add(batch.transactional)
    assert wrapped == {False, True}
    assert min(len(found) for found in epochs.values()) > 2


def test_leader_epochs_are_those_of_the_checkpoint(logs: Logs) -> None:
    for planned in Plan(WORKLOAD).topics:
        begun: dict[int, int] = {}
        for _, batches, _ in logs[f"{planned.topic.name}-0"]:
            for batch in batches:
                begun.setdefault(batch.partition_leader_epoch, batch.base_offset)
        assert list(begun.items()) == planned.leader_epochs()
        assert len(begun) > 5


def test_producer_ids_are_unique_in_the_corpus(logs: Logs) -> None:
    by_topic = defaultdict(set)
    for directory, segments in logs.items():
        by_topic[directory.rpartition("-")[0]] |= {
            batch.producer_id for _, batches, _ in segments for batch in batches if batch.producer_id >= 0
        }
    assert by_topic == {"busy": {1, 2, 3, 4, 5}, "other": {6, 7, 8, 9, 10, 11}}


def test_growth_changes_the_last_segment_of_a_partition_only() -> None:
    def made(workload: Workload) -> dict[str, bytes]:
        return {segment.path: generate_segment(segment, workload).log for segment in Plan(workload)}

    small, large = made(WORKLOAD), made(WORKLOAD.resized(3 * MIB))
    lasts = {segment.path for segment in Plan(WORKLOAD) if segment.is_last}
    assert len(lasts) == 4
    assert all(large[path] == log for path, log in small.items() if path not in lasts)


def test_aborted_records_are_exactly_those_that_a_consumer_of_committed_records_does_not_get(
    logs: Logs, tmp_path: Path
) -> None:
    ids = {segment.path: at for at, segment in enumerate(Plan(WORKLOAD))}
    for segments in logs.values():
        rows = [write_segment(segment, ids[segment.path], WORKLOAD, tmp_path, "a") for segment, _, _ in segments]
        batches = [batch for _, batches, _ in segments for batch in batches]
        committed = sum(len(batch.records) for batch in records.read_committed(batches))
        assert committed == sum(row.records - row.control_batches - row.aborted_records for row in rows)
        assert sum(row.aborted_records for row in rows) > 0


def test_a_small_last_segment_ends_every_open_transaction() -> None:
    """Each size of the last segment, down to the smallest that the plan makes."""
    topic = Topic("t", transactions=Transactions(producers=5, share=1.0, records=2, cross_share=1.0))
    writers = Writers(topic, 0, 1, 100)
    assert writers.offsets_min == 5
    for offsets in range(5, 101):
        streams = writers.streams(0, 1, offsets, is_last=True)
        assert sum(stream.records + stream.markers for stream in streams) == offsets
        assert sum(stream.continues for stream in streams) == 5
        assert not any(stream.stays_open for stream in streams)
        assert all(stream.markers > 0 for stream in streams if stream.continues)


def test_a_last_segment_too_small_for_the_open_transactions_is_left_out() -> None:
    topic = Topic("t", transactions=Transactions(producers=50, share=0.5, records=2, cross_share=1.0))
    base = Workload(topics=(topic,), size=128 * KIB, segment_bytes=64 * KIB)
    [full, end] = [segment.offsets for segment in Plan(base)]
    assert full == end
    with_rest = base.resized(base.size + 20 * 140)
    assert [segment.offsets for segment in Plan(with_rest)] == [full, full]
    with_more = base.resized(base.size + 100 * 140)
    assert len(Plan(with_more)) == 3


def test_first_offsets_before_a_segment_are_those_of_its_open_transactions(logs: Logs) -> None:
    for segments in logs.values():
        begun: dict[int, int] = {}
        for segment, batches, _ in segments:
            assert opened(segment) == begun
            for batch in batches:
                if batch.control:
                    del begun[batch.producer_id]
                elif batch.transactional:
                    begun.setdefault(batch.producer_id, batch.base_offset)


def test_the_whole_corpus_is_verified(tmp_path: Path) -> None:
    rows = generate(WORKLOAD, tmp_path / "out")
    assert verify(tmp_path / "out") == []
    assert all(isinstance(row, Row) for row in rows)
    checkpoint = (tmp_path / "out" / "busy-1" / "leader-epoch-checkpoint").read_text().splitlines()
    assert checkpoint[:4] == ["0", str(len(checkpoint) - 2), "0 0", "1 700"]


def change(segment: Segment, **fields: object) -> Segment:
    """``segment`` with other fields of its transactional streams: a generator that follows another plan."""
    streams = [
        replace(stream, **fields) if stream.kind == TRANSACTIONAL else stream  # type: ignore[arg-type]
        for stream in segment.streams
    ]
    return replace(segment, streams=tuple(streams))


@pytest.mark.parametrize(
    ("change_topic", "code"),
    [
        ({"abort_share": 0.9}, "outcome-off-plan"),
        ({"coordinator_epoch_transactions": 16}, "epoch-off-plan"),
        ({"epoch_transactions": 10}, "epoch-off-plan"),
        ({"partitions": 1}, "epoch-off-plan"),
    ],
)
def test_a_log_that_follows_another_workload_is_found(corpus: Path, change_topic: dict[str, float], code: str) -> None:
    other = replace(BUSY, transactions=replace(BUSY.transactions, **change_topic))
    segment = next(one for one in Plan(WORKLOAD) if one.index == 2)
    write_segment(replace(segment, topic=other), 2, WORKLOAD, corpus, "a")
    assert code in {problem.code for problem in verify(corpus) if problem.path == segment.path}


def test_transactions_of_other_sizes_are_found(corpus: Path) -> None:
    segment = next(one for one in Plan(WORKLOAD) if one.index == 2)
    write_segment(change(segment, cuts=1), 2, WORKLOAD, corpus, "a")
    problems = [problem for problem in verify(corpus) if problem.code == "transaction-off-plan"]
    assert re.fullmatch(
        r"ends a transaction of producer \d with \d+ records in this segment; the plan gives \d+", problems[0].message
    )


def test_an_open_transaction_that_begins_elsewhere_is_found(corpus: Path) -> None:
    """The next segment's transaction index depends on where it begins."""
    segment = next(one for one in Plan(WORKLOAD) if any(stream.stays_open for stream in one.streams))
    write_segment(replace(segment, seed=segment.seed ^ 1), segment.index, WORKLOAD, corpus, "a")
    problems = {problem.code: problem for problem in verify(corpus) if problem.path == segment.path}
    assert "open transaction is from offset" in problems["transaction-open"].message


def test_epochs_are_longer_where_their_numbers_would_be_too_large() -> None:
    topic = Topic(
        "t",
        leader_epoch_offsets=1,
        producers=Producers(count=1, share=0.5, epoch_records=1),
        transactions=Transactions(producers=1, share=0.5, records=1, epoch_transactions=1),
    )
    plan = Plan(Workload(topics=(topic,), size=64 * MIB, segment_bytes=MIB))
    [made] = plan.workload.topics
    assert 2**3 <= made.leader_epoch_offsets <= 2**4
    assert 1 < len(plan.topics[0].leader_epochs()) <= 100_000
    epochs = [stream.producer_epoch for stream in plan[len(plan) - 1].streams if stream.kind != PLAIN]
    assert all(1 < epoch <= PRODUCER_EPOCH_MAX for epoch in epochs), epochs
    assert made == Plan(plan.workload).workload.topics[0]
    assert topic == Plan(Workload(topics=(topic,), size=100 * KIB, segment_bytes=MIB)).workload.topics[0]


@pytest.mark.parametrize("offsets", [1, 2, 40, 41, 83, 1000, 4096, 99_999])
def test_the_streams_of_a_segment_use_up_its_offsets(offsets: int) -> None:
    shares = split(BUSY, offsets)
    assert sum(share.records + share.markers for share in shares) == offsets
    assert min(share.records for share in shares) >= 0
    for share in shares:
        assert (share.markers > 0) <= (share.kind == TRANSACTIONAL)
        # Each transaction holds a record at least.
        assert share.records >= share.markers


def test_streams_get_their_shares() -> None:
    shares = split(BUSY, 100_000)
    of_kind = {kind: [share for share in shares if share.kind == kind] for kind in (PLAIN, IDEMPOTENT, TRANSACTIONAL)}
    assert sum(share.records for share in of_kind[IDEMPOTENT]) == 30_000
    assert sum(share.records + share.markers for share in of_kind[TRANSACTIONAL]) == pytest.approx(50_000, abs=21)
    assert sum(share.records for share in of_kind[PLAIN]) == pytest.approx(20_000, abs=21)


UPGRADED = replace(
    BUSY, legacy=Legacy(magic0_segments=2, magic1_segments=3, codecs=(("none", 1), ("gzip", 1))), partitions=2
)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 10])
def test_the_first_segments_of_an_upgraded_log_have_the_old_formats(size: int, tmp_path: Path) -> None:
    workload = Workload(topics=(UPGRADED,), size=2 * size * 64 * KIB - 2000, segment_bytes=64 * KIB)
    for segments in whole_partitions(workload).values():
        assert [segment.index for segment in segments] == list(range(size))
        for segment in segments:
            made = generate_segment(segment, workload)
            magics = {batch.magic for batch in records.read(made.log, profile="strict").batches}
            assert magics == {0 if segment.index < 2 else 1 if segment.index < 5 else 2}
        for before, after in pairwise(segments):
            assert after.first_offset == before.last_offset + 1
    rows = generate(workload, tmp_path / "out")
    assert verify(tmp_path / "out") == []
    assert sum(row.records - row.control_batches for row in rows) == Plan(workload).records


def test_segments_of_old_formats_have_the_size_of_the_others() -> None:
    """Messages take more bytes than records, so there are fewer in a segment."""
    topic = replace(UPGRADED, legacy=replace(UPGRADED.legacy, codecs=(("none", 1),)))
    workload = Workload(topics=(topic,), size=2 * 8 * 64 * KIB, segment_bytes=64 * KIB)
    sizes = [len(generate_segment(segment, workload).log) for segment in whole_partitions(workload)["busy-0"]]
    assert sizes == pytest.approx([64 * KIB] * 8, rel=0.06)


def test_the_leader_epochs_of_an_upgraded_log_begin_after_the_old_formats() -> None:
    workload = Workload(topics=(UPGRADED,), size=2 * 8 * 64 * KIB, segment_bytes=64 * KIB)
    [planned] = Plan(workload).topics
    first = next(segment.first_offset for segment in Plan(workload) if segment.index == 5)
    assert planned.leader_epochs()[0] == (first // 700, first)
    assert planned.leader_epochs()[1] == (first // 700 + 1, first // 700 * 700 + 700)
    one_epoch = replace(UPGRADED, leader_epoch_offsets=0)
    assert Plan(replace(workload, topics=(one_epoch,))).topics[0].leader_epochs() == [(0, first)]
    assert Plan(workload.resized(2 * 3 * 64 * KIB)).topics[0].leader_epochs() == []


def test_the_producers_of_an_upgraded_log_begin_after_the_old_formats() -> None:
    workload = Workload(topics=(UPGRADED,), size=2 * 9 * 64 * KIB, segment_bytes=64 * KIB)
    for segments in whole_partitions(workload).values():
        state = ProducerState()
        for segment in segments:
            for batch in records.read(generate_segment(segment, workload).log).batches:
                appended = state.append(batch)
                assert appended.outcome == "appended", appended.finding
        assert state.open_transactions == 0
        assert segments[5].before is None


def test_a_growing_upgraded_log_keeps_its_whole_segments() -> None:
    small = Workload(topics=(UPGRADED,), size=2 * 4 * 64 * KIB - 9000, segment_bytes=64 * KIB)
    for planned in (small, small.resized(2 * 8 * 64 * KIB - 9000)):
        kept = {segment.path: segment for segment in Plan(planned) if not segment.is_last}
        grown = {segment.path: segment for segment in Plan(small.resized(2 * 11 * 64 * KIB))}
        assert all(grown[path] == segment for path, segment in kept.items())


def test_a_wrong_leader_epoch_is_found_though_no_crc_covers_it(corpus: Path) -> None:
    segment = Plan(WORKLOAD)[0]
    path = corpus / segment.path
    log = bytearray(path.read_bytes())
    log[12:16] = struct.pack(">i", 1)
    path.write_bytes(log)
    [problem, *_] = verify(corpus)
    assert (problem.path, problem.at, problem.code) == (segment.path, 0, "epoch-off-plan")
    assert problem.message == "has leader epoch 1; the plan gives 0"
