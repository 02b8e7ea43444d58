"""Divides a workload into segments, so that each can be generated without the segments before it. Pure functions.

This is possible because a formula gives the start of each segment:

* All segments of a partition except the last have the same number of offsets, ``n``. So segment ``k`` begins at offset
  ``k · n``. In a topic from an old cluster, the first segments have an old format. Their messages have other sizes, so
  these segments have another number of offsets.
* ``kfuzz.corpora.writers`` has the formulas for what each producer writes there: sequences, epochs and transactions.
* The interleaving and the sizes are random. Their seed is a hash of (workload seed, topic, partition, segment).

When a corpus grows, only the last segment of each partition changes.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from kfuzz.corpora.clock import clock_of, first_units
from kfuzz.corpora.hostile import HOSTILE_BYTES_MAX, hostile_bytes_mean
from kfuzz.corpora.own import contents_of
from kfuzz.corpora.partition_keys import partition_without_keys
from kfuzz.corpora.relations import key_seed_of, related
from kfuzz.corpora.workload import (
    BATCH_BYTES_MAX,
    HASHING,
    MIB,
    SEGMENT_BYTES_MAX,
    Adversarial,
    Range,
    Topic,
    Workload,
    sizes_of,
)
from kfuzz.corpora.writers import MAGIC_0, MAGIC_1, PLAIN, PRODUCER_EPOCH_MAX, Stream, Writers, seed_of
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX
from kfuzz.logs.snapshot import snapshot_name
from kfuzz.records.compaction import DELETE_RETENTION_MS
from kfuzz.units import show_size
from kfuzz.wire.io.layout import BATCH_HEADER_SIZE, MESSAGE_AT, MESSAGE_LENGTHS_BYTES

# A marker's record takes 17 bytes: its length, attributes, two deltas, a key of 4 bytes, a value of 6, no headers.
CONTROL_BATCH_BYTES = BATCH_HEADER_SIZE + 17
# The bytes of a message besides its key and value: the fields before the key's length, and both lengths.
OVERHEADS = {
    kind: MESSAGE_AT[magic]["key_length"] + MESSAGE_LENGTHS_BYTES for magic, kind in enumerate((MAGIC_0, MAGIC_1))
}
HEADER_KEY_BYTES = 8
# About what a record takes besides its key and value: attributes, and varints for lengths, deltas and headers.
RECORD_BYTES = 10
# The size of a segment if the workload does not give it; the larger one is for corpora above MANY_BYTES.
SEGMENT_BYTES, MANY_BYTES = 64 * MIB, 1 << 40
# Kafka's indexes store int32 offsets, relative to the segment's first offset, and int32 file positions.
RELATIVE_OFFSET_MAX = FILE_BYTES_MAX = INT32_MAX
# A checkpoint file lists all leader epochs of a partition, and a broker keeps them in memory.
LEADER_EPOCHS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Segment:
    """One log segment: its place in the corpus, and everything needed to make its contents.

    - ``index`` counts the segments of the partition, from 0. ``is_last`` says that it is the last one: only such a
      segment changes when the corpus grows.
    - ``key_seed`` is the same for all partitions of a topic and all topics of a key space, so that they share keys.
    - ``before`` is the segment before this one if a transaction is open between them, otherwise None.
    - ``first_units`` are the clock's units at the first offset, see ``kfuzz.corpora.clock``.
    """

    topic: Topic
    partition: int
    index: int
    first_offset: int
    offsets: int
    seed: int
    key_seed: int
    streams: tuple[Stream, ...]
    is_last: bool
    before: Segment | None
    first_units: int

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.offsets - 1

    @property
    def is_cleaned(self) -> bool:
        """Whether the segment is as the log cleaner leaves it. The cleaner never touches the last one."""
        return self.index < self.topic.compaction.segments and not self.is_last

    @property
    def delete_horizon_ms(self) -> int:
        """The delete horizon of tombstones and markers: the cleaner came when the segment was whole."""
        times = self.topic.timestamps
        clock = clock_of(times)
        end_ms = clock.moment(self.first_units + self.offsets * clock.units_per_offset).ms
        return end_ms + times.jitter_ms + DELETE_RETENTION_MS

    @property
    def cleaned_end(self) -> int:
        """The offset after the partition's last cleaned segment. Each cleaned segment has ``offsets`` offsets."""
        return self.topic.compaction.segments * self.offsets

    @property
    def directory(self) -> str:
        """The partition's directory, as Kafka names it."""
        return f"{self.topic.name}-{self.partition}"

    @property
    def stem(self) -> str:
        """The base offset in 20 digits: Kafka's file name for a segment, without the suffix."""
        return f"{self.first_offset:020d}"

    @property
    def path(self) -> str:
        """The ``.log`` file, relative to the corpus."""
        return f"{self.directory}/{self.stem}.log"

    @property
    def snapshot_path(self) -> str:
        """The producer snapshot at the segment's end, relative to the corpus."""
        return f"{self.directory}/{snapshot_name(self.last_offset)}"

    @property
    def producer_ids(self) -> set[int]:
        """The producers that write to this segment."""
        return {stream.producer_id for stream in self.streams if stream.producer_id >= 0}


@dataclass(frozen=True, slots=True)
class _Old:
    """The segments of a partition that have an old format: ``kind`` is the kind of their only stream."""

    kind: int
    segments: int
    offsets_per_segment: int
    offset_bytes: float


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic; its first segments are those of ``old``, and ``offsets_per_segment`` is the size of the others.

    ``counts`` has the number of offsets of each partition, ``first_ids`` the id of its first segment, and at last the
    id after all of them. The numbers per partition are those of the longest one.
    """

    topic: Topic
    first_id: int
    offsets_per_partition: int
    offsets_per_segment: int
    segments_per_partition: int
    counts: Sequence[int]
    first_ids: Sequence[int]
    writers: Writers
    old: tuple[_Old, ...]

    @property
    def old_segments(self) -> int:
        return sum(old.segments for old in self.old)

    def first_offset(self, index: int) -> int:
        return _first_offset(self.old, self.offsets_per_segment, index)

    @property
    def partitions(self) -> Sequence[int]:
        """The partitions that have records."""
        return [at for at, count in enumerate(self.counts) if count]

    def segments(self, partition: int) -> int:
        """The number of segments of a partition."""
        return self.first_ids[partition + 1] - self.first_ids[partition]

    def place(self, segment_id: int) -> tuple[int, int]:
        """The partition of a segment, and its number there."""
        partition = bisect_right(self.first_ids, segment_id) - 1
        return partition, segment_id - self.first_ids[partition]

    def end(self, partition: int, index: int) -> int:
        """The offset after a segment."""
        is_last = index == self.segments(partition) - 1
        return self.counts[partition] if is_last else self.first_offset(index + 1)

    def streams(self, partition: int, index: int) -> tuple[Stream, ...]:
        """Each producer's part of a segment."""
        if self.topic.is_own:
            return ()
        old, offsets = _old_of(self.old, index), self.end(partition, index) - self.first_offset(index)
        if old is not None:
            return (Stream(old.kind, records=offsets),)
        is_last = index == self.segments(partition) - 1
        return self.writers.streams(partition, index - self.old_segments, offsets, is_last=is_last)

    @property
    def records_per_topic(self) -> int:
        """The number of data records in all partitions."""
        if self.topic.is_own:
            return sum(self.counts)
        writers, count = self.writers, self.topic.partitions
        segments = self.segments_per_partition - self.old_segments
        if segments <= 0:
            return self.offsets_per_partition * count
        # Without transactions across segments, all partitions have the same number.
        different = count if self.topic.transactions.cross_share else 1
        last_offsets = self.offsets_per_partition - self.first_offset(self.segments_per_partition - 1)
        records = sum(writers.records(at, segments, last_offsets) for at in range(different))
        return records * (count // different) + self.first_offset(self.old_segments) * count

    def leader_epochs(self) -> list[tuple[int, int]]:
        """The leader epochs of each partition, with their first offsets. Messages of the old formats have none."""
        first, end = self.first_offset(self.old_segments), self.offsets_per_partition
        if first >= end:
            return []
        each = self.topic.leader_epoch_offsets or end
        return [(epoch, max(first, epoch * each)) for epoch in range(first // each, -(-end // each))]

    @property
    def timestamps_ms(self) -> tuple[int, int]:
        """The times of the first and the last offset of each partition, without jitter and lateness."""
        times = self.topic.timestamps
        clock, first = clock_of(times), first_units(times, self.offsets_per_partition - 1)
        last = first + (self.offsets_per_partition - 1) * clock.units_per_offset
        return clock.moment(first).ms, clock.moment(last).ms


def _own_plan(topic: Topic, workload: Workload, first_id: int, place: str) -> TopicPlan:
    """The plan of one of Kafka's own topics.

    Raises ``UsageError`` if the topic's things give no records, or if a batch could become too large.
    """
    contents = contents_of(topic, seed_of(workload.seed, topic.name))
    sizes = [size for one in contents for _, size in one.sizes()]
    if not sizes:
        raise UsageError(f"{place}: these things have no records; raise things.changes")
    batch_records = topic.batches.records.max
    if batch_records * (max(sizes) + RECORD_BYTES) > BATCH_BYTES_MAX:
        raise UsageError(
            f"{place}: a batch may take more than {show_size(BATCH_BYTES_MAX)}; lower batches.records "
            f"({batch_records}) or the numbers in things"
        )
    offset_bytes = max(sizes) + RECORD_BYTES + BATCH_HEADER_SIZE / batch_records
    each = max(1, math.floor(workload.segment_bytes / offset_bytes))
    counts = [one.count for one in contents]
    most, segments = max(counts), [-(-count // each) for count in counts]
    first_ids, writers = list(accumulate(segments, initial=first_id)), Writers(topic, workload.seed, 1, each)
    return TopicPlan(topic, first_id, most, each, max(segments), counts, first_ids, writers, ())


def _old_of(old: tuple[_Old, ...], index: int) -> _Old | None:
    """The old format of segment ``index``; None if it has the format of today."""
    for one in old:
        if index < one.segments:
            return one
        index -= one.segments
    return None


def _first_offset(old: tuple[_Old, ...], offsets_per_segment: int, index: int) -> int:
    offset = 0
    for one in old:
        offset += min(index, one.segments) * one.offsets_per_segment
        index = max(0, index - one.segments)
    return offset + index * offsets_per_segment


def decided(workload: Workload, name: str = "the workload") -> Workload:
    """``workload`` with a ``segment_bytes``: 64 MiB, or above 1 TiB the largest up to 1 GiB that Kafka can hold.

    Segments of records far smaller than their batches' headers may be longer than planned. Epochs are longer, by a
    power of two, if their numbers would be too large. References know the keys that they name.
    """
    workload = related(workload, name)
    if not (segment_bytes := workload.segment_bytes):
        segment_bytes = SEGMENT_BYTES if workload.size <= MANY_BYTES else SEGMENT_BYTES_MAX
        while segment_bytes > SEGMENT_BYTES and not all(_fits(topic, segment_bytes) for topic in workload.topics):
            segment_bytes //= 2
    part = workload.size / sum(topic.weight for topic in workload.topics)
    topics = tuple(
        _with_epochs(topic, part * topic.weight / topic.partitions + segment_bytes) for topic in workload.topics
    )
    return replace(workload, segment_bytes=segment_bytes, topics=topics)


def _with_epochs(topic: Topic, size: float) -> Topic:
    """A topic whose epochs are long enough for the limits of their numbers, in partitions of ``size`` bytes."""
    if not (topic.leader_epoch_offsets or topic.producers.epoch_records or topic.transactions.epoch_transactions):
        return topic
    offsets = math.ceil(size / offset_bytes_mean(topic))

    def longer(each: int, count: int, limit: int) -> int:
        return each << (count // (each * limit)).bit_length() if each else 0

    producers, transactions = topic.producers, topic.transactions
    count = offsets * topic.partitions // transactions.records
    ids = longer(producers.epoch_records, offsets, PRODUCER_EPOCH_MAX)
    ends = longer(transactions.epoch_transactions, count, PRODUCER_EPOCH_MAX)
    return replace(
        topic,
        leader_epoch_offsets=longer(topic.leader_epoch_offsets, offsets, LEADER_EPOCHS_MAX),
        producers=replace(producers, epoch_records=ids),
        transactions=replace(transactions, epoch_transactions=ends),
    )


def _fits(topic: Topic, segment_bytes: int) -> bool:
    try:
        offset_bytes = offset_bytes_mean(topic)
        _check_segment(topic, max(1, math.floor(segment_bytes / offset_bytes)), offset_bytes, "")
    except UsageError:
        return False
    return True


class Plan:
    """The segments of ``workload`` by id: ``len(plan)``, ``plan[id]``. Each segment is computed on access.

    Ids count the segments of each partition of each topic, with the topics in file order. ``plan.workload`` has a
    ``segment_bytes``, also where ``workload`` leaves it open. Raises ``UsageError`` if the
    workload's sizes are impossible; ``name`` names the workload in that error.
    """

    def __init__(self, workload: Workload, name: str = "the workload") -> None:
        self.workload = workload = decided(workload, name)
        weights = sum(topic.weight for topic in workload.topics if not topic.is_own)
        self.topics: list[TopicPlan] = []
        first_id, producer_id = 0, 1
        for at, topic in enumerate(workload.topics):
            place = f"{name}: topics[{at}] ({topic.name})"
            if topic.is_own:
                planned = _own_plan(topic, workload, first_id, place)
                _check_timestamps(planned, place)
                self.topics.append(planned)
                first_id = planned.first_ids[-1]
                continue
            _check_batch(topic, place)
            _check_partitioner(topic, key_seed_of(topic, workload.seed), place)
            old = tuple(
                _Old(kind, count, _offsets_in(workload, topic, kind), offset_bytes_mean(topic, kind))
                for kind, count in ((MAGIC_0, topic.legacy.magic0_segments), (MAGIC_1, topic.legacy.magic1_segments))
            )
            partition_bytes = workload.size * topic.weight // weights // topic.partitions
            per_segment = _offsets_in(workload, topic)
            # Count whole segments first: otherwise rounding could add a last segment of a few records.
            full, rest_bytes = divmod(partition_bytes, workload.segment_bytes)
            before, one = _first_offset(old, per_segment, full), _old_of(old, full)
            offset_bytes = one.offset_bytes if one else offset_bytes_mean(topic)
            per_partition = before + math.floor(rest_bytes / offset_bytes)
            if per_partition < 1:
                raise UsageError(
                    f"{place}: size leaves {show_size(partition_bytes)} for each partition, less than one record of "
                    f"{offset_bytes:.0f} B; raise size or lower partitions"
                )
            _check_segment(topic, per_segment, offset_bytes_mean(topic), place)
            for one in old:
                _check_segment(topic, one.offsets_per_segment if one.segments else 0, one.offset_bytes, place)
            writers = Writers(topic, workload.seed, producer_id, per_segment)
            old_segments = sum(one.segments for one in old)
            if full > old_segments and per_partition - before < writers.offsets_min:
                per_partition = before
            segments = full + (per_partition > before)
            writers.check(place, segments - old_segments)
            counts = (per_partition,) * topic.partitions
            first_ids = range(first_id, first_id + segments * topic.partitions + 1, segments)
            sizes = per_partition, per_segment, segments
            planned = TopicPlan(topic, first_id, *sizes, counts, first_ids, writers, old)
            _check_timestamps(planned, place)
            if topic.values.is_changes and topic.compaction.segments >= segments:
                raise UsageError(
                    f"{place}: compaction.segments is {topic.compaction.segments}, but a partition has {segments} "
                    "segments, and the last one is never compacted; lower it or raise size"
                )
            self.topics.append(planned)
            first_id = first_ids[-1]
            producer_id += writers.producer_ids
        self._length = first_id
        self._first_ids = [plan.first_id for plan in self.topics]
        self.by_name = {plan.topic.name: plan for plan in self.topics}

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, segment_id: int) -> Segment:
        if not 0 <= segment_id < self._length:
            raise IndexError(segment_id)
        chosen, partition, index = self._place(segment_id)
        return _segment(self.workload, chosen, partition, index)

    def __iter__(self) -> Iterator[Segment]:
        return (self[segment_id] for segment_id in range(self._length))

    @property
    def records(self) -> int:
        """The number of data records in the whole corpus, before compaction."""
        return sum(plan.records_per_topic for plan in self.topics)

    def _place(self, segment_id: int) -> tuple[TopicPlan, int, int]:
        chosen = self.topics[bisect_right(self._first_ids, segment_id) - 1]
        return chosen, *chosen.place(segment_id)

    def bounds(self, segment_id: int) -> tuple[str, int, int]:
        """The path of a segment, its first and its last offset: ``plan[segment_id]`` has them too, but costs more."""
        chosen, partition, index = self._place(segment_id)
        first = chosen.first_offset(index)
        return f"{chosen.topic.name}-{partition}/{first:020d}.log", first, chosen.end(partition, index) - 1

    def stems(self, directory: str) -> Iterator[str]:
        """The names of the segments in a partition's directory, without suffix, in the plan's order."""
        topic, _, partition = directory.rpartition("-")
        plan = self.by_name[topic]
        return (f"{plan.first_offset(index):020d}" for index in range(plan.segments(int(partition))))

    def carried(self, segment_id: int, larger: Plan) -> int | None:
        """The id in ``larger``, a plan of the same workload with a larger size, of a segment that is equal there.

        None for the last segment of a partition: it may have fewer offsets here, and what is in it depends on that.
        """
        ours, partition, index = self._place(segment_id)
        theirs = larger.topics[bisect_right(self._first_ids, segment_id) - 1]
        if index == ours.segments(partition) - 1:
            return None
        return theirs.first_ids[partition] + index

    def directories(self) -> list[str]:
        """The partitions' directories, in the plan's order."""
        return [f"{plan.topic.name}-{at}" for plan in self.topics for at in plan.partitions]


def _segment(workload: Workload, plan: TopicPlan, partition: int, index: int, *, alone: bool = False) -> Segment:
    """``alone``: without ``before``. A transaction crosses one boundary at most, so one segment before is enough."""
    first_offset, streams = plan.first_offset(index), plan.streams(partition, index)
    continues = any(stream.continues for stream in streams)
    times = plan.topic.timestamps
    if not times.resolved:
        raise UsageError(
            f"topic {plan.topic.name}: timestamps are relative to now; call kfuzz.corpora.resolution.resolve first"
        )
    return Segment(
        topic=plan.topic,
        partition=partition,
        index=index,
        first_offset=first_offset,
        offsets=plan.end(partition, index) - first_offset,
        seed=seed_of(workload.seed, plan.topic.name, partition, index),
        key_seed=key_seed_of(plan.topic, workload.seed),
        streams=streams,
        is_last=index == plan.segments(partition) - 1,
        before=_segment(workload, plan, partition, index - 1, alone=True) if continues and not alone else None,
        first_units=first_units(times, plan.counts[partition] - 1) + first_offset * clock_of(times).units_per_offset,
    )


def _offsets_in(workload: Workload, topic: Topic, kind: int = PLAIN) -> int:
    """The number of offsets of a full segment; ``kind`` is as in :func:`offset_bytes_mean`."""
    return max(1, math.floor(workload.segment_bytes / offset_bytes_mean(topic, kind)))


def offset_bytes_mean(topic: Topic, kind: int = PLAIN) -> float:
    """The average uncompressed bytes per offset of ``topic``, including batch headers and markers.

    With ``kind`` MAGIC_0 or MAGIC_1: of a segment that has only messages of that format.
    """
    if topic.is_own:
        parts = [part for one in contents_of(topic, 0) for part in one.sizes()]
        total = sum(count for count, _ in parts)
        overhead = RECORD_BYTES + BATCH_HEADER_SIZE / topic.batches.records.max
        return overhead + sum(count * size for count, size in parts) / max(1, total)
    content = (1 - topic.keys.null_share) * sizes_of(topic.keys, topic.keys)[0]
    content += (1 - _value_nulls(topic)) * sizes_of(topic.values, topic.keys)[0]
    if kind in OVERHEADS:
        return OVERHEADS[kind] + content
    batch_records = topic.batches.records.mean
    in_batch = _record_bytes(topic, batch_records) + BATCH_HEADER_SIZE / batch_records
    legacy = topic.legacy
    transactions = topic.transactions
    markers = transactions.share / (transactions.records + 1)
    share = topic.adversarial.share
    modern = max(0.0, 1 - legacy.magic0 - legacy.magic1 - markers - share)
    return (
        modern * in_batch
        + (share * hostile_bytes_mean(topic) if share else 0)
        + markers * CONTROL_BATCH_BYTES
        + legacy.magic0 * (OVERHEADS[MAGIC_0] + content)
        + legacy.magic1 * (OVERHEADS[MAGIC_1] + content)
    )


def _record_bytes(topic: Topic, batch_records: float) -> float:
    """The mean size of a magic 2 record in bytes, including its length field."""
    span_ms = batch_records * 1000 / topic.timestamps.records_per_second + topic.timestamps.jitter_ms / 2
    late_share, late_ms = topic.timestamps.late_share, topic.timestamps.late_ms
    delta = (1 - late_share) * _varint_bytes_below(span_ms) + late_share * _varint_bytes_below(late_ms)
    body: float = 1 + delta + _varint_bytes_below(batch_records) + 1
    body += _field_bytes(sizes_of(topic.keys, topic.keys)[0], topic.keys.null_share)
    body += _field_bytes(sizes_of(topic.values, topic.keys)[0], _value_nulls(topic))
    header = 1 + HEADER_KEY_BYTES + _field_bytes(topic.headers.size.mean, 0)
    body += topic.headers.share * topic.headers.count.mean * header + _schema_headers(topic)
    return body + _varint_bytes(body)


def _schema_headers(topic: Topic) -> int:
    return len(topic.keys.header_bytes("key")) + len(topic.values.header_bytes("value"))


def _value_nulls(topic: Topic) -> float:
    """The share of null values."""
    tombstones = topic.values.changes.tombstone_share if topic.values.is_changes else topic.values.tombstone_share
    return topic.values.null_share + (1 - topic.keys.null_share) * tombstones


def _field_bytes(mean: float, null_share: float) -> float:
    return null_share + (1 - null_share) * (_varint_bytes(mean) + mean)


def _varint_bytes(value: float) -> int:
    """The size of the zigzag varint of ``value``, in bytes."""
    return max(1, math.ceil((math.floor(value) * 2).bit_length() / 7))


def _varint_bytes_below(limit: float) -> float:
    """The mean size in bytes of the zigzag varint of a number that is uniform from 0 to ``limit``."""
    return 1 + sum(max(0.0, 1 - (1 << bits) / limit) for bits in (6, 13, 20, 27, 34) if limit > 0)


def batch_bytes_max(topic: Topic) -> int:
    """An upper bound on the uncompressed bytes of one batch, for the size of the buffer."""
    return BATCH_HEADER_SIZE + topic.batches.records.max * _record_bytes_max(topic)


def _record_bytes_max(topic: Topic) -> int:
    if topic.adversarial.share:
        return max(HOSTILE_BYTES_MAX, _record_bytes_max(replace(topic, adversarial=Adversarial())))
    headers = topic.headers.count.max * (10 + HEADER_KEY_BYTES + topic.headers.size.max) if topic.headers.share else 0
    # 36 is one byte of attributes plus the longest varints: length 5, timestamp delta 10, offset delta 5, key and value
    # length 5 each, header count 5. A message of magic 0 or 1 takes less besides its key and value.
    content = sizes_of(topic.keys, topic.keys)[1] + sizes_of(topic.values, topic.keys)[1]
    return 36 + content + headers + _schema_headers(topic)


def _check_batch(topic: Topic, place: str) -> None:
    largest = batch_bytes_max(topic)
    sizes = "values.fields" if topic.values.is_written else f"values.size ({_shown(topic.values.size)})"
    sizes = "the lines of values.file" if topic.values.kind == "file" else sizes
    if largest > BATCH_BYTES_MAX:
        raise UsageError(
            f"{place}: a batch may take {show_size(largest)}, above {show_size(BATCH_BYTES_MAX)}; "
            f"lower batches.records ({_shown(topic.batches.records)}), {sizes} or headers"
        )


def _check_partitioner(topic: Topic, key_seed: int, place: str) -> None:
    keys, count = topic.keys, topic.partitions
    empty = partition_without_keys(keys, key_seed, count) if keys.partitioner in HASHING else None
    if empty is not None:
        raise UsageError(
            f"{place}: the partitioner {keys.partitioner} puts none of the {keys.cardinality} keys into partition "
            f"{empty} of {count}; raise keys.cardinality or lower partitions"
        )


def _check_segment(topic: Topic, offsets: int, offset_bytes: float, place: str) -> None:
    # Hoeffding's inequality: a sum of n independent draws, each at most m, exceeds its mean by 5·m·√n in one of e^50
    # segments. Key sizes are not independent (hot keys repeat them), so count the maximum; likewise, count one batch
    # header per record.
    spread = 5 * _record_bytes_max(topic) * math.sqrt(offsets)
    largest = math.ceil(offsets * (offset_bytes + BATCH_HEADER_SIZE + sizes_of(topic.keys, topic.keys)[1]) + spread)
    if largest > FILE_BYTES_MAX or offsets > RELATIVE_OFFSET_MAX:
        raise UsageError(
            f"{place}: a segment may take {show_size(largest)}, above Kafka's 2 GiB for one file; "
            f"lower segment_bytes or narrow the ranges of the sizes"
        )


def _check_timestamps(planned: TopicPlan, place: str) -> None:
    times = planned.topic.timestamps
    if not times.resolved:
        return
    first_ms, last_ms = planned.timestamps_ms
    first_ms -= times.late_ms if times.late_share else 0
    last_ms += times.jitter_ms
    key = "start" if times.end is None else "end"
    if first_ms < 0:
        raise UsageError(
            f"{place}: timestamps would begin {-first_ms} ms before 1970; raise timestamps.{key} or records_per_second"
        )
    if last_ms >= 1 << 53:
        raise UsageError(
            f"{place}: timestamps would reach {last_ms} ms; lower timestamps.{key} or raise records_per_second"
        )


def _shown(values: Range) -> str:
    return str(values.min) if values.min == values.max else f"{values.min} to {values.max}"
