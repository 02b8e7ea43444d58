"""``kfuzz testee``: kfuzz's own decoder as a testee, and a start for yours.

``kfuzz.conformance.judge.own`` and ``kfuzz.conformance.protocol.stubs`` do the work.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kfuzz.cli import options
from kfuzz.cli.console import Group, say, standard_input
from kfuzz.conformance.judge.own import serve
from kfuzz.conformance.protocol.schema import schema_text
from kfuzz.conformance.protocol.stubs import LANGUAGES, write_stub
from kfuzz.findings import Profile
from kfuzz.text import shell_word


@click.group(cls=Group, invoke_without_command=True)
@options.profile
@click.option("--schema", "as_schema", is_flag=True, help="Only print the JSON Schema of the protocol.")
@click.pass_context
def command(ctx: click.Context, profile: Profile, as_schema: bool) -> None:
    """Run kfuzz's own decoder as a testee; `new` writes a testee for yours.

    It speaks kfuzz-testee/1 (docs/testee-protocol.md): JSON Lines on standard input and output.

    \b
    Examples:
      kfuzz testee </dev/null
      kfuzz testee --schema > testee.schema.json
      kfuzz conform --command "kfuzz testee --profile strict"
      kfuzz testee new --language go my-testee
    """
    if ctx.invoked_subcommand:
        return
    if as_schema:
        click.echo(schema_text(), nl=False)
        return
    serve(standard_input(), sys.stdout.buffer, profile=profile)


@command.command()
@click.option(
    "--language", required=True, type=click.Choice(LANGUAGES), help="The language of your decoder. It decides the kit."
)
@click.argument("directory", metavar="DIR")
def new(language: str, directory: str) -> None:
    """Write a small testee into DIR, with the kit of its language.

    It runs at once, and answers "unsupported" until you put the call to your decoder into it. DIR must be empty, or not
    exist yet. There is no kit for Java; testees/kafka-clients in kfuzz's repository is an example of a testee in Java.

    \b
    Examples:
      kfuzz testee new --language go my-testee
      kfuzz testee new --language python out/my-testee
    """
    stub = write_stub(language, directory)
    say(
        f"{Path(directory) / stub.file} is where you call your decoder. Until then it answers unsupported. Next:",
        f"  cd {shell_word(directory)}" + (f" && {stub.build}" if stub.build else ""),
        f"  kfuzz conform --command {shell_word(stub.run)} {shell_word('records/v2/*')}",
    )
