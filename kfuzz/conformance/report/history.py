"""The causes of one implementation over its versions: what each version has, what came, and what went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.harm import RANK
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.conformance.protocol.versions import order_of
from kfuzz.conformance.report.comparison import Key, inputs_of, question, staying, unknown_in
from kfuzz.errors import UsageError
from kfuzz.text import printable
from kfuzz.units import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

FORMAT: Final = "kfuzz-history/1"
# How a version that lacks a cause answers its questions.
RIGHT: Final = "right"
UNSUPPORTED: Final = "unsupported"
WHAT_WIDTH_MIN: Final = 40
_SHOWN: Final = {RIGHT: "·", UNSUPPORTED: "u"}


@dataclass
class Row:
    """A cause, by the versions that have it."""

    causes: dict[str, Cause] = field(default_factory=dict)

    @property
    def latest(self) -> Cause:
        """The cause in the last version that has it."""
        return list(self.causes.values())[-1]

    @property
    def questions(self) -> set[Key]:
        """The questions to which some version gives a wrong answer for this cause."""
        return {key for cause in self.causes.values() for key in inputs_of(cause)}


@dataclass(frozen=True)
class History:
    """``rows`` of causes, the worst first, over ``columns``, a version each, the oldest first."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    # Sentences about what is not compared.
    notes: Sequence[str]

    @cached_property
    def judged(self) -> list[Column]:
        """The columns that could be asked."""
        return [column for column in self.columns if not column.broken]

    def cell(self, row: Row, column: Column) -> str:
        """The number of vectors in decimal digits, or one of ``RIGHT`` and ``UNSUPPORTED``."""
        if column.version in row.causes:
            return str(row.causes[column.version].count)
        is_supported = any(column.cells[key].outcome != UNSUPPORTED for key in row.questions)
        return RIGHT if is_supported else UNSUPPORTED

    def changes(self) -> Iterator[tuple[Column, list[Row], list[Row], list[Row]]]:
        """For each version but the first: the causes that came, those that came with something that no version before
        supports, and those that went.
        """
        for i, (old, new) in enumerate(zip(self.judged, self.judged[1:], strict=False), start=1):
            came: list[Row] = []
            came_new: list[Row] = []
            went = []
            for row in self.rows:
                had, has = old.version in row.causes, new.version in row.causes
                if has and not had:
                    is_new = all(self.cell(row, one) == UNSUPPORTED for one in self.judged[:i])
                    (came_new if is_new else came).append(row)
                # A version that does not support the questions any more has not mended anything.
                elif had and not has and self.cell(row, new) == RIGHT:
                    went.append(row)
            yield new, came, came_new, went

    def to_json(self) -> dict[str, Any]:
        """The history as a document."""
        return {
            "format": FORMAT,
            "name": self.name,
            "versions": [
                {"version": one.version, "label": one.label} | ({"broken": one.broken} if one.broken else {})
                for one in self.columns
            ],
            "causes": [
                {
                    "id": row.latest.id,
                    "harm": row.latest.harm,
                    "title": row.latest.what,
                    "at": row.latest.at,
                    "smallest": {"id": row.latest.smallest.input, "role": row.latest.smallest.role},
                    "cells": {one.version: self.cell(row, one) for one in self.judged},
                }
                for row in self.rows
            ],
            "releases": [
                {
                    "version": column.version,
                    "came": [row.latest.id for row in came],
                    "came_with_support": [row.latest.id for row in came_new],
                    "went": [row.latest.id for row in went],
                }
                for column, came, came_new, went in self.changes()
            ],
            "notes": list(self.notes),
        }

    def sentences(self) -> list[str]:
        """The causes that came and went with each version, then the notes."""
        said = []
        for column, came, came_new, went in self.changes():
            what = f"{len(came)} came, {len(went)} went"
            what += f", {len(came_new)} in what it supports first" if came_new else ""
            said.append(f"{printable(column.version)}: {what if came or came_new or went else 'nothing changed'}")
            for word, rows in (("came", came), ("first", came_new), ("went", went)):
                said += [f"  {word}: {row.latest.id} {row.latest.harm}: {_described(row)}" for row in rows]
        said += [f"{printable(one.version)} is broken: {printable(one.broken)}" for one in self.columns if one.broken]
        return [*said, *self.notes]

    def table(self) -> RenderableType:
        """The matrix, for a terminal."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        title = f"{counted(len(self.rows), 'cause')} of {printable(self.name)}: number of vectors by version"
        table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, expand=True)
        for name in ("cause", "harm"):
            table.add_column(name, no_wrap=True)
        for column in self.columns:
            table.add_column(Text(printable(column.version)), justify="right", no_wrap=True)
        table.add_column("what", min_width=WHAT_WIDTH_MIN, ratio=1, overflow="ellipsis", no_wrap=True)
        for row in self.rows:
            cells = ["broken" if one.broken else _SHOWN.get(cell := self.cell(row, one), cell) for one in self.columns]
            table.add_row(row.latest.id, row.latest.harm, *cells, Text(printable(row.latest.what)))
        return table


def history_of(name: str, runs: Sequence[Run]) -> History:
    """The history of the testee ``name``; of two results of one version, the later one counts.

    ``UsageError`` if the runs do not have two versions of it that answer the same questions.
    """
    found = {column.version: column for run in runs for column in run.testees if column.name == name}
    if len(found) < 2:
        names = sorted({column.name for run in runs for column in run.testees})
        had = f"the only version of {name} is {next(iter(found))}" if found else f"they are about {', '.join(names)}"
        raise UsageError(f"--history {name} needs results of two versions of it; {printable(had)}")
    columns = [found[version] for version in sorted(found, key=order_of)]
    judged = [column for column in columns if not column.broken]
    cases = {case.key: case for run in runs for case in run.cases}
    asked = [column.cells.keys() for column in judged]
    common = [key for key in cases if all(key in keys for keys in asked)]
    known = [key for key in common if not any(unknown_in(column, key) for column in judged)]
    if not known:
        raise UsageError(f"--history {name}: no question is answered by all versions; judge them in one run")
    notes = []
    if left_out := len(cases) - len(known):
        notes.append(f"{counted(left_out, 'question')} left out, because a version has no outcome")
    rows: list[Row] = []
    for column in judged:
        own = Run(tuple(cases[key] for key in known), (column,), ()).causes
        # Most recent first, so that a cause that is there again is the one that went last.
        before = sorted(rows, key=lambda row: -_place(judged, row.latest.smallest.implementation))
        pairs = {id(new): old for old, new in staying([row.latest for row in before], own)}
        by_cause = {id(row.latest): row for row in rows}
        for cause in own:
            old = pairs.get(id(cause))
            row = by_cause[id(old)] if old is not None else Row()
            if old is None:
                rows.append(row)
            row.causes[column.version] = cause
    rows.sort(key=lambda row: (RANK[row.latest.harm], -row.latest.count, row.latest.id))
    return History(name, columns, rows, notes)


def _place(columns: Sequence[Column], label: str) -> int:
    return next(i for i, column in enumerate(columns) if column.label == label)


def _described(row: Row) -> str:
    one = row.latest.smallest
    return f"{printable(row.latest.what)}; smallest {printable(question((one.input, one.role)))}"
