"""Tables for keys that follow Zipf's law: the share of rank ``k`` is proportional to ``k`` to the power of -exponent.

A table is made once for each topic, or with a partitioner for each partition. It then serves every record, and holds
whole numbers only. They come from ``decimal``, whose ``ln`` and ``exp`` round correctly by specification, so every
machine makes the same table.

Ranks 1 to 127 are blocks of their own. Later ranks share blocks: 64 to each power of two, so the first and the last
rank of a block differ by less than a 64th. A record's key is drawn in two steps:

1. The alias method chooses a block, in proportion to its width times the weight of its first rank.
2. Each rank of the block is equally likely. It is kept with the probability (first rank / rank) to the power of the
   exponent; otherwise the draw begins again. So every rank has exactly its share.

That probability is at least ``keep_always``, so a draw rarely needs the power. If it does, the binomial series of
(1 + x)^-exponent gives it, for x = (rank - first rank) / first rank < 1/64. It is right to 2^-28, and so is the share
of each rank.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

SINGLE_RANKS = 128
BLOCKS_PER_OCTAVE = 64
# A product of two such fractions fits into 64 bits.
PRECISION_BITS = 31
# For exponents up to 4, the terms after these are below 2^-31.
TERMS = 7
WEIGHT_BITS = 96
# One column of the alias table: the limit below which it means its own block, and the other block.
COLUMN = struct.Struct("=QII")

CONTEXT = Context(prec=60, rounding=ROUND_FLOOR)


@dataclass(frozen=True, slots=True)
class Zipf:
    """The table for ``cardinality`` ranks. ``columns`` holds 2^``column_bits`` columns (see ``COLUMN``).

    A number of ``64 - column_bits`` random bits below a column's limit chooses the column's own block. ``keep_always``
    and ``terms`` are fractions of 2^``PRECISION_BITS``.

    ``edges`` is empty, or for the table of some of the ranks (see :func:`table_of_some`): where each block begins among
    them, and then their number, as unsigned numbers of 32 bits.
    """

    cardinality: int
    column_bits: int
    columns: bytes
    keep_always: int
    terms: tuple[int, ...]
    edges: bytes = b""


def block_of(index: int) -> tuple[int, int]:
    """The first rank of the block ``index`` (from 1), and its width."""
    if index < SINGLE_RANKS:
        return index, 1
    octave, place = divmod(index - SINGLE_RANKS, BLOCKS_PER_OCTAVE)
    return (BLOCKS_PER_OCTAVE + place) << (octave + 1), 1 << (octave + 1)


@lru_cache(maxsize=16)
def table_of(cardinality: int, exponent: float) -> Zipf:
    """The table for ranks 1 to ``cardinality``; ``exponent`` is taken as the decimal fraction that prints it."""
    weights = [weight * block_of(at)[1] for at, weight in enumerate(_weights(cardinality, exponent, WEIGHT_BITS))]
    return _table(cardinality, exponent, weights)


def table_of_some(cardinality: int, exponent: float, numbers: Sequence[int]) -> Zipf:
    """The table for some of the ranks: those one above each of ``numbers``, which rise.

    A block counts with the number of its ranks that are there, so the shares of these keep their proportions.
    """
    # High ranks have small weights, and there may be no others.
    weights = _weights(cardinality, exponent, 2 * WEIGHT_BITS)
    edges = [0, *(bisect_left(numbers, block_of(at)[0] - 1) for at in range(1, len(weights))), len(numbers)]
    own = [weight * (end - start) for weight, (start, end) in zip(weights, pairwise(edges), strict=True)]
    return replace(_table(cardinality, exponent, own), edges=struct.pack(f"={len(edges)}I", *edges))


@lru_cache(maxsize=16)
def _weights(cardinality: int, exponent: float, bits: int) -> list[int]:
    """The weight of each block's first rank, as a fraction of 2^``bits``. Blocks begin with 1; before them is a 0."""
    weights, power = [0], Decimal(repr(exponent))
    while (first := block_of(len(weights))[0]) <= cardinality:
        weights.append(_fixed(CONTEXT.exp(CONTEXT.multiply(-power, _ln(first))), bits))
    return weights


def _table(cardinality: int, exponent: float, weights: list[int]) -> Zipf:
    """``weights`` are those of whole blocks."""
    power = Decimal(repr(exponent))
    bits = max(1, (len(weights) - 1).bit_length())
    keep = Fraction(BLOCKS_PER_OCTAVE, BLOCKS_PER_OCTAVE + 1)
    always = CONTEXT.exp(CONTEXT.multiply(power, _ln(keep.numerator) - _ln(keep.denominator)))
    return Zipf(cardinality, bits, _alias(weights, bits), _fixed(always, PRECISION_BITS), _terms(Fraction(power)))


def _ln(number: int) -> Decimal:
    return CONTEXT.ln(Decimal(number))


def _fixed(number: Decimal, bits: int) -> int:
    return int(CONTEXT.multiply(number, Decimal(1 << bits)))


def _terms(power: Fraction) -> tuple[int, ...]:
    """The coefficients of the series of (1 + y / 64)^-s in fixed point: 1, -s / 64, s(s + 1) / 2 / 64², …"""
    terms, term = [], Fraction(1)
    for at in range(TERMS):
        terms.append(round(term * (1 << PRECISION_BITS)))
        term *= -(power + at) / ((at + 1) * BLOCKS_PER_OCTAVE)
    return tuple(terms)


def _alias(weights: list[int], bits: int) -> bytes:
    """The alias table of ``weights``, by Vose's method in whole numbers."""
    count = 1 << bits
    total = sum(weights)
    # The mass of each block, in units in which a column holds `total`.
    mass = [weight * count for weight in weights] + [0] * (count - len(weights))
    low = [index for index, one in enumerate(mass) if one < total]
    high = [index for index, one in enumerate(mass) if one >= total]
    limits, others = [total] * count, list(range(count))
    while low and high:
        small, large = low.pop(), high[-1]
        limits[small], others[small] = mass[small], large
        mass[large] -= total - mass[small]
        if mass[large] < total:
            low.append(high.pop())
    share_bits = 64 - bits
    return b"".join(
        COLUMN.pack((limit << share_bits) // total, other, 0) for limit, other in zip(limits, others, strict=True)
    )
