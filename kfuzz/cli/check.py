"""``kfuzz check``: what is wrong with files of record batches."""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any, cast

import click

from kfuzz.cli.console import echo_json, json_option, standard_input
from kfuzz.files import map_bytes

if TYPE_CHECKING:
    from kfuzz.records import Profile, Role


@click.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--role",
    type=click.Choice(["consumer", "broker", "log"]),
    default="consumer",
    show_default=True,
    help="Who judges: who reads a fetch, who gets a Produce request, or who starts with a segment.",
)
@click.option(
    "--profile",
    type=click.Choice(["kafka", "strict"]),
    default="kafka",
    show_default=True,
    help="kafka accepts what Apache Kafka's reader accepts; strict refuses every departure from the documents.",
)
@click.option(
    "--limit-bytes",
    type=click.IntRange(1, (1 << 31) - 2),
    help="The most that one batch's payload may decompress to.  [default: 64 MiB]",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], role: str, profile: str, limit_bytes: int | None, as_json: bool
) -> None:
    """Findings in files of record batches: log segments, fetches, vectors as bytes; - is standard input.

    As consumer a file is what a fetch returns. As broker it is what a Produce request carries for one partition, under
    Kafka's default limits; with --profile strict the documents' rules for producers hold too. As log it is a segment
    that must survive the start of a broker; that nobody can read a batch's records is then no fault of the segment.

    Exit code 0 if no file has a fatal finding, 1 if any has, 2 if a file cannot be opened. A partial batch at the end
    of a file is no error; it is told.

    \b
    Examples:
      kfuzz check 00000000000000000000.log
      kfuzz check --profile strict *.log
      kfuzz check --role log 00000000000000000000.log
      kfuzz check --role broker --profile strict produced.bin
      kfuzz check --json fetch.bin
    """
    from kfuzz import records

    limits = records.Limits() if limit_bytes is None else records.Limits(limit_bytes)
    out: list[dict[str, Any]] = []
    fatal = False
    for name in files:
        data = open_buffer(name)
        reading = records.check(data, profile=cast("Profile", profile), role=cast("Role", role), limits=limits)
        fatal = fatal or reading.fatal is not None
        if as_json:
            out.append(
                {
                    "file": name,
                    "size": len(data),
                    "batches": reading.batch_count,
                    "records": reading.record_count,
                    "consumed": reading.consumed,
                    "partial_tail": reading.partial_tail,
                    "accepted": reading.fatal is None,
                    "findings": [finding.to_json() for finding in reading.findings],
                }
            )
            continue
        for finding in reading.findings:
            click.echo(f"{name}: {finding.severity}: {finding}")
        tail = f", then a partial tail of {len(data) - reading.consumed} bytes" if reading.partial_tail else ""
        state = "refused after" if reading.fatal else "ok,"
        counts = f"{reading.batch_count} batches, {reading.record_count} records, {reading.consumed} bytes"
        click.echo(f"{name}: {state} {counts}{tail}")
    if as_json:
        echo_json(out)
    ctx.exit(1 if fatal else 0)


def open_buffer(name: str) -> bytes | mmap.mmap:
    """The bytes of a file, or of standard input for ``-``."""
    return standard_input().read() if name == "-" else map_bytes(name)
