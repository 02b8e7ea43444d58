"""Input and output that all verbs share: paths, standard streams, JSON. ``kfuzz.display`` shows progress."""

from __future__ import annotations

import contextlib
import difflib
import io
import itertools
import json
import mmap
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from kfuzz.display import progress
from kfuzz.errors import UsageError
from kfuzz.files import local_path, map_bytes
from kfuzz.kafka import INTERNAL_TOPICS
from kfuzz.text import json_printable

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from kfuzz.records import Limits

__all__ = [
    "Group",
    "LocalPath",
    "Word",
    "connection_options",
    "echo_json",
    "internal_topic",
    "json_option",
    "json_text",
    "keep_going_without_reader",
    "limit_option",
    "limits_of",
    "open_buffer",
    "page",
    "pager_option",
    "profile_option",
    "progress",
    "reader_is_gone",
    "records_of_option",
    "role_option",
    "standard_input",
    "terminal_width",
    "write_lines",
]

# How many lines are printed between two looks at whether someone still reads them.
LINES_BETWEEN = 64
# The value of --records-of that decodes nothing.
AS_THEY_ARE = "none"

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")


pager_option = click.option(
    "--no-pager", "pager", is_flag=True, flag_value=False, default=True, help="Print all at once, also on a terminal."
)


role_option = click.option(
    "--role",
    type=click.Choice(["consumer", "broker", "log"]),
    default="consumer",
    show_default=True,
    help="Who judges the bytes: a consumer that reads a fetch, a broker that gets a Produce request, or a broker that "
    "loads a segment (log).",
)
profile_option = click.option(
    "--profile",
    type=click.Choice(["kafka", "strict"]),
    default="kafka",
    show_default=True,
    help="kafka accepts what Apache Kafka's reader accepts; strict refuses every deviation from the documents.",
)
limit_option = click.option(
    "--limit-bytes",
    type=click.IntRange(1, (1 << 31) - 2),
    help="Upper limit for one batch's decompressed payload.  [default: 64 MiB]",
)


def limits_of(limit_bytes: int | None) -> Limits:
    """The limits that ``--limit-bytes`` gives."""
    from kfuzz.records import Limits

    return Limits() if limit_bytes is None else Limits(limit_bytes)


records_of_option = click.option(
    "--records-of",
    type=click.Choice((*INTERNAL_TOPICS, AS_THEY_ARE)),
    help="Decode keys and values as those of this topic of Kafka's own, such as __consumer_offsets; none decodes "
    "nothing.  [default: by the name of the folder]",
)


def internal_topic(path: str, records_of: str | None) -> str | None:
    """The topic of Kafka's own whose records the file has, by the option or by the folder; None for all others."""
    if records_of is None and path != "-":
        from kfuzz.messages.internal import topic_of_path

        return topic_of_path(path)
    return None if records_of == AS_THEY_ARE else records_of


def json_text(value: Any, *, sort_keys: bool = True) -> str:
    """``value`` as one JSON document. Its text is harmless on a terminal, and valid Unicode."""
    return json_printable(json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False))


def echo_json(value: Any) -> None:
    """Print ``value`` as one JSON document with sorted keys."""
    click.echo(json_text(value))


def page(lines: Iterator[str]) -> None:
    """Print ``lines``; through a pager if standard output is a terminal that has not as many lines."""
    head: list[str] = []
    if sys.stdout.isatty():
        rows = shutil.get_terminal_size().lines - 1
        for line in lines:
            head.append(line)
            if len(head) > rows:
                # click ends the text with a line break.
                rest = (f"\n{one}" for one in itertools.chain(head[1:], lines))
                click.echo_via_pager(itertools.chain(head[:1], rest))
                return
    write_lines(itertools.chain(head, lines))


def terminal_width() -> int | None:
    """The columns of the terminal that gets standard output; None if it goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def write_lines(lines: Iterable[str]) -> None:
    """Print ``lines`` until the reader of standard output is gone. ``click.echo`` would flush after each of them."""
    out = sys.stdout
    for number, line in enumerate(lines):
        out.write(f"{line}\n")
        if number % LINES_BETWEEN == 0 and reader_is_gone():
            break
    out.flush()


class Group(click.Group):
    """A group of verbs. The error for a mistyped verb names the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if self.get_command(ctx, verb) is None and not verb.startswith("-"):
            known = self.list_commands(ctx)
            near = difflib.get_close_matches(verb, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"take one of {', '.join(known)}"
            ctx.fail(f"there is no verb {verb!r}; {remedy}")
        return super().resolve_command(ctx, args)


class _Output(io.FileIO):
    """Standard output whose reader may close the pipe early, as ``head`` does. Later output is dropped."""

    dropping = False

    def write(self, data: Buffer) -> int:
        if not self.dropping:
            try:
                return super().write(data) or 0
            except BrokenPipeError:
                self.dropping = True
        return memoryview(data).nbytes


@contextlib.contextmanager
def keep_going_without_reader() -> Iterator[None]:
    """Let a verb finish with its own exit code, even if the reader of its output closes the pipe early."""
    out = sys.stdout
    # A test or an embedding program may have replaced standard output.
    if out is not sys.__stdout__ or not isinstance(out, io.TextIOWrapper):
        yield
        return
    out.flush()
    raw = _Output(out.fileno(), "w", closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), out.encoding, out.errors, line_buffering=out.line_buffering)
    try:
        yield
    finally:
        changed, sys.stdout = sys.stdout, out
        with contextlib.suppress(OSError):
            changed.flush()
        # A failed write was reported above. Without this, detach() would try to write the rest and fail again.
        raw.dropping = True
        changed.detach()


def reader_is_gone() -> bool:
    """Whether the reader of standard output has closed the pipe, so that more output would be lost."""
    buffer = getattr(sys.stdout, "buffer", None)
    return bool(getattr(getattr(buffer, "raw", None), "dropping", False))


def standard_input() -> BinaryIO:
    """Standard input as bytes; ``UsageError`` if it was closed before kfuzz started (`<&-`)."""
    # sys.stdin is None if it was closed; its type does not say so. main() refuses a closed standard output.
    stdin: TextIO | None = sys.stdin
    if stdin is None:
        raise UsageError("standard input is closed; kfuzz needs it open")
    return stdin.buffer


def open_buffer(name: str) -> bytes | mmap.mmap:
    """The bytes of a file. ``-`` means standard input."""
    return standard_input().read() if name == "-" else map_bytes(name)


class LocalPath(click.ParamType[Path]):
    """A local path. ``file:///data`` becomes ``/data``; ``s3a://…`` is refused."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        return local_path(value)


class Word(click.ParamType[Any]):
    """A value that a function reads from text."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


def connection_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of a verb that connects to a broker: encryption, and who logs in."""
    for option in (
        click.option("--password", envvar="KFUZZ_PASSWORD", hidden=True, default=""),
        click.option(
            "--allow-plain",
            "plain_hosts",
            multiple=True,
            metavar="HOST",
            help="Send the password to this host even without --tls; may be repeated.",
        ),
        click.option("--user", help="Log in by SASL/PLAIN; the password is taken from KFUZZ_PASSWORD."),
        click.option("--tls-ca", type=LocalPath(), help="A file of certificates to trust, instead of the system's."),
        click.option("--tls", is_flag=True, help="Encrypt, and check the broker's certificate."),
    ):
        command = option(command)
    return command
