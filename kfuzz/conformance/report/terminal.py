"""The matrix in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kfuzz.conformance.judge.compare import OUTCOMES, Case
from kfuzz.conformance.judge.matrix import Run
from kfuzz.conformance.report.document import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Fold", "folded", "to_terminal"]


@dataclass(frozen=True, slots=True)
class Fold:
    """Cases with the same row: each testee has the same outcome and standing in all of them."""

    cases: tuple[Case, ...]
    outcomes: tuple[str, ...]
    standings: tuple[str, ...]


def folded(run: Run) -> list[Fold]:
    """The rows of the matrix, with identical rows folded into one, in the order of their first cases."""
    judged = [testee for testee in run.testees if not testee.broken]
    folds: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Case]] = {}
    for case in run.cases:
        row = tuple(testee.shown(case.key) for testee in judged)
        standings = tuple(testee.standings[case.key].status for testee in judged)
        folds.setdefault((row, standings), []).append(case)
    return [Fold(tuple(cases), *row) for row, cases in folds.items()]


# Outcome → (word in a cell, style on a terminal). The words show the outcome where there are no colours.
_TERMINAL: Final = {
    "pass": ("pass", "blue"),
    "unsupported": ("–", "dim"),
    "fail": ("fail", "bold red"),
    "fault": ("fault", "bold red"),
    "crash": ("CRASH", "bold white on red"),
    "timeout": ("TIMEOUT", "bold white on red"),
    "memory": ("MEMORY", "bold white on red"),
    "protocol-error": ("PROTOCOL", "bold white on red"),
    "withheld": ("withheld", "bold magenta"),
}


def to_terminal(run: Run, *, width: int) -> Iterator[RenderableType]:
    """The tables of ``kfuzz conform``: totals per testee, then the folded rows in which a testee does not pass."""
    yield _totals_table(run)
    rows = [fold for fold in folded(run) if set(fold.outcomes) - {"pass", "unsupported"}]
    if rows:
        yield _matrix_table(run, rows, width)


def _totals_table(run: Run) -> RenderableType:
    from rich import box
    from rich.table import Table

    outcomes = [outcome for outcome in OUTCOMES if any(outcome in testee.totals() for testee in run.testees)]
    table = Table(box=box.SIMPLE_HEAD, title=counted(len(run.cases), "question"), title_justify="left", pad_edge=False)
    table.add_column("testee")
    for outcome in outcomes:
        table.add_column(outcome, justify="right")
    table.add_column("unexpected", justify="right")
    for testee in run.testees:
        totals = testee.totals()
        counts = [str(totals.get(outcome, "·")) for outcome in outcomes]
        unexpected = len(testee.unexpected) + len(testee.stale)
        last = "broken" if testee.broken else str(unexpected)
        table.add_row(testee.label, *counts, last, style="bold" if testee.failed else "")
    return table


def _matrix_table(run: Run, rows: Sequence[Fold], width: int) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        title="Where a testee does not pass (! unexpected, ~ only recommended)",
        title_justify="left",
        pad_edge=False,
    )
    table.add_column("vectors", overflow="fold", ratio=1, min_width=min(40, width // 2))
    for testee in run.testees:
        if not testee.broken:
            table.add_column(f"{testee.name}\n{testee.version}", justify="left", overflow="fold")
    marks = {"unexpected": "!", "miss": "~"}
    for fold in rows:
        cells = [
            Text(_TERMINAL[outcome][0] + marks.get(standing, ""), style=_TERMINAL[outcome][1])
            for outcome, standing in zip(fold.outcomes, fold.standings, strict=True)
        ]
        table.add_row(_fold_name(fold.cases), *cells)
    return table


def _fold_name(cases: Sequence[Case], shown: int = 3) -> str:
    names = [case.vector.id + ("" if case.role == "consumer" else f" [{case.role}]") for case in cases[:shown]]
    more = len(cases) - len(names)
    return "\n".join(names) + (f"\nand {more} more" if more else "")
