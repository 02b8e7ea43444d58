"""Counts which public bugs the suite catches: ``python -m tools.museum [NAME …]``.

``museum/bugs.toml`` lists the bugs, and docs/museum.md says what its keys and the figures mean. For a bug whose buggy
and mended version both run here, its vectors are put to both. The others are counted by the vectors that have their
trigger.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

from kfuzz.conformance import Case, Cell, Testee, all_testees, cases_of, select
from kfuzz.conformance.judge.harm import HARMS
from kfuzz.conformance.judge.runner import run_cases
from kfuzz.conformance.protocol.building import BuildFailed
from kfuzz.documents import TOML_BYTES_MAX, load_toml
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes
from kfuzz.forms import BOOLEAN, ListOf, Object, Wrong, choice, integer, matching, table_of
from kfuzz.vectors.model import find_vector

ROOT: Final = Path(__file__).resolve().parents[1]
BUGS: Final = ROOT / "museum" / "bugs.toml"
# One version of a library gets this long for its vectors. Its build has a limit of its own.
BUDGET_S: Final = 240

_SENTENCE: Final = matching(r"[^\n]{8,240}", "give one short sentence")
_NAME: Final = matching(r"[@A-Za-z0-9._/-]{2,60}", "give the library's name")
_VERSION: Final = matching(r"[0-9][0-9A-Za-z.+-]{0,40}", "give a version, such as 1.12.0")
_THREAD: Final = matching(
    r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+#[0-9]+|KAFKA-[0-9]+|CVE-[0-9]{4}-[0-9]+", "give a thread, such as owner/name#7"
)
_HARM: Final = choice(*(harm.name for harm in HARMS))
_IDS: Final = ListOf(matching("[a-z0-9/-]+", "give the id of a vector"), "list the ids of vectors")


@dataclass(frozen=True, slots=True)
class Bug:
    """A public bug of a library.

    ``vectors`` have its trigger. ``shown_as`` is the class in which the suite shows it, if that is not the harm to
    users: a decoder that reports a wrong next offset stands in for a client that hangs. With ``buggy`` and ``mended``,
    versions of the testee ``testee``, it is run here. ``added`` is the state of the suite when the bug was added, and
    ``caught_when_added`` whether that state caught it by the same rule; it is left out if that was not found out.
    """

    thread: Annotated[str, _THREAD]
    library: Annotated[str, _NAME]
    year: Annotated[int, integer(2008, 2100)]
    harm: Annotated[str, _HARM]
    summary: Annotated[str, _SENTENCE]
    added: Annotated[str, matching("[0-9a-f]{7,40}", "give the commit of the suite")]
    vectors: Annotated[tuple[str, ...], _IDS] = ()
    testee: Annotated[str, _NAME] = ""
    buggy: Annotated[str, _VERSION] = ""
    mended: Annotated[str, _VERSION] = ""
    shown_as: Annotated[str, _HARM] = ""
    reason: Annotated[str, _SENTENCE] = ""
    caught_when_added: Annotated[bool | None, BOOLEAN] = None
    fresh: Annotated[bool, BOOLEAN] = False

    @property
    def runs(self) -> bool:
        """Whether its buggy and its mended version are run here."""
        return bool(self.testee)

    def problem(self) -> str:
        """The mistake in the entry as a whole, or nothing."""
        if len({bool(self.testee), bool(self.buggy), bool(self.mended)}) > 1:
            return "needs all of testee, buggy and mended, or none of them"
        if self.runs and self.buggy == self.mended:
            return "has one version as buggy and as mended"
        if not self.runs and not self.reason:
            return "needs a reason, because no version of its library is run"
        if not self.vectors and not self.reason:
            return "needs vectors, or the reason why nothing shows it"
        return ""


_DOCUMENT: Final = Object({"bug": ListOf(table_of(Bug), "list tables [[bug]]", least=1)}, ["bug"], "make it a table")


def load_bugs(path: Path = BUGS) -> tuple[Bug, ...]:
    """The bugs of a file; ``UsageError`` says where it is wrong."""
    document = load_toml(read_bytes(path, bytes_max=TOML_BYTES_MAX), str(path), remedy="correct it")
    try:
        _DOCUMENT.check(document)
    except Wrong as wrong:
        raise UsageError(wrong.sentence(str(path))) from None
    bugs: tuple[Bug, ...] = _DOCUMENT.make(document)["bug"]
    seen: set[str] = set()
    for bug in bugs:
        if problem := bug.problem():
            raise UsageError(f"{path}: {bug.thread} {problem}; see docs/museum.md")
        if bug.thread in seen:
            raise UsageError(f"{path}: {bug.thread} is there twice; remove one entry")
        seen.add(bug.thread)
    return bugs


# --- running --------------------------------------------------------------------------------------------------------

Key = tuple[str, str]
Ask = Callable[[str, Collection[str]], "Mapping[Key, Cell] | str"]
"""Takes ``name@version`` and ids of vectors, and returns the judged cells, or the reason why there are none."""


def ask(label: str, vectors: Collection[str]) -> Mapping[Key, Cell] | str:
    """Build a version of a testee if it is not built yet, and put vectors to it in every role that it has."""
    try:
        [testee] = select(all_testees(), [label])
        testee.make_ready()
    except (UsageError, BuildFailed) as error:
        return str(error)
    return _cells(testee, cases_of([find_vector(name) for name in sorted(vectors)]))


def _cells(testee: Testee, cases: Sequence[Case]) -> Mapping[Key, Cell] | str:
    outcome = run_cases(testee.argv, cases, cwd=testee.folder, budget_s=BUDGET_S)
    return outcome.broken or outcome.cells


@dataclass(frozen=True, slots=True)
class Shown:
    """The outcome for a bug: ``by`` are the vectors (with their roles) that catch it, else ``why`` says why not."""

    bug: Bug
    by: tuple[str, ...] = ()
    why: str = ""

    @property
    def caught(self) -> bool:
        """Whether a vector catches it, or has its trigger if no version of its library is run."""
        return bool(self.by)


def shown(bugs: Iterable[Bug], asked: Ask = ask, on_label: Callable[[str], None] = lambda label: None) -> list[Shown]:
    """Put the vectors of the bugs to their versions, each version once."""
    bugs = list(bugs)
    wanted: dict[str, set[str]] = defaultdict(set)
    for bug in bugs:
        if bug.runs:
            for version in (bug.buggy, bug.mended):
                wanted[f"{bug.testee}@{version}"] |= set(bug.vectors)
    answers: dict[str, Mapping[Key, Cell] | str] = {}
    for label, vectors in sorted(wanted.items()):
        on_label(label)
        answers[label] = asked(label, vectors) if vectors else {}
    return [_judged(bug, answers) for bug in bugs]


def _judged(bug: Bug, answers: Mapping[str, Mapping[Key, Cell] | str]) -> Shown:
    if not bug.runs:
        return Shown(bug, bug.vectors, bug.reason if not bug.vectors else "")
    buggy, mended = (answers[f"{bug.testee}@{version}"] for version in (bug.buggy, bug.mended))
    for version, answer in ((bug.buggy, buggy), (bug.mended, mended)):
        if isinstance(answer, str):
            return Shown(bug, (), f"{version} is not judged: {answer}")
    assert not isinstance(buggy, str)
    assert not isinstance(mended, str)
    by = [key for key, cell in buggy.items() if key[0] in bug.vectors and _catches(bug, cell, mended.get(key))]
    if by:
        return Shown(bug, tuple(f"{name} {role}" for name, role in by))
    return Shown(bug, (), bug.reason or _difference(bug, buggy, mended))


def _catches(bug: Bug, buggy: Cell, mended: Cell | None) -> bool:
    """The buggy version does the stated harm, and the mended version passes the same question."""
    return buggy.harm == (bug.shown_as or bug.harm) and mended is not None and mended.outcome == "pass"


def _difference(bug: Bug, buggy: Mapping[Key, Cell], mended: Mapping[Key, Cell]) -> str:
    """How the outcomes of the two versions differ, for those who look for the reason."""
    told = [
        f"{name} {role}: {cell.harm or cell.outcome}, then {mended[name, role].harm or mended[name, role].outcome}"
        for (name, role), cell in buggy.items()
        if name in bug.vectors and (name, role) in mended and cell.outcome != mended[name, role].outcome
    ]
    return "; ".join(told) or "both versions answer alike"


# --- figures --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Count:
    """How many bugs there are and how many of them are caught; the same for the state when they were added."""

    caught: int = 0
    total: int = 0
    caught_when_added: int = 0
    known_when_added: int = 0

    def add(self, one: Shown) -> None:
        """Count one bug."""
        self.total += 1
        self.caught += one.caught
        self.known_when_added += one.bug.caught_when_added is not None
        self.caught_when_added += bool(one.bug.caught_when_added)

    def row(self) -> str:
        """Both figures as text; the second counts only bugs for which it is known."""
        first = f"{self.caught_when_added}/{self.known_when_added}"
        share = f"{100 * self.caught / self.total:.0f} %" if self.total else "-"
        return f"{first:>8}  {self.caught:>4}/{self.total:<4} {share:>6}"


@dataclass(slots=True)
class Figures:
    """The three figures of the museum, and the first one by harm and by year."""

    run: Count = field(default_factory=Count)
    triggers: Count = field(default_factory=Count)
    fresh: Count = field(default_factory=Count)
    by_harm: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    by_year: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))


def figures(found: Iterable[Shown]) -> Figures:
    """Count. A fresh bug counts among those that run here, and on its own."""
    made = Figures()
    for one in found:
        if not one.bug.runs:
            made.triggers.add(one)
            continue
        made.run.add(one)
        made.by_harm[one.bug.harm].add(one)
        made.by_year[_years(one.bug.year)].add(one)
        if one.bug.fresh:
            made.fresh.add(one)
    return made


def _years(year: int) -> str:
    """The span of years that is one row."""
    first = year - year % 3
    return f"{first}–{first + 2}"


def text(found: Sequence[Shown]) -> str:
    """The report."""
    made = figures(found)
    lines = ["                                          when added       now"]
    for title, count in (
        ("both versions run here", made.run),
        ("  of these, fresh", made.fresh),
        ("others, by their triggers", made.triggers),
    ):
        lines.append(f"{title:<42}{count.row()}")
    for title, rows in (("harm", _ordered(made.by_harm)), ("year", sorted(made.by_year.items()))):
        lines += ["", title] + [f"  {name:<40}{count.row()}" for name, count in rows]
    missed = [one for one in found if not one.caught]
    lines += ["", f"What nothing shows: {len(missed)}"]
    lines += [f"  {one.bug.thread} ({one.bug.library}): {one.why}" for one in missed]
    return "\n".join(lines)


def listed(bugs: Iterable[Bug]) -> str:
    """The bugs of each library, without a run."""
    rows: dict[str, list[Bug]] = defaultdict(list)
    for bug in bugs:
        rows[bug.library].append(bug)
    lines = [f"{'library':<22}{'bugs':>5}{'run here':>10}{'triggers':>10}  years"]
    for library, ones in sorted(rows.items(), key=lambda row: (-len(row[1]), row[0])):
        run = sum(bug.runs for bug in ones)
        triggers = sum(not bug.runs and bool(bug.vectors) for bug in ones)
        years = [bug.year for bug in ones]
        lines.append(f"{library:<22}{len(ones):>5}{run:>10}{triggers:>10}  {min(years)}–{max(years)}")
    run = sum(bug.runs for ones in rows.values() for bug in ones)
    total = sum(map(len, rows.values()))
    return "\n".join([*lines, f"{total} bugs, {run} of them with a buggy and a mended version that run here"])


def _ordered(by_harm: Mapping[str, Count]) -> list[tuple[str, Count]]:
    return [(harm.name, by_harm[harm.name]) for harm in HARMS if harm.name in by_harm]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; exit code 0, or 2 for a wrong file or name."""
    parser = argparse.ArgumentParser(prog="python -m tools.museum", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only bugs of these libraries or threads")
    parser.add_argument("--file", type=Path, default=BUGS, help="another list of bugs")
    parser.add_argument("--list", action="store_true", help="count the bugs of each library, and run nothing")
    parser.add_argument("--verbose", action="store_true", help="also print which vectors catch each bug")
    chosen = parser.parse_args(arguments)
    try:
        bugs = load_bugs(chosen.file)
        if chosen.names:
            bugs = tuple(bug for bug in bugs if {bug.library, bug.testee, bug.thread} & set(chosen.names))
        if not bugs:
            raise UsageError(f"no bug of {', '.join(chosen.names)}; {chosen.file} lists the libraries and threads")
        if chosen.list:
            print(listed(bugs))
            return 0
        found = shown(bugs, on_label=lambda label: print(label, file=sys.stderr, flush=True))
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.verbose:
        for one in found:
            if one.bug.runs and one.caught:
                print(f"{one.bug.thread}: {', '.join(one.by)}", file=sys.stderr)
    print(text(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
