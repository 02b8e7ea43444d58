"""The segments that ``__remote_log_metadata`` names, with the names of Kafka's ``LocalTieredStorage``.

The segments of each partition are those of a plan. The last of them is not in remote storage: it is the log that a
broker has, which begins after the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, Final

from kfuzz.corpora.own import Contents, Remote, contents_of
from kfuzz.corpora.plan import Plan, Segment, batch_bytes_max
from kfuzz.corpora.synth import Synthesiser
from kfuzz.corpora.words import PHRASES
from kfuzz.corpora.workload import Producers, Timestamps, Topic, Transactions, Workload
from kfuzz.corpora.writers import seed_of
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, Producer, checkpoint_text, encode, snapshot_name
from kfuzz.messages.jsonform import uuid_text
from kfuzz.records.codecs import compress

KIND: Final = "remote-log-metadata"
# The folder that ``LocalTieredStorage`` makes below its `dir`.
STORAGE: Final = "kafka-tiered-storage"
# Of each segment, in this order: log, indexes, aborted transactions, producers, leader epochs.
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")


class Tiered(Remote):
    """The segments of the partitions that a topic of Kafka's own is about."""

    def __init__(self, topic: Topic, seed: int) -> None:
        super().__init__(topic.things, seed)
        self.times = Timestamps(start=topic.timestamps.start, end=topic.timestamps.end)
        self.plan = cache(self._plan)

    def _plan(self, number: int) -> Plan:
        """The plan of a topic. It has transactions, so that there are indexes of aborted ones."""
        things = self.things
        topic = Topic(
            self.place(number * things.partitions)["name"],
            things.partitions,
            timestamps=self.times,
            producers=Producers(1, 0.25),
            transactions=Transactions(1, 0.5, records=100, abort_share=0.5),
        )
        size = things.partitions * (things.segments + 1) * things.segment_bytes
        return Plan(Workload((topic,), size=size, segment_bytes=things.segment_bytes, seed=self.seed))

    def segment(self, number: int, index: int) -> Segment:
        """Segment ``index`` of a partition."""
        topic, partition = divmod(number, self.things.partitions)
        plan = self.plan(topic)
        return plan[plan.topics[0].first_ids[partition] + index]

    def made(self, number: int, index: int) -> tuple[bytes, Synthesiser]:
        """The log of a segment, and what else is known of it then."""
        segment = self.segment(number, index)
        making = Synthesiser(
            segment, self.plan(0).workload.index_interval_bytes, batch_bytes_max(segment.topic), PHRASES, compress
        )
        return b"".join(bytes(making.view[:used]) for used in iter(making.fill, 0)), making

    def measured(self, number: int, index: int) -> dict[str, Any]:
        """The fields of a segment's record that its log decides."""
        segment, (log, making) = self.segment(number, index), self.made(number, index)
        return {
            "startOffset": segment.first_offset,
            "endOffset": segment.last_offset,
            "maxTimestampMs": making.max_timestamp,
            "segmentLeaderEpochs": [{"leaderEpoch": 0, "offset": segment.first_offset}],
            "segmentSizeInBytes": len(log),
            "txnIndexEmpty": not making.transaction_index,
        }

    def paths(self, number: int, index: int) -> list[str]:
        """The files of a segment, relative to the corpus, in the order of ``SUFFIXES``."""
        segment = self.segment(number, index)
        if index < self.things.segments:
            folder = f"{STORAGE}/{segment.directory}-{uuid_text(self.place(number)['id'])}"
            return [f"{folder}/{segment.stem}-{uuid_text(self.segment_id(number, index))}{one}" for one in SUFFIXES]
        names = [segment.stem + one for one in SUFFIXES[:4]]
        return [
            f"{segment.directory}/{one}"
            for one in (*names, snapshot_name(segment.last_offset), LEADER_EPOCH_CHECKPOINT)
        ]

    def files(self, number: int, index: int) -> Iterator[tuple[str, bytes]]:
        """The paths and contents of these files."""
        log, making = self.made(number, index)
        indexes = making.offset_index, making.time_index, making.transaction_index
        # All segments are full, and every producer writes to such a segment.
        producers = encode(Producer(*fields) for fields in making.producers)
        data = (log, *indexes, producers, checkpoint_text([(0, 0)]).encode())
        return zip(self.paths(number, index), data, strict=True)


# Equal topics of equal workloads have equal segments.
tiered_of = lru_cache(maxsize=8)(Tiered)


def contents(segment: Segment) -> Contents:
    """The contents of the partition of a topic of Kafka's own."""
    topic, seed = segment.topic, segment.key_seed
    made = contents_of(topic, seed, tiered_of(topic, seed).measured) if topic.kind == KIND else contents_of(topic, seed)
    return made[segment.partition]


def remote_paths(workload: Workload) -> list[str]:
    """The files of all segments that topics of Kafka's own name, relative to the corpus."""
    found = []
    for topic in workload.topics:
        if topic.kind == KIND:
            tiered = tiered_of(topic, seed_of(workload.seed, topic.name))
            numbers = range(topic.things.topics * topic.things.partitions)
            for number in sorted({*numbers} - {*tiered.gone(numbers)}):
                for index in range(topic.things.segments + 1):
                    found += tiered.paths(number, index)
    return found


def remote_files(segment: Segment) -> Iterator[tuple[str, bytes]]:
    """The files of the segments whose copy begins in a segment of the log, and with the first one the last one's."""
    if segment.topic.kind != KIND:
        return
    tiered, own = tiered_of(segment.topic, segment.key_seed), contents(segment)
    for offset in range(segment.first_offset, segment.last_offset + 1):
        part, at, _ = own.run(offset)
        number, state = part.things[at // part.each], at % part.each
        if part is own.parts[0] and not state % 2 and not tiered.gone([number]):
            yield from tiered.files(number, state // 2)
            if not state:
                yield from tiered.files(number, tiered.things.segments)
