"""Fewer changes for a conversation that breaks a client: rules are left out, and a mutated frame becomes set fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfuzz.errors import DecodeError, UsageError
from kfuzz.fuzz.conversations import Conversation, Held
from kfuzz.fuzz.driver import Ended
from kfuzz.relay.local import Seen
from kfuzz.relay.rule import Rule

__all__ = ["Broken", "broken", "fewer"]

# More fields than this would say nothing to a person.
FIELDS_MAX: Final = 100
FIELDS_CHARACTERS_MAX: Final = 20_000


@dataclass(frozen=True, slots=True)
class Broken:
    """A conversation that breaks a client, and how.

    - ``applied``: the places in its rules of those that were applied
    - ``sets``: what a rule with ``mutate`` changed, by its place: values by their paths, as ``set`` has them
    """

    made: Conversation
    ended: Ended
    applied: frozenset[int] = frozenset()
    sets: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)


def broken(made: Conversation, held: Held) -> Broken:
    """A conversation that was held, and has broken a client."""
    places = [one.rule - 1 for one in held.applied]
    sets = {
        at: values
        for at, one in zip(places, held.applied, strict=True)
        if "mutate" in made.rules[at] and places.count(at) == 1 and (values := _sets(one.before, one.after))
    }
    return Broken(made, held.ended, frozenset(places), sets)


def fewer(one: Broken) -> Iterator[Conversation]:
    """Conversations with fewer changes, the fewest first."""
    rules = one.made.rules
    applied = tuple(rule for at, rule in enumerate(rules) if at in one.applied)
    if 0 < len(applied) < len(rules):
        yield replace(one.made, rules=applied)
    for less in _parts(rules):
        yield replace(one.made, rules=tuple(less))
    for at, rule in enumerate(rules):
        before, after = rules[:at], rules[at + 1 :]
        if at in one.sets:
            changed = {key: value for key, value in rule.items() if key != "mutate"} | {"set": dict(one.sets[at])}
            try:
                yield replace(one.made, rules=(*before, Rule(changed).to_json(), *after))
            except UsageError:
                # A field of bytes that kfuzz does not write, for example.
                continue
        for fields in _parts(list(rule.get("set", {}).items())):
            yield replace(one.made, rules=(*before, {**rule, "set": dict(fields)}, *after))


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Without one half of them, without the other, and without each; nothing if there is only one."""
    for size in {max(len(things) // 2, 1): None, 1: None} if len(things) > 1 else ():
        for at in range(0, len(things), size):
            yield [*things[:at], *things[at + size :]]


def _sets(before: Seen, after: Seen) -> dict[str, Any]:
    """The values that a frame has and had not, by their paths; none if nobody can say, or if there are too many."""
    try:
        found = dict(_differences(before.to_json(), after.to_json(), ""))
    except (DecodeError, UsageError):
        return {}
    text = json.dumps(found)
    # The proxy has another port each time.
    is_lasting = '"port": ' not in text
    return found if is_lasting and len(found) <= FIELDS_MAX and len(text) <= FIELDS_CHARACTERS_MAX else {}


def _differences(was: Any, now: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
        for name in was:
            yield from _differences(was[name], now[name], f"{path}.{name}".removeprefix("."))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for at, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(one, other, f"{path}[{at}]")
    elif was != now:
        yield path, now
