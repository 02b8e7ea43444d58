"""What every verb prints with: JSON, and progress that is a bar on a terminal and plain lines in a pipe."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import click

from kfuzz.errors import UsageError

__all__ = ["echo_json", "json_option", "progress", "standard_streams"]

PLAIN_INTERVAL_S = 5.0

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


def echo_json(value: Any) -> None:
    """Print ``value`` as one JSON document with sorted keys."""
    click.echo(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False))


def standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output as bytes; ``UsageError`` where one was closed before kfuzz began (`<&-`)."""
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None:
            raise UsageError(f"standard {name} is closed; leave it open")
    return sys.stdin.buffer, sys.stdout.buffer


@contextlib.contextmanager
def progress(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show how far ``what`` is on standard error; yields ``set_done(n)``.

    On a terminal this is a bar; in a pipe a plain line at most every five seconds, so that logs stay readable.
    """
    if quiet:
        yield lambda done: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        last = time.monotonic()

        def set_done(done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_INTERVAL_S:
                last = time.monotonic()
                click.echo(f"{what}: {done} of {total}", err=True)

        yield set_done
