"""Expected outcomes: ``vectors/expected/<testee>@<version>.txt``, what may differ from pass and why.

One line each, ``id role outcome  # reason or link``. Any other outcome fails a run, a pass included: then the line is
out of date. ``embargo/`` holds files of the same form that git ignores, for crashes, hangs and memory faults which the
maintainers do not know yet; they show as "withheld". May import ``compare`` and kfuzz.files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kfuzz.conformance.judge.compare import ALL_ROLES, OUTCOMES, Case, Cell
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole

__all__ = ["Expectations", "Line", "Standing", "load", "parse", "stand", "update"]

Key = tuple[str, str]

UNEXPLAINED: Final = "unexplained"
# What a stranger could turn against a program in use. New ones go to the embargo first.
DANGEROUS: Final = frozenset({"crash", "timeout", "memory"})
LISTABLE: Final = tuple(outcome for outcome in OUTCOMES if outcome not in ("pass", "withheld"))
_LINE = re.compile(r"(\S+)\s+(\S+)\s+(\S+)(?:\s+#\s*(.*))?")


@dataclass(frozen=True, slots=True)
class Line:
    """One expected outcome."""

    id: str
    role: str
    outcome: str
    reason: str

    @property
    def key(self) -> Key:
        """What the line is about: the vector's id and the role."""
        return self.id, self.role

    def __str__(self) -> str:
        return f"{self.id} {self.role} {self.outcome}  # {self.reason}"


@dataclass(frozen=True, slots=True)
class Expectations:
    """The lines of one testee: those that the world may read, and those under embargo."""

    label: str
    listed: Mapping[Key, Line] = field(default_factory=dict)
    embargoed: Mapping[Key, Line] = field(default_factory=dict)

    def of(self, key: Key) -> Line | None:
        """The line about ``key``; an embargoed one goes first."""
        return self.embargoed.get(key) or self.listed.get(key)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cell stands: ``ok`` (pass, or declared unsupported), ``listed`` (as its line says), ``miss`` (a recommended
    vector missed; yellow) or ``unexpected`` (fails the run). ``reason`` is the line's, or why it is unexpected."""

    status: str
    reason: str = ""
    withheld: bool = False


def parse(path: Path) -> dict[Key, Line]:
    """The lines of ``path``, or none if there is no such file; ``UsageError`` names file, line and remedy."""
    if not path.exists():
        return {}
    lines: dict[Key, Line] = {}
    for number, text in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), start=1):
        if not text.strip() or text.startswith("#"):
            continue
        line = _parse_line(f"{path}:{number}", text)
        if line.key in lines:
            raise UsageError(f"{path}:{number}: {line.id} {line.role} has a line already; keep one of them")
        lines[line.key] = line
    return lines


def _parse_line(place: str, text: str) -> Line:
    found = _LINE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{place}: not of the form `id role outcome  # reason or link`; mend the line")
    id, role, outcome, reason = found.groups()
    if role not in ALL_ROLES:
        raise UsageError(f"{place}: no role {role!r}; write one of {', '.join(ALL_ROLES)}")
    if outcome == "pass":
        raise UsageError(f"{place}: a pass needs no line; remove it")
    if outcome not in LISTABLE:
        raise UsageError(f"{place}: no outcome {outcome!r}; write one of {', '.join(LISTABLE)}")
    if not reason:
        raise UsageError(f"{place}: no reason; end the line with `  # ` and a reason or a link")
    return Line(id, role, outcome, reason)


def load(label: str, directory: Path, embargo: Path) -> Expectations:
    """The expectations of the testee ``label`` (``name@version``)."""
    name = f"{label}.txt"
    return Expectations(label, parse(directory / name), parse(embargo / name))


def stand(case: Case, cell: Cell, expectations: Expectations) -> Standing:
    """How ``cell`` stands against the lines."""
    line = expectations.of(case.key)
    withheld = case.key in expectations.embargoed
    if line is None:
        if cell.outcome == "pass" or cell.declared:
            return Standing("ok")
        if case.vector.level == "recommended":
            return Standing("miss")
        return Standing("unexpected", f"no line expects this {cell.outcome}")
    if cell.outcome == line.outcome and not cell.declared:
        return Standing("listed", "" if withheld else line.reason, withheld)
    became = "declared unsupported" if cell.declared else cell.outcome
    wanted = "another outcome" if withheld else line.outcome
    return Standing("unexpected", f"a line expects {wanted}; it is {became} now")


def stale(cases: Iterable[Case], expectations: Expectations) -> list[str]:
    """Sentences about lines whose question no longer exists. Only a whole run can tell."""
    known = {case.key for case in cases}
    keys = sorted({*expectations.listed, *expectations.embargoed} - known)
    return [f"{id} {role} is listed, but the suite does not ask it; remove the line" for id, role in keys]


def update(
    cases: Iterable[Case], cells: Mapping[Key, Cell], expectations: Expectations, directory: Path, embargo: Path
) -> tuple[int, int]:
    """Rewrite a testee's files to what a whole run has found; returns how many lines each has (listed, embargoed).

    A line that still holds keeps its reason and its file. A new crash, timeout or memory fault goes to the embargo,
    anything else that is new to the listed file with a reason that starts with "unexplained", for a person to replace.
    """
    listed: list[Line] = []
    embargoed: list[Line] = []
    for case in cases:
        cell = cells[case.key]
        if cell.outcome == "pass" or cell.declared:
            continue
        old = expectations.of(case.key)
        if old and old.outcome == cell.outcome:
            (embargoed if case.key in expectations.embargoed else listed).append(old)
        else:
            new = Line(*case.key, cell.outcome, _first_reason(cell))
            (embargoed if cell.outcome in DANGEROUS else listed).append(new)
    _write(directory / f"{expectations.label}.txt", expectations.label, listed)
    embargo_file = embargo / f"{expectations.label}.txt"
    if embargoed or embargo_file.exists():
        _write(embargo_file, expectations.label, embargoed)
    return len(listed), len(embargoed)


def _first_reason(cell: Cell) -> str:
    text = " ".join(cell.text.split())[:160]
    # Whoever answers "unsupported", or lets an error escape that it does not document, has given the reason itself.
    spoken = {"unsupported": "answers unsupported", "fault": "lets escape"}
    return f"{spoken.get(cell.outcome, UNEXPLAINED)}: {text}"


def _write(path: Path, label: str, lines: list[Line]) -> None:
    head = f"# What {label} does other than pass. One line each: id role outcome  # reason or link\n"
    lines.sort(key=lambda line: (line.id, ALL_ROLES.index(line.role)))
    write_whole(path, head + "".join(f"{line}\n" for line in lines))
