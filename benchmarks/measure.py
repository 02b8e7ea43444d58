"""Interleaved rounds, measured in CPU time. Imports none of its neighbours.

A machine's speed drifts, so contestants take turns (A B C B C A …) and each ratio is computed within a round. Each
round begins with another contestant, because the position in the order can be an advantage.
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


class NotTheSameWork(KfuzzError):
    """A contestant read or wrote other data than the set's, so its time cannot be compared."""


# A lap repeats passes for this long. The shortest pass takes a millisecond, and the caches that the previous contestant
# has emptied cost a tenth of it.
LAP_MS = 20


class Census(Protocol):
    """A named tuple of counts of what was read or written. Times are given per unit of its first field."""

    @property
    def _fields(self) -> tuple[str, ...]: ...
    def __getitem__(self, at: int, /) -> Any: ...


class Lap(NamedTuple):
    """A pass over the whole set: the mean CPU time of several passes, and the records that the timed code counted."""

    cpu_ns: int
    counted: int


class Work(Protocol):
    """A contestant's work with the set, which is repeated."""

    def census(self) -> Census:
        """Count what the timed calls read or write. This is not timed."""

    def warm_up(self) -> None:
        """Run until the speed is stable."""

    def lap(self, lap_ms: int) -> Lap:
        """Repeat timed passes for ``lap_ms`` of CPU time."""

    def close(self) -> None:
        """End what was started for this work."""


@dataclass
class InProcess:
    """Work in this process: ``run`` makes one pass and returns its count, ``take_census`` takes the census.

    A loop over records does not count them: counting would take a fifth of the shortest loop's time, and would favour
    slow contestants. The set's offsets begin at 0 and have no gaps, so the count follows from the last offset.
    """

    run: Callable[[], int]
    take_census: Callable[[], Census]

    def census(self) -> Census:
        return self.take_census()

    def warm_up(self) -> None:
        self.run()

    def lap(self, lap_ms: int) -> Lap:
        # The previous contestant has filled the caches with its own data. A pass that is not timed fills them with this
        # contestant's data. The garbage collector stays on, as it does for users.
        self.run()
        gc.collect()
        passes = counted = elapsed_ns = 0
        start = time.process_time_ns()
        while elapsed_ns < lap_ms * 1_000_000:
            counted += self.run()
            passes += 1
            elapsed_ns = time.process_time_ns() - start
        # If the passes' counts differ, report -1: they were not the same work, even if their mean is right.
        return Lap(elapsed_ns // passes, counted // passes if counted % passes == 0 else -1)

    def close(self) -> None:
        """Nothing was started."""


@dataclass(frozen=True)
class Contest:
    """Compares ``subject`` with the sum of ``against``, all of them contestants; ``peer`` names the result."""

    subject: str
    peer: str
    against: tuple[str, ...]


class Ratio(NamedTuple):
    """A row of the results; above 1 kfuzz is faster. Times are medians, in ns per record, message or call.

    ``mb_per_s`` is kfuzz's rate in MB of log before compression; 0 if no log was read or written.
    """

    path: str
    peer: str
    median: float
    least: float
    most: float
    kfuzz_ns: float
    peer_ns: float
    mb_per_s: float = 0


def confirm(path: str, works: Mapping[str, Work], expected: Census) -> None:
    """Raise ``NotTheSameWork`` unless every contestant reads or writes exactly the set."""
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
    """Confirm, warm up, then run ``rounds`` rounds in which every contestant has one turn.

    Returns a ``Ratio`` for each contest. ``NotTheSameWork`` if a contestant's counts differ from ``expected``.
    """
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
