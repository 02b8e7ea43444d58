"""``kfuzz check``: shows findings in files of record batches."""

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
    help="Who judges the bytes: a consumer that reads a fetch, a broker that gets a Produce request, or a broker that "
    "loads a segment (log).",
)
@click.option(
    "--profile",
    type=click.Choice(["kafka", "strict"]),
    default="kafka",
    show_default=True,
    help="kafka accepts what Apache Kafka's reader accepts; strict refuses every deviation from the documents.",
)
@click.option(
    "--limit-bytes",
    type=click.IntRange(1, (1 << 31) - 2),
    help="Upper limit for one batch's decompressed payload.  [default: 64 MiB]",
)
@json_option
@click.pass_context
def command(
    ctx: click.Context, files: tuple[str, ...], role: str, profile: str, limit_bytes: int | None, as_json: bool
) -> None:
    """Show findings in files of record batches: log segments, fetches, vectors as bytes; - is standard input.

    The role says what a file holds. consumer: the records that a fetch returns. broker: the records of one partition in
    a Produce request, under Kafka's default limits; --profile strict adds the documents' rules for producers. log: a
    segment that a broker must be able to load at its start. In the role log, records that cannot be read are not an
    error.

    Exit code 0: no file has a fatal finding; 1: at least one has; 2: a file cannot be opened. A partial batch at the
    end of a file is reported, but it is not an error.

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
    """The bytes of a file. ``-`` means standard input."""
    return standard_input().read() if name == "-" else map_bytes(name)
