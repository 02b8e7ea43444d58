"""Keys: Zipf's law to the last digits, in whole numbers only; sequential keys in closed form."""

from __future__ import annotations

import math
import struct
from collections import Counter
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction

import pytest
from made_corpora import batches_of

from kfuzz.corpora.plan import Plan
from kfuzz.corpora.workload import KIB, MIB, Batches, Keys, Range, Topic, Values, Workload
from kfuzz.corpora.zipf import COLUMN, PRECISION_BITS, SINGLE_RANKS, Zipf, block_of, table_of

WORD = (1 << 64) - 1
DRAWS, DRAW_KEY = 16, 6
MANY = (1 << 32) - 1


def workload_of(keys: Keys, size: int = MIB) -> Workload:
    topic = Topic("t", partitions=2, keys=keys, values=Values(size=Range(0, 0)), batches=Batches(Range(100, 300)))
    return Workload(topics=(topic,), size=size, segment_bytes=256 * KIB)


# -- the specification of the draws again, in Python's integers


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def cell(seed: int, at: int) -> int:
    return mix(seed + (at + 1) * 0x9E3779B97F4A7C15 & WORD)


def columns(table: Zipf) -> list[tuple[int, int]]:
    return [(limit, other) for limit, other, _ in COLUMN.iter_unpack(table.columns)]


def limit_of(table: Zipf, first: int, rank: int) -> int:
    """A number of 31 bits below the result keeps ``rank`` in the block that begins with ``first``."""
    y = (rank - first << 6 + PRECISION_BITS) // first
    result = table.terms[-1]
    for term in reversed(table.terms[:-1]):
        result = term + (result * y >> PRECISION_BITS)
    return max(result, table.keep_always)


def rank_of(table: Zipf, seed: int) -> int:
    alias = columns(table)
    rest_bits = 64 - table.column_bits
    for attempt in range(0, 1000, 2):
        column, rest = divmod(cell(seed, attempt), 1 << rest_bits)
        first, width = block_of(column if rest < alias[column][0] else alias[column][1])
        if width == 1:
            return first
        word = cell(seed, attempt + 1)
        rank = first + word % width
        if rank <= table.cardinality and word >> 64 - PRECISION_BITS < limit_of(table, first, rank):
            return rank
    raise AssertionError("a thousand draws were thrown away")


def key_of(seed: int, size: int) -> bytes:
    words = (cell(seed, at) & 0x0F0F0F0F0F0F0F0F for at in range(-(-size // 8)))
    return b"".join(struct.pack(">Q", word + 0x6161616161616161) for word in words)[:size]


@pytest.mark.parametrize(("cardinality", "exponent"), [(1, 1.0), (300, 1.0), (100_000, 1.1), (MANY, 0.75), (MANY, 2.5)])
def test_zipf_keys_are_those_of_the_specification_in_whole_numbers(cardinality: int, exponent: float) -> None:
    workload = workload_of(Keys(kind="zipf", size=Range(12, 12), cardinality=cardinality, exponent=exponent))
    segment = Plan(workload)[3]
    table = table_of(cardinality, exponent)
    for at, batch in enumerate(batches_of(segment, workload)[:4]):
        seed = mix(cell(segment.seed, at))
        for number, record in enumerate(batch.records):
            drawn = cell(seed + DRAWS * number * 0x9E3779B97F4A7C15 & WORD, DRAW_KEY)
            assert record.key == key_of(cell(segment.key_seed, rank_of(table, drawn) - 1), 12)


def share_of_blocks(table: Zipf) -> list[Fraction]:
    """The exact chance of each block in one draw, from the alias table."""
    alias = columns(table)
    units = Counter[int]()
    for column, (limit, other) in enumerate(alias):
        units[column] += limit
        units[other] += (1 << 64 - table.column_bits) - limit
    return [Fraction(units[block], 1 << 64) for block in range(len(alias))]


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.1, 1.333, 2.0, 4.0])
@pytest.mark.parametrize(
    "cardinality",
    [
        *(1, 2, 127, 128, 129, 1000),
        pytest.param(20_000, marks=pytest.mark.full),
        pytest.param(70_000, marks=pytest.mark.nightly),
    ],
)
def test_every_rank_has_its_share_of_zipfs_law(cardinality: int, exponent: float) -> None:
    table, context = table_of(cardinality, exponent), Context(prec=60)
    chance: dict[int, Fraction] = {}
    for block, share in enumerate(share_of_blocks(table)):
        first, width = block_of(block) if block else (0, 1)
        if share == 0:
            continue
        assert 1 <= first <= cardinality
        for rank in range(first, min(first + width, cardinality + 1)):
            kept = Fraction(limit_of(table, first, rank), 1 << PRECISION_BITS) if width > 1 else Fraction(1)
            chance[rank] = share / width * kept
    assert sorted(chance) == list(range(1, cardinality + 1))
    weights = {rank: Fraction(context.power(Decimal(rank), -Decimal(repr(exponent)))) for rank in chance}
    # Python's own floats are good enough to compare errors of one part in 2^28.
    kept_in_all = math.fsum(map(float, chance.values()))
    total = math.fsum(map(float, weights.values()))
    for rank in (*range(1, min(cardinality, 5000) + 1), *range(5000, cardinality + 1, 17)):
        error = float(chance[rank]) / kept_in_all / (float(weights[rank]) / total) - 1
        # The share of a rank that is nearly never drawn is rounded to a multiple of 2^-64.
        assert abs(error) < 2.0**-27 + 2.0**-62 / float(chance[rank]), (rank, error)


def test_draws_are_seldom_thrown_away_though_there_are_four_billion_keys() -> None:
    table = table_of(MANY, 1.1)
    assert table.keep_always > 0.98 * (1 << PRECISION_BITS)
    assert len(table.columns) <= 2048 * COLUMN.size
    assert block_of(SINGLE_RANKS) == (128, 2)
    # The last block ends with the largest cardinality.
    last = max(block for block, share in enumerate(share_of_blocks(table)) if share)
    assert sum(block_of(last)) == MANY + 1


@pytest.mark.full
@pytest.mark.parametrize(("cardinality", "exponent"), [(50, 1.0), (20_000, 1.0), (5000, 1.5), (5000, 2.0)])
def test_generated_keys_pass_a_chi_square_test_against_zipfs_law(cardinality: int, exponent: float) -> None:
    workload = workload_of(Keys(kind="zipf", cardinality=cardinality, exponent=exponent), size=4 * MIB)
    plan = Plan(workload)
    ranks = {key_of(cell(plan[0].key_seed, rank), 10): rank + 1 for rank in range(cardinality)}
    drawn = Counter(ranks[r.key or b""] for one in plan for batch in batches_of(one, workload) for r in batch.records)
    total = drawn.total()
    assert total > 100_000
    context = Context(prec=60)
    weights = [Fraction(context.power(Decimal(k), -Decimal(repr(exponent)))) for k in range(1, cardinality + 1)]
    whole = sum(Fraction(int(weight * 10**40)) for weight in weights) / 10**40
    # Bins of at least twenty expected draws each.
    statistic, bins, expected, found = 0.0, 0, 0.0, 0
    for rank, weight in enumerate(weights, 1):
        expected += float(weight / whole) * total
        found += drawn[rank]
        if expected >= 20:
            statistic += (found - expected) ** 2 / expected
            bins, expected, found = bins + 1, 0.0, 0
    assert bins >= 45
    # The mean of the statistic is its degrees of freedom, its variance twice that: five standard deviations.
    assert abs(statistic - (bins - 1)) < 5 * math.sqrt(2 * (bins - 1))


def test_sequential_keys_are_numbers_that_go_round_over_all_partitions() -> None:
    workload = workload_of(Keys(kind="sequential", size=Range(6, 6), cardinality=777, null_share=0.1))
    plan = Plan(workload)
    seen: set[bytes] = set()
    nulls = 0
    for segment in (plan[0], plan[1], plan[len(plan) - 1]):
        for batch in batches_of(segment, workload):
            for record in batch.records:
                if record.key is None:
                    nulls += 1
                    continue
                assert record.key == b"%06d" % ((record.offset * 2 + segment.partition) % 777)
                seen.add(record.key)
    assert len(seen) == 777
    assert nulls > 100


def test_sequential_keys_of_several_sizes_have_one_size_each() -> None:
    workload = workload_of(Keys(kind="sequential", size=Range(4, 30), cardinality=500))
    sizes: dict[int, set[int]] = {}
    for batch in batches_of(Plan(workload)[0], workload):
        for record in batch.records:
            assert record.key is not None
            sizes.setdefault(int(record.key), set()).add(len(record.key))
    assert {len(one) for one in sizes.values()} == {1}
    assert set.union(*sizes.values()) == set(range(4, 31))


def test_zipf_keys_of_all_partitions_are_the_same_and_equally_hot() -> None:
    workload = workload_of(Keys(kind="zipf", cardinality=1000, exponent=1.2))
    plan = Plan(workload)
    drawn = [Counter(r.key for batch in batches_of(one, workload) for r in batch.records) for one in plan]
    hottest = {keys.most_common(1)[0][0] for keys in drawn}
    assert {one.partition for one in plan} == {0, 1}
    assert hottest == {key_of(cell(plan[0].key_seed, 0), 10)}
    other = replace(workload, seed=1)
    assert Plan(other)[0].key_seed != plan[0].key_seed
