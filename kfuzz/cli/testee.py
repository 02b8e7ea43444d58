"""``kfuzz testee``: kfuzz's own decoder behind the testee protocol. The work is in ``kfuzz.conformance.judge.own``."""

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
    help="Accept what Apache Kafka's reader accepts, or only what the documents allow.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the protocol's JSON Schema instead, and end.")
def command(profile: str, as_schema: bool) -> None:
    """kfuzz's own decoder behind the testee protocol.

    Speaks kfuzz-testee/1 (docs/testee-protocol.md): JSON Lines on standard input and output.

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
