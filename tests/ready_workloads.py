"""The workloads of spark_jobs/workloads, and small corpora of them for tests."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.workload import KIB, Workload, load

READY = sorted((Path(__file__).parents[1] / "spark_jobs" / "workloads").glob("*.toml"))
CLEAN = [path for path in READY if not any(topic.adversarial.share for topic in load(path).topics)]


def small(path: Path) -> Workload:
    """The workload in ``path`` with one or two partitions a topic, and a few small segments in each."""
    workload = load(path)
    topics = tuple(replace(topic, partitions=min(topic.partitions, 2)) for topic in workload.topics)
    workload = replace(workload, topics=topics)
    segment_bytes = max(128 * KIB, *(math.ceil(8 * offset_bytes_mean(topic)) for topic in workload.topics))
    weights = sum(topic.weight for topic in workload.topics)
    partition = min(topic.weight / weights / topic.partitions for topic in workload.topics)
    scaled = replace(workload, segment_bytes=segment_bytes, size=math.ceil(2.4 * segment_bytes / partition))
    assert all(planned.segments_per_partition >= 2 for planned in Plan(scaled).topics)
    return scaled


def clean() -> dict[str, Workload]:
    """The small workloads by name that have nothing that Kafka would refuse, so a broker can serve their corpora."""
    return {path.stem: small(path) for path in CLEAN}
