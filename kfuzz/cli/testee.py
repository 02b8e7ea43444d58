"""``kfuzz testee``: kfuzz's own decoder as a testee. ``kfuzz.conformance.judge.own`` does the work."""

from __future__ import annotations

import sys
from typing import cast

import click

from kfuzz import records
from kfuzz.cli.console import standard_input
from kfuzz.conformance.judge.own import serve
from kfuzz.conformance.protocol.schema import schema_text

__all__ = ["command"]


@click.command()
@click.option(
    "--profile",
    type=click.Choice(records.PROFILES),
    default="kafka",
    show_default=True,
    help="kafka accepts what Apache Kafka's reader accepts; strict accepts only what the documents allow.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Only print the JSON Schema of the protocol.")
def command(profile: str, as_schema: bool) -> None:
    """Run kfuzz's own decoder as a testee.

    It speaks kfuzz-testee/1 (docs/testee-protocol.md): JSON Lines on standard input and output.

    \b
    Examples:
      kfuzz testee </dev/null
      kfuzz testee --schema > testee.schema.json
      kfuzz conform --command "kfuzz testee --profile strict"
    """
    if as_schema:
        click.echo(schema_text(), nl=False)
        return
    serve(standard_input(), sys.stdout.buffer, profile=cast(records.Profile, profile))
