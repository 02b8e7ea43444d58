"""A run as sentences and as one JSON document (``report.schema.json``)."""

from __future__ import annotations

from typing import Any, Final

from kfuzz import __version__
from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.judge.matrix import Judged, Run

__all__ = ["FORMAT", "counted", "notes_of", "sentences", "to_json"]

FORMAT: Final = "kfuzz-report/1"


def sentences(run: Run) -> list[str]:
    """One sentence per reason why the run fails; empty if everything is as expected."""
    said = []
    for testee in run.testees:
        if testee.broken:
            said.append(f"{testee.label}: {testee.broken}")
        said += [f"{testee.label}: {sentence}" for sentence in testee.stale]
        hidden = [key for key in testee.unexpected if testee.hides(key)]
        if hidden:
            said.append(
                f"{testee.label}: not as expected: {counted(len(hidden), 'withheld outcome')}; run without --publish"
            )
        for key in [key for key in testee.unexpected if key not in hidden]:
            cell, standing = testee.cells[key], testee.standings[key]
            why = f": {cell.text}" if cell.text else ""
            said.append(f"{testee.label}: {key[0]} {key[1]}: {cell.outcome}{why} ({standing.reason})")
    return said


def to_json(run: Run) -> dict[str, Any]:
    """The run as a document in the format ``kfuzz-report/1``; ``report.schema.json`` is its schema."""
    return {
        "format": FORMAT,
        "kfuzz": __version__,
        "failed": run.failed,
        "dropped": list(run.dropped),
        "testees": [_testee_json(testee) for testee in run.testees],
        "cases": [_case_json(run, case) for case in run.cases],
    }


def _testee_json(testee: Judged) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "label": testee.label,
        "name": testee.name,
        "version": testee.version,
        "language": testee.language,
        "totals": testee.totals(),
        "unexpected": len(testee.unexpected),
        "stale": list(testee.stale),
        "notes": notes_of(testee),
    }
    return shown | ({"broken": testee.broken} if testee.broken else {})


def counted(number: int, one: str) -> str:
    """The number with its noun: ``1 testee``, ``2 testees``."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def notes_of(testee: Judged) -> list[str]:
    """The notes that the report may show. Notes name vectors, so a published report has none."""
    return [] if testee.published else list(testee.notes)


def _case_json(run: Run, case: Case) -> dict[str, Any]:
    return {
        "id": case.vector.id,
        "role": case.role,
        "level": case.vector.level,
        "summary": case.vector.summary,
        "cells": {testee.label: _cell_json(testee, case) for testee in run.testees if not testee.broken},
    }


def _cell_json(testee: Judged, case: Case) -> dict[str, str]:
    standing = testee.standings[case.key]
    shown = {"outcome": testee.shown(case.key), "standing": standing.status}
    if testee.hides(case.key):
        return shown
    if text := testee.cells[case.key].text:
        shown["text"] = text
    if standing.reason:
        shown["reason"] = standing.reason
    return shown
