"""Reports of a run: one JSON document, JUnit XML, one self-contained HTML page, and the matrix for a terminal.

All of them are pure functions of the run: no time, no path, no order but the suite's. In a run that is published, a
crash, hang or memory fault that no public line tells of shows as "withheld", without the testee's words. jinja2 and
rich are loaded when needed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final
from xml.etree import ElementTree

from kfuzz import __version__
from kfuzz.conformance.judge.compare import ENCODE_ROLE, OUTCOMES, Case
from kfuzz.conformance.judge.expected import Standing
from kfuzz.conformance.judge.matrix import Judged, Run

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["FORMAT", "folded", "sentences", "to_html", "to_json", "to_junit", "to_terminal"]

FORMAT: Final = "kfuzz-report/1"
DUMP_BYTES_MAX: Final = 512
JSON_CHARACTERS_MAX: Final = 3000
JSON_LINE_WIDTH: Final = 76
# XML 1.0 has no way to write these at all.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def sentences(run: Run) -> list[str]:
    """What fails the run, a sentence each; none if all is as expected."""
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


# --- JSON -----------------------------------------------------------------------------------------------------------


def to_json(run: Run) -> dict[str, Any]:
    """The run as a document of format ``kfuzz-report/1``; ``report.schema.json`` is its schema."""
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
    """``1 testee``, ``2 testees``."""
    return f"{number} {one}{'' if number == 1 else 's'}"


def notes_of(testee: Judged) -> list[str]:
    """The notes that a reader may see: they name vectors, so what is published has none."""
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


# --- JUnit XML ------------------------------------------------------------------------------------------------------


def to_junit(run: Run) -> bytes:
    """The run as JUnit XML: a test suite per testee, a test per case. What is expected to differ counts as skipped."""
    root = ElementTree.Element("testsuites", name="kfuzz conform")
    for testee in run.testees:
        suite = ElementTree.SubElement(root, "testsuite", name=testee.label)
        if testee.broken:
            _junit_test(suite, testee.label, "handshake", "failure", testee.broken)
        for case in [] if testee.broken else run.cases:
            _junit_case(suite, testee, case)
        for sentence in testee.stale:
            _junit_test(suite, testee.label, "expected outcomes", "failure", sentence)
        suite.set("tests", str(len(suite)))
        suite.set("failures", str(len(suite.findall("./testcase/failure"))))
        suite.set("skipped", str(len(suite.findall("./testcase/skipped"))))
        suite.set("errors", "0")
    ElementTree.indent(root)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _junit_case(suite: ElementTree.Element, testee: Judged, case: Case) -> None:
    standing, cell, shown = testee.standings[case.key], testee.cells[case.key], testee.shown(case.key)
    family, _, name = case.vector.id.rpartition("/")
    classname, name = f"{testee.label}.{family.replace('/', '.')}", f"{name} [{case.role}]"
    if testee.hides(case.key):
        tag = "failure" if standing.status == "unexpected" else "skipped"
        _junit_test(suite, classname, name, tag, shown)
    elif standing.status == "unexpected":
        _junit_test(suite, classname, name, "failure", f"{shown}: {cell.text} ({standing.reason})")
    elif shown == "pass":
        _junit_test(suite, classname, name)
    else:
        reason = standing.reason or cell.text
        _junit_test(suite, classname, name, "skipped", f"{shown}: {reason}" if reason else shown)


def _junit_test(suite: ElementTree.Element, classname: str, name: str, tag: str = "", message: str = "") -> None:
    test = ElementTree.SubElement(suite, "testcase", classname=classname, name=name)
    if tag:
        ElementTree.SubElement(test, tag, message=_NOT_XML.sub("\ufffd", message))


# --- the matrix in a terminal ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Fold:
    """Cases in which every testee did the same."""

    cases: tuple[Case, ...]
    outcomes: tuple[str, ...]
    standings: tuple[str, ...]


def folded(run: Run) -> list[Fold]:
    """The rows of the matrix, identical ones folded into one, in the order of their first cases."""
    judged = [testee for testee in run.testees if not testee.broken]
    folds: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Case]] = {}
    for case in run.cases:
        row = tuple(testee.shown(case.key) for testee in judged)
        standings = tuple(testee.standings[case.key].status for testee in judged)
        folds.setdefault((row, standings), []).append(case)
    return [Fold(tuple(cases), *row) for row, cases in folds.items()]


# Outcome → (word in a cell, style on a terminal). The words tell outcomes apart where colours do not.
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
    """What ``kfuzz conform`` prints: totals per testee, then the folded rows in which anybody does not pass."""
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
        title="Where somebody does not pass (! unexpected, ~ recommended only)",
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


# --- HTML -----------------------------------------------------------------------------------------------------------

# Outcome → the word in its cell.
_CELL_WORDS: Final = {"pass": "✓", "unsupported": "–", "protocol-error": "protocol"}


def to_html(run: Run) -> str:
    """One page without references to anything outside it; readable without scripts, which only filter."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kfuzz.conformance.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    judged = [testee for testee in run.testees if not testee.broken]
    return environment.get_template("report.html.j2").render(
        version=__version__,
        failed=run.failed,
        counted=counted,
        notes_of=notes_of,
        wrong=sentences(run),
        dropped=run.dropped,
        testees=run.testees,
        columns=judged,
        outcomes=[outcome for outcome in OUTCOMES if any(outcome in testee.totals() for testee in judged)],
        words={outcome: _CELL_WORDS.get(outcome, outcome) for outcome in OUTCOMES},
        roles=list(dict.fromkeys(case.role for case in run.cases)),
        vector_count=len({case.vector.id for case in run.cases}),
        case_count=len(run.cases),
        families=_families(run.cases, judged),
    )


def _families(cases: Sequence[Case], judged: Sequence[Judged]) -> list[dict[str, Any]]:
    """The rows under the headings of their families: the ids without their last word."""
    families: dict[str, list[dict[str, Any]]] = {}
    for case in cases:
        families.setdefault(case.vector.id.rpartition("/")[0], []).append(_row(case, judged))
    return [{"name": name, "rows": rows} for name, rows in families.items()]


def _row(case: Case, judged: Sequence[Judged]) -> dict[str, Any]:
    vector = case.vector
    return {
        "anchor": vector.id + ("" if case.role == "consumer" else f":{case.role}"),
        "name": vector.id.rpartition("/")[2],
        "role": case.role,
        "vector": vector,
        "cells": [_html_cell(testee, case) for testee in judged],
        "verdict": _verdict(case),
        "finding": case.expectation.get("finding", "") if case.role != ENCODE_ROLE else "",
        "about": _asked(case),
        "kafka": _kafka(case),
        "expected": _pretty(_contents(case.expectation)),
        "dump": [] if case.role == ENCODE_ROLE else list(_dump(vector.data, vector.layout)),
        "left_out": max(0, len(vector.data) - DUMP_BYTES_MAX),
        "fields": [] if case.role == ENCODE_ROLE else _fields(vector.data, vector.layout),
    }


def _contents(expectation: Mapping[str, Any]) -> Any:
    """What is to be read, whatever the vector is of."""
    return next((expectation[name] for name in ("batches", "steps", "message", "value") if name in expectation), None)


# What each role does with bytes that it does not refuse.
_ACCEPT: Final = {
    "consumer": "accept, and read these contents",
    "broker": "append, and store these contents",
    "log": "keep a segment with these contents",
    "reader": "accept, and read these contents",
}


def _verdict(case: Case) -> str:
    if case.role == ENCODE_ROLE:
        return "encode these contents" + (", to the very bytes of the vector" if case.vector.canonical else "")
    expectation = case.expectation
    if case.vector.kind == "stream":
        return "each step as it says" + (", or a refusal" if expectation["verdict"] == "acceptable" else "")
    accept = _ACCEPT[case.role]
    if more := len(expectation.get("alternatives", ())):
        accept += f", or {'another reading' if more == 1 else f'{more} other readings'}"
    return {"valid": accept, "invalid": "refuse", "acceptable": f"refuse, or {accept}"}[expectation["verdict"]]


def _asked(case: Case) -> str:
    """What else the question says: a stream's steps and isolation, a broker's topic."""
    vector = case.vector
    told = [f"{name.replace('_', ' ')}: {json.dumps(value)}" for name, value in vector.options.items()]
    if vector.kind == "stream":
        starts = accumulate((len(step["hex"]) // 2 for step in vector.steps[:-1]), initial=0)
        told.insert(0, "steps begin at bytes " + ", ".join(f"{at:#x}" for at in starts))
    return " · ".join(told)


def _kafka(case: Case) -> str:
    """What each Kafka said in the role of the question, as the vector has it."""
    told = []
    for version, cells in case.vector.kafka.items():
        words = [cells[case.role]] if case.role in cells else []
        if case.role == "broker" and "error" in cells:
            words.append(cells["error"])
        if case.role == "log" and "recovery" in cells:
            words.append(f"at start: {cells['recovery']}")
        if words:
            told.append(f"{version} {' '.join(words)}")
    return " · ".join(told)


def _html_cell(testee: Judged, case: Case) -> dict[str, Any]:
    standing: Standing = testee.standings[case.key]
    cell = testee.cells[case.key]
    hidden = testee.hides(case.key)
    return {
        "label": testee.label,
        "outcome": testee.shown(case.key),
        "standing": standing.status,
        "reason": "" if hidden else standing.reason,
        "text": "" if hidden else cell.text,
        "answer": "" if hidden or not cell.answer else _pretty(cell.answer),
    }


def _pretty(value: Any) -> str:
    """JSON for a reader: short things share a line, as far as they fit."""
    if value is None:
        return ""
    text = _flowed(value, 0)
    return text if len(text) <= JSON_CHARACTERS_MAX else text[:JSON_CHARACTERS_MAX] + "\n…"


def _flowed(value: Any, indent: int) -> str:
    line = json.dumps(value)
    if len(line) + indent <= JSON_LINE_WIDTH or not isinstance(value, dict | list):
        return line
    if isinstance(value, dict):
        items = [f"{json.dumps(name)}: {_flowed(item, indent + 2)}" for name, item in value.items()]
    else:
        items = [_flowed(item, indent + 2) for item in value]
    lines = [""]
    for item in items:
        # What spans lines begins on a line of its own.
        full = len(lines[-1]) + len(item) + indent + 4 > JSON_LINE_WIDTH or "\n" in item or "\n" in lines[-1]
        if full and lines[-1]:
            lines.append("")
        lines[-1] += f" {item}," if lines[-1] else f"{item},"
    pad = " " * (indent + 2)
    first, last = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{first}\n{pad}" + f"\n{pad}".join(lines)[:-1] + f"\n{' ' * indent}{last}"


def _dump(data: bytes, layout: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Lines of sixteen bytes: the offset, and runs of bytes with the kind of field they belong to."""
    shown = data[:DUMP_BYTES_MAX]
    kinds = [""] * len(shown)
    for field in layout:
        kind = "hostile" if field.get("hostile") else "field"
        for at in range(field["at"], min(field["at"] + field["size"], len(shown))):
            kinds[at] = kind
    for start in range(0, len(shown), 16):
        row = shown[start : start + 16]
        yield {
            "at": f"{start:06x}",
            "bytes": [(f"{byte:02x}", kinds[start + index]) for index, byte in enumerate(row)],
            "text": "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row),
        }


def _fields(data: bytes, layout: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    shown = 16
    return [
        {
            "at": field["at"],
            "size": field["size"],
            "name": field["field"],
            "hostile": field.get("hostile", False),
            "hex": data[field["at"] :][: min(field["size"], shown)].hex(" ") + ("…" if field["size"] > shown else ""),
        }
        for field in layout
    ]
