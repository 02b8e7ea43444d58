"""Where findings are in a dump: which part each of them marks."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kfuzz.annotate.parts import Part, scope_of
from kfuzz.findings import Finding

__all__ = ["marks_of"]


def marks_of(parts: Sequence[Part], findings: Iterable[Finding]) -> dict[int, list[str]]:
    """Texts of findings by index of the part that they mark: the last part that begins at or before the finding."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        if part.data or not part.heading:
            numbers[scope_of(f"{part.path}.{part.field}")].append(i)
    marks: dict[int, list[str]] = defaultdict(list)
    for finding in findings:
        there = numbers[scope_of(finding.path)]
        place = bisect_right(there, finding.at, key=lambda i: parts[i].at)
        if place:
            marks[there[place - 1]].append(f"{finding.code} at {finding.at:#x}")
    return marks
