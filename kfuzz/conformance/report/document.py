"""A run as sentences and as one JSON document (``report.schema.json``)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.resources import files
from itertools import islice
from typing import Any, Final

from kfuzz import __version__
from kfuzz.conformance.judge.causes import Cause
from kfuzz.conformance.judge.compare import Case, Cell, cases_of, shortened
from kfuzz.conformance.judge.expected import Expectations, Standing
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.judge.matrix import Column, Run
from kfuzz.conformance.judge.reference import for_broker
from kfuzz.conformance.protocol.lines import ANSWER
from kfuzz.conformance.protocol.testees import DECODER
from kfuzz.errors import UsageError
from kfuzz.forms import Wrong
from kfuzz.text import foreign_text
from kfuzz.units import counted
from kfuzz.vectors.model import Vector

FORMAT: Final = "kfuzz-report/1"
NAME_BYTES_MAX: Final = 200
ERRORS_MAX: Final = 100
MESSAGE_END: Final = 80

Json = Mapping[str, Any]


def sentences(run: Run, *, with_causes: bool = True) -> list[str]:
    """One sentence per reason why the run fails; empty if everything is as expected.

    Without ``with_causes`` only those that no cause shows: a testee that could not be asked, or not to the end, a line
    that is out of date, an outcome that is better than expected.
    """
    said = []
    for testee in run.testees:
        said += [
            f"{testee.label}: {sentence}" for sentence in (testee.broken, testee.stopped, *testee.stale) if sentence
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

    Raises ``UsageError`` if it is not a result, or if a vector is not in the suite. It may come from anybody: its
    texts are bounded here, and everything that a report looks into is checked.
    """
    import jsonschema

    schema = json.loads(files("kfuzz.conformance.report").joinpath("report.schema.json").read_text())
    # The most telling one of the first errors: there may be millions.
    errors = islice(jsonschema.Draft202012Validator(schema).iter_errors(document), ERRORS_MAX)
    if (error := jsonschema.exceptions.best_match(errors)) is not None:
        message = error.message
        # It begins with the wrong value, and ends with what is wanted.
        message = message if len(message) <= 2 * MESSAGE_END else f"{message[:MESSAGE_END]} … {message[-MESSAGE_END:]}"
        raise _no_report(foreign_text(f"{error.json_path}: {message}", bytes_max=600))
    vectors = {vector.id: vector for vector in suite}
    missing = dict.fromkeys(case["id"] for case in document["cases"] if case["id"] not in vectors)
    if left_out is not None:
        left_out += (foreign_text(name, bytes_max=NAME_BYTES_MAX) for name in missing)
    elif missing:
        name = foreign_text(next(iter(missing)), bytes_max=NAME_BYTES_MAX)
        raise UsageError(f"the suite has no vector {name}, which the report names; use the suite of that run")
    known = [case for case in document["cases"] if case["id"] in vectors]
    cases = tuple(_case(vectors[case["id"]], case["role"]) for case in known)
    if twice := [key for key, count in Counter(case.key for case in cases).items() if count > 1]:
        raise _no_report(f"the question {' '.join(twice[0])} is there twice")
    testees = tuple(_testee(testee, known) for testee in document["testees"])
    if same := [label for label, count in Counter(testee.label for testee in testees).items() if count > 1]:
        raise _no_report(f"two testees have the name {same[0]}")
    return Run(cases, testees, tuple(map(foreign_text, document["dropped"])))


def _no_report(what: str) -> UsageError:
    return UsageError(f"not a report of `kfuzz conform --json`: {what}; name another file")


def _case(vector: Vector, role: str) -> Case:
    # `kfuzz probe` asks brokers about every vector of records.
    if role == "broker" and vector.kind == "records":
        return Case(for_broker(vector), role)
    if not cases_of([vector], [role]):
        raise _no_report(f"{vector.id} has no question for the role {role}")
    return Case(vector, role)


def _testee(testee: Json, cases: Sequence[Json]) -> Column:
    label = testee["label"]
    shown = {(case["id"], case["role"]): case["cells"][label] for case in cases if label in case["cells"]}
    broken = foreign_text(testee.get("broken", ""))
    if len(shown) != len(cases) and not broken:
        raise _no_report(f"some cases have no outcome of {foreign_text(label, bytes_max=NAME_BYTES_MAX)}")
    return Column(
        name=foreign_text(testee["name"], bytes_max=NAME_BYTES_MAX),
        version=foreign_text(testee["version"], bytes_max=NAME_BYTES_MAX),
        language=foreign_text(testee["language"], bytes_max=NAME_BYTES_MAX),
        cells={key: _cell(cell) for key, cell in shown.items()},
        standings={
            key: Standing(cell["standing"], foreign_text(cell.get("reason", ""))) for key, cell in shown.items()
        },
        expectations=Expectations(label),
        stale=tuple(map(foreign_text, testee["stale"])),
        notes=tuple(map(foreign_text, testee["notes"])),
        broken=broken,
        stopped=foreign_text(testee.get("stopped", "")),
        kind=testee.get("kind", DECODER),
        of=foreign_text(testee.get("of", ""), bytes_max=NAME_BYTES_MAX),
        own=tuple(map(foreign_text, testee.get("own", ()))),
    )


def _cell(cell: Json) -> Cell:
    answer = dict(cell.get("answer", {}))
    # Causes depend on these. A broker's observation has other fields.
    for name in ("batches", "records"):
        try:
            if name in answer:
                ANSWER.keys[name].check(answer[name])
        except Wrong as wrong:
            raise _no_report(f"an answer's {name}{wrong.place} {wrong.problem}") from None
    if "at" in answer:
        answer["at"] = foreign_text(answer["at"])
    return Cell(cell["outcome"], foreign_text(cell.get("text", "")), cell.get("harm", ""), answer=answer)


def _testee_json(testee: Column) -> dict[str, Any]:
    shown = {name: getattr(testee, name) for name in ("label", "name", "version", "language", "kind")}
    shown |= {
        "totals": testee.totals(),
        "unexpected": len(testee.unexpected),
        "stale": list(testee.stale),
        "notes": notes_of(testee),
    }
    more = {"of": testee.of if testee.library else "", "own": list(testee.own)}
    more |= {"broken": testee.broken, "stopped": testee.stopped}
    return shown | {name: value for name, value in more.items() if value}


def cause_json(cause: Cause) -> dict[str, Any]:
    """The cause in the form of ``kfuzz-report/1``."""
    smallest = cause.smallest
    several = {"testees": cause.implementations} if len(cause.implementations) > 1 else {}
    return {
        "id": cause.id,
        "testee": smallest.implementation,
        **several,
        "harm": cause.harm,
        "title": cause.what,
        "finding": cause.finding,
        "text": cause.text,
        "at": cause.at,
        "why": harm_named(cause.harm).why(smallest.role),
        "new": cause.is_new,
        "smallest": {"id": smallest.input}
        | {name: getattr(smallest, name) for name in ("role", "size_bytes", "finding", "error")},
        "requirements": list(smallest.requirements),
        "cases": [list(key) for key in dict.fromkeys((one.input, one.role) for one in cause.deviations)],
    }


def notes_of(testee: Column) -> list[str]:
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


def _cell_json(testee: Column, case: Case) -> dict[str, Any]:
    standing, cell = testee.standings[case.key], testee.cells[case.key]
    shown: dict[str, Any] = {"outcome": testee.shown(case.key), "standing": standing.status}
    if testee.hides(case.key):
        return shown
    told = {"harm": cell.harm, "text": cell.text, "reason": standing.reason, "answer": shortened(cell.answer)}
    return shown | {name: value for name, value in told.items() if value}
