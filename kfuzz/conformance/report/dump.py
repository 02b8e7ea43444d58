"""The annotated bytes of a vector, for the page: each part with its bytes and value, and the trap among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any, Final

from kfuzz import records
from kfuzz.annotate.marks import marks_of
from kfuzz.annotate.messages import annotate as annotate_message
from kfuzz.annotate.parts import Part, preview
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.errors import UsageError
from kfuzz.findings import Finding
from kfuzz.messages.catalogues import newest
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import Bomb, Vector

PARTS_MAX: Final = 300
PART_BYTES_MAX: Final = 24
# Longer vectors have no button that copies them.
COPIED_BYTES_MAX: Final = 1024
TRAP: Final = "trap"
# How kfuzz.annotate names the bytes at which a reader stopped.
UNREAD: Final = "rest"


def dumped(vector: Vector) -> dict[str, Any]:
    """The bytes as the page shows them, without empty members:

    - ``size`` in bytes; ``recipe`` and ``sha256`` of a bomb, which has nothing else;
    - ``hex``: all bytes, if they are few;
    - ``parts``: lists of depth, name, offset, size, value, hex (the first bytes) and mark. A mark says that the part is
      the trap, and what kfuzz finds there. ``more`` is the number of parts that are left out.
    """
    if isinstance(vector.source, Bomb):
        return {"size": vector.size, "recipe": vector.source.recipe, "sha256": vector.source.sha256}
    data = vector.data
    parts, findings = _parts(vector, data)
    parts = [piece for part in parts for piece in _pieces(part, vector.layout)]
    marks = marks_of(parts, findings)
    for i, field in _traps(parts, vector.layout, len(data)):
        marks.setdefault(i, []).insert(0, f"{TRAP}: {field}" if field != parts[i].field else TRAP)
    rows = [_row(part, marks.get(i, [])) for i, part in enumerate(parts)]
    shown: dict[str, Any] = {"size": len(data), "parts": rows[:PARTS_MAX]}
    if len(data) <= COPIED_BYTES_MAX:
        shown["hex"] = data.hex()
    return shown | ({"more": len(rows) - PARTS_MAX} if len(rows) > PARTS_MAX else {})


def step_starts(vector: Vector) -> list[int]:
    """The offset at which each step of a stream begins."""
    return list(accumulate((len(step["hex"]) // 2 for step in vector.steps[:-1]), initial=0))


def _row(part: Part, marks: Sequence[str]) -> list[Any]:
    shown = part.data[:PART_BYTES_MAX].hex()
    row = [part.depth, part.field or part.path, part.at, len(part.data), part.value, shown, "; ".join(marks)]
    while not row[-1]:
        row.pop()
    return row


def _parts(vector: Vector, data: bytes) -> tuple[list[Part], list[Finding]]:
    """The parts, and what kfuzz's reader finds in the bytes alone; a stream's findings depend on earlier steps."""
    if vector.kind == "message":
        name, version = vector.options["message"], vector.options["version"]
        try:
            made = annotate_message(newest(name, version), version, data)
        except UsageError:
            # A suite with messages of its own.
            return list(_by_layout(vector.layout, data)), []
        return made.parts, made.findings
    if vector.kind == "stream":
        starts = [*step_starts(vector), len(data)]
        parts = [
            part
            for i, (at, end) in enumerate(pairwise(starts), 1)
            for part in annotate_records(data[:end], at=at, under=f"step {i}: ")
        ]
        return parts, []
    if KINDS[vector.kind].batches:
        return list(annotate_records(data)), records.check(data).findings
    return list(_by_layout(vector.layout, data)), []


def _pieces(part: Part, layout: Sequence[Mapping[str, Any]]) -> Iterator[Part]:
    """The part; or, if kfuzz's reader stopped before it, the fields that the vector's layout names in it."""
    end = part.at + len(part.data)
    inside = [one for one in layout if part.at <= one["at"] < one["at"] + one["size"] <= end]
    if not (inside and part.data and _is_outer(part) and (part.heading or part.field == UNREAD)):
        yield part
        return
    yield replace(part, data=b"", field="", heading=True, path=part.field or part.path)
    for piece in _by_layout(inside, part.data, part.at):
        yield replace(piece, path=part.path)


def _is_outer(part: Part) -> bool:
    """Whether the part is in the vector's bytes, where its layout counts, and not in a decompressed payload."""
    return not part.payload


def _by_layout(layout: Sequence[Mapping[str, Any]], data: bytes, start: int = 0) -> Iterator[Part]:
    """The fields that the layout names in ``data``, which begins at byte ``start``, and the bytes between them."""

    def piece(name: str, at: int, end: int) -> Part:
        own = data[at - start : end - start]
        return Part("", name, at, own, preview(own, (0, len(own))))

    last = start
    for field in sorted(layout, key=lambda one: (one["at"], one["size"])):
        at, end = field["at"], field["at"] + field["size"]
        if last < at:
            yield piece("bytes", last, at)
        yield piece(field["field"], at, end)
        last = max(last, end)
    if last < start + len(data):
        yield piece("bytes", last, start + len(data))


def _traps(parts: list[Part], layout: Sequence[Mapping[str, Any]], size: int) -> Iterator[tuple[int, str]]:
    """The parts that the hostile fields of the layout cover; bytes that are missing get a part at the end."""
    outer = [(i, part) for i, part in enumerate(parts) if _is_outer(part) and (part.data or not part.heading)]
    for field in layout:
        if not field.get("hostile"):
            continue
        at, end = field["at"], field["at"] + field["size"]
        hit = [i for i, part in outer if part.at < max(end, at + 1) and at < part.at + len(part.data)]
        if not hit:
            parts.append(Part("", "the end", size, b"", "bytes are missing here" if at >= size else ""))
            hit = [len(parts) - 1]
        for i in hit:
            yield i, field["field"]
