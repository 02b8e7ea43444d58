"""``kfuzz explain``: what a finding, a requirement, a flag or an error code means."""

from __future__ import annotations

import sys
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding

from kfuzz.cli.completion import complete_explained
from kfuzz.cli.console import echo_json, json_option
from kfuzz.vectors.explaining import Book, Explanation
from kfuzz.vectors.model import Flag

# More vectors than this are counted; --all shows them.
VECTORS_SHOWN = 8


@click.command()
@click.argument("name", required=False, shell_complete=complete_explained)
@click.option("--all", "show_all", is_flag=True, help=f"Show all vectors.  [default: the first {VECTORS_SHOWN}]")
@json_option
def command(name: str | None, show_all: bool, as_json: bool) -> None:
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
        _print(console, one, show_all=show_all)


def _print(console: Console, one: Explanation, *, show_all: bool) -> None:
    console.print(f"{one.name}: {_article(one.kind)} {one.kind}", style="bold")
    for sentence in one.what:
        _indented(console, sentence)
    if one.facts:
        console.print()
    for title, text in one.facts:
        _indented(console, f"{title}: {text}")
    if one.kafka:
        console.print(f"\nWhat Apache Kafka does with {_vectors(len(one.vectors))} about it")
        for sentence in one.kafka:
            _indented(console, sentence)
    if one.flags:
        console.print("\nWhat goes wrong in the field")
        for flag in one.flags:
            _print_flag(console, flag)
    if one.vectors:
        shown = one.vectors if show_all else one.vectors[:VECTORS_SHOWN]
        console.print("\nVectors")
        for vector in shown:
            _indented(console, f"{vector.id}  {vector.summary}")
        if len(shown) < len(one.vectors):
            _indented(console, f"… and {len(one.vectors) - len(shown)} more; --all shows them")


def _print_flag(console: Console, flag: Flag) -> None:
    _indented(console, f"{flag.name} ({flag.bug_type}): {flag.description}")
    _indented(console, flag.effect, 4)
    for link in (*flag.links, *flag.cves):
        _indented(console, link, 4)


def _indented(console: Console, text: str, columns: int = 2) -> None:
    console.print(Padding(text, (0, 0, 0, columns), expand=False) if console.is_terminal else " " * columns + text)


def _article(kind: str) -> str:
    return "an" if kind[0] in "aeiou" else "a"


def _vectors(count: int) -> str:
    return "the one vector" if count == 1 else f"the {count} vectors"


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
