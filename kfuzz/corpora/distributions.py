"""Distributions of a workload's random numbers: exact probabilities that ``kfuzz.corpora.statistics`` compares with.

The generator makes every number from 32 random bits, in whole numbers. So the probabilities here count those bits.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kfuzz.corpora.clock import DAY_MS, clock_of
from kfuzz.corpora.schemed import program
from kfuzz.corpora.value_writer import ValueWriter
from kfuzz.corpora.workload import Keys, Range, Timestamps
from kfuzz.corpora.writers import threshold

Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
Distribution = Callable[[Numbers], Shares]

BITS: Final = 1 << 32
GOLDEN: Final = 0x9E3779B97F4A7C15
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
    """The probability that a range's draw, ``min + floor(span · u^skew)``, is at most a value."""
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


def hot_keys(keys: Keys, key_seed: int) -> HotKeys:
    """The first keys of a topic; ``keys`` must be uniform or follow Zipf's law."""
    count = min(keys.cardinality, HOT_KEYS, max(1, HOT_BYTES // max(1, keys.size.max)))
    seeds, numbers = _cells(np.full(count, key_seed, np.uint64), np.arange(count)), range(count)
    made: pa.Array[Any]
    if keys.schema:
        made = pa.array(ValueWriter(program(keys, keys.in_fields)).values(seeds.tolist(), numbers, 0), pa.binary())
    else:
        made = _texts(keys.size, seeds)
    ranks: dict[bytes, int] = {}
    places = np.array([ranks.setdefault(one or b"", len(ranks)) for one in made.to_pylist()])
    each = _first_shares(keys, count)
    shares = np.zeros(len(ranks))
    np.add.at(shares, places, each)
    others = keys.cardinality > count
    # No other key is more frequent than the last of these, except by a rounding of the draw.
    most = float(each[-1]) + 1 / BITS if others else 0.0
    alike = count * 16.0**-keys.size.min if others else 0.0
    return HotKeys(pa.array(list(ranks), pa.binary()), shares, most, alike)


def different_keys(keys: Keys, records: int) -> tuple[float, float]:
    """How many different keys ``records`` draws give on average, and how far that number may be from the true one."""
    if keys.kind == "uniform":
        each, more = divmod(BITS, keys.cardinality)
        counts = np.array([keys.cardinality - more, more], np.float64)
        shares = np.array([each, each + 1]) / BITS
        return float((counts * _seen(shares, records)).sum()), 1e-3
    first, end = _steps(keys.cardinality)
    width = end - first
    total = _harmonic(keys.cardinality, keys.exponent)
    highest = _seen(first.astype(np.float64) ** -keys.exponent / total, records)
    lowest = _seen((end - 1).astype(np.float64) ** -keys.exponent / total, records)
    mean = float(((highest + lowest) / 2 * width).sum())
    return mean, float(((highest - lowest) / 2 * width).sum()) + records * ZIPF_PRECISION + 1e-3


def _seen(shares: Shares, records: int) -> Shares:
    """The probability that something of each share is drawn in ``records`` draws."""
    return np.asarray(-np.expm1(records * np.log1p(-np.minimum(shares, 1 - 1e-16))), np.float64)


def _first_shares(keys: Keys, count: int) -> Shares:
    """The probabilities of the first ``count`` keys."""
    if keys.kind == "uniform":
        edges = np.array([-(-at * BITS // keys.cardinality) for at in range(count + 1)], np.int64)
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


def _cells(seeds: npt.NDArray[np.uint64], at: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Number ``at`` of the sequence that begins with each seed, as ``kfuzz.corpora.draws`` has it."""
    z = seeds + (at.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ z >> np.uint64(31), np.uint64)


def _texts(sizes: Range, keys: npt.NDArray[np.uint64]) -> pa.Array[Any]:
    """The bytes of the keys with these numbers: letters from a to p."""
    power = low = keys & np.uint64(BITS - 1)
    for _ in range(sizes.skew - 1):
        power = power * low >> np.uint64(32)
    lengths = sizes.min + (np.uint64(sizes.max - sizes.min + 1) * power >> np.uint64(32)).astype(np.int64)
    words = -(-max(sizes.max, 1) // 8)
    made = np.empty((len(keys), words), ">u8")
    for at in range(words):
        made[:, at] = (_cells(keys, np.full(len(keys), at)) & np.uint64(0x0F0F0F0F0F0F0F0F)) + np.uint64(
            0x6161616161616161
        )
    letters = made.view(np.uint8).reshape(len(keys), -1)
    text = letters[np.arange(letters.shape[1]) < lengths[:, None]]
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    buffers = [None, pa.py_buffer(ends.tobytes()), pa.py_buffer(text.tobytes())]
    return pa.Array.from_buffers(pa.binary(), len(keys), buffers)
