"""A stand-in until the branch part/rules is merged: rules that are kept, but change nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kfuzz.errors import UsageError
from kfuzz.forms import Form

__all__ = ["Live", "Rule", "Rules"]

RULE = Form({}, "give a rule")


class Rule:
    """A rule."""

    def __init__(self, document: Mapping[str, Any], place: str = "the rule") -> None:
        if not isinstance(document, dict) or "api" not in document:
            raise UsageError("the rule lacks api; give the name of an API")
        self.document = document


class Live:
    """A rule at work."""

    def __init__(self, number: int, rule: Rule) -> None:
        self.number = number
        self.rule = rule
        self.times = None
        self.matched = self.applied = 0

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        return {"number": self.number, "rule": self.rule.document, "matched": self.matched, "applied": self.applied}


class Rules:
    """Rules by their numbers."""

    def __init__(self, rules: Iterable[Rule] = (), *, seed: int = 0) -> None:
        self._live: dict[int, Live] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, number: int) -> Live:
        if number not in self._live:
            raise UsageError(f"there is no rule {number}; the rules are {', '.join(map(str, self._live))}")
        return self._live[number]

    def add(self, rule: Rule) -> int:
        """Add one."""
        self._last += 1
        self._live[self._last] = Live(self._last, rule)
        return self._last

    def remove(self, number: int) -> None:
        """Remove one."""
        del self._live[self[number].number]

    def set_times(self, number: int, times: int) -> None:
        """Let a rule match at most so many frames."""
        self[number].times = times

    def clear(self) -> None:
        """Remove all."""
        self._live.clear()

    def to_json(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [one.to_json() for one in self._live.values()]
