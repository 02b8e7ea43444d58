"""A run as one self-contained HTML page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

from kfuzz import __version__
from kfuzz.conformance.judge.compare import ENCODE_ROLE, NOT_ASKED, OUTCOMES, Case
from kfuzz.conformance.judge.expected import Standing
from kfuzz.conformance.judge.matrix import Judged, Run
from kfuzz.conformance.report.document import counted, notes_of, sentences, shortened

__all__ = ["to_html"]

DUMP_BYTES_MAX: Final = 512
JSON_CHARACTERS_MAX: Final = 3000
JSON_LINE_WIDTH: Final = 76
# Outcome → the word in its cell.
_CELL_WORDS: Final = {"pass": "✓", "unsupported": "–", NOT_ASKED: "·", "protocol-error": "protocol"}


def to_html(run: Run) -> str:
    """One page that loads nothing from outside. It can be read without scripts, which only filter and open rows."""
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
    """The rows grouped by family, which is a vector's id without its last part."""
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
    """The contents that a testee must read, for any kind of vector."""
    return next((expectation[name] for name in ("batches", "steps", "message", "value") if name in expectation), None)


# What each role must do with bytes that it does not refuse.
_ACCEPT: Final = {
    "consumer": "accept, and read these contents",
    "broker": "append, and store these contents",
    "log": "keep a segment with these contents",
    "reader": "accept, and read these contents",
}


def _verdict(case: Case) -> str:
    if case.role == ENCODE_ROLE:
        return "encode these contents" + (", to exactly the vector's bytes" if case.vector.canonical else "")
    expectation = case.expectation
    if case.vector.kind == "stream":
        return "each step as listed" + (", or a refusal" if expectation["verdict"] == "acceptable" else "")
    accept = _ACCEPT[case.role]
    if more := len(expectation.get("alternatives", ())):
        accept += f", or {'another reading' if more == 1 else f'{more} other readings'}"
    return {"valid": accept, "invalid": "refuse", "acceptable": f"refuse, or {accept}"}[expectation["verdict"]]


def _asked(case: Case) -> str:
    """The other parts of the question: a stream's steps and isolation, a broker's topic."""
    vector = case.vector
    told = [f"{name.replace('_', ' ')}: {json.dumps(value)}" for name, value in vector.options.items()]
    if vector.kind == "stream":
        starts = accumulate((len(step["hex"]) // 2 for step in vector.steps[:-1]), initial=0)
        told.insert(0, "steps begin at bytes " + ", ".join(f"{at:#x}" for at in starts))
    return " · ".join(told)


def _kafka(case: Case) -> str:
    """What each Kafka release did in the question's role, as the vector file records it."""
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
        "answer": "" if hidden or not cell.answer else _pretty(shortened(cell.answer)),
    }


def _pretty(value: Any) -> str:
    """JSON for people: short items share a line if they fit."""
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
        # An item that spans several lines begins on a new line.
        full = len(lines[-1]) + len(item) + indent + 4 > JSON_LINE_WIDTH or "\n" in item or "\n" in lines[-1]
        if full and lines[-1]:
            lines.append("")
        lines[-1] += f" {item}," if lines[-1] else f"{item},"
    pad = " " * (indent + 2)
    first, last = ("{", "}") if isinstance(value, dict) else ("[", "]")
    return f"{first}\n{pad}" + f"\n{pad}".join(lines)[:-1] + f"\n{' ' * indent}{last}"


def _dump(data: bytes, layout: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Lines of sixteen bytes: the offset, each byte with the kind of its field, and the bytes as text."""
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
