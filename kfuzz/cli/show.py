"""``kfuzz show``: an annotated dump that explains each byte of a file or a vector."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kfuzz import records
from kfuzz.annotate.killing import KillingField, mark
from kfuzz.annotate.marks import marks_of
from kfuzz.annotate.messages import Annotation
from kfuzz.annotate.messages import annotate as annotate_message
from kfuzz.annotate.parts import Part
from kfuzz.annotate.records import annotate as annotate_records
from kfuzz.cli.check import open_buffer
from kfuzz.cli.completion import complete_file_or_id
from kfuzz.cli.console import echo_json, json_option
from kfuzz.cli.messages import definitions_of, source_option
from kfuzz.errors import UsageError
from kfuzz.findings import PROFILES, Finding, Profile
from kfuzz.messages.catalogues import newest
from kfuzz.messages.model import Definition
from kfuzz.messages.schemas import schema

if TYPE_CHECKING:
    from kfuzz.fuzz.crashes import Crash
    from kfuzz.vectors.model import Vector

BYTES_PER_LINE = 16
# The dump cuts longer fields and shows how many bytes are left out.
LONGEST_LINES = 4
# Of the fields that a crash needs, so many are marked and named.
FIELDS_SHOWN = 8
KILL_MARKS = ("kills", *["needed to kill"] * (FIELDS_SHOWN - 1))


@dataclass(frozen=True)
class Dump:
    """What to print. ``facts`` are the JSON members that only this kind of dump has."""

    parts: list[Part]
    findings: list[Finding]
    facts: dict[str, Any]
    outcome: str


@click.command()
@click.argument("name", metavar="FILE|ID", shell_complete=complete_file_or_id)
@click.option(
    "--message",
    metavar="MESSAGE",
    help="The bytes are this message, without a header; needs --version.  [default: record batches]",
)
@click.option("--version", type=int, metavar="N", help="Version of the message.")
@source_option
@click.option("--profile", type=click.Choice(PROFILES), default="kafka", show_default=True)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="Show at most this many batches; for a message, in each of its fields.",
)
@click.option(
    "--find",
    is_flag=True,
    help="For the input of a cause: find the field that kills, if it is not known yet.",
)
@json_option
def command(
    name: str,
    message: str | None,
    version: int | None,
    source: str,
    profile: Profile,
    batches: int,
    find: bool,
    as_json: bool,
) -> None:
    """Show an annotated dump of a file of record batches (a segment or a fetch; - is standard input) or of a vector.
    With --message, the file is a request, a response or a header; record batches inside are shown too.

    The dump shows the offset, the bytes and the value of every field, then the findings. Offsets inside a compressed
    batch count from the start of its decompressed payload.

    If the file is the smallest input of a cause that `kfuzz fuzz` or `kfuzz conform --differential` found, the dump
    also names the cause, and marks the field that kills: with an ordinary value in it, the input does no harm.

    \b
    Examples:
      kfuzz show 00000000000000000000.log
      kfuzz show records/v2/count/negative-one
      kfuzz show messages/counts/fetch-request-v18-huge
      kfuzz show --json fetch.bin
      kfuzz show out/fuzz/record-batch/causes/panics-01234567
      kfuzz show --message FetchResponse --version 17 body.bin
      kfuzz messages encode ApiVersions --version 3 < a.json | kfuzz show --message ApiVersions --version 3 -
    """
    vector = vector_of(name)
    chosen = message_of(message, version, source) or message_in(vector)
    crash = crash_of(name) if vector is None and chosen is None else None
    title = name if vector is None else f"{vector.id}: {vector.summary}"
    data: bytes | mmap.mmap
    if crash is not None and crash.body is not None:
        crash = found_fields(crash) if find and not crash.kills else crash
        assert crash.body is not None
        data, chosen = crash.body.data, crash.body.message
    else:
        data = open_buffer(name) if vector is None else vector.data
    if find and (crash is None or not crash.harm):
        raise UsageError(f"--find needs the input of a cause; no campaign or differential wrote {name}")
    try:
        dump = dump_records(data, profile, batches) if chosen is None else dump_message(*chosen, data, profile, batches)
    except Exception as error:
        if crash is None:
            raise
        again = f"kfuzz fuzz {crash.target} --reproduce {name}"
        raise UsageError(
            f"kfuzz's own reader fails on {name}: {type(error).__name__}: {error}; `{again}` shows where"
        ) from None
    if as_json:
        echo_json(
            {"source": title, "size": len(data)}
            | ({} if crash is None else crash_json(crash))
            | dump.facts
            | {
                "parts": [
                    {
                        "path": p.path,
                        "field": p.field,
                        "at": p.at,
                        "size": len(p.data),
                        "hex": p.data.hex(),
                        "value": p.value,
                    }
                    for p in dump.parts
                    if not p.heading or p.data
                ],
                "findings": [finding.to_json() for finding in dump.findings],
            }
        )
        return
    click.echo(f"{title}: {len(data)} bytes")
    for line in () if crash is None else cause_lines(crash):
        click.echo(line)
    marks = marks_of(dump.parts, dump.findings)
    for field, text in zip(() if crash is None else crash.kills, KILL_MARKS, strict=False):
        if (index := mark(dump.parts, field)) is not None and not set(KILL_MARKS) & set(marks[index]):
            marks[index].insert(0, text)
    for i, part in enumerate(dump.parts):
        for line in lines(part, f"   <-- {', '.join(marks[i])}" if i in marks else ""):
            click.echo(line)
    if any(part.heading and part.path.endswith(f"batch[{batches}]") for part in dump.parts):
        click.echo(f"… more batches follow; --batches {2 * batches} shows more of them")
    click.echo("")
    for finding in dump.findings:
        click.echo(f"{finding.severity}: {finding}")
    click.echo(dump.outcome)
    for line in () if crash is None or not crash.harm else killing_lines(crash.kills):
        click.echo(line)


# ------------------------------------------------------------------------------------------------- crashes


def crash_of(name: str) -> Crash | None:
    """The crash in a file; None for any other file."""
    # Most files are none, and the fuzzer's modules take time to load.
    if name == "-" or (
        not (Path(name).parent / "causes.json").is_file() and not Path(name).with_suffix(".json").is_file()
    ):
        return None
    from kfuzz.fuzz.crashes import crash_at

    return crash_at(name)


def found_fields(crash: Crash) -> Crash:
    """The crash with the fields that kill, found now."""
    from kfuzz.fuzz.crashes import with_killing_fields

    return with_killing_fields(crash)


def crash_json(crash: Crash) -> dict[str, Any]:
    """The JSON members about the cause of a crash."""
    return {
        "cause": {"id": crash.id, "target": crash.target, "harm": crash.harm, "summary": crash.summary, "at": crash.at},
        "kills": [field.to_json() for field in crash.kills],
    }


def cause_lines(crash: Crash) -> list[str]:
    """The cause of a crash, before its dump."""
    from kfuzz.conformance.judge.harm import harm_named

    if not crash.harm:
        return []
    of = f"{crash.testee} as {crash.role}" if crash.testee else crash.target
    at = f" ({crash.at})" if crash.at else ""
    return [f"cause {crash.id} of {of}, {harm_named(crash.harm).title}: {crash.summary}{at}"]


def killing_lines(fields: Sequence[KillingField]) -> list[str]:
    """The fields that kill, after the dump of a crash."""
    if not fields:
        return ["the field that kills is not known; --find looks for it"]
    lines = [f"the field that kills: {fields[0]}"]
    if len(fields) > 1:
        shown = ", ".join(map(str, fields[1:FIELDS_SHOWN]))
        more = f" and {len(fields) - FIELDS_SHOWN} more" if len(fields) > FIELDS_SHOWN else ""
        lines.append(f"needed too: {shown}{more}")
    return lines


def vector_of(name: str) -> Vector | None:
    """The vector with this id; None if the name is a file or standard input."""
    if name == "-" or Path(name).exists():
        return None
    from kfuzz.vectors import find_vector

    try:
        return find_vector(name)
    except UsageError as error:
        raise UsageError(f"{name} is not a file, and {error}") from None


def message_of(name: str | None, version: int | None, source: str) -> tuple[Definition, int] | None:
    """The message and version from the options; None if the file holds record batches."""
    if name is None:
        given = click.get_current_context().get_parameter_source("source") is not ParameterSource.DEFAULT
        for option, stray in (("--version", version is not None), ("--definitions", given)):
            if stray:
                raise UsageError(f"{option} needs --message; name a message, or leave this option out to read records")
        return None
    definition = definitions_of(source).find(name)
    if version is None:
        raise UsageError(f"--message needs --version; {definition.name} has {definition.valid_versions}")
    # Refuse an unknown version before waiting for input on a terminal.
    schema(definition, version)
    return definition, version


def message_in(vector: Vector | None) -> tuple[Definition, int] | None:
    """The message definition and version of a vector of kind ``message``; None for others."""
    if vector is None or vector.kind != "message":
        return None
    return newest(vector.options["message"], vector.options["version"]), vector.options["version"]


# ------------------------------------------------------------------------------------------------- what is printed


def dump_records(data: bytes | mmap.mmap, profile: Profile, batches: int) -> Dump:
    """The dump of a file of record batches."""
    reading = records.check(data, profile=profile)
    tail = ", then a partial tail" if reading.partial_tail else ""
    state = "refused" if reading.fatal else "read"
    counts = f"{reading.batch_count} batches, {reading.record_count} records, {reading.consumed} bytes"
    empty = "" if len(data) else "no bytes: an empty file is an empty log, which is valid\n"
    return Dump(
        list(annotate_records(data, batches=batches)),
        reading.findings,
        {"consumed": reading.consumed, "partial_tail": reading.partial_tail},
        f"{empty}{state}: {counts}{tail}",
    )


def dump_message(definition: Definition, version: int, data: bytes | mmap.mmap, profile: Profile, batches: int) -> Dump:
    """The dump of a message and of the record batches inside it."""
    made = annotate_message(definition, version, bytes(data), profile=profile, batches=batches)
    return Dump(
        made.parts,
        made.findings,
        {"message": definition.name, "version": version, "consumed": made.reading.consumed},
        outcome_of(f"{definition.name} version {version}", made),
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


def lines(part: Part, mark: str) -> list[str]:
    """The dump's lines for one part: offset, bytes, name and value; more bytes follow on lines of their own."""
    indent = "  " * part.depth
    name = part.field or part.path
    pieces = [part.data[i : i + BYTES_PER_LINE] for i in range(0, len(part.data), BYTES_PER_LINE)] or [b""]
    out = [f"{part.at:08x}  {pieces[0].hex(' '):47}  {indent}{name}: {part.value}{mark}"]
    for i, piece in enumerate(pieces[1:LONGEST_LINES], start=1):
        out.append(f"{part.at + i * BYTES_PER_LINE:08x}  {piece.hex(' ')}")
    if len(pieces) > LONGEST_LINES:
        out.append(f"{'…':>8}  {len(part.data) - LONGEST_LINES * BYTES_PER_LINE} more bytes")
    return out
