"""A run in a terminal: totals, causes by class of harm, and the causes themselves, worst first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import OUTCOMES
from kfuzz.conformance.judge.harm import HARMS, harm_named
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.conformance.protocol.testees import TESTEE_KINDS
from kfuzz.text import printable
from kfuzz.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

# The classes that can stop or corrupt a user's program have a colour.
_STYLES: Final = {
    "kills": "bold white on red",
    "hangs": "bold white on red",
    "memory": "bold white on red",
    "panics": "bold red",
    "loses": "bold red",
}


def to_terminal(run: Run, *, causes_shown: int, only_new: bool = False) -> Iterator[RenderableType]:
    """The tables of ``kfuzz conform``: totals, the number of causes by class, and at most ``causes_shown`` causes.

    ``only_new`` leaves out causes whose outcomes are all as expected.
    """
    yield _totals_table(run)
    if run.causes:
        yield _harm_table(run)
    shown = [cause for cause in run.causes if cause.is_new or not only_new]
    if shown:
        yield from _causes(shown, causes_shown)


def _totals_table(run: Run) -> RenderableType:
    outcomes = [outcome for outcome in OUTCOMES if any(outcome in testee.totals() for testee in run.testees)]

    def counts(testee: Column) -> list[str]:
        totals, unexpected = testee.totals(), len(testee.unexpected) + len(testee.stale)
        last = "broken" if testee.broken else str(unexpected)
        return [*(str(totals.get(outcome, "·")) for outcome in outcomes), last]

    return _table(run, counted(len(run.cases), "question"), [*outcomes, "unexpected"], counts, bold=True)


def _harm_table(run: Run) -> RenderableType:
    found = {testee.label: Counter[str]() for testee in run.testees}
    for cause in run.causes:
        for label in cause.implementations:
            found[label][cause.harm_in(label)] += 1
    names = [harm.name for harm in HARMS]

    def counts(testee: Column) -> list[str]:
        own = found[testee.label]
        return [str(own[name] or "·") for name in names] if own else []

    return _table(run, "Causes by class of harm", names, counts)


def _table(
    run: Run, title: str, columns: Sequence[str], counts: Callable[[Column], list[str]], *, bold: bool = False
) -> RenderableType:
    """A row of ``counts`` for each testee that has any; with ``bold``, those that fail the run are bold."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    table.add_column("testee")
    for name in columns:
        table.add_column(name, justify="right")
    for testee, heading in _by_kind(run):
        if heading:
            table.add_row(Text(heading, style="dim"))
        if row := counts(testee):
            table.add_row(Text(printable(testee.label)), *row, style="bold" if bold and testee.failed else "")
    return table


def _by_kind(run: Run) -> Iterator[tuple[Column, str]]:
    """The testees, decoders first, and the heading in front of the first of each kind; no headings if all are alike."""
    kinds = [kind for kind in TESTEE_KINDS if any(testee.kind == kind for testee in run.testees)]
    for kind in kinds:
        heading = TESTEE_KINDS[kind] if len(kinds) > 1 else ""
        for testee in run.testees:
            if testee.kind == kind:
                yield testee, heading
                heading = ""


def _causes(causes: Sequence[Cause], shown: int) -> Iterator[RenderableType]:
    """The causes under the heading of their class."""
    from rich.padding import Padding
    from rich.text import Text

    yield Text(f"{counted(len(causes), 'cause')}, worst first (! not as expected)")
    harm = ""
    for cause in causes[:shown]:
        if cause.harm != harm:
            harm = cause.harm
            about = harm_named(harm)
            yield Text.assemble("\n", (about.title, _STYLES.get(harm, "bold")), f": {about.why(cause.smallest.role)}")
        yield Padding(Text("\n".join(map(printable, _described(cause)))), (0, 0, 0, 2), expand=False)
    if len(causes) > shown:
        yield Text(f"\nand {len(causes) - shown} more; --causes N, --json or --html shows them")


def _described(cause: Cause) -> tuple[str, str]:
    one = cause.smallest
    role = "" if one.role == "consumer" else f" [{one.role}]"
    mark = "!" if cause.is_new else " "
    return (
        f"{mark} {', '.join(cause.implementations)}: {cause.what}",
        f"    {counted(cause.count, 'vector')}, smallest {one.input}{role}",
    )
