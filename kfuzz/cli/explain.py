"""``kfuzz explain``: what a finding, a requirement, a flag or an error code means."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding

from kfuzz.cli import options
from kfuzz.cli.completion import complete_explained
from kfuzz.cli.console import echo_json
from kfuzz.vectors.explaining import VECTORS_SHOWN, Book, Explanation, Line, page


@click.command()
@click.argument("name", required=False, shell_complete=complete_explained)
@options.all_of("vectors", usual=f"the first {VECTORS_SHOWN}")
@options.as_json
def command(name: str | None, take_all: bool, as_json: bool) -> None:
    """Explain a finding, a requirement, a flag, or an error code of a broker: what it is, what Apache Kafka does, what
    goes wrong in the field, and the vectors about it.

    Errors are known by their names and numbers. Without NAME, the known names are listed.

    \b
    Examples:
      kfuzz explain crc-mismatch
      kfuzz explain RB-COUNT-1
      kfuzz explain INVALID_RECORD
      kfuzz explain 87
      kfuzz explain
    """
    if name is None:
        tables = Book().tables()
        if as_json:
            echo_json(tables)
            return
        for title, names in tables.items():
            click.echo(f"{title}:")
            click.echo("\n".join(f"  {known}" for known in names))
        return
    found = Book().explain(name)
    if as_json:
        echo_json([_to_json(one) for one in found])
        return
    # In a pipe, lines stay whole.
    console = Console(highlight=False, markup=False, soft_wrap=not sys.stdout.isatty())
    for i, one in enumerate(found):
        if i:
            console.print()
        for line in page(one, None if take_all else VECTORS_SHOWN):
            _print(console, line)


def _print(console: Console, line: Line) -> None:
    style = "bold" if line.is_heading else None
    if console.is_terminal and line.text:
        console.print(Padding(line.text, (0, 0, 0, line.columns), expand=False), style=style)
    else:
        console.print(" " * line.columns + line.text)


def _to_json(one: Explanation) -> dict[str, Any]:
    return {
        "name": one.name,
        "kind": one.kind,
        "what": list(one.what),
        "facts": [{"title": title, "text": text} for title, text in one.facts],
        "kafka": list(one.kafka),
        "flags": [
            {
                "name": flag.name,
                "bug_type": flag.bug_type,
                "description": flag.description,
                "effect": flag.effect,
                "links": [*flag.links, *flag.cves],
            }
            for flag in one.flags
        ],
        "vectors": [vector.id for vector in one.vectors],
    }
