"""The rules of a proxy: which frames it changes, holds back or loses, and how often each was applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kfuzz.errors import EncodeError, MessageError, UsageError
from kfuzz.mutate.dice import Dice
from kfuzz.relay.frames import Direction, Exchange, Frame
from kfuzz.relay.pipe import CLOSE, Step, Wait, framed
from kfuzz.relay.rule import ANY, ENDINGS, SEED, Rule
from kfuzz.units import counted

if TYPE_CHECKING:
    from kfuzz.relay.connection import Connection

RULES_MAX: Final = 1000


class Live:
    """A rule of a proxy that runs, with its counts.

    - ``times``: how often it may still be applied in all; None for no bound.
    - ``matched``: how many frames met all of its conditions; ``applied``: how many of those it changed, held or lost.
    """

    def __init__(self, number: int, rule: Rule) -> None:
        self.number = number
        self.rule = rule
        self.times = rule.times
        self.matched = self.applied = 0
        # Frames that match, but for their number and the probability.
        self._seen = 0

    @property
    def is_used_up(self) -> bool:
        """Whether it has been applied as often as it may be."""
        return self.times is not None and self.applied >= self.times

    def dice(self, seed: int, exchange: Exchange) -> Dice | None:
        """Its random numbers for a frame of its API and direction; None if the frame does not match."""
        if self.is_used_up or not self.rule.matches(exchange):
            return None
        self._seen += 1
        if not self.rule.takes(self._seen):
            return None
        dice = self.rule.dice(seed, exchange)
        if not dice.chance(self.rule.probability):
            return None
        self.matched += 1
        return dice

    def to_json(self) -> dict[str, Any]:
        return {"number": self.number, "rule": self.rule.to_json(), "matched": self.matched, "applied": self.applied}

    def __str__(self) -> str:
        if not self.matched:
            counts = "no frame matched"
        else:
            counts = f"applied to {self.applied} of {counted(self.matched, 'frame')} that matched"
        return f"rule {self.number}: {self.rule}: {counts}"


# Gets a rule that was applied, the frame as it came to it, and the frame that the next rule gets.
Applied = Callable[["Live", Frame, Frame], object]
# Gets a code, a frame's direction and exchange, and a sentence.
Note = Callable[[str, Direction, Exchange, str], None]


class Rules:
    """The rules of a proxy, in their order. They may be added and removed while it runs, in the thread of its loop."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = SEED, note: Note = lambda *what: None) -> None:
        self.seed = seed
        self._note = note
        # Sees each rule that does something to a frame.
        self.on_applied: Applied | None = None
        self._numbers = 0
        self._live: dict[int, Live] = {}
        # By direction and API, the rules that can match. Filled when asked, emptied by each change.
        self._by_api: dict[tuple[Direction, str], tuple[Live, ...]] = {}
        for one in rules:
            self.add(one)

    def __len__(self) -> int:
        return len(self._live)

    def __iter__(self) -> Iterator[Live]:
        return iter(self._live.values())

    def __getitem__(self, number: int) -> Live:
        """The rule with this number. ``UsageError`` if there is none."""
        try:
            return self._live[number]
        except KeyError:
            raise UsageError(f"rule {number} does not exist: it was removed, or nobody added it") from None

    def add(self, rule: Rule) -> int:
        """Add a rule after all others. Its number, which is never given again. ``UsageError`` if there are too many."""
        if len(self._live) >= RULES_MAX:
            raise UsageError(f"there are {RULES_MAX} rules already; remove some")
        self._numbers += 1
        self._live[self._numbers] = Live(self._numbers, rule)
        self._by_api.clear()
        return self._numbers

    def set_times(self, number: int, times: int | None) -> None:
        """Apply a rule at most so often in all; None for no bound. ``UsageError`` if there is no such rule."""
        self[number].times = times
        self._by_api.clear()

    def remove(self, number: int) -> int:
        """Remove a rule, and its counts. Its number; ``UsageError`` if there is none with this number."""
        del self._live[self[number].number]
        self._by_api.clear()
        return number

    def clear(self) -> int:
        """Remove all rules. How many there were."""
        count = len(self._live)
        self._live.clear()
        self._by_api.clear()
        return count

    def _of(self, direction: Direction, exchange: Exchange) -> tuple[Live, ...]:
        # Keys come from strangers: APIs that no release has share one entry.
        name = exchange.name if exchange.is_known else ANY
        found = self._by_api.get((direction, name))
        if found is None:
            found = self._by_api[direction, name] = tuple(
                one
                for one in self
                if one.rule.direction == direction and one.rule.api in (name, ANY) and not one.is_used_up
            )
        return found

    def may_match(self, direction: Direction, exchange: Exchange) -> bool:
        """Whether a frame that begins may match a rule, so that it must be held."""
        # Most proxies have none, and every frame asks.
        if not self._live:
            return False
        return any(one.rule.may_match(exchange) for one in self._of(direction, exchange))

    def steps(self, connection: Connection, frame: Frame) -> Sequence[Step] | None:
        """The steps in place of a frame; None if no rule does anything to it."""
        wait_ms, copies, is_changed = 0, 1, False
        for live in self._of(frame.direction, frame.exchange):
            if (dice := live.dice(self.seed, frame.exchange)) is None:
                continue
            rule, before = live.rule, frame
            if rule.change is not None:
                changed = self._changed(live, frame, dice)
                if changed is None:
                    continue
                frame, is_changed = changed, True
            elif rule.action == "duplicate":
                copies += 1
            wait_ms += rule.delay_ms
            if rule.action in ENDINGS:
                waits: list[Step] = [Wait(wait_ms)] if wait_ms else []
                ended = _ended(rule, connection, frame, waits, copies)
                if ended is None:
                    wait_ms -= rule.delay_ms
                    continue
                self._count(live, before, frame)
                return ended
            self._count(live, before, frame)
        if not (wait_ms or is_changed or copies > 1):
            return None
        return [*([Wait(wait_ms)] if wait_ms else []), *_copied(connection, frame, copies)]

    def _count(self, live: Live, before: Frame, after: Frame) -> None:
        live.applied += 1
        if self.on_applied is not None:
            self.on_applied(live, before, after)
        if live.is_used_up:
            self._by_api.clear()

    def _changed(self, live: Live, frame: Frame, dice: Dice) -> Frame | None:
        assert live.rule.change is not None
        try:
            changed = live.rule.change(frame, dice)
        except (MessageError, EncodeError) as error:
            sentence = f"rule {live.number} cannot change it: {error}"
            self._note("rule-not-applied", frame.direction, frame.exchange, sentence)
            return None
        # The next rule may need what is in it.
        return None if changed is None else changed.check()

    def to_json(self) -> list[dict[str, Any]]:
        return [one.to_json() for one in self]


def _copied(connection: Connection, frame: Frame, copies: int) -> list[Step]:
    """The steps that send a frame so often."""
    for _ in range(copies - 1):
        connection.sends_again(frame)
    return [framed(frame.data)] * copies


def _ended(rule: Rule, connection: Connection, frame: Frame, waits: list[Step], copies: int) -> Sequence[Step] | None:
    """The steps for a frame for which no other rule has a turn; None if the rule does not fit the frame."""
    if rule.action == "answer":
        data = rule.answer(frame.exchange)
        if data is None:
            return None
        connection.answer(frame.exchange, [*waits, framed(data)])
        return []
    if rule.action == "drop":
        connection.forget(frame)
        return []
    if rule.action == "reorder":
        if connection.keeps(frame.direction):
            return None
        connection.keep(frame, _copied(connection, frame, copies))
        return []
    if rule.action == "cut":
        return [*waits, framed(frame.data)[: rule.document["cut"]], CLOSE]
    if rule.action == "disconnect":
        sent = _copied(connection, frame, copies) if rule.document["disconnect"] == "after" else []
        return [*waits, *sent, CLOSE]
    return [*waits, *connection.half_open(frame.direction)]
