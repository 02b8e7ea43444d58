"""Distributions of a workload's random numbers: exact probabilities that ``kfuzz.corpora.statistics`` compares with.

The generator makes every number from 32 random bits, in whole numbers. So the probabilities here count those bits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.corpora.clock import DAY_MS, clock_of
from kfuzz.corpora.partition_keys import own_keys
from kfuzz.corpora.partitioners import key_bytes
from kfuzz.corpora.workload import Keys, Range, Timestamps, Topic
from kfuzz.corpora.writers import threshold

Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
Distribution = Callable[[Numbers], Shares]
# A partition's own keys, the probability of each, and how many records have one of them.
Own = tuple[npt.NDArray[np.uint32], Shares, int]

BITS: Final = 1 << 32
# At most this many frequent keys are listed, if their bytes fit HOT_BYTES.
HOT_KEYS: Final = 1 << 16
HOT_BYTES: Final = 1 << 24
# More ranks than these are counted in steps. The steps grow with the ranks.
RANKS_EXACT: Final = 1 << 18
RANK_STEPS: Final = 1 << 18
# The precision of the generator's rank shares.
ZIPF_PRECISION: Final = 2.0**-27


def chance(share: float) -> float:
    """The probability with which the generator does what a workload asks for in ``share`` of the cases."""
    return threshold(share) / BITS


def weighed(weights: tuple[tuple[str, int], ...]) -> dict[str, float]:
    """The probability of each name."""
    total = sum(weight for _, weight in weights)
    found, before, used = {}, 0, 0
    for name, weight in weights:
        used += weight
        end = -(-used * BITS // total)
        found[name] = (end - before) / BITS
        before = end
    return found


def drawn(values: Range) -> Distribution:
    """The probability that a range's draw is at most a value: of ``min + floor(span · u^skew)``, or of weights."""
    if values.weights:
        shown = np.array([number for number, _ in values.weights], np.int64)
        shares = np.array([0, *values.limits], np.float64) / BITS
        return lambda at: np.asarray(shares[np.searchsorted(shown, at, side="right")])
    span = np.uint64(values.max - values.min + 1)
    shift = np.uint64(32)

    def made(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        power = bits
        for _ in range(values.skew - 1):
            power = power * bits >> shift
        return span * power >> shift

    def probability(at: Numbers) -> Shares:
        wanted = np.clip(at - values.min, -1, int(span) - 1)
        # The draw grows with the bits, so count those below the first that give more.
        low, high = np.zeros(len(at), np.uint64), np.full(len(at), BITS, np.uint64)
        for _ in range(33):
            middle = (low + high) >> np.uint64(1)
            is_below = made(np.minimum(middle, np.uint64(BITS - 1))).astype(np.int64) <= wanted
            is_open = low < high
            low = np.where(is_open & is_below, middle + np.uint64(1), low)
            high = np.where(is_open & ~is_below, middle, high)
        return np.asarray(np.minimum(low, np.uint64(BITS)) / BITS, np.float64)

    return probability


# -------------------------------------------------------------------------------------------------- times


def moments(timestamps: Timestamps, first_units: int, offsets: Numbers) -> Numbers:
    """The clock's time of each offset of a partition, in ms. ``first_units`` are the units at its offset 0."""
    clock = clock_of(timestamps)
    ends = [piece.end_ms for piece in clock.pieces]
    found = np.empty(len(offsets), np.int64)
    at = 0
    # The rate is steady in each piece of the day. Only the beginnings of pieces need numbers of any size.
    while at < len(offsets):
        first = int(offsets[at])
        moment = clock.moment(first_units + first * clock.units_per_offset)
        days, rest_ms = divmod(moment.ms, DAY_MS)
        piece = clock.pieces[bisect_right(ends, rest_ms)]
        left = (days * DAY_MS + piece.end_ms - moment.ms) * piece.rate - moment.units
        last = first + (left - 1) // clock.units_per_offset
        end = max(at + 1, int(np.searchsorted(offsets, last, side="right")))
        passed = moment.units + (offsets[at:end] - first) * clock.units_per_offset
        found[at:end] = moment.ms + passed // piece.rate
        at = end
    return found


def moved(timestamps: Timestamps) -> Distribution:
    """The probability that a record is moved by at most so many ms: forward by the jitter, back if it is late."""
    steps, late_ms = timestamps.jitter_ms + 1, timestamps.late_ms
    late = chance(timestamps.late_share)

    def below(at: Numbers) -> Shares:
        """The sum of ``min(value, late_ms)`` over the values from 1 to ``at``."""
        value = np.maximum(at, 0).astype(np.float64)
        capped = np.minimum(value, late_ms)
        return np.asarray(capped * (capped + 1) / 2 + late_ms * (value - capped), np.float64)

    def probability(at: Numbers) -> Shares:
        forward = np.clip(at + 1, 0, steps) / steps
        # For each jitter, count the delays that move the record to `at` or earlier.
        back = (below(late_ms + at + 1) - below(late_ms + at + 1 - steps)) / (float(steps) * late_ms)
        return np.asarray((1 - late) * forward + late * np.clip(back, 0, 1), np.float64)

    return probability


# --------------------------------------------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True)
class HotKeys:
    """The most frequent keys of a topic, without repetitions, and the probability of each.

    ``other_most`` is the highest probability of any other key; 0 if there is none. ``alike`` is the mean share of the
    other keys' records that have the same bytes as one of these keys.
    """

    keys: pa.Array[Any]
    shares: Shares
    other_most: float
    alike: float


def own_shares(topic: Topic, key_seed: int, records: Mapping[int, int]) -> list[Own]:
    """The own keys of the partitions in ``records``, which has the number of records with a key for each of them."""
    made = []
    for partition, count in records.items():
        numbers = np.frombuffer(own_keys(topic.keys, key_seed, topic.partitions, partition), np.uint32)
        if topic.keys.kind == "zipf":
            weights = (numbers + 1.0) ** -topic.keys.exponent
            made.append((numbers, np.asarray(weights / math.fsum(weights), np.float64), count))
        else:
            made.append((numbers, _first_shares(replace(topic.keys, cardinality=len(numbers)), len(numbers)), count))
    return made


def hot_keys(keys: Keys, key_seed: int, own: Sequence[Own] = ()) -> HotKeys:
    """The first keys of a topic; ``keys`` must be uniform or follow Zipf's law, and ``own`` is all that was drawn.

    Without ``own``, each partition draws from all keys.
    """
    count = min(keys.cardinality, HOT_KEYS, max(1, HOT_BYTES // max(1, keys.size.max)))
    made = key_bytes(keys, key_seed, range(count))
    ranks: dict[bytes, int] = {}
    places = np.array([ranks.setdefault(one, len(ranks)) for one in made])
    others = keys.cardinality > count
    if own:
        every, total = np.zeros(keys.cardinality), sum(records for _, _, records in own)
        for numbers, within, records in own:
            every[numbers] = within * (records / total)
        each, most = every[:count], float(every[count:].max(initial=0.0))
    else:
        each = _first_shares(keys, count)
        # No other key is more frequent than the last of these, except by a rounding of the draw.
        most = float(each[-1]) + 1 / BITS if others else 0.0
    shares = np.zeros(len(ranks))
    np.add.at(shares, places, each)
    alike = count * alike_share(keys) if others else 0.0
    return HotKeys(pa.array(list(ranks), pa.binary()), shares, most, alike)


def alike_share(keys: Keys) -> float:
    """The probability that two keys have the same bytes. Letters are random, and there are 16 of them."""
    return 0.0 if keys.type else 16.0**-keys.size.min


def different_keys(keys: Keys, records: int, own: Sequence[Own] = ()) -> tuple[float, float]:
    """How many different keys ``records`` draws give on average, and how far that number may be from the true one.

    ``own`` is as in :func:`hot_keys`.
    """
    if own:
        return sum(float(seen(shares, count).sum()) for _, shares, count in own), records * ZIPF_PRECISION + 1e-3
    if keys.kind == "uniform":
        each, more = divmod(BITS, keys.cardinality)
        counts = np.array([keys.cardinality - more, more], np.float64)
        shares = np.array([each, each + 1]) / BITS
        return float((counts * seen(shares, records)).sum()), 1e-3
    first, end = _steps(keys.cardinality)
    width = end - first
    total = _harmonic(keys.cardinality, keys.exponent)
    highest = seen(first.astype(np.float64) ** -keys.exponent / total, records)
    lowest = seen((end - 1).astype(np.float64) ** -keys.exponent / total, records)
    mean = float(((highest + lowest) / 2 * width).sum())
    return mean, float(((highest - lowest) / 2 * width).sum()) + records * ZIPF_PRECISION + 1e-3


def seen(shares: Shares, records: int) -> Shares:
    """The probability that something of each share is drawn in ``records`` draws."""
    return np.asarray(-np.expm1(records * np.log1p(-np.minimum(shares, 1 - 1e-16))), np.float64)


def _first_shares(keys: Keys, count: int) -> Shares:
    """The probabilities of the first ``count`` keys."""
    if keys.kind == "uniform":
        edges = -(-np.arange(count + 1, dtype=np.int64) * BITS // keys.cardinality)
        return np.asarray(np.diff(edges) / BITS, np.float64)
    ranks = np.arange(1, count + 1, dtype=np.float64)
    return np.asarray(ranks**-keys.exponent / _harmonic(keys.cardinality, keys.exponent), np.float64)


def _steps(cardinality: int) -> tuple[Numbers, Numbers]:
    """The ranks from 1 on in steps: single ones first, then ever more at a time.

    The first rank of each step, and the one after its last.
    """
    edges = np.arange(1, min(cardinality, RANKS_EXACT) + 2, dtype=np.int64)
    if cardinality > RANKS_EXACT:
        later = np.geomspace(RANKS_EXACT + 1, cardinality + 1, RANK_STEPS).astype(np.int64)
        edges = np.unique(np.concatenate([edges, later, [cardinality + 1]]))
    return edges[:-1], edges[1:]


def _harmonic(cardinality: int, exponent: float) -> float:
    """The sum of the ranks' weights, by the formula of Euler and Maclaurin for those beyond ``RANKS_EXACT``."""
    exact = min(cardinality, RANKS_EXACT)
    total = math.fsum(np.arange(1, exact + 1, dtype=np.float64) ** -exponent)
    if cardinality > exact:
        low, high = float(exact), float(cardinality)
        area = (
            math.log(high / low) if exponent == 1 else (high ** (1 - exponent) - low ** (1 - exponent)) / (1 - exponent)
        )
        total += area + (high**-exponent - low**-exponent) / 2
    return total
