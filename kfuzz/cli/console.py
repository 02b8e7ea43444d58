"""Input and output that all verbs share: paths, standard streams, JSON. ``kfuzz.display`` shows progress."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import mmap
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click

from kfuzz.display import print_above
from kfuzz.display import progress as progress
from kfuzz.errors import UsageError
from kfuzz.files import local_path, map_bytes, require_writable, write_whole
from kfuzz.forms import nearest
from kfuzz.text import json_printable, printable

if TYPE_CHECKING:
    from typing_extensions import Buffer

# How many lines are printed between two looks at whether someone still reads them.
LINES_BETWEEN = 64
# How a line of JSON begins.
JSON_STARTS = tuple('{}[]"')
# How `repr` shows a byte of an argument that is not UTF-8, as 0xff in '\udcff'.
_BYTE_IN_REPR = re.compile(r"(?<!\\)\\udc(?=[89a-f][0-9a-f])")


def say(*sentences: object, err: bool = False) -> None:
    """Print each on a line of its own, to standard error with ``err``. They are harmless on a terminal."""
    for sentence in sentences:
        line = printable(str(sentence))
        if err:
            line = fitted(line, terminal_width(sys.stderr))
        # A bar is only shown where standard error is a terminal.
        if not (err and print_above(f"{line}\n")):
            click.echo(line, err=err)


def notice(sentence: str) -> None:
    """Print a sentence about the work on standard error."""
    say(sentence, err=True)


def json_text(value: Any, *, sort_keys: bool = True) -> str:
    """``value`` as one JSON document; paths are texts. Its text is harmless on a terminal, and valid Unicode."""
    return json_printable(json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False, default=os.fspath))


def json_line(value: Any, *, sort_keys: bool = False) -> str:
    """``value`` as JSON on one line, as harmless as :func:`json_text`."""
    return json_printable(json.dumps(value, sort_keys=sort_keys, ensure_ascii=False))


def echo_json(value: Any) -> None:
    """Print ``value`` as one JSON document with sorted keys."""
    click.echo(json_text(value))


def require_reports(json_file: str | None, *files: str | Path | None, source: str | None = None) -> None:
    """``UsageError`` if one of these files cannot be written, two are one, or one is the ``source`` of the run.

    ``-`` is standard output, for JSON.
    """
    named = [str(file) for file in files if file is not None]
    if "-" in named:
        raise UsageError("only JSON is printed; name a file in place of -")
    if json_file is not None and json_file != "-":
        named.append(json_file)
    places = [require_writable(file).resolve() for file in named]
    for place in places:
        if source is not None and place == Path(source).resolve():
            raise UsageError(f"{place.name} is only read; give the report another name")
        if places.count(place) > 1 and not place.is_char_device():
            raise UsageError(f"{place.name} is named twice; give each report a file of its own")


def write_json(file: str, value: Any) -> None:
    """Write ``value`` as one JSON document to the file, or print it if the name is ``-``."""
    if file == "-":
        echo_json(value)
    else:
        write_whole(file, json_text(value, sort_keys=False) + "\n")


def page(lines: Iterator[str]) -> None:
    """Print ``lines``; through a pager if standard output is a terminal that has not as many lines."""
    head: list[str] = []
    if sys.stdout.isatty():
        rows = shutil.get_terminal_size().lines - 1
        lines = (one for line in lines for one in fitted(line, terminal_width()).split("\n"))
        for line in lines:
            head.append(line)
            if len(head) > rows:
                # click ends the text with a line break.
                rest = (f"\n{one}" for one in itertools.chain(head[1:], lines))
                click.echo_via_pager(itertools.chain(head[:1], rest))
                return
    write_lines(itertools.chain(head, lines))


def terminal_width(stream: TextIO | None = None) -> int | None:
    """The columns of the terminal that gets ``stream``, by default standard output; None if it goes elsewhere."""
    stream = sys.stdout if stream is None else stream
    return shutil.get_terminal_size().columns if stream.isatty() else None


def fitted(line: str, width: int | None) -> str:
    """``line`` in lines of at most ``width`` columns, below its last column. JSON and escape sequences stay whole."""
    if width is None or len(line) <= width or "\x1b" in line or line.lstrip()[:1] in JSON_STARTS:
        return line
    column = min(line.rstrip().rfind("  ") + 2, width // 2)
    wrapper = textwrap.TextWrapper(width, subsequent_indent=" " * column, break_on_hyphens=False)
    wrapper.replace_whitespace = wrapper.expand_tabs = False
    return wrapper.fill(line)


def write_lines(lines: Iterable[str]) -> None:
    """Print ``lines`` until the reader of standard output is gone. ``click.echo`` would flush after each of them."""
    out = sys.stdout
    for number, line in enumerate(lines):
        out.write(f"{line}\n")
        if number % LINES_BETWEEN == 0 and reader_is_gone():
            break
    out.flush()


def complain(sentence: object) -> None:
    """Print what is wrong on standard error, harmless on a terminal."""
    sentence = _BYTE_IN_REPR.sub(r"\\x", str(sentence))
    say(f"kfuzz: {sentence}", err=True)


class Complaints:
    """Says on standard error what is wrong with the files that a verb reads, and counts it."""

    count = 0

    def say(self, sentence: str) -> None:
        """Print a sentence, which counts."""
        self.count += 1
        complain(sentence)

    def skip(self, path: Path, what: str) -> None:
        """Say that a file is skipped, and what it is."""
        self.say(f"{path} is skipped: it is {what}")


class Group(click.Group):
    """A group of verbs. The error for a mistyped verb names the nearest known one, and help has whole sentences."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        verbs = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.get_short_help_str(1000)) for name, verb in verbs.items() if verb])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        verb = args[0]
        if self.get_command(ctx, verb) is None and not verb.startswith("-"):
            known = self.list_commands(ctx)
            remedy = nearest(verb, known) or f"take one of {', '.join(known)}"
            ctx.fail(f"there is no verb {verb!r}; {remedy}")
        return super().resolve_command(ctx, args)


class _Output(io.FileIO):
    """A standard stream that drops what it cannot write because of ``forgiven``, and everything after that."""

    dropping = False
    forgiven: type[OSError] = BrokenPipeError

    def write(self, data: Buffer) -> int:
        if not self.dropping:
            try:
                return super().write(data) or 0
            except self.forgiven:
                self.dropping = True
        return memoryview(data).nbytes


class _Terminal(io.TextIOWrapper):
    """Standard output that is a terminal: no line is wider."""

    def write(self, text: str, /) -> int:
        width = terminal_width()
        lines = "\n".join(fitted(line, width) for line in text.split("\n"))
        if not (lines.endswith("\n") and print_above(lines)):
            super().write(lines)
        return len(text)


@contextlib.contextmanager
def keep_going_without_reader() -> Iterator[None]:
    """Let a verb finish with its own exit code, even if the reader of its output closes the pipe early, as ``head``
    does, or if standard error cannot be written for any reason: nothing else could say so.
    """
    with _forgiving("stdout", BrokenPipeError), _forgiving("stderr", OSError):
        yield


@contextlib.contextmanager
def _forgiving(name: str, forgiven: type[OSError]) -> Iterator[None]:
    out = getattr(sys, name)
    # A test or an embedding program may have replaced the stream.
    if out is not getattr(sys, f"__{name}__") or not isinstance(out, io.TextIOWrapper):
        yield
        return
    out.flush()
    raw = _Output(out.fileno(), "w", closefd=False)
    raw.forgiven = forgiven
    kind = _Terminal if name == "stdout" and out.isatty() else io.TextIOWrapper
    # With `python -u`, the old stream passes on each text at once.
    by_line = out.line_buffering or out.write_through
    made = kind(io.BufferedWriter(raw), out.encoding, out.errors, line_buffering=by_line)
    setattr(sys, name, made)
    try:
        yield
    finally:
        setattr(sys, name, out)
        with contextlib.suppress(OSError):
            made.flush()
        # A failed write was reported above. Without this, detach() would try to write the rest and fail again.
        raw.dropping = True
        made.detach()


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
    remedy = "name a file, or - for standard input"
    return standard_input().read() if name == "-" else map_bytes(name, remedy=remedy)


class Place(click.ParamType[Any]):
    """A value that a function reads from text. Errors about a place are clear without the option's name."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self.parse(value) if isinstance(value, str) else value


class Word(Place):
    """A value that a function reads from text. An error names the option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except UsageError as error:
            self.fail(str(error), param, ctx)


# A local path: `file:///data` becomes `/data`, and `s3a://…` is refused.
PATH = Place("path", local_path)
