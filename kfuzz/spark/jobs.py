"""What the spark-submit entry points in ``spark_jobs/`` do: parse, run, print one line, exit 0, 1 or 2."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kfuzz.corpora.manifest import corpus_fingerprint
from kfuzz.corpora.plan import Plan
from kfuzz.corpora.verify import Corpus
from kfuzz.corpora.workload import load, parse_size
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import require_writable

__all__ = ["generate_main", "verify_main"]

PROBLEMS_SHOWN = 50
PROGRESS_INTERVAL_S = 5.0


def generate_main(arguments: Sequence[str] | None = None) -> int:
    """``spark_jobs/generate_corpus.py``."""
    parser = _parser(
        "Generate a corpus of Kafka log segments on Spark.",
        "--workload spark_jobs/workloads/demo.toml --out out/corpus --size 64MiB",
    )
    parser.add_argument("--workload", type=Path, required=True, help="a workload in TOML, see docs/corpora.md")
    parser.add_argument("--size", help='uncompressed size instead of the workload\'s, such as "64MiB"')
    parser.add_argument("--overwrite", action="store_true", help="remove another workload's corpus from --out first")
    _common(parser)
    return _run(parser, arguments, _generate)


def verify_main(arguments: Sequence[str] | None = None) -> int:
    """``spark_jobs/verify_corpus.py``."""
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
    parser.add_argument("--out", type=Path, required=True, help="the corpus: a directory that all executors see")
    parser.add_argument("--tasks", type=int, help="how many tasks share the work (changes no byte; about 1 GiB each)")
    parser.add_argument("--master", help="default: what spark-submit says, else local[*]")


def _run(
    parser: argparse.ArgumentParser, arguments: Sequence[str] | None, job: Callable[[argparse.Namespace], int]
) -> int:
    options = parser.parse_args(arguments)
    try:
        if options.tasks is not None and not 1 <= options.tasks <= 1_000_000:
            raise UsageError(f"--tasks is {options.tasks}; give a whole number from 1 to 1000000")
        return job(options)
    except KfuzzError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"{parser.prog}: {error.name} is not installed; `pip install 'kfuzz[spark]'` brings it", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"{parser.prog}: {where}{error.strerror or error}", file=sys.stderr)
        return 2


def _generate(options: argparse.Namespace) -> int:
    from kfuzz.spark.generate import generate
    from kfuzz.spark.session import default_tasks, session_of_ours

    size = None
    if options.size is not None:
        size = parse_size(options.size)
        if not size:
            raise UsageError(f'--size is {options.size!r}; give a size such as "64MiB"')
    workload = load(options.workload).resized(size)
    # Before the seconds that a session takes: what cannot be planned or written is refused at once.
    require_writable(options.out, directory=True)
    segments = len(Plan(workload, str(options.workload)))
    with session_of_ours(options.master, "kfuzz generate corpus") as spark:
        start = time.monotonic()
        tasks = options.tasks or default_tasks(spark, workload.size, segments)
        rows = generate(
            spark,
            workload,
            options.out,
            tasks=tasks,
            overwrite=options.overwrite,
            name=str(options.workload),
            set_done=_progress(tasks),
        )
        seconds = time.monotonic() - start
    written = sum(row.bytes for row in rows)
    print(
        f"{options.out}: {len(rows)} segments, {sum(row.records for row in rows)} records, "
        f"{_rate(written, seconds)}; fingerprint {corpus_fingerprint(rows)}"
    )
    return 0


def _verify(options: argparse.Namespace) -> int:
    from kfuzz.spark.session import default_tasks, session_of_ours
    from kfuzz.spark.verify import verify

    # Before the seconds that a session takes: what is no corpus is refused at once.
    rows = Corpus.open(options.out).rows
    with session_of_ours(options.master, "kfuzz verify corpus") as spark:
        tasks = options.tasks or default_tasks(spark, sum(row.bytes for row in rows), len(rows))
        start = time.monotonic()
        corpus, problems = verify(spark, options.out, tasks=tasks, set_done=_progress(tasks))
        seconds = time.monotonic() - start
    for problem in problems[:PROBLEMS_SHOWN]:
        print(problem)
    if len(problems) > PROBLEMS_SHOWN:
        print(f"… and {len(problems) - PROBLEMS_SHOWN} more")
    read = sum(row.bytes for row in corpus.rows)
    verdict = f"{len(problems)} problems" if problems else "no problem"
    print(
        f"{options.out}: {verdict} in {len(corpus.rows)} segments, {sum(row.batches for row in corpus.rows)} batches, "
        f"{sum(row.records for row in corpus.rows)} records, {_rate(read, seconds)}"
    )
    return 1 if problems else 0


def _rate(size: int, seconds: float) -> str:
    return f"{size / 1e6:.0f} MB in {seconds:.1f} s ({size / 1e6 / max(seconds, 1e-9):.0f} MB/s)"


def _progress(tasks: int) -> Callable[[int], None]:
    """A line on standard error, at most every five seconds."""
    last_s = time.monotonic()

    def set_done(done: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= PROGRESS_INTERVAL_S:
            last_s = time.monotonic()
            print(f"tasks: {done} of {tasks}", file=sys.stderr)

    return set_done
