"""Interleaved rounds in CPU time. Imports none of its neighbours.

A machine's speed drifts, so contestants take turns (A B C B C A …) and each ratio is taken within a round. Each round
begins with another contestant, for a place in the order can be an advantage.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from kfuzz.errors import KfuzzError

__all__ = ["LAP_MS", "Census", "Contest", "InProcess", "Lap", "NotTheSameWork", "Ratio", "Work", "confirm", "measure"]


class NotTheSameWork(KfuzzError):
    """A contestant read or wrote something else than the set holds; comparing its time would mean nothing."""


# A lap has as many passes as take so long: the shortest pass is a millisecond, of which whatever came before it takes a
# tenth by having emptied the caches.
LAP_MS = 20


class Census(Protocol):
    """A named tuple of what was read or written. Its first field counts what a time is given for each of."""

    @property
    def _fields(self) -> tuple[str, ...]: ...
    def __getitem__(self, at: int, /) -> Any: ...


class Lap(NamedTuple):
    """A pass over the whole set: CPU time, the mean of a few, and the records that the timed code itself counted."""

    cpu_ns: int
    counted: int


class Work(Protocol):
    """What a contestant does with the set, over and over."""

    def census(self) -> Census:
        """What the work reads or writes, by the very calls that are timed; untimed."""

    def warm_up(self) -> None:
        """Get to the speed that lasts."""

    def lap(self, lap_ms: int) -> Lap:
        """As many passes as take ``lap_ms``, timed."""

    def close(self) -> None:
        """End what was started for it."""


@dataclass
class InProcess:
    """Work in this process: ``run`` makes one pass and returns its count, ``take_census`` counts all.

    A loop over records has nothing in it but the work: to count there would take a fifth of the shortest loop's time,
    and would flatter whoever is slow. The set's offsets begin at 0 and have no gaps, so the last one is the count.
    """

    run: Callable[[], int]
    take_census: Callable[[], Census]

    def census(self) -> Census:
        return self.take_census()

    def warm_up(self) -> None:
        self.run()

    def lap(self, lap_ms: int) -> Lap:
        # Another contestant had the turn before and has filled the caches with its own data. A pass that is not timed
        # fills them with this one's. The collector stays on, as it does for users.
        self.run()
        gc.collect()
        passes = counted = elapsed_ns = 0
        start = time.process_time_ns()
        while elapsed_ns < lap_ms * 1_000_000:
            counted += self.run()
            passes += 1
            elapsed_ns = time.process_time_ns() - start
        # Passes that differ are not the same work, whatever their mean is.
        return Lap(elapsed_ns // passes, counted // passes if counted % passes == 0 else -1)

    def close(self) -> None:
        """Nothing was started."""


@dataclass(frozen=True)
class Contest:
    """``subject`` against the sum of ``against``, all of them names of contestants; the result is said of ``peer``."""

    subject: str
    peer: str
    against: tuple[str, ...]


class Ratio(NamedTuple):
    """A row of the results. A ratio above 1 means that kfuzz is faster; times are medians per record or message."""

    path: str
    peer: str
    median: float
    least: float
    most: float
    kfuzz_ns: float
    peer_ns: float


def confirm(path: str, works: Mapping[str, Work], expected: Census) -> None:
    """``NotTheSameWork`` unless every contestant reads or writes exactly the set."""
    for name, work in works.items():
        found = work.census()
        differing = [
            f"{field} {found[at]} instead of {expected[at]}"
            for at, field in enumerate(expected._fields)
            if found[at] != expected[at]
        ]
        if differing:
            raise NotTheSameWork(f"{path}: {name} does not do the same work: {', '.join(differing)}")


def measure(
    path: str,
    works: Mapping[str, Work],
    contests: Sequence[Contest],
    expected: Census,
    rounds: int,
    lap_ms: int = LAP_MS,
) -> list[Ratio]:
    """Confirm, warm up, then run ``rounds`` rounds in which every contestant has one turn; a ``Ratio`` a contest."""
    confirm(path, works, expected)
    for work in works.values():
        work.warm_up()
    laps: dict[str, list[int]] = {name: [] for name in works}
    order = deque(works)
    for _ in range(rounds):
        for name in order:
            lap = works[name].lap(lap_ms)
            if lap.counted != expected[0]:
                raise NotTheSameWork(
                    f"{path}: {name} met {lap.counted} {expected._fields[0]} while it was timed, not {expected[0]}"
                )
            laps[name].append(max(lap.cpu_ns, 1))
        order.rotate(-1)
    return [_ratio(path, contest, laps, expected[0]) for contest in contests]


def _ratio(path: str, contest: Contest, laps: Mapping[str, list[int]], count: int) -> Ratio:
    ours = laps[contest.subject]
    theirs = [sum(lap) for lap in zip(*(laps[name] for name in contest.against), strict=True)]
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    return Ratio(
        path,
        contest.peer,
        statistics.median(ratios),
        min(ratios),
        max(ratios),
        statistics.median(ours) / count,
        statistics.median(theirs) / count,
    )
