"""A campaign against a whole client: conversations by seed. Faults are grouped by cause, with the fewest changes.

The first conversation of a cause is held again, in a new process and with more time. If it ends in the same way,
changes are left out as long as it still does. Other conversations that end so are only counted.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.judge.causes import Cause, Deviation, Key, masked
from kfuzz.conformance.judge.harm import HANGS, PANICS, RANK
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.fuzz.causes import file_name
from kfuzz.fuzz.conversations import OWN, READS, Conversation, Held, Topic, conversation, hold, plain, writes
from kfuzz.fuzz.driver import COMPUTES, RETURNS_NOT, Bounds, Driver, Ended
from kfuzz.fuzz.jobs import Failed, Jobs
from kfuzz.fuzz.smaller import Broken, broken, fewer
from kfuzz.text import file_name as safe_name

# A client that waits for a request's time limit comes back after it. This is usually 30 s, and some set none of ours.
PATIENCE: Final = 10
CALL_PATIENCE: Final = 3
# So many conversations are held again for a cause that does not show itself again.
CONFIRMATIONS_MAX: Final = 3
# How much longer than usual it may take when changes are left out, and how many conversations of a cause may end
# otherwise then.
SHORT_PATIENCE: Final = 2
REFUSED_MAX: Final = 40
FAILED_MAX: Final = 2
# So long after its time, a campaign waits for what is held.
GRACE_S: Final = 10.0
# The first conversation of a process loads most of a client's code, which takes long on a busy machine.
WARM_UPS_MAX: Final = 3

READ: Final = "read"
REJECTED: Final = "rejected"


@dataclass(slots=True)
class Found:
    """A cause: the smallest conversation that shows it, how that ended, and how many did so.

    ``reads_all``: whether a client must read all records after its changes, or report an error.
    """

    deviation: Deviation
    conversation: Conversation
    count: int = 1
    reads_all: bool = False

    @property
    def cause(self) -> Cause:
        """As in other campaigns."""
        return Cause(self.deviation.key, (self.deviation,), self.count - 1)

    def to_json(self) -> dict[str, Any]:
        """The cause and its conversation, for JSON."""
        return {
            "id": self.cause.id,
            "harm": self.deviation.harm,
            "error": self.deviation.error,
            "at": self.deviation.at,
            "count": self.count,
            "rules_before": self.deviation.shrunk_from,
            "conversation": self.conversation.to_json(),
        }


@dataclass(slots=True)
class _Candidate:
    """A conversation that has broken the client and is held again, at first as it is and then with fewer changes.

    - ``count``: how many conversations have ended so. ``is_held``: whether a process holds one now.
    - ``best``: the one with the fewest changes so far. ``sure``: the same, held with all the time that it may take.
    """

    made: Conversation
    ended: Ended
    count: int = 1
    is_held: bool = False
    best: Broken | None = None
    sure: Broken | None = None
    # Those that ended otherwise, and how often a process could not hold one.
    _refused: list[Conversation] = field(default_factory=list)
    _failed: int = 0

    def step(self) -> tuple[Conversation, bool] | None:
        """The next conversation to hold, and whether with all the time that it may take; None if there is none."""
        if self.best is None:
            return None if self._refused else (self.made, True)
        if len(self._refused) < REFUSED_MAX:
            for one in fewer(self.best):
                if one not in self._refused:
                    return one, False
        return None if self.sure is self.best else (self.best.made, True)

    def take(self, made: Conversation, is_patient: bool, got: Broken | Failed | None) -> None:
        """Take the result: the conversation has broken the client as before, or has not."""
        self.is_held = False
        if isinstance(got, Failed) and self._failed < FAILED_MAX:
            # Something else may have ended the process, so the same one is held again.
            self._failed += 1
        elif isinstance(got, Broken):
            self.best = got
            # More time matters to clients that wait.
            if is_patient or self.ended.harm != HANGS.name:
                self.sure = got
        else:
            self._refused.append(made)
            if is_patient:
                self.best = self.sure


@dataclass(slots=True)
class Campaign:
    """A campaign against ``client``; :meth:`run` holds the conversations. Its other fields are the results so far.

    - ``ends``: how many conversations ended how: ``read``, ``rejected`` with an error, or the name of a class of harm.
    - ``changed``: in how many a frame was changed. ``unconfirmed``: how many did not end so when held again.
    - ``failed``: how many could not be held, because the client did not start or the driver broke its protocol, and
      ``failure``: the first reason.
    - ``causes``: what was found, by what its deviations have in common. ``found``: the same at the end, by the file of
      the smallest conversation, the worst first.
    """

    client: Testee
    seed: int
    out: Path
    bounds: Bounds = field(default_factory=Bounds)
    topic: Topic = OWN
    implementation: str = ""
    ends: Counter[str] = field(default_factory=Counter)
    changed: int = 0
    unconfirmed: int = 0
    seconds: float = 0
    starts: int = 0
    failed: int = 0
    failure: str = ""
    interrupted: bool = False
    found: dict[Path, Found] = field(default_factory=dict)
    causes: dict[Key, Found] = field(default_factory=dict)
    # The causes of conversations that were not made smaller, by the words of their end.
    _aliases: dict[Key, Key] = field(default_factory=dict)
    _doubts: Counter[Key] = field(default_factory=Counter)
    _candidates: dict[Key, _Candidate] = field(default_factory=dict)

    @property
    def conversations(self) -> int:
        """How many were held."""
        return self.ends.total()

    def run(
        self,
        seconds: float,
        count: int | None,
        watch: Callable[[Campaign], object] = lambda one: None,
        jobs: int = 1,
    ) -> None:
        """Hold conversations for so long, and at most ``count``, in ``jobs`` processes. ``watch`` is called after each.

        As many more processes hold again what has broken the client. After the time, they get a few seconds more.
        ``UsageError`` if the client does not start, or does not read from a broker as it is.
        """
        began_s = time.monotonic()
        numbers = itertools.count(1) if count is None else iter(range(1, count + 1))
        self.bounds = replace(self.bounds, start_ms=min(self.bounds.start_ms, int((seconds + GRACE_S) * 1000)))
        self.implementation = self.client.name
        holding = 0

        def take(made: Conversation, got: tuple[Ended, bool] | Failed) -> None:
            nonlocal holding
            holding -= 1
            self._take(made, got)
            self.seconds, self.starts = time.monotonic() - began_s, processes.starts
            watch(self)

        try:
            with Driver(self.client, self.bounds) as first:
                reads, self.topic = _ready(first, self.bounds, self.topic)
                apis = {READS: reads} | writes(first, self.bounds, self.topic)
                self.implementation = f"{self.client.name}@{first.version}"
            with Jobs(self.client, self.bounds) as processes:
                while True:
                    left_s = began_s + seconds - time.monotonic()
                    while left_s > 0 and holding < jobs and (number := next(numbers, None)):
                        made = conversation(self.seed, number, apis)
                        processes.do(partial(take, made), _held, made, self.bounds, self.topic)
                        holding += 1
                    for key, one in list(self._candidates.items()):
                        if not one.is_held and len(processes) < holding + jobs:
                            self._hold_again(key, one, processes)
                    if not len(processes) or left_s < -GRACE_S:
                        break
                    processes.wait(left_s if left_s > 0 else left_s + GRACE_S)
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            for key, one in list(self._candidates.items()):
                self._settle(key, one)
            self._write()

    def _take(self, made: Conversation, got: tuple[Ended, bool] | Failed) -> None:
        """Count a conversation that was held, and let the first of a cause be held again."""
        if isinstance(got, Failed):
            self.failed += 1
            self.failure = self.failure or got.why
            return
        ended, is_changed = got
        self.changed += is_changed
        self.ends[ended.harm or (REJECTED if ended.error else READ)] += 1
        if not ended.harm:
            return
        key = self._deviation(made, ended).key
        if key in self._aliases:
            self.causes[self._aliases[key]].count += 1
        elif key in self._candidates:
            self._candidates[key].count += 1
        elif self._doubts[key] >= CONFIRMATIONS_MAX:
            self.unconfirmed += 1
        else:
            self._candidates[key] = _Candidate(made, ended)

    def _hold_again(self, key: Key, one: _Candidate, processes: Jobs) -> None:
        """Hold the next conversation of a candidate; without one, it has been made small."""
        if (step := one.step()) is None:
            self._settle(key, one)
            return
        made, is_patient = step
        one.is_held = True
        patience = PATIENCE if is_patient else SHORT_PATIENCE
        processes.do(
            partial(one.take, made, is_patient), _again, made, _patient(self.bounds, patience), self.topic, one.ended
        )

    def _settle(self, key: Key, one: _Candidate) -> None:
        del self._candidates[key]
        if one.sure is None or (best := one.best) is None:
            self._doubts[key] += 1
            self.unconfirmed += one.count
            return
        deviation = replace(self._deviation(best.made, best.ended), shrunk_from=len(one.made.rules))
        found = Found(deviation, best.made, one.count, best.reads_all)
        final = self._aliases[key] = deviation.key
        known = self.causes.setdefault(final, found)
        if known is not found:
            known.count += one.count
            if found.conversation.weight < known.conversation.weight:
                known.deviation, known.conversation, known.reads_all = deviation, best.made, best.reads_all

    def _deviation(self, made: Conversation, ended: Ended) -> Deviation:
        after = f", after a changed response of {ended.after}" if ended.after and not ended.at else ""
        version = self.implementation.rpartition("@")[2]
        return Deviation(
            self.implementation,
            ended.harm,
            error=f"{ended.error}{after}",
            at=ended.at,
            input=f"conversation {made.number}",
            number=made.number,
            size_bytes=len(made.rules),
            library=f"{self.client.of}@{version}" if self.client.of else "",
            request=made.to_json(),
        )

    def _write(self) -> None:
        ordered = sorted(
            self.causes.values(), key=lambda one: (RANK[one.deviation.harm], -one.count, one.deviation.key)
        )
        for one in ordered:
            path = self.out / safe_name(self.client.name) / "causes" / f"{file_name(one.cause)}.json"
            broke = {"harm": one.deviation.harm, "error": one.deviation.error, "reads_all": one.reads_all}
            write_whole(path, json.dumps(one.conversation.to_json() | {"broke": broke}, indent=2) + "\n")
            self.found[path] = one

    def to_json(self) -> dict[str, Any]:
        """The results, for JSON."""
        names = ("seed", "conversations", "changed", "unconfirmed", "failed", "failure", "starts", "interrupted")
        return {name: getattr(self, name) for name in names} | {
            "client": self.implementation,
            "seconds": round(self.seconds, 3),
            "ends": dict(sorted(self.ends.items())),
            "causes": [one.to_json() | {"file": str(path)} for path, one in self.found.items()],
        }

    def lines(self) -> Iterator[str]:
        """The results but for the causes, as lines."""
        yield (
            f"{self.implementation}: {self.conversations:,} conversations in {self.seconds:.0f} s, frames changed in "
            f"{self.changed:,} of them; the client was started {self.starts:,} times"
        )
        harmed = "".join(f", {name} {self.ends[name]:,}" for name in RANK if self.ends[name])
        yield f"  read to the end {self.ends[READ]:,}, reported an error {self.ends[REJECTED]:,}{harmed}"
        if self.unconfirmed:
            yield f"  {self.unconfirmed:,} of these were not held again, or did not end so with more time"
        if self.failed:
            yield f"  {self.failed:,} more could not be held: {self.failure}"


def repeat(client: Testee, made: Conversation, bounds: Bounds, topic: Topic = OWN) -> Held:
    """Hold one conversation, in a new process and with more time. ``UsageError`` as for a campaign."""
    with Driver(client, bounds) as driver:
        _, topic = _ready(driver, bounds, topic)
        return hold(driver, made, _patient(bounds, PATIENCE), topic)


def _patient(bounds: Bounds, patience: int) -> Bounds:
    return replace(
        bounds, recover_ms=patience * bounds.recover_ms, call_ms=min(patience, CALL_PATIENCE) * bounds.call_ms
    )


# --- what the processes of a campaign do


def _held(driver: Driver, made: Conversation, bounds: Bounds, topic: Topic) -> tuple[Ended, bool]:
    """How a conversation ends, and whether a frame was changed."""
    held = _hold(driver, made, bounds, topic)
    return held.ended, bool(held.applied)


def _again(driver: Driver, made: Conversation, bounds: Bounds, topic: Topic, before: Ended) -> Broken | None:
    """A conversation that ends as before in a new process; otherwise None."""
    # An exception with its line shows itself in any process, and some take seconds to start.
    if before.harm != PANICS.name:
        driver.stop()
    held = _hold(driver, made, bounds, topic)
    return broken(made, held) if _way(held.ended) == _way(before) else None


def _way(ended: Ended) -> tuple[str, str, str]:
    # Which of its limits a call exceeds first depends on what else the machine does.
    return ended.harm, ended.at, masked(ended.error.replace(COMPUTES, RETURNS_NOT))


def _hold(driver: Driver, made: Conversation, bounds: Bounds, topic: Topic) -> Held:
    if not driver.runs:
        _ready(driver, bounds, topic)
    return hold(driver, made, bounds, topic)


def _ready(driver: Driver, bounds: Bounds, topic: Topic) -> tuple[dict[str, int], Topic]:
    """Start the process and let it read the topic, as ``plain`` does."""
    for left in reversed(range(WARM_UPS_MAX)):
        driver.start()
        try:
            return plain(driver, bounds, topic)
        except UsageError:
            driver.stop()
            if not left:
                raise
    raise AssertionError
