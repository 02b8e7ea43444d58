"""A run as sentences and as one JSON document (``report.schema.json``)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from kfuzz import __version__
from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import Case, Cell
from kfuzz.conformance.judge.expected import Expectations, Standing
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.judge.matrix import Judged, Run
from kfuzz.conformance.judge.reference import for_broker
from kfuzz.errors import UsageError
from kfuzz.units import counted
from kfuzz.vectors.model import Vector

__all__ = ["FORMAT", "cause_json", "from_json", "notes_of", "sentences", "shortened", "to_json"]

FORMAT: Final = "kfuzz-report/1"
# A longer answer is shown without its contents.
ANSWER_CHARACTERS_MAX: Final = 4000
ANSWER_FIELD_CHARACTERS_MAX: Final = 400

Json = Mapping[str, Any]


def sentences(run: Run, *, with_causes: bool = True) -> list[str]:
    """One sentence per reason why the run fails; empty if everything is as expected.

    Without ``with_causes`` only those that no cause shows: a testee that could not be asked, a line that is out of
    date, an outcome that is better than expected.
    """
    said = []
    for testee in run.testees:
        said += [
            f"{testee.label}: {sentence}" for sentence in (*([testee.broken] if testee.broken else []), *testee.stale)
        ]
        hidden = [key for key in testee.unexpected if testee.hides(key)]
        if hidden:
            said.append(
                f"{testee.label}: not as expected: {counted(len(hidden), 'withheld outcome')}; run without --publish"
            )
        for key in [key for key in testee.unexpected if key not in hidden]:
            cell, standing = testee.cells[key], testee.standings[key]
            if cell.harm and not with_causes:
                continue
            why = f": {cell.text}" if cell.text else ""
            reason = f" ({standing.reason})" if standing.reason else ""
            said.append(f"{testee.label}: {key[0]} {key[1]}: {cell.outcome}{why}{reason}")
    return said


def to_json(run: Run) -> dict[str, Any]:
    """The run as a document in the format ``kfuzz-report/1``; ``report.schema.json`` is its schema."""
    return {
        "format": FORMAT,
        "kfuzz": __version__,
        "failed": run.failed,
        "dropped": list(run.dropped),
        "testees": [_testee_json(testee) for testee in run.testees],
        "causes": [cause_json(cause) for cause in run.causes],
        "cases": [_case_json(run, case) for case in run.cases],
    }


def from_json(document: Any, suite: Sequence[Vector], *, left_out: list[str] | None = None) -> Run:
    """The run of a document that ``to_json`` made. Its vectors must be in ``suite``; if ``left_out`` is given, those
    that are not are added to it, and the run is without them.

    Raises ``UsageError`` if the document is none, or if a vector is not in the suite.
    """
    import jsonschema

    schema = json.loads(files("kfuzz.conformance.report").joinpath("report.schema.json").read_text())
    try:
        jsonschema.validate(document, schema)
    except jsonschema.ValidationError as error:
        what = f"{error.json_path}: {error.message[:160]}"
        raise UsageError(f"not a report of `kfuzz conform --json`: {what}; name another file") from None
    vectors = {vector.id: vector for vector in suite}
    missing = dict.fromkeys(case["id"] for case in document["cases"] if case["id"] not in vectors)
    if left_out is not None:
        left_out += missing
    elif missing:
        raise UsageError(
            f"the suite has no vector {next(iter(missing))}, which the report names; use the suite of that run"
        )
    known = [case for case in document["cases"] if case["id"] in vectors]
    _check_cells(document["testees"], known)
    return Run(
        tuple(_case(vectors[case["id"]], case["role"]) for case in known),
        tuple(_testee(testee, known) for testee in document["testees"]),
        tuple(document["dropped"]),
    )


def _check_cells(testees: Sequence[Json], cases: Sequence[Json]) -> None:
    """Raise ``UsageError`` unless each testee that was asked has one outcome for each question."""
    labels = [testee["label"] for testee in testees]
    keys = [(case["id"], case["role"]) for case in cases]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UsageError(f"two testees of the report have the name {twice[0]}; name another file")
    if len(set(keys)) < len(keys):
        raise UsageError("the report has a question twice; name another file")
    for testee in testees:
        for case in cases:
            if "broken" not in testee and testee["label"] not in case["cells"]:
                where = f"{case['id']} {case['role']}"
                raise UsageError(f"the report has no outcome of {testee['label']} for {where}; name another file")


def _case(vector: Vector, role: str) -> Case:
    # `kfuzz probe` asks brokers about every vector of records.
    return Case(for_broker(vector) if role == "broker" and vector.kind == "records" else vector, role)


def _testee(testee: Json, cases: Sequence[Json]) -> Judged:
    label = testee["label"]
    shown = {(case["id"], case["role"]): case["cells"][label] for case in cases if label in case["cells"]}
    return Judged(
        name=testee["name"],
        version=testee["version"],
        language=testee["language"],
        cells={
            key: Cell(cell["outcome"], cell.get("text", ""), cell.get("harm", ""), answer=cell.get("answer", {}))
            for key, cell in shown.items()
        },
        standings={key: Standing(cell["standing"], cell.get("reason", "")) for key, cell in shown.items()},
        expectations=Expectations(label),
        stale=tuple(testee["stale"]),
        notes=tuple(testee["notes"]),
        broken=testee.get("broken", ""),
    )


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


def cause_json(cause: Cause) -> dict[str, Any]:
    """The cause in the form of ``kfuzz-report/1``."""
    smallest = cause.smallest
    return {
        "id": cause.id,
        "testee": smallest.implementation,
        "harm": cause.harm,
        "title": cause.what,
        "finding": cause.finding,
        "text": cause.text,
        "at": cause.at,
        "why": harm_named(cause.harm).why(smallest.role),
        "new": cause.is_new,
        "smallest": {
            "id": smallest.input,
            "role": smallest.role,
            "size_bytes": smallest.size_bytes,
            "finding": smallest.finding,
            "error": smallest.error,
        },
        "requirements": list(smallest.requirements),
        "cases": [[one.input, one.role] for one in cause.deviations],
    }


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


def _cell_json(testee: Judged, case: Case) -> dict[str, Any]:
    standing, cell = testee.standings[case.key], testee.cells[case.key]
    shown: dict[str, Any] = {"outcome": testee.shown(case.key), "standing": standing.status}
    if testee.hides(case.key):
        return shown
    told = {"harm": cell.harm, "text": cell.text, "reason": standing.reason, "answer": shortened(cell.answer)}
    return shown | {name: value for name, value in told.items() if value}


def shortened(answer: Json) -> Json:
    """The answer as reports show it: long contents are left out."""
    if len(json.dumps(answer)) <= ANSWER_CHARACTERS_MAX:
        return answer
    kept = {name: value for name, value in answer.items() if len(json.dumps(value)) <= ANSWER_FIELD_CHARACTERS_MAX}
    return kept | {"left_out": sorted(answer.keys() - kept.keys())}
