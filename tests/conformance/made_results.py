"""A result of made-up implementations with all classes of harm, for tests of the report's page: no testee runs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from kfuzz import __version__
from kfuzz.conformance.judge.compare import Case

__all__ = ["IMPLEMENTATIONS", "made_result"]

IMPLEMENTATIONS = ("alpha@1.0", "beta@2.0+more", "alpha-client@1.0", "perfect@1.0")
# A whole client of the library alpha, which shares the faults of its decoder.
CLIENT = "alpha-client@1.0"
FAULTS: tuple[tuple[str, str, str], ...] = (
    ("crash", "kills", "died of SIGSEGV: wild pointer"),
    ("stall", "hangs", "the next fetch is at 0 again"),
    ("memory", "memory", "took more than its 16 MiB of memory"),
    ("fault", "panics", "TypeError: unsupported operand"),
    ("fail", "loses", "records[0].offset is 3; expected 4"),
    ("fail", "accepts", "accepted bytes that must be refused"),
    ("fail", "refuses", "refused bytes that must be accepted: checksum"),
    ("fail", "differs", "consumed 3 bytes; expected 4"),
)


def made_result(cases: Sequence[Case], labels: Sequence[str] = IMPLEMENTATIONS) -> dict[str, Any]:
    """A document of ``kfuzz-report/1`` about ``cases``, always the same. The last label gives right answers."""
    rows = [
        {
            "id": case.vector.id,
            "role": case.role,
            "level": case.vector.level,
            "summary": case.vector.summary,
            "cells": {label: _cell(label, case, label == labels[-1]) for label in labels},
        }
        for case in cases
    ]
    testees = [
        {
            "label": label,
            "name": label.partition("@")[0],
            "version": label.partition("@")[2],
            "language": "none",
            **({"kind": "client", "of": "alpha"} if label == CLIENT else {"kind": "decoder"}),
            "totals": {},
            "unexpected": 0,
            "stale": [],
            "notes": [],
        }
        for label in labels
    ]
    return {
        "format": "kfuzz-report/1",
        "kfuzz": __version__,
        "failed": True,
        "dropped": ["absent@1 is left out: it needs no-such-program"],
        "testees": testees,
        "causes": [],
        "cases": rows,
    }


def _cell(label: str, case: Case, is_perfect: bool) -> dict[str, Any]:
    draw = hashlib.sha256(f"{label} {case.vector.id} {case.role}".encode()).digest()
    if is_perfect or draw[0] < 120:
        return {"outcome": "pass", "standing": "ok"}
    if draw[0] < 160:
        return {"outcome": "unsupported", "standing": "ok", "text": f"does not offer the role {case.role}"}
    if draw[0] < 170:
        return {"outcome": "not-asked", "standing": "ok"}
    # Faults come in families, as those of real implementations do.
    theme = case.vector.id.rpartition("/")[0]
    library = IMPLEMENTATIONS[0] if label == CLIENT else label
    outcome, harm, text = FAULTS[hashlib.sha256(f"{library} {theme} {draw[1] % 3}".encode()).digest()[0] % len(FAULTS)]
    return {
        "outcome": outcome,
        "standing": "unexpected" if draw[2] < 10 else "listed",
        "harm": harm,
        "text": text,
        "reason": "known since https://example.org/issues/7 and KAFKA-5031",
        "answer": {"outcome": outcome, "error": text, "at": f"{library.partition('@')[0]}/{theme}.go:{draw[1] % 3}"},
    }
