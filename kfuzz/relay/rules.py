"""A stand-in until the branch part/rules is merged: rules that are kept, but change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kfuzz.errors import UsageError

__all__ = ["Rule", "Rules"]


class Rule:
    """A rule."""

    def __init__(self, form: dict[str, Any]) -> None:
        self.form = form
        self.times = form.get("times")
        self.matched = 0

    @staticmethod
    def of(form: Any) -> Rule:
        """The rule of a JSON object."""
        if not isinstance(form, dict) or "api" not in form:
            raise UsageError("the rule lacks api; give the name of an API")
        return Rule(form)


class Rules:
    """Rules by their numbers."""

    def __init__(self) -> None:
        self.by_number: dict[int, Rule] = {}
        self._last = 0

    def add(self, rule: Rule) -> int:
        """Add one."""
        self._last += 1
        self.by_number[self._last] = rule
        return self._last

    def remove(self, number: int) -> None:
        """Remove one."""
        if self.by_number.pop(number, None) is None:
            raise UsageError(f"there is no rule {number}")

    def set_times(self, number: int, times: int) -> None:
        """Let a rule match at most so many frames."""
        self.by_number[number].times = times

    def clear(self) -> None:
        """Remove all."""
        self.by_number.clear()

    def __iter__(self) -> Iterator[tuple[int, Rule]]:
        return iter(self.by_number.items())
