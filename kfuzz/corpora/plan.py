"""Divides a workload into segments, so that each can be generated without the segments before it. Pure functions.

This is possible because a formula gives the start of each segment:

* All segments of a partition except the last have the same number of offsets, ``n``. So segment ``k`` begins at offset
  ``k · n``.
* ``split`` divides the offsets of a segment among *streams*: one per producer, one for records without a producer id,
  one per old magic. It uses only ``n`` and the topic. So a producer that writes ``q`` records in a full segment begins
  segment ``k`` with sequence ``k · q`` modulo 2³¹, because Kafka's sequences wrap there.
* A transaction and its marker are in one segment, so no transaction is open at a segment's start.
* The interleaving, the sizes and the outcomes are random. Their seed is a hash of (workload seed, topic, partition,
  segment).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

from kfuzz.corpora.snapshot import snapshot_name
from kfuzz.corpora.workload import BATCH_BYTES_MAX, Range, Topic, Workload, show_size
from kfuzz.errors import UsageError
from kfuzz.kafka import INT32_MAX
from kfuzz.wire.layout import BATCH_HEADER_SIZE, MESSAGE_AT, MESSAGE_LENGTHS_BYTES

__all__ = ["Plan", "Segment", "Stream", "batch_bytes_max", "offset_bytes_mean", "split"]

# Kinds of streams: the kind of writer, or the old magic.
PLAIN, IDEMPOTENT, TRANSACTIONAL, MAGIC_0, MAGIC_1 = range(5)

SEQUENCES = INT32_MAX + 1
# A marker's record takes 17 bytes: its length, attributes, two deltas, a key of 4 bytes, a value of 6, no headers.
CONTROL_BATCH_BYTES = BATCH_HEADER_SIZE + 17
# The bytes of a message besides its key and value: the fields before the key's length, and both lengths.
MAGIC_0_OVERHEAD, MAGIC_1_OVERHEAD = (MESSAGE_AT[magic]["key_length"] + MESSAGE_LENGTHS_BYTES for magic in (0, 1))
HEADER_KEY_BYTES = 8
# Kafka's indexes store int32 offsets, relative to the segment's first offset, and int32 file positions.
RELATIVE_OFFSET_MAX = FILE_BYTES_MAX = INT32_MAX


@dataclass(frozen=True, slots=True)
class Stream:
    """The records that one writer adds to one segment.

    ``records`` counts data records. ``transactions`` counts the transactions that they are divided into; each adds one
    marker, which takes one offset. ``first_sequence`` is the base sequence of the first batch (-1 without a producer
    id).
    """

    kind: int
    producer_id: int
    first_sequence: int
    records: int
    transactions: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One log segment: its place in the corpus, and everything needed to make its contents.

    ``key_seed`` is the same for all partitions of a topic, so that they share their keys.
    """

    topic: Topic
    partition: int
    index: int
    first_offset: int
    offsets: int
    seed: int
    key_seed: int
    streams: tuple[Stream, ...]

    @property
    def last_offset(self) -> int:
        return self.first_offset + self.offsets - 1

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
class _TopicPlan:
    topic: Topic
    first_id: int
    offsets_per_partition: int
    offsets_per_segment: int
    segments_per_partition: int


class Plan:
    """The segments of ``workload`` by id: ``len(plan)``, ``plan[id]``. Each segment is computed on access.

    Ids count the segments of each partition of each topic, with the topics in file order. Raises ``UsageError`` if the
    workload's sizes are impossible; ``name`` names the workload in that error.
    """

    def __init__(self, workload: Workload, name: str = "the workload") -> None:
        self.workload = workload
        weights = sum(topic.weight for topic in workload.topics)
        self.topics: list[_TopicPlan] = []
        first_id = 0
        for at, topic in enumerate(workload.topics):
            place = f"{name}: topics[{at}] ({topic.name})"
            _check_batch(topic, place)
            offset_bytes = offset_bytes_mean(topic)
            partition_bytes = workload.size * topic.weight // weights // topic.partitions
            per_segment = max(1, math.floor(workload.segment_bytes / offset_bytes))
            # Count whole segments first: otherwise rounding could add a last segment of a few records.
            full, rest_bytes = divmod(partition_bytes, workload.segment_bytes)
            per_partition = full * per_segment + math.floor(rest_bytes / offset_bytes)
            if per_partition < 1:
                raise UsageError(
                    f"{place}: size leaves {show_size(partition_bytes)} for each partition, less than one record of "
                    f"{offset_bytes:.0f} B; raise size or lower partitions"
                )
            _check_segment(topic, per_segment, place)
            _check_timestamps(topic, per_partition, place)
            segments = -(-per_partition // per_segment)
            self.topics.append(_TopicPlan(topic, first_id, per_partition, per_segment, segments))
            first_id += segments * topic.partitions
        self._length = first_id

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, segment_id: int) -> Segment:
        if not 0 <= segment_id < self._length:
            raise IndexError(segment_id)
        chosen = next(plan for plan in reversed(self.topics) if plan.first_id <= segment_id)
        partition, index = divmod(segment_id - chosen.first_id, chosen.segments_per_partition)
        return _segment(self.workload, chosen, partition, index)

    def __iter__(self) -> Iterator[Segment]:
        return (self[segment_id] for segment_id in range(self._length))

    @property
    def records(self) -> int:
        """The number of data records in the whole corpus."""
        total = 0
        for plan in self.topics:
            full, rest = divmod(plan.offsets_per_partition, plan.offsets_per_segment)
            per_partition = full * _records(plan.topic, plan.offsets_per_segment) + _records(plan.topic, rest)
            total += per_partition * plan.topic.partitions
        return total

    def directories(self) -> list[str]:
        """The partitions' directories, in the plan's order."""
        return [f"{plan.topic.name}-{at}" for plan in self.topics for at in range(plan.topic.partitions)]


def _segment(workload: Workload, plan: _TopicPlan, partition: int, index: int) -> Segment:
    per_segment = plan.offsets_per_segment
    first_offset = index * per_segment
    offsets = min(per_segment, plan.offsets_per_partition - first_offset)
    full = split(plan.topic, per_segment)
    here = full if offsets == per_segment else split(plan.topic, offsets)
    records_before = {stream.producer_id: index * stream.records for stream in full}
    streams = tuple(
        Stream(
            stream.kind,
            stream.producer_id,
            -1 if stream.producer_id < 0 else records_before[stream.producer_id] % SEQUENCES,
            stream.records,
            stream.transactions,
        )
        for stream in here
        if stream.records > 0
    )
    seed = _seed(workload.seed, plan.topic.name, partition, index)
    key_seed = _seed(workload.seed, plan.topic.name)
    return Segment(plan.topic, partition, index, first_offset, offsets, seed, key_seed, streams)


def split(topic: Topic, offsets: int) -> list[Stream]:
    """Divide ``offsets`` among the writers of ``topic``. The result does not depend on the segment's position.

    The records and markers of the result add up to ``offsets``; records left over from rounding have no producer id.
    ``first_sequence`` is 0 here for streams with a producer id.
    """
    shares, streams = topic.transactions, []
    transactions = math.floor(offsets * shares.share / (shares.records + 1))
    transactional = []
    for at, count in enumerate(_evenly(transactions, shares.producers)):
        producer_id = topic.producers.count + 1 + at
        transactional.append(Stream(TRANSACTIONAL, producer_id, 0, count * shares.records, count))
    idempotent = [
        Stream(IDEMPOTENT, 1 + at, 0, records, 0)
        for at, records in enumerate(_evenly(math.floor(offsets * topic.producers.share), topic.producers.count))
    ]
    streams = idempotent + transactional
    left = offsets - sum(stream.records + stream.transactions for stream in streams)
    for kind, share in ((MAGIC_0, topic.legacy.magic0), (MAGIC_1, topic.legacy.magic1)):
        records = min(left, math.floor(offsets * share))
        streams.append(Stream(kind, -1, -1, records, 0))
        left -= records
    streams.append(Stream(PLAIN, -1, -1, left, 0))
    return streams


def _records(topic: Topic, offsets: int) -> int:
    return sum(stream.records for stream in split(topic, offsets))


def _evenly(total: int, parts: int) -> list[int]:
    return [total // parts + (at < total % parts) for at in range(parts)]


def _seed(*cell: int | str) -> int:
    name = " ".join(["kfuzz-corpus/1", *map(str, cell)])
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def offset_bytes_mean(topic: Topic) -> float:
    """The average uncompressed bytes per offset of ``topic``, including batch headers and markers."""
    batch_records = topic.batches.records.mean
    in_batch = _record_bytes(topic, batch_records) + BATCH_HEADER_SIZE / batch_records
    content = (1 - topic.keys.null_share) * topic.keys.size.mean
    content += (1 - topic.values.null_share) * topic.values.size.mean
    legacy = topic.legacy
    transactions = topic.transactions
    markers = transactions.share / (transactions.records + 1)
    modern = max(0.0, 1 - legacy.magic0 - legacy.magic1 - markers)
    return (
        modern * in_batch
        + markers * CONTROL_BATCH_BYTES
        + legacy.magic0 * (MAGIC_0_OVERHEAD + content)
        + legacy.magic1 * (MAGIC_1_OVERHEAD + content)
    )


def _record_bytes(topic: Topic, batch_records: float) -> float:
    """The mean size of a magic 2 record in bytes, including its length field."""
    span_ms = batch_records * 1000 / topic.timestamps.records_per_second + topic.timestamps.jitter_ms / 2
    body: float = 1 + _varint_bytes_below(span_ms) + _varint_bytes_below(batch_records) + 1
    body += _field_bytes(topic.keys.size.mean, topic.keys.null_share)
    body += _field_bytes(topic.values.size.mean, topic.values.null_share)
    header = 1 + HEADER_KEY_BYTES + _field_bytes(topic.headers.size.mean, 0)
    body += topic.headers.share * topic.headers.count.mean * header
    return body + _varint_bytes(body)


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
    headers = topic.headers.count.max * (10 + HEADER_KEY_BYTES + topic.headers.size.max) if topic.headers.share else 0
    # 36 is one byte of attributes plus the longest varints: length 5, timestamp delta 10, offset delta 5, key and value
    # length 5 each, header count 5. A message of magic 0 or 1 takes less besides its key and value.
    return 36 + topic.keys.size.max + topic.values.size.max + headers


def _check_batch(topic: Topic, place: str) -> None:
    largest = batch_bytes_max(topic)
    if largest > BATCH_BYTES_MAX:
        raise UsageError(
            f"{place}: a batch may take {show_size(largest)}, above {show_size(BATCH_BYTES_MAX)}; "
            f"lower batches.records ({_shown(topic.batches.records)}), "
            f"values.size ({_shown(topic.values.size)}) or headers"
        )


def _check_segment(topic: Topic, offsets: int, place: str) -> None:
    # Hoeffding's inequality: a sum of n independent draws, each at most m, exceeds its mean by 5·m·√n in one of e^50
    # segments. Key sizes are not independent (hot keys repeat them), so count the maximum; likewise, count one batch
    # header per record.
    spread = 5 * _record_bytes_max(topic) * math.sqrt(offsets)
    largest = math.ceil(offsets * (offset_bytes_mean(topic) + BATCH_HEADER_SIZE + topic.keys.size.max) + spread)
    if largest > FILE_BYTES_MAX or offsets > RELATIVE_OFFSET_MAX:
        raise UsageError(
            f"{place}: a segment may take {show_size(largest)}, above Kafka's 2 GiB for one file; "
            f"lower segment_bytes or narrow the ranges of the sizes"
        )


def _check_timestamps(topic: Topic, offsets: int, place: str) -> None:
    last_ms = topic.timestamps.start_ms + offsets * 1000 // topic.timestamps.records_per_second
    if last_ms >= 1 << 53:
        raise UsageError(f"{place}: timestamps would reach {last_ms} ms; raise timestamps.records_per_second")


def _shown(values: Range) -> str:
    return str(values.min) if values.min == values.max else f"{values.min} to {values.max}"
