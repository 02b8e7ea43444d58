"""Code that the command lines of the benchmarks and of the tools share."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

from rich.console import Console

from kfuzz.errors import KfuzzError

PIPE_COLUMNS: Final = 120


def console() -> Console:
    """Where the tables go; in a pipe they have 120 columns."""
    return Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS, highlight=False)


def exit_code(program: str, work: Callable[[], int | None]) -> int:
    """The exit code of ``work``, 0 for None; 2 after an error, which is printed as one sentence; 130 after Ctrl-C."""
    try:
        return work() or 0
    except KfuzzError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{program}: {where}{error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
