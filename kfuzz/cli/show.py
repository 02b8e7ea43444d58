"""``kfuzz show``: what stands at which byte of a file or a vector."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from kfuzz.cli.check import open_buffer
from kfuzz.cli.console import echo_json, json_option
from kfuzz.errors import UsageError

if TYPE_CHECKING:
    from kfuzz.records import Profile
    from kfuzz.records.annotate import Part

BYTES_PER_LINE = 16
# A field longer than this is cut in the dump; its size is told.
LONGEST_LINES = 4


@click.command()
@click.argument("source", metavar="FILE|ID")
@click.option("--profile", type=click.Choice(["kafka", "strict"]), default="kafka", show_default=True)
@click.option(
    "--batches", type=click.IntRange(min=1), default=20, show_default=True, help="Show at most so many batches."
)
@json_option
def command(source: str, profile: str, batches: int, as_json: bool) -> None:
    """Annotated dump of a file of record batches (a segment, a fetch, - for standard input) or of a vector.

    Every field with its place, its bytes and its value; then what is wrong. Places inside a compressed batch
    count from the start of its decompressed payload.

    \b
    Examples:
      kfuzz show 00000000000000000000.log
      kfuzz show records/v2/count/negative-one
      kfuzz show --json fetch.bin
    """
    from kfuzz import records
    from kfuzz.records.annotate import annotate

    name, data = load(source)
    parts = []
    cut = False
    for part in annotate(data):
        if part.heading and part.path == f"batch[{batches}]":
            cut = True
            break
        parts.append(part)
    reading = records.check(data, profile=cast("Profile", profile))
    if as_json:
        echo_json(
            {
                "source": name,
                "size": len(data),
                "consumed": reading.consumed,
                "partial_tail": reading.partial_tail,
                "parts": [
                    {
                        "path": p.path,
                        "field": p.field,
                        "at": p.at,
                        "size": len(p.data),
                        "hex": p.data.hex(),
                        "value": p.value,
                    }
                    for p in parts
                    if not p.heading or p.data
                ],
                "findings": [finding.to_json() for finding in reading.findings],
            }
        )
        return
    click.echo(f"{name}: {len(data)} bytes")
    places = [(space(finding.path), finding.at, finding.code) for finding in reading.findings]
    for part in parts:
        end = part.at + len(part.data)
        inside = [
            f"{code} at {at:#x}" for where, at, code in places if part.at <= at < end and where == space(part.path)
        ]
        for line in lines(part, f"   <-- {', '.join(inside)}" if inside else ""):
            click.echo(line)
    if cut:
        click.echo(f"… more batches follow; --batches {2 * batches} shows more of them")
    click.echo("")
    if not len(data):
        click.echo("no bytes: an empty file is an empty log, and valid")
    for finding in reading.findings:
        click.echo(f"{finding.severity}: {finding}")
    tail = ", then a partial tail" if reading.partial_tail else ""
    state = "refused" if reading.fatal else "read"
    counts = f"{reading.batch_count} batches, {reading.record_count} records, {reading.consumed} bytes"
    click.echo(f"{state}: {counts}{tail}")


def load(source: str) -> tuple[str, bytes | mmap.mmap]:
    """The name and bytes of a file, of standard input, or of a vector by its id."""
    if source == "-" or Path(source).exists():
        return source, open_buffer(source)
    from kfuzz.vectors import load_suite
    from kfuzz.vectors.model import KINDS

    for vector in load_suite(kinds=KINDS):
        if vector.id == source:
            return f"{vector.id}: {vector.summary}", vector.data
    raise UsageError(f"{source} is neither a file nor a vector; `kfuzz vectors list` lists the vectors")


def space(path: str) -> str:
    """What the offsets under ``path`` count from: the buffer, or one batch's decompressed payload."""
    head, inside, _ = path.partition(".payload.")
    return head if inside or path.endswith("].payload") else ""


def lines(part: Part, mark: str) -> list[str]:
    """The dump's lines for one part: place, bytes, name and value, and further bytes below."""
    indent = "  " * part.depth
    name = part.field or part.path
    pieces = [part.data[i : i + BYTES_PER_LINE] for i in range(0, len(part.data), BYTES_PER_LINE)] or [b""]
    out = [f"{part.at:08x}  {pieces[0].hex(' '):47}  {indent}{name}: {part.value}{mark}"]
    for i, piece in enumerate(pieces[1:LONGEST_LINES], start=1):
        out.append(f"{part.at + i * BYTES_PER_LINE:08x}  {piece.hex(' ')}")
    if len(pieces) > LONGEST_LINES:
        out.append(f"{'…':>8}  {len(part.data) - LONGEST_LINES * BYTES_PER_LINE} more bytes")
    return out
