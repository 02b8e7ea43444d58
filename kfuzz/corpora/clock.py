"""When each offset of a partition was written: a closed form, in whole numbers, so that any segment can begin with it.

The rate changes with the hour of the day and in bursts, and is steady in between. So a day is a list of pieces, each
with a steady rate; all days (in UTC) are alike. Time is counted in *units*: in each millisecond of a piece, ``rate``
units pass. An offset takes ``units_per_offset`` units. So the units from 1970 to any moment, and the moment after any
number of units, follow from the units of a whole day.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from math import gcd

from kfuzz.corpora.workload import DAY_HOURS, Timestamps

HOUR_MS = 3_600_000
DAY_MS = DAY_HOURS * HOUR_MS


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of each day, to ``end_ms`` of it, in which ``rate`` units pass in a millisecond."""

    end_ms: int
    rate: int


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in ms, and the units that have passed since that millisecond began."""

    ms: int
    units: int


@dataclass(frozen=True, slots=True)
class Clock:
    """The pieces of a day. ``before`` holds the units before each piece, and at last those of a whole day."""

    pieces: tuple[Piece, ...]
    before: tuple[int, ...]
    units_per_offset: int

    def units_at(self, ms: int) -> int:
        """The units from 1970 to ``ms``."""
        days, rest_ms = divmod(ms, DAY_MS)
        at = bisect_right([piece.end_ms for piece in self.pieces], rest_ms)
        start_ms = self.pieces[at - 1].end_ms if at else 0
        return days * self.before[-1] + self.before[at] + (rest_ms - start_ms) * self.pieces[at].rate

    def moment(self, units: int) -> Moment:
        """The moment at which so many units have passed since 1970, and after any time in which none pass."""
        days, rest = divmod(units, self.before[-1])
        at = bisect_right(self.before, rest) - 1
        start_ms = self.pieces[at - 1].end_ms if at else 0
        ms, rest = divmod(rest - self.before[at], self.pieces[at].rate)
        return Moment(days * DAY_MS + start_ms + ms, rest)


def first_units(timestamps: Timestamps, last_offset: int) -> int:
    """The units at which a partition begins whose last offset is ``last_offset``; ``timestamps`` must be resolved."""
    clock = clock_of(timestamps)
    if timestamps.end is None:
        assert isinstance(timestamps.start, int)
        return clock.units_at(timestamps.start)
    assert isinstance(timestamps.end, int)
    # Jitter moves records forward.
    end_ms = timestamps.end - timestamps.jitter_ms
    last = clock.units_at(end_ms)
    if clock.moment(last).ms > end_ms:
        last -= 1
    return last - last_offset * clock.units_per_offset


@lru_cache(maxsize=64)
def clock_of(timestamps: Timestamps) -> Clock:
    """The clock of a topic. ``records_per_second`` is its mean rate over a day, without bursts."""
    weights = timestamps.hour_weights
    ends = {(hour + 1) * HOUR_MS for hour in range(DAY_HOURS)}
    every_ms, length_ms = timestamps.burst_every_s * 1000, timestamps.burst_length_s * 1000
    if every_ms:
        ends |= {start + offset for start in range(0, DAY_MS, every_ms) for offset in (length_ms, every_ms)}
    pieces, start_ms = [], 0
    for end_ms in sorted(ends):
        bursts = every_ms and start_ms % every_ms < length_ms
        rate = timestamps.records_per_second * DAY_HOURS * weights[start_ms // HOUR_MS]
        pieces.append(Piece(end_ms, rate * (timestamps.burst_factor if bursts else 1)))
        start_ms = end_ms
    units_per_offset = sum(weights) * 1000
    divisor = gcd(units_per_offset, *(piece.rate for piece in pieces))
    runs = groupby(pieces, key=lambda piece: piece.rate // divisor)
    merged = [Piece([piece.end_ms for piece in run][-1], rate) for rate, run in runs]
    starts = [0, *(piece.end_ms for piece in merged)]
    before = accumulate(
        ((piece.end_ms - start) * piece.rate for start, piece in zip(starts, merged, strict=False)), initial=0
    )
    return Clock(tuple(merged), tuple(before), units_per_offset // divisor)
