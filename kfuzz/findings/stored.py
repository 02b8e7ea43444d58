"""The finding codes for stored files: for the length of a segment's batch, for indexes, snapshots and checkpoints, and
for a log as a whole. ``stored.json`` has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from kfuzz.findings.model import Code, Finding, Profile
from kfuzz.wire.io.layout import HEADER_AT

LENGTH_WRONG: Final = "batch-length-wrong"


@cache
def codes() -> Mapping[str, Code]:
    """For each code: Kafka's severity and its sentence. No document has these rules.

    Fatal is what a broker does not accept when it starts: it makes an index again, and a snapshot that it refuses is
    left out. In a log as a whole, fatal is also what loses records.
    """
    # `import kfuzz.records` loads this module, and few programs need the codes.
    import json

    known = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return {code: Code(one["severity"], None, one["sentence"]) for code, one in known.items()}


def stored_finding(
    code: str, path: str, at: int, profile: Profile, *, found: int = 0, allowed: int = 0, detail: str = ""
) -> Finding:
    """The finding with this code about byte ``at`` of a file; ``path`` names the entry or the field."""
    known = codes()[code]
    sentence = known.sentence.format(found=found, allowed=allowed, detail=detail)
    return Finding(code, known.severity(profile, "log"), at, path, known.requirement, sentence)


def length_wrong(index: int, at: int, after: int, profile: Profile) -> Finding:
    """The finding about batch ``index`` at byte ``at``, whose length leads beyond the end although a batch begins at
    byte ``after``.
    """
    path = f"batch[{index}].batch_length"
    return stored_finding(LENGTH_WRONG, path, at + HEADER_AT["batch_length"], profile, found=after - at)
