"""Predicts joins: how many records match a key of another topic, and what remains of rows that change."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Any, Final

from kfuzz.corpora.clock import clock_of, first_units
from kfuzz.corpora.partitioners import changed_rows
from kfuzz.corpora.plan import Plan, TopicPlan
from kfuzz.corpora.programs import BRANCH, REFERENCE, To
from kfuzz.corpora.relations import DELETE, key_seed_of, references_of, referred, rows_of, schedule_seed
from kfuzz.corpora.workload import HASHING, Topic, program_of
from kfuzz.errors import needs

# So many changes of a round that is not complete are looked at.
LOOKED_AT: Final = 1_000_000
# Keys of letters may be alike. Below this number of pairs on average, none are.
ALIKE: Final = 1e-3


def predicted(plan: Plan, planned: TopicPlan) -> dict[str, Any]:
    """The predictions for one topic, as JSON; empty if it has neither references nor changes of rows."""
    found: dict[str, Any] = {}
    if references := [_joined(plan, planned, *one) for one in references_of(planned.topic.values)]:
        found["references"] = references
    if planned.topic.values.is_changes:
        found["changes"] = _rows(planned, key_seed_of(planned.topic, plan.workload.seed))
    return found


def _has_all(topic: Topic) -> bool:
    """Whether each offset has a record with a key."""
    return not any(
        (topic.keys.null_share, topic.transactions.share, topic.adversarial.share, topic.compaction.segments)
    )


def _joined(plan: Plan, planned: TopicPlan, path: str, to: To) -> dict[str, Any]:
    topic, target, other = planned.topic, to.target, referred(plan.workload, to)
    assert target is not None
    assert other is not None
    theirs = next(one for one in plan.topics if one.topic.name == other.name)
    values = topic.values
    made = program_of(values, topic.keys)
    steps = made.steps if made else ()
    times, count = topic.timestamps, planned.offsets_per_partition
    is_exact = _has_all(topic) and not (values.null_share or values.tombstone_share or values.is_changes)
    is_exact &= not any(one.kind == BRANCH or (one.kind == REFERENCE and one.null_share) for one in steps)
    # Records before the first key that a lag allows dangle too.
    before, needed = 0, target.cardinality
    if target.rate:
        clock, first = clock_of(times), first_units(times, count - 1)

        def ms_at(offset: int) -> int:
            return clock.moment(first + offset * clock.units_per_offset).ms

        before = bisect_left(range(count), target.start_ms, key=ms_at)
        passed_ms = min(ms_at(count - 1) - target.start_ms, target.longest_ms)
        written = ((passed_ms + 1) * target.rate - 1) // target.units_per_offset + 1
        needed = max(1, min(target.cardinality, written * target.partitions))
        is_exact &= not times.jitter_ms and not times.late_share
    records = planned.records_per_topic
    later = count * target.dangling // 10**9 - before * target.dangling // 10**9
    dangling = (before + later) * records // count
    there, all_there = _keys_there(theirs, needed, key_seed_of(other, plan.workload.seed))
    # With a lag, references name ever more keys, at a steady rate.
    there *= 1 - math.log(there) if target.rate else 1
    matching = round((records - dangling) * there)
    letters = 0 if other.keys.form != "letters" else 16.0**-other.keys.size.min * target.cardinality * dangling
    return {
        "field": path,
        "to": other.name,
        "matching": matching,
        "dangling": records - matching,
        "exact": is_exact and all_there and letters < ALIKE,
    }


def _keys_there(planned: TopicPlan, needed: int, key_seed: int) -> tuple[float, bool]:
    """The share of the first ``needed`` keys that a topic has, and whether it is exact."""
    topic, count = planned.topic, planned.offsets_per_partition
    is_sequential, hashes = topic.keys.kind == "sequential", topic.keys.partitioner in HASHING
    if topic.values.is_changes or (is_sequential and hashes):
        rows = [rows_of(topic, key_seed, at) for at in range(topic.partitions)]
        there = sum(min(one, count) for one in rows) / sum(rows)
        return there, there == 1 and (topic.values.is_changes or _has_all(topic))
    if is_sequential:
        there = min(1.0, count * topic.partitions / needed)
        return there, there == 1 and _has_all(topic)
    with needs("it needs NumPy and PyArrow; pip install 'kfuzz[corpus]'"):
        from kfuzz.corpora.distributions import different_keys, own_shares

    partitions = range(topic.partitions if hashes else 0)
    own = own_shares(topic, key_seed, dict.fromkeys(partitions, count))
    keys = different_keys(topic.keys, planned.records_per_topic, own)[0]
    return min(1.0, keys / topic.keys.cardinality), False


def _rows(planned: TopicPlan, key_seed: int) -> dict[str, Any]:
    topic, count = planned.topic, planned.offsets_per_partition
    updates = topic.values.changes.updates
    cycle = updates + 3
    live = keys = tombstones = left = 0
    is_exact = True
    for partition in range(topic.partitions):
        rows = rows_of(topic, key_seed, partition)
        rounds, rest = divmod(count, rows)
        keys += min(rows, count)
        cleaned = topic.compaction.segments * planned.offsets_per_segment
        left += min(cleaned, rows) + count - cleaned
        is_live = []
        # Rows by their place in the cycle in round 0.
        for start in range(min(updates + 1, rows)):
            each = -(-(rows - start) // (updates + 1))
            tombstones += each * ((start + rounds) // cycle)
            is_live.append(rounds > 0 and (start + rounds - 1) % cycle <= updates)
            live += each * is_live[-1]
        is_exact &= rest <= LOOKED_AT
        last = range(rounds * rows, rounds * rows + min(rest, LOOKED_AT))
        for row, kind in changed_rows(rows, schedule_seed(topic, key_seed, partition), updates, last):
            live += (kind < DELETE) - is_live[row % (updates + 1)]
            tombstones += kind > DELETE
    return {
        "live_keys": live,
        "deleted_keys": keys - live,
        "tombstones": tombstones,
        "records_left": left,
        "exact": is_exact,
    }
