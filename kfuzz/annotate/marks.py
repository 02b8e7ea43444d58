"""Where findings are in a dump: which part each of them marks."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence

from kfuzz.annotate.parts import Part, scope_of
from kfuzz.findings import Finding


def marks_of(parts: Sequence[Part], findings: Iterable[Finding]) -> dict[int, list[str]]:
    """Texts of findings by index of the part that they mark: the last part that begins at or before the finding."""
    marks: dict[int, list[str]] = defaultdict(list)
    for index, found in findings_of(parts, findings).items():
        marks[index] += [f"{finding.code} at {finding.at:#x}" for finding in found]
    return marks


def findings_of(parts: Sequence[Part], findings: Iterable[Finding]) -> dict[int, list[Finding]]:
    """The same, as the findings themselves."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        if part.size or not part.heading:
            numbers[part.scope].append(i)
    found: dict[int, list[Finding]] = defaultdict(list)
    for finding in findings:
        there = numbers[scope_of(finding.path)]
        place = bisect_right(there, finding.at, key=lambda i: parts[i].at)
        if place:
            found[there[place - 1]].append(finding)
    return found
