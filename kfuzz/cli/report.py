"""``kfuzz report``: turn the result of a run into other forms, or compare two. ``kfuzz.conformance.report`` does it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli.console import echo_json, json_option
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, require_writable, write_whole

if TYPE_CHECKING:
    from kfuzz.conformance.judge.matrix import Run

__all__ = ["CAUSES_SHOWN", "command", "print_run"]

CAUSES_SHOWN = 25


@click.command()
@click.argument("result", metavar="RESULT.json")
@click.argument("newer", metavar="[NEWER.json]", required=False)
@click.option("--html", "html_file", metavar="FILE", help="Write one self-contained HTML page.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write JUnit XML.")
@click.option(
    "--causes", "shown", type=click.IntRange(min=1), default=CAUSES_SHOWN, show_default=True, help="How many to show."
)
@click.option("--only-failures", is_flag=True, help="Leave out causes whose outcomes are all as expected.")
@click.option("--vectors", "root", metavar="DIR", help="The suite of that run, if it is not kfuzz's own.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    result: str,
    newer: str | None,
    html_file: str | None,
    junit_file: str | None,
    shown: int,
    only_failures: bool,
    root: str | None,
    as_json: bool,
) -> None:
    """Show the result of `kfuzz conform --json RESULT.json`: what each implementation does wrong, worst first.

    Deviations with one cause are one line, with the number of vectors and the smallest of them. With a second result,
    only the changes are shown: causes that are new, and causes that are gone.

    Exit code 0: every outcome is as expected, or nothing changed; 1: otherwise; 2: wrong use.

    \b
    Examples:
      kfuzz report result.json
      kfuzz report result.json --html result.html
      kfuzz report monday.json tuesday.json
      kfuzz report result.json --json | jq '.causes[0]'
    """
    for file in (html_file, junit_file):
        if file is not None:
            require_writable(file)
    if newer and (html_file or junit_file or only_failures):
        raise UsageError("--html, --junit and --only-failures are about one result; give only one")
    from kfuzz.conformance import report
    from kfuzz.vectors import KINDS, default_root, load_suite

    suite = load_suite("*", Path(root) if root else default_root(), kinds=KINDS)
    run = report.from_json(_document(result), suite)
    if newer:
        changes = report.changes(run, report.from_json(_document(newer), suite))
        if as_json:
            echo_json(changes.to_json())
        else:
            for sentence in changes.sentences():
                click.echo(sentence)
        ctx.exit(1 if changes else 0)
    if html_file:
        write_whole(html_file, report.to_html(run))
    if junit_file:
        write_whole(junit_file, report.to_junit(run))
    if as_json:
        echo_json(report.to_json(run))
    else:
        print_run(run, causes_shown=shown, only_new=only_failures)
    ctx.exit(1 if run.failed else 0)


def _document(file: str) -> Any:
    try:
        return json.loads(read_bytes(Path(file)))
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}; give the file that `kfuzz conform --json` wrote") from None


def print_run(run: Run, *, causes_shown: int, only_new: bool) -> None:
    """Print the tables of a run to standard output."""
    import shutil

    from rich.console import Console

    from kfuzz.conformance import report

    console = Console(width=shutil.get_terminal_size((120, 40)).columns, highlight=False)
    for table in report.to_terminal(run, causes_shown=causes_shown, only_new=only_new):
        console.print(table)
