"""Dumps of record batches and messages: their parts as lines of text, with the findings where they are."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from kfuzz import records
from kfuzz.annotate.listing import Entry
from kfuzz.annotate.messages import Annotation
from kfuzz.annotate.messages import annotate as annotate_message
from kfuzz.annotate.parts import Bounds, Part
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.findings import Finding, Profile
from kfuzz.kafka import Role
from kfuzz.messages.model import Definition
from kfuzz.records import Limits
from kfuzz.records.read.limits import DEFAULT_LIMITS
from kfuzz.text import printable

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.annotate.records import RecordsOf

BYTES_PER_LINE = 16
# In a terminal of fewer columns than the first number, a line has fewer bytes.
NARROW = (120, 8)
# The dump cuts longer fields and shows how many bytes are left out.
LONGEST_LINES = 4
# Limits of a dump, so that its memory does not depend on what a compressed batch holds. A part takes about 500 bytes.
RECORDS_SHOWN = 100
HEADERS_SHOWN = 20
KEPT_BYTES = 32 << 20
PARTS_MAX = 100_000
FINDINGS_MAX = 1_000


@dataclass(frozen=True)
class Dump:
    """Parts to print. ``facts`` are the JSON members that only this kind of dump has. ``is_cut``: more parts follow.

    ``more_findings`` is the number of findings that are not in ``findings``.
    """

    parts: list[Part]
    findings: list[Finding]
    facts: dict[str, Any]
    outcome: str
    is_cut: bool = False
    more_findings: int = 0


def bounds_of(records: int | None = None, around: int | None = None) -> Bounds:
    """Bounds of a dump: ``records`` records, or the usual number, and those around number ``around``."""
    return Bounds(RECORDS_SHOWN if records is None else records, HEADERS_SHOWN, KEPT_BYTES, around)


def _bounded(parts: Iterator[Part], parts_max: int = PARTS_MAX) -> tuple[list[Part], bool]:
    """The first parts, and whether there are more."""
    made = list(islice(parts, parts_max))
    return made, next(parts, None) is not None


def dump_records(
    data: bytes | mmap.mmap,
    *,
    batches: int,
    profile: Profile = "kafka",
    role: Role = "consumer",
    limits: Limits = DEFAULT_LIMITS,
    records_of: str | None = None,
    records_shown: int | None = None,
) -> Dump:
    """The dump of a file of record batches; for ``records_of`` see ``annotate``."""
    reading = records.check(data, profile=profile, role=role, limits=limits, findings_max=FINDINGS_MAX)
    tail = ", then a partial tail" if reading.partial_tail else ""
    state = "refused" if reading.fatal else "read"
    counts = f"{reading.batch_count} batches, {reading.record_count} records, {reading.consumed} bytes"
    empty = "" if len(data) else "no bytes: an empty file is an empty log, which is valid\n"
    parts, is_cut = _bounded(
        annotate_records(data, batches=batches, limits=limits, records_of=records_of, bounds=bounds_of(records_shown))
    )
    return Dump(
        parts,
        reading.findings,
        {"consumed": reading.consumed, "partial_tail": reading.partial_tail},
        f"{empty}{state}: {counts}{tail}",
        is_cut,
        reading.more_findings,
    )


def dump_entry(
    data: Buffer,
    entry: Entry,
    *,
    limits: Limits = DEFAULT_LIMITS,
    records_of: RecordsOf = None,
    parts_max: int = PARTS_MAX,
    records_shown: int | None = None,
    around: int | None = None,
) -> Dump:
    """The dump of one batch of a listing, with at most ``parts_max`` parts; for the others see ``bounds_of``."""
    within = memoryview(data)[: entry.at + entry.size]
    parts, is_cut = _bounded(
        annotate_records(
            within,
            at=entry.at,
            first=entry.number,
            batches=1,
            limits=limits,
            records_of=records_of,
            bounds=bounds_of(records_shown, around),
        ),
        parts_max,
    )
    state = "refused" if entry.is_refused else "a partial tail" if entry.kind == "tail" else "read"
    return Dump(
        parts,
        list(entry.findings),
        {"batch": entry.to_json()},
        f"{state}: batch {entry.number}, {entry.records} records, {entry.size} bytes from byte {entry.at} on",
        is_cut,
    )


def dump_message(
    definition: Definition,
    version: int,
    data: Buffer,
    profile: Profile,
    batches: int,
    *,
    parts_max: int = PARTS_MAX,
    records_shown: int | None = None,
) -> Dump:
    """The dump of a message and of the record batches inside it."""
    made = annotate_message(
        definition,
        version,
        bytes(data),
        profile=profile,
        batches=batches,
        bounds=bounds_of(records_shown),
        parts_most=parts_max,
    )
    return Dump(
        made.parts,
        made.findings,
        {"message": definition.name, "version": version, "consumed": made.reading.consumed},
        outcome_of(f"{definition.name} version {version}", made),
        made.is_cut,
    )


def outcome_of(name: str, made: Annotation) -> str:
    """The last line of a message's dump: the outcome for the message and for the records inside it."""
    fatal = made.reading.fatal is not None
    outcome = f"refused: {name}" if fatal else f"read: {name}, {made.reading.consumed} bytes"
    if not made.records:
        return outcome
    counts = (
        (sum(one.batch_count for one in made.records), "batches"),
        (sum(one.record_count for one in made.records), "records"),
        (sum(one.partial_tail for one in made.records), "partial tails"),
        (sum(one.fatal is not None for one in made.records), "refused"),
    )
    inside = ", ".join(f"{count} {what}" for count, what in counts if count)
    return f"{outcome}; inside {len(made.records)} fields of records: {inside}"


def lines(part: Part, mark: str, width: int | None = None) -> list[str]:
    """The dump's lines for one part: offset, bytes, name and value; more bytes follow on lines of their own.

    ``width`` is that of a terminal.
    """
    indent = "  " * part.depth
    step = BYTES_PER_LINE if width is None or width >= NARROW[0] else NARROW[1]
    column = 3 * step - 1
    if part.left_out:
        return [f"{part.at:08x}  {'':{column}}  {indent}… {part.value}{mark}"]
    name = printable(part.field or part.path)
    shown = part.data[: LONGEST_LINES * BYTES_PER_LINE]
    pieces = [shown[i : i + step] for i in range(0, len(shown), step)] or [b""]
    out = [f"{part.at:08x}  {pieces[0].hex(' '):{column}}  {indent}{name}: {printable(part.value)}{mark}"]
    for i, piece in enumerate(pieces[1:], start=1):
        out.append(f"{part.at + i * step:08x}  {piece.hex(' ')}")
    if part.size > len(shown):
        out.append(f"{'…':>8}  {part.size - len(shown)} more bytes")
    return out
