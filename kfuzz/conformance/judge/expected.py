"""Expected outcomes: ``vectors/expected/<testee>@<version>.txt`` lists the outcomes other than pass, with reasons.

Each has one line, ``id role outcome  # reason or link``. Any other outcome fails a run. A pass fails it too, because
then the line is out of date.

Crashes, hangs and memory faults that are not public yet are withheld. Their lines are in ``embargo/``, which git
ignores. The committed file has only a :class:`Seal`: their number and the digest of their set. Each whole run computes
the seal again, so that even a clean clone notices if one is added, removed or changed. Those of conversations have a
number and a digest of their own, so that their lines can be rewritten without asking all other vectors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from kfuzz.conformance.judge.causes import deviation
from kfuzz.conformance.judge.compare import ALL_ROLES, NOT_ASKED, OUTCOMES, Case, Cell
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.text import file_name, printable
from kfuzz.vectors.kinds import CONVERSATION

Key = tuple[str, str]

UNEXPLAINED: Final = "unexplained"
# The word in a seal for the outcomes of conversations.
CONVERSATIONS: Final = "conversations"
# Outcomes that an attacker could exploit against a program in use. New ones go to the embargo first.
DANGEROUS: Final = frozenset({"crash", "panic", "timeout", "stall", "memory"})
WITHHOLDABLE: Final = tuple(sorted(DANGEROUS))
# A whole client's answer depends on its timers in some conversations: it passes in one run, and fails in the next.
VARIES: Final = "varies"
VARYING: Final = frozenset({VARIES, "pass", "fail"})
LISTABLE: Final = (*(outcome for outcome in OUTCOMES if outcome not in ("pass", NOT_ASKED, "withheld")), VARIES)
# Which budget a greedy reader exceeds first, time or memory, depends on the machine.
_BUDGET: Final = {"timeout": "budget", "memory": "budget"}
_SEAL = re.compile(r"withheld\s++([1-9][0-9]{0,8})\s+(?:(conversations)\s+)?scrypt:([0-9a-f]{64})")
# Slow on purpose, so that nobody can find a set of two or more cells by trying all sets.
_SCRYPT: Final = {"n": 2**15, "r": 8, "p": 1, "maxmem": 2**26, "dklen": 32}
_HEADING: Final = re.compile(r"# Outcomes of (\S+) other than pass\.")
_LINE = re.compile(r"(\S+)\s+(\S+)\s+(\S+)(?:\s+#\s*(.*))?")


# One run seals the same outcomes several times, and each digest takes a tenth of a second.
@lru_cache
def _digest(outcomes: str, label: str) -> str:
    return hashlib.scrypt(outcomes.encode(), salt=label.encode(), **_SCRYPT).hex()


@dataclass(frozen=True, slots=True)
class Line:
    """One expected outcome."""

    id: str
    role: str
    outcome: str
    reason: str

    @property
    def key(self) -> Key:
        """The vector's id and the role."""
        return self.id, self.role

    def __str__(self) -> str:
        return f"{self.id} {self.role} {self.outcome}  # {self.reason}"


@dataclass(frozen=True, slots=True)
class Seal:
    """How many outcomes are withheld, and the digest of their set. The digest does not reveal the outcomes.

    ``parts`` has both for the outcomes of conversations, under that name, and for all others, under "".
    """

    parts: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, label: str, outcomes: Mapping[Key, str]) -> Seal:
        """The seal over these outcomes of the testee ``label`` (``name@version``)."""
        lines: dict[str, list[str]] = {}
        for (id, role), outcome in outcomes.items():
            lines.setdefault(_part_of(id), []).append(f"{id} {role} {_BUDGET.get(outcome, outcome)}\n")
        return cls({part: (len(some), _digest("".join(sorted(some)), label)) for part, some in lines.items()})

    @property
    def count(self) -> int:
        """The number of outcomes."""
        return sum(count for count, _ in self.parts.values())

    def __str__(self) -> str:
        return "\n".join(
            f"withheld {count} {part}{' ' if part else ''}scrypt:{digest}"
            for part, (count, digest) in sorted(self.parts.items())
        )


def _part_of(id: str) -> str:
    return CONVERSATIONS if id.startswith(f"{CONVERSATION}/") else ""


@dataclass(frozen=True, slots=True)
class Expectations:
    """The lines of one testee: the public ones, those under embargo, and the committed seal over the latter."""

    label: str
    listed: Mapping[Key, Line] = field(default_factory=dict)
    embargoed: Mapping[Key, Line] = field(default_factory=dict)
    seal: Seal = field(default_factory=Seal)
    # Whether the file exists. Without it, there are no expected outcomes.
    exist: bool = True

    def of(self, key: Key) -> Line | None:
        """The line for ``key``; no key has a line in both files."""
        return self.embargoed.get(key) or self.listed.get(key)

    def is_secret(self, key: Key, cell: Cell) -> bool:
        """Whether a published report must hide this outcome."""
        line = self.listed.get(key)
        is_public = line is not None and line.outcome in DANGEROUS
        return key in self.embargoed or (cell.outcome in DANGEROUS and not is_public)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cell compares with its expected outcome.

    ``status``: ``ok`` (pass, declared unsupported, or not asked), ``listed`` (as its line or the seal says, or compared
    with nothing), ``miss`` (a missed vector of level recommended; yellow) or ``unexpected`` (fails the run).
    ``reason``: the line's reason, or why the outcome is unexpected. A published report shows neither the outcome nor
    the reason if ``withheld`` is true.
    """

    status: str
    reason: str = ""
    withheld: bool = False


def parse(path: Path, listable: Sequence[str] = LISTABLE) -> tuple[dict[Key, Line], Seal]:
    """The lines and the seal of ``path``, if the file exists; ``UsageError`` names file, line and remedy."""
    lines: dict[Key, Line] = {}
    parts: dict[str, tuple[int, str]] = {}
    if not path.exists():
        return lines, Seal()
    for number, text in enumerate(read_bytes(path).decode("utf-8", "replace").splitlines(), start=1):
        if not text.strip() or text.startswith("#"):
            continue
        place = f"{path}:{number}"
        if found := _SEAL.fullmatch(text.strip()):
            count, part, digest = found.groups("")
            if part in parts:
                raise UsageError(f"{place}: a second `withheld` line; keep one, or use --update-expected")
            parts[part] = int(count), digest
            continue
        if text.startswith("withheld "):
            raise UsageError(f"{place}: not a `withheld` line as kfuzz writes it; use --update-expected")
        line = _parse_line(place, text, listable)
        if line.key in lines:
            raise UsageError(f"{place}: {line.id} {line.role} already has a line; keep one of them")
        lines[line.key] = line
    return lines, Seal(parts)


def _parse_line(place: str, text: str, listable: Sequence[str]) -> Line:
    found = _LINE.fullmatch(text.strip())
    if not found:
        raise UsageError(f"{place}: not of the form `id role outcome  # reason or link`; correct the line")
    id, role, outcome, reason = found.groups()
    if role not in ALL_ROLES:
        raise UsageError(f"{place}: no role {role!r}; write one of {', '.join(ALL_ROLES)}")
    if outcome == "pass":
        raise UsageError(f"{place}: a pass needs no line; remove it")
    if outcome not in listable:
        raise UsageError(f"{place}: no outcome {outcome!r} here; write one of {', '.join(listable)}")
    if outcome == VARIES and not _part_of(id):
        raise UsageError(f"{place}: only the outcome of a conversation may vary; write another one")
    if not reason:
        raise UsageError(f"{place}: no reason; end the line with `  # ` and a reason or a link")
    return Line(id, role, outcome, reason)


def load(label: str, directory: Path, embargo: Path) -> Expectations:
    """The expectations of the testee ``label`` (``name@version``)."""
    name = f"{file_name(label)}.txt"
    listed, seal = parse(directory / name)
    embargoed, misplaced = parse(embargo / name, WITHHOLDABLE)
    if misplaced.count:
        raise UsageError(f"{embargo / name}: a `withheld` line belongs in {directory / name}; move it there")
    for id, role in sorted(listed.keys() & embargoed.keys()):
        raise UsageError(f"{embargo / name}: {id} {role} has a line in {directory / name} too; keep one of them")
    exist = (directory / name).exists() or (embargo / name).exists()
    return Expectations(label, listed, embargoed, seal, exist)


def load_own(label: str, file: Path) -> Expectations:
    """The expectations for the testee ``label`` in a ``file`` of the user's choice.

    A file of ``vectors/expected/`` may have a seal, which is one of the version that its heading names.
    """
    listed, seal = parse(file)
    if seal.count and (heading := _HEADING.match(read_bytes(file).decode("utf-8", "replace"))):
        label = heading[1]
    return Expectations(label, listed, seal=seal, exist=file.exists())


def labels_in(directory: Path, name: str) -> list[str]:
    """The labels of the testee ``name`` whose outcomes ``directory`` has, the latest version last."""
    if not directory.is_dir():
        return []
    found = [file.stem for file in directory.iterdir() if file.suffix == ".txt" and file.stem.startswith(f"{name}@")]
    return sorted(found, key=lambda label: [int(part) for part in re.findall(r"[0-9]+", label.removeprefix(name))])


def withholdable(cells: Mapping[Key, Cell], expectations: Expectations) -> dict[Key, str]:
    """The crashes, hangs and memory faults without a public line."""
    return {
        key: cell.outcome for key, cell in cells.items() if cell.outcome in DANGEROUS and key not in expectations.listed
    }


def unsealed(cells: Mapping[Key, Cell], expectations: Expectations) -> str | None:
    """A sentence that says why the seal does not match the outcomes of a whole run; None if it matches."""
    found, seal = Seal.of(expectations.label, withholdable(cells, expectations)), expectations.seal
    if found == seal or not (seal.count or expectations.embargoed):
        return None
    which = "the same number, but others," if found.count == seal.count else str(found.count)
    return (
        f"crashes, hangs and memory faults without a public line: {seal.count} in the file of expected outcomes, "
        f"{which} in this run; look at those, then run --update-expected"
    )


def may_be_sealed(cells: Mapping[Key, Cell], expectations: Expectations) -> bool:
    """Whether the seal may cover all dangerous outcomes of a partial run; False if the embargoed lines are here."""
    return not expectations.embargoed and len(withholdable(cells, expectations)) <= expectations.seal.count


def stand(case: Case, cell: Cell, expectations: Expectations, *, sealed: bool = False) -> Standing:
    """Compare ``cell`` with the lines; ``sealed``: the seal covers the run's dangerous outcomes without a line."""
    if cell.outcome == NOT_ASKED:
        return Standing("ok")
    line = expectations.of(case.key)
    withheld = expectations.is_secret(case.key, cell)
    if line is None:
        if cell.outcome == "pass" or cell.declared:
            return Standing("ok")
        if withheld and sealed:
            return Standing("listed", "one of the withheld outcomes", withheld)
        if case.vector.level == "recommended":
            return Standing("miss", withheld=withheld)
        why = f"no line expects this {cell.outcome}" if expectations.exist else ""
        if withheld and expectations.seal.count:
            why += f", and it is not one of the {expectations.seal.count} withheld outcomes"
        return Standing("unexpected", why, withheld)
    if same_outcome(cell.outcome, line.outcome) and not cell.declared:
        return Standing("listed", line.reason, withheld)
    became = "declared unsupported" if cell.declared else cell.outcome
    return Standing("unexpected", f"a line expects {line.outcome}; now it is {became}", withheld)


def stand_beside(case: Case, cell: Cell, expectations: Expectations, *, sealed: bool = False) -> Standing:
    """Like :func:`stand`, for another version than the one with these lines: only what is worse is unexpected.

    A better outcome is ``ok``. A recommended vector that is missed now, and was not before, is worse.
    """
    standing = stand(case, cell, expectations, sealed=sealed)
    line = expectations.of(case.key)
    if line is None and standing.status == "miss":
        return Standing("unexpected", f"recommended, and a pass in {expectations.label}", standing.withheld)
    if standing.status != "unexpected" or line is None:
        return standing
    worst = "fail" if line.outcome == VARIES else line.outcome
    if OUTCOMES.index(cell.outcome) > OUTCOMES.index(worst):
        return standing
    return Standing("ok", f"better: {line.outcome} in {expectations.label}", standing.withheld)


def stand_alone(case: Case, cell: Cell, expectations: Expectations, *, sealed: bool = False) -> Standing:
    """Like :func:`stand`, for a version of which nothing is expected: no outcome is unexpected."""
    standing = stand(case, cell, expectations, sealed=sealed)
    return replace(standing, status="listed", reason="") if standing.status == "unexpected" else standing


def same_outcome(one: str, other: str) -> bool:
    """Whether two outcomes are the same, both are an exceeded budget, or one varies and the other is one of its two."""
    varies = VARIES in (one, other) and one in VARYING and other in VARYING
    return one == other or varies or (one in _BUDGET and other in _BUDGET)


def stale(cases: Iterable[Case], expectations: Expectations) -> list[str]:
    """Sentences about lines whose question no longer exists. ``cases`` must be those of a whole run."""
    known = {case.key for case in cases}
    keys = sorted({*expectations.listed, *expectations.embargoed} - known)
    return [f"{id} {role} is listed, but the suite does not ask it; remove the line" for id, role in keys]


def update(
    cases: Iterable[Case],
    cells: Mapping[Key, Cell],
    expectations: Expectations,
    directory: Path,
    embargo: Path,
    own: Path | None = None,
) -> tuple[int, int]:
    """Rewrite a testee's files from the outcomes of a whole run; returns how many lines each has (listed, embargoed).

    If only conversations were asked, the other lines stay, and so does the seal over other outcomes.
    A line that still holds keeps its reason and its file. A new crash, timeout or memory fault goes to the embargo. Any
    other new outcome goes to the listed file. Its reason is the testee's own text for unsupported and fault; otherwise
    it starts with "unexplained", and a person must replace it: once per cause, because lines with the cause of an
    explained line get its reason. The listed file gets the seal over the embargoed lines. All lines go to the file
    ``own``, if it is given.
    """
    cases = list(cases)
    explained = _explained(cases, cells, expectations)
    parts = {_part_of(case.vector.id) for case in cases}
    listed = [line for line in expectations.listed.values() if _part_of(line.id) not in parts]
    embargoed = [line for line in expectations.embargoed.values() if _part_of(line.id) not in parts]
    for case in cases:
        cell, old = cells[case.key], expectations.of(case.key)
        varies = old is not None and old.outcome == VARIES
        if (cell.outcome == "pass" and not varies) or cell.declared:
            continue
        if old and same_outcome(old.outcome, cell.outcome) and not old.reason.startswith(UNEXPLAINED):
            (embargoed if case.key in expectations.embargoed else listed).append(old)
        else:
            found = deviation(expectations.label, case, cell, "")
            reason = explained.get(found.key if found else (), "") or _first_reason(cell)
            new = Line(*case.key, cell.outcome, reason)
            (embargoed if cell.outcome in DANGEROUS and own is None else listed).append(new)
    if own is not None:
        _write(own, expectations.label, listed)
        return len(listed), 0
    kept = {part: sealed for part, sealed in expectations.seal.parts.items() if part not in parts}
    seal = Seal({**Seal.of(expectations.label, {line.key: line.outcome for line in embargoed}).parts, **kept})
    name = f"{file_name(expectations.label)}.txt"
    _write(directory / name, expectations.label, listed, seal)
    embargo_file = embargo / name
    if embargoed or embargo_file.exists():
        _write(embargo_file, expectations.label, embargoed)
    return len(listed), len(embargoed)


def _explained(
    cases: Iterable[Case], cells: Mapping[Key, Cell], expectations: Expectations
) -> dict[tuple[str, ...], str]:
    """The reason that a person gave for each cause. Lines under embargo explain no line outside it."""
    reasons: dict[tuple[str, ...], str] = {}
    for case in cases:
        line = expectations.listed.get(case.key)
        found = deviation(expectations.label, case, cells[case.key], "")
        if (
            line
            and found
            and same_outcome(line.outcome, cells[case.key].outcome)
            and not line.reason.startswith(UNEXPLAINED)
        ):
            reasons.setdefault(found.key, line.reason)
    return reasons


def _first_reason(cell: Cell) -> str:
    text = printable(" ".join(cell.text.split())[:160])
    # For these outcomes the testee's own text is the reason.
    spoken = {"unsupported": "answers unsupported", "fault": "lets escape"}
    return f"{spoken.get(cell.outcome, UNEXPLAINED)}: {text}"


def _write(path: Path, label: str, lines: list[Line], seal: Seal | None = None) -> None:
    head = f"# Outcomes of {label} other than pass. One line each: id role outcome  # reason or link\n"
    if seal and seal.count:
        head += "# The number of crashes, hangs and memory faults that are not public yet, and their digest.\n"
        head += f"{seal}\n"
    lines.sort(key=lambda line: (line.id, ALL_ROLES.index(line.role)))
    write_whole(path, head + "".join(f"{line}\n" for line in lines))
