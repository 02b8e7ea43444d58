"""``kfuzz explain``: what a finding, a requirement, a flag, an error code or a line of a log means."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click
from rich.console import Console
from rich.padding import Padding

from kfuzz.cli import options
from kfuzz.cli.completion import complete_explained
from kfuzz.cli.console import echo_json, open_buffer, say
from kfuzz.cli.opening import log_at
from kfuzz.errors import UsageError
from kfuzz.text import foreign_text
from kfuzz.units import counted
from kfuzz.vectors.explaining import VECTORS_SHOWN, Book, Explanation, Line, explain_line, page
from kfuzz.vectors.log_lines import LINE_CHARACTERS_MAX, LogLine, lines_in

# A line, of which the rest after so many bytes is not looked at.
LINES = re.compile(rb"(?!\Z)([^\n]{0,%d})[^\n]*\n?" % LINE_CHARACTERS_MAX)


@click.command()
@click.argument("name", required=False, shell_complete=complete_explained)
@click.option(
    "--log",
    type=click.Path(),
    help="The log of a broker or a client, perhaps packed. Its known lines are listed; - is stdin.",
)
@options.all_of("vectors", usual=f"the first {VECTORS_SHOWN}")
@options.as_json
def command(name: str | None, log: str | None, take_all: bool, as_json: bool) -> None:
    """Explain a finding, a requirement, a flag, or an error code of a broker: what it is, what Apache Kafka does, what
    goes wrong in the field, and the vectors about it.

    Errors are known by their names and numbers. NAME may also be a line of a broker's or a client's log, in quotes: the
    page then says what it means, where to look, and the command for the file that the line names. Without NAME, all
    that is known is listed.

    \b
    Examples:
      kfuzz explain crc-mismatch
      kfuzz explain RB-COUNT-1
      kfuzz explain INVALID_RECORD
      kfuzz explain 87
      kfuzz explain "Found invalid messages in log segment /data/a-0/00000000000000000000.log at byte offset 136."
      kfuzz explain --log server.log
      kfuzz explain
    """
    if log is not None:
        if name is not None:
            raise UsageError("NAME and --log exclude each other; give one of them")
        with log_at(log) as place:
            _explain_log(place, as_json)
        return
    if name is None:
        tables = Book().tables()
        if as_json:
            echo_json(tables)
            return
        for title, names in tables.items():
            click.echo(f"{title}:")
            click.echo("\n".join(f"  {known}" for known in names))
        return
    # The book takes time to open.
    found = [*explain_line(name)] or Book().explain(name)
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


def _explain_log(file: str, as_json: bool) -> None:
    """List the known lines of a log, each with its count, its first line, and the command for that."""
    found: dict[LogLine, list[Any]] = {}
    number = 0
    for number, match in enumerate(LINES.finditer(open_buffer(file)), 1):
        for one in lines_in(foreign_text(match[1], bytes_max=LINE_CHARACTERS_MAX)):
            found.setdefault(one, [0, number, match[1]])[0] += 1
    rows = [
        {"line": one.name, "count": count, "first": first, "command": one.command_for(foreign_text(text))}
        for one, (count, first, text) in found.items()
    ]
    if as_json:
        echo_json({"lines": number, "known": rows})
        return
    say(f"{file}: {counted(number, 'line')}, {counted(len(rows), 'known message')}")
    for row in rows:
        say(f"{row['count']:>8} from line {row['first']}: {row['line']}", f"{'':9}{row['command']}")


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
        "flags": [_flag_to_json(**asdict(flag)) for flag in one.flags],
        "vectors": [vector.id for vector in one.vectors],
    }


def _flag_to_json(links: Sequence[str], cves: Sequence[str], **others: str) -> dict[str, Any]:
    return others | {"links": [*links, *cves]}
