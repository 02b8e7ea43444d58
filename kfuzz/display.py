"""Progress of long work: a moving bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

PLAIN_INTERVAL_S = 5.0
# A table says more than a line, and its work takes minutes or hours.
PLAIN_TABLE_INTERVAL_S = 30.0

# The terminals with a bar or a table now, the last one at the bottom.
_live: list[Console] = []


@contextlib.contextmanager
def printed_above(console: Console) -> Iterator[None]:
    """Inside the block, :func:`print_above` prints above the bar or the table that ``console`` shows.

    The bar itself must leave standard output alone: rich would replace it, and click writes around the replacement.
    """
    _live.append(console)
    try:
        yield
    finally:
        _live.remove(console)


def print_above(lines: str) -> bool:
    """Print text for the terminal above the bar or table that is shown there. Returns False if there is none."""
    if _live:
        _live[-1].out(lines, end="", highlight=False)
    return bool(_live)


@contextlib.contextmanager
def progress(what: str, total: int | None, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show the progress of ``what`` on standard error; yields ``set_done(n)``. ``total`` is None if it is not known.

    On a terminal this is a bar with the elapsed time; it also moves between two calls. In a pipe it is a plain line,
    at most one every five seconds, so that logs stay readable.
    """
    if quiet or sys.stderr is None:
        yield lambda done: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = [SpinnerColumn(), TextColumn("{task.description}"), BarColumn()]
        if total is not None:
            columns.append(MofNCompleteColumn())
        shown = Progress(
            *columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True, redirect_stdout=False
        )
        with shown as bar, printed_above(bar.console):
            task = bar.add_task(what, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        began = last = time.monotonic()

        def set_done(done: int) -> None:
            nonlocal last
            if time.monotonic() - last >= PLAIN_INTERVAL_S:
                last = time.monotonic()
                far = f"{done} of {total}" if total is not None else f"{last - began:.0f} s"
                print(f"{what}: {far}", file=sys.stderr)

        yield set_done


@contextlib.contextmanager
def live_table(
    columns: Sequence[str], *, quiet: bool = False
) -> Iterator[Callable[[Sequence[Sequence[str]], Sequence[str]], None]]:
    """Show a table that changes on standard error; yields ``show(rows, lines)``.

    On a terminal it is a table of ``rows``, which is gone at the end. In a pipe it is ``lines``, every half minute.
    """
    if quiet or sys.stderr is None:
        yield lambda rows, lines: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live
        from rich.table import Table

        shown = Live(console=Console(stderr=True), transient=True, auto_refresh=False, redirect_stdout=False)
        with shown as live, printed_above(live.console):

            def draw(rows: Sequence[Sequence[str]], lines: Sequence[str]) -> None:
                table = Table(box=None, padding=(0, 1, 0, 0))
                for i, column in enumerate(columns):
                    table.add_column(column, justify="left" if i < 2 else "right", no_wrap=True)
                for row in rows:
                    table.add_row(*row)
                live.update(table, refresh=True)

            yield draw
    else:
        last = 0.0

        def say(rows: Sequence[Sequence[str]], lines: Sequence[str]) -> None:
            nonlocal last
            last = last or time.monotonic()
            if time.monotonic() - last >= PLAIN_TABLE_INTERVAL_S:
                last = time.monotonic()
                for line in lines:
                    print(line, file=sys.stderr)

        yield say
