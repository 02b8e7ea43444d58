"""Progress of long work: a moving bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

__all__ = ["PLAIN_INTERVAL_S", "progress"]

PLAIN_INTERVAL_S = 5.0


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
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bar:
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
