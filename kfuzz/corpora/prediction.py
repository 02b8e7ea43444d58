"""Predicts what a workload costs: bytes, tasks, core-hours. Measures small samples of each topic, made in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.segment import log_chunks
from kfuzz.corpora.workload import GIB, MIB, Compaction, Topic, Workload

# A Spark task costs 20 ms, which is little beside the time for so many bytes.
TASK_BYTES = GIB
# Spark's driver remembers each task, so a corpus of 100 TiB has tasks of 5 GiB.
TASKS_MAX = 20_000
SAMPLE_BATCHES = 16
SAMPLE_BYTES_MIN, SAMPLE_BYTES_MAX = 2 * MIB, 64 * MIB
# Of one of Kafka's own topics.
SAMPLE_OFFSETS = 5000
RUNS = 2


@dataclass(frozen=True, slots=True)
class TopicPrediction:
    """``bytes`` without compression, ``compressed_bytes`` of the log files, and CPU time for the topic ``name``."""

    name: str
    bytes: int
    compressed_bytes: int
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Prediction:
    """The cost of the whole corpus. ``core_hours`` is an estimate for this machine, without writing to a disk."""

    topics: Sequence[TopicPrediction]
    tasks: int

    @property
    def bytes(self) -> int:
        return sum(topic.bytes for topic in self.topics)

    @property
    def compressed_bytes(self) -> int:
        return sum(topic.compressed_bytes for topic in self.topics)

    @property
    def core_hours(self) -> float:
        return sum(topic.cpu_s for topic in self.topics) / 3600


def tasks_of(size: int, segments: int) -> int:
    """The number of tasks for a corpus of ``size`` bytes on a cluster that is not larger than it needs."""
    return max(1, min(segments, TASKS_MAX, -(-size // TASK_BYTES)))


def predict(plan: Plan, *, set_done: Callable[[int], None] = lambda done: None) -> Prediction:
    """Predict what the corpus of ``plan`` takes. Its workload must be resolved. Takes up to a second for each topic.

    ``set_done`` is called with the number of topics that were measured.
    """
    topics = []
    samples: dict[Topic, tuple[int, int, float]] = {}
    for done, planned in enumerate(plan.topics):
        offsets = sum(planned.counts)
        # A workload may have thousands of topics that differ in nothing else.
        alike = replace(planned.topic, name="", weight=1)
        if alike not in samples:
            samples[alike] = _sample(planned.topic, plan.workload)
        sampled, size, cpu_s = samples[alike]
        plain = round(offset_bytes_mean(planned.topic) * offsets)
        times = offsets / sampled
        topics.append(TopicPrediction(planned.topic.name, plain, round(size * times), cpu_s * times))
        set_done(done + 1)
    return Prediction(topics, tasks_of(plan.workload.size, len(plan)))


def _sample(topic: Topic, workload: Workload) -> tuple[int, int, float]:
    """The offsets, the bytes and the CPU seconds of one small segment of ``topic``."""
    enough = round(SAMPLE_BATCHES * (offset_bytes_mean(topic) * topic.batches.records.mean))
    size = min(max(enough, SAMPLE_BYTES_MIN), SAMPLE_BYTES_MAX)
    small = replace(
        workload, topics=(replace(topic, partitions=1, compaction=Compaction()),), size=size, segment_bytes=size
    )
    segment = Plan(small)[0]
    if topic.is_own:
        # Records of one kind follow each other.
        middle = segment.offsets // 2
        segment = replace(segment, first_offset=middle, offsets=min(segment.offsets - middle, SAMPLE_OFFSETS))
    best_s = float("inf")
    # The first run also makes tables that a whole corpus makes once.
    for _ in range(RUNS):
        start_s = time.process_time()
        made = sum(map(len, log_chunks(segment, small)))
        best_s = min(best_s, time.process_time() - start_s)
    return segment.offsets, made, best_s
