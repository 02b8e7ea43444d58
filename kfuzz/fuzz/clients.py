"""A campaign against a whole client: conversations by seed. Faults are grouped by cause, with the fewest changes.

The first conversation of a cause is held again, in a new process and with more time. If it ends in the same way,
changes are left out as long as it still does. Other conversations that end so are only counted.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kfuzz.conformance.judge.causes import Cause, Deviation, Key, masked
from kfuzz.conformance.judge.harm import PANICS, RANK
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.fuzz.causes import file_name
from kfuzz.fuzz.conversations import OWN, READS, Conversation, Held, Topic, conversation, hold, plain, writes
from kfuzz.fuzz.driver import Bounds, Driver, Ended
from kfuzz.text import file_name as safe_name

__all__ = ["Campaign", "Found", "repeat"]

# A client that waits for a request's time limit comes back after it. This is usually 30 s, and some set none of ours.
PATIENCE: Final = 10
CALL_PATIENCE: Final = 3
# So many conversations are held again for a cause that does not show itself again.
CONFIRMATIONS_MAX: Final = 3
# The first conversation of a process loads most of a client's code, which takes long on a busy machine.
WARM_UPS_MAX: Final = 3

READ: Final = "read"
REJECTED: Final = "rejected"


@dataclass(slots=True)
class Found:
    """A cause: the smallest conversation that shows it, how that ended, and how many did so."""

    deviation: Deviation
    conversation: Conversation
    count: int = 1

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
class Campaign:
    """A campaign against ``client``; :meth:`run` holds the conversations. Its other fields are the results so far.

    - ``ends``: how many conversations ended how: ``read``, ``rejected`` with an error, or the name of a class of harm.
    - ``changed``: in how many a frame was changed. ``unconfirmed``: how many did not end so when held again.
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
    interrupted: bool = False
    found: dict[Path, Found] = field(default_factory=dict)
    causes: dict[Key, Found] = field(default_factory=dict)
    # The causes of conversations that were not made smaller, by the words of their end.
    _aliases: dict[Key, Key] = field(default_factory=dict)
    _doubts: Counter[Key] = field(default_factory=Counter)
    # How many have ended so while the first one is held again.
    _pending: Counter[Key] = field(default_factory=Counter)
    # For all fields above.
    _lock: threading.Lock = field(default_factory=threading.Lock)

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

        ``UsageError`` if the client does not start, or does not read from a broker as it is.
        """
        began_s = time.monotonic()
        numbers = itertools.count(1) if count is None else iter(range(1, count + 1))
        with contextlib.ExitStack() as stack:
            drivers = [stack.enter_context(Driver(self.client, self.bounds)) for _ in range(jobs)]
            reads, self.topic = _ready(drivers[0], self.bounds, self.topic)
            apis = {READS: reads} | writes(drivers[0], self.bounds, self.topic)
            self.implementation = f"{self.client.name}@{drivers[0].version}"

            def work(driver: Driver) -> None:
                while time.monotonic() - began_s < seconds and (number := next(numbers, None)):
                    self._next(driver, conversation(self.seed, number, apis))
                    with self._lock:
                        self.seconds = time.monotonic() - began_s
                        self.starts = sum(one.starts for one in drivers)
                        watch(self)

            try:
                with ThreadPoolExecutor(jobs) as pool:
                    try:
                        for one in as_completed([pool.submit(work, driver) for driver in drivers]):
                            one.result()
                    except BaseException:
                        for driver in drivers:
                            driver.is_cancelled = True
                        raise
            except KeyboardInterrupt:
                self.interrupted = True
            finally:
                self._write()

    def _next(self, driver: Driver, made: Conversation) -> None:
        held = self._held(driver, made, self.bounds)
        ended = held.ended
        with self._lock:
            self.changed += bool(held.applied)
            self.ends[ended.harm or (REJECTED if ended.error else READ)] += 1
            if not ended.harm:
                return
            key = self._deviation(made, ended).key
            if key in self._aliases:
                self.causes[self._aliases[key]].count += 1
                return
            if self._doubts[key] >= CONFIRMATIONS_MAX:
                self.unconfirmed += 1
                return
            self._pending[key] += 1
            if self._pending[key] > 1:
                return
        found = self._confirmed(driver, made, ended)
        with self._lock:
            count = self._pending.pop(key)
            if found is None:
                self._doubts[key] += 1
                self.unconfirmed += count
                return
            final = self._aliases[key] = found.deviation.key
            known = self.causes.setdefault(final, found)
            known.count += count - (known is found)
            if len(found.conversation.rules) < len(known.conversation.rules):
                known.deviation, known.conversation = found.deviation, found.conversation

    def _held(self, driver: Driver, made: Conversation, bounds: Bounds) -> Held:
        """Hold a conversation, in a new process if there is none."""
        if not driver.runs:
            _ready(driver, self.bounds, self.topic)
        return hold(driver, made, bounds, self.topic)

    def _confirmed(self, driver: Driver, made: Conversation, ended: Ended) -> Found | None:
        """The find with as few rules as possible; None if the conversation ends otherwise when it is held again."""

        def again(one: Conversation, bounds: Bounds) -> Held | None:
            # An exception with its line shows itself in any process, and some take seconds to start.
            if ended.harm != PANICS.name:
                driver.stop()
            held = self._held(driver, one, bounds)
            return held if _is_same(held.ended, ended) else None

        if (held := again(made, _patient(self.bounds))) is None:
            return None
        applied = {one.rule for one in held.applied}
        smallest = made
        only_applied = replace(made, rules=tuple(one for at, one in enumerate(made.rules, 1) if at in applied))
        if 0 < len(only_applied.rules) < len(made.rules) and (less := again(only_applied, self.bounds)):
            smallest, held = only_applied, less
        at = 0
        while at < len(smallest.rules) > 1:
            one = replace(smallest, rules=smallest.rules[:at] + smallest.rules[at + 1 :])
            if less := again(one, self.bounds):
                smallest, held = one, less
            else:
                at += 1
        deviation = self._deviation(smallest, held.ended)
        return Found(replace(deviation, shrunk_from=len(made.rules)), smallest)

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
        """Write a file for each cause."""
        ordered = sorted(
            self.causes.values(), key=lambda one: (RANK[one.deviation.harm], -one.count, one.deviation.key)
        )
        for one in ordered:
            path = self.out / safe_name(self.client.name) / "causes" / f"{file_name(one.cause)}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(one.conversation.to_json(), indent=2) + "\n")
            self.found[path] = one

    def to_json(self) -> dict[str, Any]:
        """The results, for JSON."""
        return {
            "client": self.implementation,
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "conversations": self.conversations,
            "changed": self.changed,
            "ends": dict(sorted(self.ends.items())),
            "unconfirmed": self.unconfirmed,
            "starts": self.starts,
            "interrupted": self.interrupted,
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
            yield f"  {self.unconfirmed:,} of these did not end so when held again, or with more time"


def repeat(client: Testee, made: Conversation, bounds: Bounds, topic: Topic = OWN) -> Held:
    """Hold one conversation, in a new process and with more time. ``UsageError`` as for a campaign."""
    with Driver(client, bounds) as driver:
        _, topic = _ready(driver, bounds, topic)
        return hold(driver, made, _patient(bounds), topic)


def _patient(bounds: Bounds) -> Bounds:
    return replace(bounds, recover_ms=PATIENCE * bounds.recover_ms, call_ms=CALL_PATIENCE * bounds.call_ms)


def _is_same(one: Ended, other: Ended) -> bool:
    return (one.harm, one.at, masked(one.error)) == (other.harm, other.at, masked(other.error))


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
