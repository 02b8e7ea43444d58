"""Makers of small vectors and cases for the referee's tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kfuzz.conformance.judge.compare import Case
from kfuzz.conformance.protocol.session import MIB, Limits
from kfuzz.conformance.protocol.testees import Testee
from kfuzz.vectors.model import Vector

WICKED = Path(__file__).parent / "wicked"


def make_vector(id: str, data: bytes = b"", **changes: Any) -> Vector:
    """A vector of kind records; by default empty bytes, which are valid and hold no batch."""
    verdict = {"verdict": "invalid", "finding": "message-truncated"} if data else {"verdict": "valid", "batches": []}
    fields: dict[str, Any] = {
        "id": id,
        "kind": "records",
        "summary": f"what {id} is about",
        "level": "required",
        "requirements": ("RB-LENGTH-1",),
        "flags": (),
        "source": data,
        "canonical": False,
        "layout": (),
        "expect": {"consumer": verdict},
        "kafka": {},
        "budget": None,
        "file": Path("toy.json"),
    }
    return Vector(**(fields | changes))


def toy_cases(**of_trap: Any) -> list[Case]:
    """Two hundred cases that a toy testee passes, with the trap in their midst."""
    vectors = [make_vector(f"toy/{index:03}", b"\xff" if index % 2 else b"") for index in range(200)]
    vectors.insert(100, make_vector(**{"id": "toy/trap"} | of_trap))
    return [Case(vector, "consumer") for vector in vectors]


def wicked(name: str, *arguments: str) -> list[str]:
    """The command of a wicked testee."""
    return [sys.executable, "-S", str(WICKED / f"{name}.py"), *arguments]


REFUSING = """
import json, sys
sys.path.insert(0, {folder!r})
import toy
toy.handshake("refusing", magic={magic}, codecs=["none", "gzip", "snappy", "lz4", "zstd"])
for count, line in enumerate(sys.stdin):
    {action}
    toy.say({{"id": json.loads(line)["id"], "outcome": "rejected"}})
"""


def refusing(folder: Path, action: str = "pass", magic: Sequence[int] = (0, 1, 2)) -> Testee:
    """A testee that refuses everything, and does ``action`` before it answers request ``count``."""
    script = folder / "refusing.py"
    script.write_text(REFUSING.format(folder=str(WICKED), action=action, magic=list(magic)))
    return Testee("refusing", "1", (sys.executable, "-S", str(script)))


# Limits that a test can wait for.
SMALL_LIMITS = Limits(cpu_ms=500, memory_bytes=128 * MIB, wall_ms=3000, start_ms=20_000)


def write_suite(root: Path, vectors: list[dict[str, Any]]) -> Path:
    """A suite of one file; each vector needs an id, and takes the rest from an empty valid one."""
    plain: dict[str, Any] = {
        "summary": "no byte at all",
        "level": "required",
        "requirements": ["RB-LENGTH-1"],
        "flags": [],
        "hex": "",
        "canonical": False,
        "layout": [],
        "expect": {"consumer": {"verdict": "valid", "batches": [], "consumed": 0}},
        "kafka": {},
    }
    document = {
        "format": "kfuzz-vectors/1",
        "kind": "records",
        "about": "a suite of a test",
        "flags": {},
        "vectors": [plain | vector for vector in vectors],
    }
    (root / "records").mkdir(parents=True)
    (root / "records" / "toy.json").write_text(json.dumps(document))
    return root
