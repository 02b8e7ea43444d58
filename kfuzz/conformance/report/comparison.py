"""The difference between two runs: which causes are new, which are gone, and which have other vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.matrix import Run
from kfuzz.conformance.report.document import cause_json
from kfuzz.text import printable
from kfuzz.units import counted

__all__ = ["Changes", "changes"]


@dataclass(frozen=True, slots=True)
class Changes:
    """Causes that only the newer run has, and causes that only the older one has. False if nothing changed."""

    appeared: Sequence[Cause]
    gone: Sequence[Cause]
    # The same cause in both runs, with other vectors: the older one and the newer one.
    moved: Sequence[tuple[Cause, Cause]]

    def __bool__(self) -> bool:
        return bool(self.appeared or self.gone or self.moved)

    def to_json(self) -> dict[str, Any]:
        """The changes as a document; each cause has the form that it has in ``kfuzz-report/1``."""
        return {
            "new": [cause_json(cause) for cause in self.appeared],
            "gone": [cause_json(cause) for cause in self.gone],
            "moved": [{"old": cause_json(old), "new": cause_json(new)} for old, new in self.moved],
        }

    def sentences(self) -> list[str]:
        """One line per change, worst first, then a count. Each is harmless for a terminal."""
        said = [f"new: {_told(cause)}" for cause in self.appeared]
        said += [f"gone: {_told(cause)}" for cause in self.gone]
        said += [f"other vectors, {old.count} before: {_told(new)}" for old, new in self.moved]
        if not said:
            return ["nothing changed"]
        return [
            *map(printable, said),
            f"{len(self.appeared)} new, {len(self.gone)} gone, {len(self.moved)} with other vectors",
        ]


def changes(older: Run, newer: Run) -> Changes:
    """Compare two runs. A cause is the same if its id is, so versions of one implementation are different."""
    old, new = _by_id(older), _by_id(newer)
    return Changes(
        appeared=[cause for id, cause in new.items() if id not in old],
        gone=[cause for id, cause in old.items() if id not in new],
        moved=[(old[id], cause) for id, cause in new.items() if id in old and _inputs(old[id]) != _inputs(cause)],
    )


def _by_id(run: Run) -> Mapping[str, Cause]:
    return {cause.id: cause for cause in run.causes}


def _inputs(cause: Cause) -> list[tuple[str, str]]:
    return [(one.input, one.role) for one in cause.deviations]


def _told(cause: Cause) -> str:
    one = cause.smallest
    return f"{one.implementation} {cause.harm}: {cause.what}; {counted(cause.count, 'vector')}, smallest {one.input}"
