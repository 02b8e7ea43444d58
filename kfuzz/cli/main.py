"""The ``kfuzz`` command: loads only the module of the verb, and turns each error into one sentence."""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

import click

from kfuzz import __version__
from kfuzz.cli.console import Group, complain, keep_going_without_reader
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.mapped import cut_file, forget_files

# Python searches for unreachable cycles whenever this many more objects were created than freed. Its default of 700 is
# too low here: kfuzz makes hundreds of thousands of records and JSON objects, which form no cycles. With the default,
# this search takes a fifth of the time of `kfuzz conform`; with 100,000, it still takes a twentieth.
NEW_OBJECTS_MAX = 1_000_000

# The extra that has a package, for modules that import it without a sentence of their own.
EXTRAS = {"atheris": "fuzz", "numpy": "corpus", "packaging": "corpus", "pyarrow": "corpus", "pyspark": "spark"}

# Each verb is a module of this package. The summaries are here so that `kfuzz --help` imports nothing.
VERBS = {
    "show": "List the batches of a file; explain every byte of a batch or a vector.",
    "browse": "Browse batches, fields and bytes side by side in the terminal.",
    "cat": "Print the records of a segment or a log directory as JSON or a table.",
    "check": "Show findings in files of record batches; exit 1 if one is fatal.",
    "state": "Show the transactions, producers, groups and metadata of a log directory.",
    "salvage": "Copy the sound batches of a damaged log, with new indexes.",
    "diff": "Compare two logs: replicas, a backup and its source.",
    "redact": "Copy a segment or a capture without its contents, for a public report.",
    "explain": "Explain a finding, a requirement, a flag or an error code.",
    "vectors": "List, build, lint and copy the golden vectors.",
    "messages": "Show, compare, decode and encode Kafka's messages.",
    "conform": "Judge implementations against the vectors.",
    "differential": "Give random inputs to kfuzz and a testee, and compare.",
    "report": "Show, convert and compare the results of `conform`.",
    "serve": "Run a broker from which any client can fetch the vectors.",
    "proxy": "Stand between clients and brokers: watch, change and record what they say.",
    "play": "Play a recorded conversation to a fresh broker or a fresh client, and compare.",
    "probe": "Show the vectors to a running broker, and compare it with Kafka.",
    "testee": "Run kfuzz's own decoder as a testee, or start one for yours.",
    "fuzz": "Run fuzz targets under atheris.",
    "keep": "Make a vector and a regression of what a campaign found.",
    "export": "Write seeds, dictionary and mutator for other fuzzers.",
    "kafka": "Start and stop a broker of Apache Kafka on this machine.",
    "corpus": "Generate and verify corpora of log segments.",
    "load": "Send a workload to a broker at a steady rate, and measure.",
    "demo": "A tour of everything, in a few minutes.",
}


class LazyGroup(Group):
    """A group that imports a verb only when it is used: `kfuzz show` must not load Spark or atheris."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"kfuzz.cli.{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([*VERBS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kfuzz")
def cli() -> None:
    """Vectors, referee, fuzzer and corpus generator for Apache Kafka's wire format.

    \b
    Examples:
      kfuzz show records/v2/header/minimal
      kfuzz check 00000000000000000000.log
      kfuzz conform --testee aiokafka
    """


@contextlib.contextmanager
def _terminable() -> Iterator[list[int]]:
    """Make SIGTERM act like Ctrl-C, so that the verb stops its child processes. Yields the signals received.

    A shell's background jobs ignore SIGINT, so people stop them with SIGTERM.
    """
    came: list[int] = []

    def terminate(number: int, frame: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield came
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield came
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def main(args: list[str] | None = None) -> Any:
    """Run the command line; every ``KfuzzError`` becomes one sentence on standard error and exit code 2."""
    # Without this check, some verbs would print nothing and others would fail.
    if sys.stdout is None:
        click.echo("kfuzz: standard output is closed; kfuzz needs it open", err=True)
        sys.exit(2)
    gc.set_threshold(NEW_OBJECTS_MAX)
    _accept_any_character()
    forget_files()
    with _terminable() as signals, keep_going_without_reader():
        _main(args, signals)


def _accept_any_character() -> None:
    """Print an escape for a character that the encoding of an output lacks; Python would end with a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _sentence(message: str) -> str:
    """click's sentence about a wrong option, on one line and in plain words."""
    return " ".join(message.split()).rstrip(".").replace("a valid integer range", "a whole number")


def _complain(sentence: str) -> None:
    """Print an error. A file's name may have line breaks and escape sequences, which are shown and not printed.

    Of a file that lost bytes while it was read, anything else that is said may be wrong.
    """
    complain(cut_file() or sentence)


def _main(args: list[str] | None, signals: list[int]) -> None:
    try:
        code = cli.main(args=args, prog_name="kfuzz", standalone_mode=False)
        sys.stdout.flush()
        if cut := cut_file():
            raise UsageError(cut)
        # With standalone_mode off, `ctx.exit(n)` makes cli.main() return n.
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
    except click.ClickException as error:
        asked = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "kfuzz"
        _complain(f"{_sentence(error.format_message())}; see `{asked} --help`")
    except click.exceptions.Abort as error:
        # click takes a file that ends too early for the end of a person's input.
        if isinstance(error.__cause__, EOFError):
            raise error.__cause__ from None
        click.echo(f"kfuzz: {'terminated' if signals else 'interrupted'}", err=True)
        sys.exit(128 + (signals[0] if signals else signal.SIGINT))
    except KfuzzError as error:
        _complain(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        _complain(f"this needs {package}, which is not installed; pip install 'kfuzz[{EXTRAS[package]}]'")
    except UnicodeEncodeError as error:
        # A shell passes on any bytes, but only names of files may have them.
        if not any(error.object in word for word in (sys.argv if args is None else args)):
            raise
        _complain(f"{error.object} is not UTF-8; write it as UTF-8")
    except MemoryError:
        _complain("memory ran out; give kfuzz more, or let it look at less at a time")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _complain(f"{where}{error.strerror or error}")
    sys.exit(2)


if __name__ == "__main__":
    main()
