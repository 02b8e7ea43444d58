"""What ``__remote_log_metadata`` names: segments in remote storage, with the names of Kafka's ``LocalTieredStorage``.

The segments of each tiered partition are those of a plan. The last of them is not in remote storage yet: it is the log
that a broker has, which begins after the others.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Final

from kfuzz.corpora.own import contents_of, id_of, picked, topic_name
from kfuzz.corpora.plan import Plan, Segment
from kfuzz.corpora.workload import Producers, Timestamps, Topic, Transactions, Workload
from kfuzz.corpora.writers import seed_of
from kfuzz.logs.snapshot import LEADER_EPOCH_CHECKPOINT, snapshot_name
from kfuzz.messages.jsonform import uuid_text

KIND: Final = "remote-log-metadata"
# The folder that ``LocalTieredStorage`` makes below its `dir`.
STORAGE: Final = "kafka-tiered-storage"
# Of each segment, in this order: log, indexes, aborted transactions, producers, leader epochs.
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".leader_epoch_checkpoint")


class Tiered:
    """The segments of the partitions that a topic of Kafka's own is about. Partitions have numbers across topics."""

    def __init__(self, topic: Topic, seed: int) -> None:
        self.things, self.seed = topic.things, seed
        # A plan may be asked for sizes before times are resolved.
        self.times = topic.timestamps if topic.timestamps.resolved else Timestamps()
        self.plan = cache(self._plan)

    def _plan(self, number: int) -> Plan:
        """The plan of a topic. It has transactions, so that there are indexes of aborted ones."""
        things = self.things
        # Resolved times of the other topic have the rate of its own records.
        times = Timestamps(start=self.times.start, end=self.times.end)
        topic = Topic(
            topic_name(number),
            things.partitions,
            timestamps=times,
            producers=Producers(1, 0.25),
            transactions=Transactions(1, 0.5, records=100, abort_share=0.5),
        )
        size = things.partitions * (things.segments + 1) * things.segment_bytes
        return Plan(Workload((topic,), size=size, segment_bytes=things.segment_bytes, seed=self.seed))

    def topic_id(self, number: int) -> bytes:
        """The id of a topic: the broker's if the workload names it."""
        ids = self.things.ids
        return base64.urlsafe_b64decode(f"{ids[number]}==") if number < len(ids) else id_of(topic_name(number))

    def segment(self, place: int, index: int) -> tuple[Plan, int]:
        """Segment ``index`` of a partition, as a plan and the id in it."""
        number, partition = divmod(place, self.things.partitions)
        plan = self.plan(number)
        return plan, plan.topics[0].first_ids[partition] + index

    def segment_id(self, place: int, index: int) -> bytes:
        """The id of a segment in remote storage. The last segment has none."""
        return id_of(f"segment {index} of {place} {self.seed}")

    def paths(self, place: int, index: int) -> list[str]:
        """The files of a segment, relative to the corpus, in the order of ``SUFFIXES``."""
        number, partition = divmod(place, self.things.partitions)
        plan, at = self.segment(place, index)
        _, first, last = plan.bounds(at)
        folder = f"{topic_name(number)}-{partition}"
        if index < self.things.segments:
            folder = f"{STORAGE}/{folder}-{uuid_text(self.topic_id(number))}"
            return [f"{folder}/{first:020d}-{uuid_text(self.segment_id(place, index))}{one}" for one in SUFFIXES]
        names = [f"{first:020d}{one}" for one in SUFFIXES[:4]]
        return [f"{folder}/{one}" for one in (*names, snapshot_name(last), LEADER_EPOCH_CHECKPOINT)]

    def is_gone(self, place: int) -> bool:
        """Whether the partition was deleted."""
        things = self.things
        return bool(picked(things.gone_share, things.topics * things.partitions, [place]))


# Equal topics of equal workloads have equal segments.
tiered_of = lru_cache(maxsize=8)(Tiered)


def remote_paths(workload: Workload) -> list[str]:
    """The files of all segments that a topic of Kafka's own names, relative to the corpus."""
    found = []
    for topic in workload.topics:
        if topic.kind == KIND:
            tiered = tiered_of(topic, seed_of(workload.seed, topic.name))
            places = range(topic.things.topics * topic.things.partitions)
            kept = (place for place in places if not tiered.is_gone(place))
            found += [
                path for place in kept for at in range(topic.things.segments + 1) for path in tiered.paths(place, at)
            ]
    return found


def remote_segments(segment: Segment) -> Iterator[tuple[Plan, int, list[str]]]:
    """The segments whose copy begins in a segment of the log: plans, ids in them, and paths. The last one of each
    partition comes with the copy of the first.
    """
    if segment.topic.kind != KIND:
        return
    things, tiered = segment.topic.things, tiered_of(segment.topic, segment.key_seed)
    contents = contents_of(segment.topic, segment.key_seed)[segment.partition]
    for offset in range(segment.first_offset, segment.last_offset + 1):
        part, number, _ = contents.run(offset)
        place, at = part.things[number // part.each], number % part.each
        if part is not contents.parts[0] or at % 2 or tiered.is_gone(place):
            continue
        for index in (at // 2, *([things.segments] if at == 0 else [])):
            yield *tiered.segment(place, index), tiered.paths(place, index)
