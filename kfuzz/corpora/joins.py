"""Predicts joins: how many records match a key of another topic, and what remains of rows that change."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from kfuzz.corpora.changes import AFTER
from kfuzz.corpora.clock import clock_of, first_units
from kfuzz.corpora.partitioners import changed_rows, key_bytes
from kfuzz.corpora.plan import Plan, TopicPlan
from kfuzz.corpora.programs import BRANCH, CHOICES_MAX, LOOP, REFERENCE, ROW, SCOPE, SINCE, TEXT, Step, To
from kfuzz.corpora.relations import DELETE, key_seed_of, numbered, references_of, referred, rows_of, schedule_seed
from kfuzz.corpora.schemed import texts
from kfuzz.corpora.workload import HASHING, Keys, Topic, program_of

# So many changes of a round that is not complete are looked at.
LOOKED_AT: Final = 1_000_000
# So many dangling keys are compared with all keys.
COMPARED: Final = 10_000
# Keys of letters may be alike. Below this number of pairs on average, none are.
ALIKE: Final = 1e-3


def predicted(plan: Plan, planned: TopicPlan) -> dict[str, Any]:
    """The predictions for one topic, as JSON; empty if it has neither references, changes of rows nor equal keys."""
    found: dict[str, Any] = {}
    topic, key_seed = planned.topic, key_seed_of(planned.topic, plan.workload.seed)
    keys = topic.keys
    if different := len(_known(keys, key_seed)):
        found |= {"different_keys": different} if different < keys.cardinality else {}
    elif keys.form == "letters" and keys.null_share < 1 and texts(keys.size) < keys.cardinality:
        # Too many to look at.
        found["different_keys_max"] = int(texts(keys.size))
    if topic.values.is_changes:
        found["changes"] = _rows(planned, key_seed)
    if references := references_of(topic.values):
        made = program_of(numbered(topic.values), topic.keys)
        steps = made.steps if made else ()
        left = partial(_values_from, planned, key_seed, found.get("changes", {}).get("tombstones", 0))
        shares = [_share(steps, 0, len(steps), number, left) for number in range(len(references))]
        found["references"] = [
            _joined(plan, planned, path, to, round(min(1.0, share) * left(0), 12))
            for (path, to), share in zip(references, shares, strict=True)
        ]
    return found


@lru_cache(maxsize=2)
def _known(keys: Keys, key_seed: int) -> frozenset[bytes]:
    """The different keys of a topic, if some may be alike and they are few enough to look at; otherwise none."""
    may_be_alike = keys.schema or (keys.form == "letters" and 16.0**-keys.size.min * keys.cardinality > ALIKE)
    is_some = may_be_alike and keys.null_share < 1 and keys.cardinality <= LOOKED_AT
    return frozenset(key_bytes(keys, key_seed, range(keys.cardinality)) if is_some else ())


def _values_from(planned: TopicPlan, key_seed: int, tombstones: int, round_: int) -> float:
    """The share of the records that have a value; of changes of rows, those from a round on."""
    topic, count, values = planned.topic, planned.offsets_per_partition, planned.topic.values
    if not values.is_changes:
        nulls = topic.keys.null_share
        return nulls * (1 - values.null_share) + (1 - nulls) * max(0.0, 1 - values.null_share - values.tombstone_share)
    rows = [rows_of(topic, key_seed, at) for at in range(topic.partitions)]
    changes = sum(max(0, count - round_ * one) for one in rows)
    before = sum(_tombstones(one, values.changes.updates, min(round_, count // one)) for one in rows)
    return max(0, changes - tombstones + before) / (count * topic.partitions)


def _share(steps: Sequence[Step], begin: int, end: int, number: int, left: Callable[[int], float]) -> float:
    """How often some steps write the reference with this number, on average; ``left`` as in ``_values_from``."""
    found = 0.0
    reached = defaultdict(float, {begin: 1.0})
    for at in range(begin, end):
        one, share = steps[at], reached[at]
        inside, after = 0.0, at + 1
        if one.kind == REFERENCE and one.target and one.target.seed == number:
            inside = 1 - one.null_share
        elif one.kind == BRANCH:
            limit, after = 0, end
            for below, _, _, to in one.choices:
                reached[to] += share * (below - limit) / CHOICES_MAX
                limit = below
        elif one.kind == ROW and share:
            # Each change counts once, with its row after the change; a deletion has it only before.
            inside, after = (one.mask == AFTER) and _share(steps, one.cut_at, one.size, number, left), one.next
        elif one.kind in (LOOP, SCOPE, SINCE) and share:
            rounds = left(one.numbers.min) / left(0) if one.kind == SINCE else 1
            inside = one.numbers.mean if one.kind == LOOP else rounds
            inside, after = inside * _share(steps, at + 1, one.next, number, left), one.next
        elif one.kind == TEXT:
            after = one.next
        found += share * inside
        reached[after] += share
    return found


def _has_all(topic: Topic) -> bool:
    """Whether each offset has a record with a key."""
    return not any(
        (topic.keys.null_share, topic.transactions.share, topic.adversarial.share, topic.compaction.segments)
    )


def _joined(plan: Plan, planned: TopicPlan, path: str, to: To, share: float) -> dict[str, Any]:
    """The prediction for a reference that this share of the records have."""
    topic, target, other = planned.topic, to.target, referred(plan.workload, to)
    assert target is not None
    assert other is not None
    theirs = plan.by_name[other.name]
    times, count = topic.timestamps, planned.offsets_per_partition
    is_exact = _has_all(topic) and not topic.values.is_changes and share == 1
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
    key_seed = key_seed_of(other, plan.workload.seed)
    there, all_there = _keys_there(theirs, needed, key_seed)
    # With a lag, references name ever more keys, at a steady rate.
    there *= 1 - math.log(there) if target.rate else 1
    known, alike = _known(other.keys, key_seed), 0.0
    if known and dangling:
        beyond = range(target.cardinality, target.cardinality + min(target.beyond, COMPARED))
        alike = sum(key in known for key in key_bytes(other.keys, key_seed, beyond)) / len(beyond)
    matching = round(((records - dangling) * there + dangling * alike) * share)
    letters = 0 if other.keys.form != "letters" else 16.0**-other.keys.size.min * target.cardinality * dangling
    return {
        "field": path,
        "to": other.name,
        "matching": matching,
        "dangling": round(records * share) - matching,
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
    from kfuzz.corpora.distributions import different_keys, own_shares

    partitions = range(topic.partitions if hashes else 0)
    own = own_shares(topic, key_seed, dict.fromkeys(partitions, count))
    keys = different_keys(topic.keys, planned.records_per_topic, own)[0]
    return min(1.0, keys / topic.keys.cardinality), False


def _tombstones(rows: int, updates: int, rounds: int) -> int:
    """How many tombstones the first rounds of a partition have. Rows are taken by their place in the cycle."""
    places = range(min(updates + 1, rows))
    return sum(-(-(rows - start) // (updates + 1)) * ((start + rounds) // (updates + 3)) for start in places)


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
        tombstones += _tombstones(rows, updates, rounds)
        is_live = []
        # Rows by their place in the cycle in round 0.
        for start in range(min(updates + 1, rows)):
            each = -(-(rows - start) // (updates + 1))
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
