"""Makes what a load sends: the batches of a workload, in memory and without end.

Their bytes are those of a corpus of this workload, in the order of the offsets. The workload first loses all that
a producer cannot send: messages of old formats, hostile batches, and the marks of the log cleaner.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random
from typing import Final, Literal, get_args

from kfuzz.corpora.clock import clock_of
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.segment import log_chunks
from kfuzz.corpora.workload import Adversarial, Compaction, Legacy, Timestamps, Topic, Workload, require_topics
from kfuzz.corpora.writers import seed_of
from kfuzz.errors import UsageError
from kfuzz.replay.batches import Batch, Step, step_of
from kfuzz.replay.choices import Rate, Settings
from kfuzz.replay.pace import Gap
from kfuzz.replay.sending import ALL, Source
from kfuzz.wire.records.framing import frames

Arrivals = Literal["constant", "poisson", "workload"]
ARRIVALS: Final[tuple[Arrivals, ...]] = get_args(Arrivals)
# The size of the planned corpus. At 1 GB/s it lasts for 13 days. A smaller one is taken if its plan is impossible.
ENDLESS_BYTES: Final = 1 << 50
# In batches without a producer id: the producer of the partition. The workload's own producers begin at 1.
DEFAULT_PRODUCER: Final = 0


@dataclass(frozen=True, slots=True)
class Load:
    """The part of a workload to send: ``topics`` is a glob. ``name`` names the workload in errors.

    ``part`` and ``parts``: only every ``parts``-th partition, beginning with number ``part``.
    """

    workload: Workload
    name: str = "the workload"
    topics: str = "*"
    arrivals: Arrivals = "constant"
    part: int = 0
    parts: int = 1


def load_sources(load: Load, settings: Settings) -> tuple[list[Source], dict[str, int], Settings]:
    """The sources of a load, the partitions that each topic of the broker must have, and the settings with the rate.

    Without a rate, arrivals as in the workload have its own. Without acknowledgements of all replicas, batches of no
    producer get none; otherwise each partition has an idempotent one, as Kafka's producer has by default.

    Raises ``UsageError`` if the workload cannot be planned, or has no such topic.
    """
    require_topics(load.workload, load.topics)
    plan = _endless(load.workload, load.name)
    chosen = [one for one in plan.topics if fnmatchcase(one.topic.name, load.topics)]
    own_rates = load.arrivals == "workload" and settings.rate == Rate()
    parts = [(one, number) for one in chosen for number in one.partitions]
    weights = [one.topic.timestamps.records_per_second if own_rates else one.counts[number] for one, number in parts]
    total = sum(weights)
    if own_rates:
        settings = replace(settings, rate=Rate(records_per_s=total))
    elif load.arrivals != "constant" and settings.rate == Rate():
        raise UsageError(f"arrivals {load.arrivals!r} need a rate; add --rate, such as --rate 50k")
    wanted = settings.wanted((one.topic.name, one.topic.partitions - 1) for one in chosen)
    sources = []
    for weight, (one, number) in zip(weights, parts, strict=True):
        first = one.first_ids[number]
        name = settings.names.get(one.topic.name, one.topic.name)
        steps = _steps(plan, range(first, first + one.segments(number)), idempotent=settings.acks == ALL)
        sources.append(Source(name, number, steps, weight / total, _gap(load, one.topic, number)))
    return sources[load.part :: load.parts], wanted, settings


def _endless(workload: Workload, name: str) -> Plan:
    """The plan of what producers can send of a workload, so large that no load comes to its end."""
    topics = tuple(
        replace(
            topic,
            leader_epoch_offsets=0,
            timestamps=replace(topic.timestamps, type="create", start=Timestamps().start, end=None),
            producers=replace(topic.producers, epoch_records=0),
            transactions=replace(topic.transactions, epoch_transactions=0, coordinator_epoch_transactions=0),
            legacy=Legacy(),
            compaction=Compaction(),
            adversarial=Adversarial(),
        )
        for topic in workload.topics
    )
    # The size of segments is that of the workload as it is.
    found = resolve(replace(workload, topics=topics), name=name)
    size = max(ENDLESS_BYTES, found.size)
    while size > found.size:
        try:
            return Plan(found.resized(size), name)
        except UsageError:
            size //= 2
    return Plan(found, name)


def _steps(plan: Plan, ids: range, *, idempotent: bool) -> Iterator[Step]:
    for segment_id in ids:
        for chunk in log_chunks(plan[segment_id], plan.workload):
            # The chunk is overwritten by the next one, while its batches may still be on their way.
            held = memoryview(bytearray(chunk))
            for start, size, _ in frames(held):
                step = step_of(held[start : start + size])
                if idempotent and isinstance(step, Batch) and step.producer_id < 0:
                    step.producer_id = DEFAULT_PRODUCER
                yield step


def _gap(load: Load, topic: Topic, partition: int) -> Gap | None:
    if load.arrivals == "poisson":
        draw = Random(seed_of(load.workload.seed, topic.name, partition, "arrivals"))
        return lambda gap_s: gap_s * draw.expovariate(1)
    return _Curve(topic.timestamps, time.time()) if load.arrivals == "workload" else None


class _Curve:
    """Gaps that follow the hours and bursts of a topic, by the time of day in UTC, from ``began`` (s since 1970) on."""

    def __init__(self, timestamps: Timestamps, began: float) -> None:
        self.clock = clock_of(timestamps)
        self.units = float(self.clock.units_at(math.floor(began * 1000)))
        self.units_per_s = timestamps.records_per_second * self.clock.units_per_offset
        self.at_ms = math.floor(began * 1000)

    def __call__(self, gap_s: float) -> float:
        self.units += gap_s * self.units_per_s
        before, self.at_ms = self.at_ms, self.clock.moment(math.floor(self.units)).ms
        return (self.at_ms - before) / 1000
