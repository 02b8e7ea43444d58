"""The options that several verbs have: each is defined here once, with one meaning and one sentence of help.

Where a verb decides what an option is about or what it takes if it is not given, the definition is a function. This
module imports little, because each verb imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from kfuzz.cli.completion import complete_globs, complete_testees
from kfuzz.cli.console import Word
from kfuzz.errors import UsageError
from kfuzz.units import parse_duration

__all__ = [
    "TIME",
    "globs_argument",
    "json_file_option",
    "start_timeout_option",
    "testee_options",
    "vectors_option",
]

F = TypeVar("F", bound=Callable[..., Any])

# The system waits for at most 2³¹ milliseconds, which are 24.8 days.
TIME_S_MAX = 24 * 86_400


def _time(text: str) -> float:
    if (seconds := parse_duration(text)) > TIME_S_MAX:
        raise UsageError(f"{text!r} is longer than {TIME_S_MAX // 86_400}d")
    return seconds


TIME = Word("time", _time)

globs_argument = click.argument("globs", nargs=-1, metavar="[GLOB]...", shell_complete=complete_globs)

json_file_option = click.option(
    "--json", "json_file", metavar="FILE", help="Write the report as JSON; - prints it instead of text."
)
vectors_option = click.option("--vectors", "root", metavar="DIR", help="Use the suite in DIR instead of kfuzz's own.")
start_timeout_option = click.option(
    "--start-timeout",
    "start_timeout_s",
    type=TIME,
    help="How long to wait for a testee's handshake: 30s, 2m.  [default: 60s; 10s for --command]",
)


def testee_options(*, several: bool) -> Callable[[F], F]:
    """The options that choose testees by name or by command; ``several`` if the verb takes more than one."""
    repeated = "; may be repeated" if several else ""

    def add(command: F) -> F:
        for option in (
            click.option(
                "--command",
                "commands",
                multiple=True,
                metavar="CMD",
                help=f"Take the testee that this command starts{repeated}.",
            ),
            click.option(
                "--testee",
                "names",
                multiple=True,
                metavar="NAME[@VERSION]",
                help=f"Take this testee{repeated}.",
                shell_complete=complete_testees,
            ),
        ):
            command = option(command)
        return command

    return add
