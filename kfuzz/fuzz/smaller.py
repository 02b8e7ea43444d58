"""Fewer changes for a conversation that breaks a client: rules are left out, and a mutated frame becomes set fields."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfuzz.errors import DecodeError, UsageError
from kfuzz.fuzz.conversations import Conversation, Held, reads_all
from kfuzz.fuzz.driver import Ended
from kfuzz.relay.local import Applied
from kfuzz.relay.rule import Rule

# More fields than this would say nothing to a person, nor would so many with more than 100 characters each.
FIELDS_MAX: Final = 100
# The proxy's address in responses.
HOST: Final = b"127.0.0.1"
PORT_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class Broken:
    """A conversation that breaks a client, and how.

    - ``applied``: the places in its rules of those that were applied
    - ``instead``: rules that do the same as one with ``mutate``, by its place, the plainest first
    - ``reads_all``: whether a client must read all records after these changes, or report an error
    """

    made: Conversation
    ended: Ended
    applied: frozenset[int] = frozenset()
    instead: Mapping[int, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    reads_all: bool = False


def broken(made: Conversation, held: Held) -> Broken:
    """A conversation that was held, and has broken a client."""
    places = [one.rule - 1 for one in held.applied]
    instead = {
        at: list(_instead(made.rules[at], one))
        for at, one in zip(places, held.applied, strict=True)
        if "mutate" in made.rules[at] and places.count(at) == 1
    }
    return Broken(made, held.ended, frozenset(places), instead, reads_all(held))


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
        for other in one.instead.get(at, ()):
            yield replace(one.made, rules=(*before, other, *after))
        for fields in _parts(list(rule.get("set", {}).items())):
            yield replace(one.made, rules=(*before, {**rule, "set": dict(fields)}, *after))


def _parts(things: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """Without one half of them, without the other, and without each; nothing if there is only one."""
    for size in {max(len(things) // 2, 1): None, 1: None} if len(things) > 1 else ():
        for at in range(0, len(things), size):
            yield [*things[:at], *things[at + size :]]


def _instead(rule: Mapping[str, Any], one: Applied) -> Iterator[Mapping[str, Any]]:
    """Rules that change the frame as the mutation did, without its dice: they set fields, or replace the bytes from the
    first change on. The proxy has another port each time, so neither may have it.
    """
    where = {key: value for key, value in rule.items() if key != "mutate"}
    try:
        found = dict(_differences(one.before.to_json(), one.after.to_json(), ""))
        if found and '"port": ' not in (text := json.dumps(found)) and max(len(found), len(text) // 100) <= FIELDS_MAX:
            yield Rule(where | {"set": found}).to_json()
    except (DecodeError, UsageError):
        # The frame cannot be read, or not written.
        pass
    with contextlib.suppress(DecodeError, UsageError):
        was, now = one.before.body(), one.after.body()
        same = next((at for at, (x, y) in enumerate(zip(was, now, strict=False)) if x != y), min(len(was), len(now)))
        if was.rfind(HOST) + len(HOST) + PORT_BYTES <= same or HOST not in was:
            kept = {"keep_bytes": same} if same else {}
            yield Rule(where | {"versions": one.after.version, "hex": now[same:].hex()} | kept).to_json()


def _differences(was: Any, now: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(was, dict) and isinstance(now, dict) and was.keys() == now.keys():
        for name in was:
            yield from _differences(was[name], now[name], f"{path}.{name}".removeprefix("."))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for at, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(one, other, f"{path}[{at}]")
    elif was != now:
        yield path, now
