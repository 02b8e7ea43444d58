"""The entry points behind ``spark_jobs/``. They parse arguments, run the job, print its result, exit with 0, 1 or 2."""

from __future__ import annotations

import argparse
import contextlib
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kfuzz.corpora import summary
from kfuzz.corpora.generation import claimed
from kfuzz.corpora.manifest import Row
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.targets import Target
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import load, parse_size
from kfuzz.display import progress
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["generate_main", "verify_main"]


def generate_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/generate_corpus.py``; returns the exit code."""
    parser = _parser(
        "Generate a corpus of Kafka log segments on Spark.",
        "--workload spark_jobs/workloads/demo.toml --out out/corpus --size 64MiB",
    )
    parser.add_argument("--workload", type=local_path, required=True, help="a workload in TOML, see docs/corpora.md")
    parser.add_argument("--size", help='uncompressed size, such as "64MiB"; replaces the workload\'s')
    parser.add_argument("--overwrite", action="store_true", help="first remove another workload's corpus from --out")
    parser.add_argument("--break-lock", action="store_true", help="take the corpus from another driver that is dead")
    parser.add_argument(
        "--verify", action="store_true", help="read the corpus back and check it; exit 1 if it is wrong"
    )
    _common(parser)
    return _run(parser, arguments, _generate)


def verify_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/verify_corpus.py``; returns the exit code."""
    parser = _parser("Verify a corpus of Kafka log segments on Spark; exit 1 if anything is wrong.", "--out out/corpus")
    _common(parser)
    return _run(parser, arguments, _verify)


def _parser(description: str, example: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = (
        f"example:\n  python spark_jobs/{parser.prog} {example}\n"
        f"  spark-submit --master spark://host:7077 spark_jobs/{parser.prog} {example}"
    )
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, help="the corpus: a directory shared by all executors, or a URI")
    parser.add_argument("--tasks", type=int, help="number of Spark tasks; changes no byte (default: about 1 GiB each)")
    parser.add_argument("--master", help="Spark master (default: that of spark-submit, otherwise local[*])")


def _run(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, job: Callable[[argparse.Namespace], int]
) -> int:
    interrupted = threading.Event()

    def interrupt(number: int, frame: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    # If the parent process ignores SIGINT (a shell's background job), another handler is set here. Keep it.
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    # py4j logs the traceback of an interrupted call. Every error also arrives as an exception, so nothing is lost.
    logging.disable()
    try:
        options = parser.parse_args(arguments)
        if options.tasks is not None and not 1 <= options.tasks <= 1_000_000:
            raise UsageError(f"--tasks is {options.tasks}; give a whole number from 1 to 1000000")
        return job(options)
    except (Exception, KeyboardInterrupt) as error:
        # After an interrupt, Spark's own calls fail in many ways. Report only the interrupt.
        if interrupted.is_set() or isinstance(error, KeyboardInterrupt):
            print(f"{parser.prog}: interrupted", file=sys.stderr)
            return 130
        if isinstance(error, KfuzzError):
            told = str(error)
        elif isinstance(error, ModuleNotFoundError):
            told = f"{error.name} is not installed; run `pip install 'kfuzz[spark]'`"
        elif isinstance(error, OSError):
            told = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
        else:
            raise
        print(f"{parser.prog}: {told}", file=sys.stderr)
        return 2
    finally:
        logging.disable(logging.NOTSET)
        signal.signal(signal.SIGINT, before)


def _generate(options: argparse.Namespace) -> int:
    size = None
    if options.size is not None:
        size = parse_size(options.size)
        if not size:
            raise UsageError(f'--size is {options.size!r}; give a size such as "64MiB"')
    workload = load(options.workload).resized(size)
    # Starting a session takes seconds, so refuse first what cannot be planned or written.
    options.out = Target.of(options.out)
    workload = resolve(workload, options.out, name=str(options.workload))
    plan = Plan(workload, str(options.workload))
    claim = claimed(options.out, plan, overwrite=options.overwrite, break_lock=options.break_lock)
    # The lock ends after the session, because workers may outlive a failed job, but not its session.
    with claim as lock, _session(options, "kfuzz generate corpus") as spark:
        from kfuzz.spark.generation import generate
        from kfuzz.spark.sessions import default_tasks

        start = time.monotonic()
        tasks = options.tasks or default_tasks(spark, workload.size, len(plan))
        with progress("generating, tasks", tasks) as set_done:
            rows = generate(
                spark,
                workload,
                options.out,
                tasks=tasks,
                overwrite=options.overwrite,
                lock=lock,
                name=str(options.workload),
                set_done=set_done,
            )
        print(*summary.generated(options.out, rows, time.monotonic() - start), sep="\n", flush=True)
        return _check(spark, options, rows) if options.verify else 0


def _verify(options: argparse.Namespace) -> int:
    # Starting a session takes seconds, so first refuse a directory that is not a corpus.
    rows = Corpus.open(options.out).rows
    with _session(options, "kfuzz verify corpus") as spark:
        return _check(spark, options, rows)


def _check(spark: SparkSession, options: argparse.Namespace, rows: Sequence[Row]) -> int:
    from kfuzz.spark.sessions import default_tasks
    from kfuzz.spark.verification import verify

    tasks = options.tasks or default_tasks(spark, sum(row.bytes for row in rows), len(rows))
    start = time.monotonic()
    with progress("verifying, tasks", tasks) as set_done:
        corpus, problems = verify(spark, options.out, tasks=tasks, set_done=set_done)
    print(*summary.verified(corpus, problems, time.monotonic() - start), sep="\n")
    return 1 if problems else 0


@contextlib.contextmanager
def _session(options: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A Spark session for one job. It takes seconds to start, so the terminal shows progress meanwhile."""
    with contextlib.ExitStack() as stack:
        with progress("starting Spark", None):
            from kfuzz.spark.sessions import session_of_ours

            spark = stack.enter_context(session_of_ours(options.master, name))
        yield spark
