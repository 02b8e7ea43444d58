"""The entry points of ``spark_jobs/``. They parse arguments, run the job, print its result, exit with 0, 1 or 2."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kfuzz.conformance.differential.sharing import WHAT, Shared
from kfuzz.conformance.judge.corpus import report_lines
from kfuzz.conformance.judge.harm import harm_named
from kfuzz.conformance.protocol.testees import all_testees, select
from kfuzz.conformance.report import differences
from kfuzz.corpora import summary
from kfuzz.corpora.generation import claimed, planned
from kfuzz.corpora.manifest import Manifest
from kfuzz.corpora.prediction import TASKS_MAX
from kfuzz.corpora.verification import Corpus
from kfuzz.corpora.workload import load
from kfuzz.display import progress
from kfuzz.errors import KfuzzError, UsageError
from kfuzz.files import local_path, require_writable
from kfuzz.fuzz.building import SANITIZERS
from kfuzz.fuzz.campaign import SECONDS_MAX, SEED_MAX
from kfuzz.fuzz.targets import find
from kfuzz.kafka import LATEST, ROLES
from kfuzz.spark.progress import Job, Watch, job_progress
from kfuzz.storage import Target
from kfuzz.text import printable
from kfuzz.units import counted, parse_duration, parse_size

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kfuzz.replay import Settings


CAUSES_SHOWN: Final = 20
# The options of a replay that are settings as they are.
SETTINGS: Final = ("connections", "in_flight", "records", "loop", "convert", "create", "transactional_id")


def generate_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/generate_corpus.py``; returns the exit code."""
    parser = _parser(
        "Generate a corpus of Kafka log segments on Spark.",
        "--workload spark_jobs/workloads/demo.toml --out out/corpus --size 64MiB",
    )
    parser.add_argument("--workload", type=local_path, required=True, help="a workload in TOML, see docs/corpora.md")
    parser.add_argument("--size", help='uncompressed size, such as "64MiB"; replaces the workload\'s')
    parser.add_argument("--overwrite", action="store_true", help="first remove the corpus in --out, finished or not")
    parser.add_argument(
        "--resume",
        nargs="?",
        choices=["sizes", "verify"],
        const="sizes",
        default="no",
        help="continue an unfinished corpus: keep segments of the right size; with =verify, read them too",
    )
    parser.add_argument("--break-lock", action="store_true", help="take the corpus from another driver that is dead")
    parser.add_argument(
        "--verify", action="store_true", help="read the corpus back and check it; exit 1 if it is wrong"
    )
    _common(parser)
    return _run(parser, arguments, _generate)


def verify_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/verify_corpus.py``; returns the exit code."""
    parser = _parser("Verify a corpus of Kafka log segments on Spark; exit 1 if anything is wrong.", "--out out/corpus")
    parser.add_argument(
        "--statistics", action="store_true", help="compare distributions with the workload too (on the driver)"
    )
    _common(parser)
    return _run(parser, arguments, _verify)


def replay_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/replay_corpus.py``; returns the exit code."""
    parser = _parser(
        "Send a corpus, any Kafka log directory, or a workload to a broker; exit 1 if anything was not sent.",
        "--log out/corpus --bootstrap 127.0.0.1:9092 --create --duration 5m",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--log", help="a directory shared by all executors, or a URI")
    what.add_argument("--workload", type=local_path, help="a workload (TOML), sent without end as by `kfuzz load`")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT", help="a broker that executors can reach")
    parser.add_argument("--rate", help="of all tasks together: records per second (50000), or bytes (20MB/s)")
    parser.add_argument("--speed", help="follow the timestamps of the log: 1x, 10x")
    parser.add_argument("--duration", help="end each task after this time: 90s, 5m")
    parser.add_argument("--records", type=int, help="send at most so many records")
    parser.add_argument("--topics", default="*", metavar="GLOB", help="only these topics of the log")
    parser.add_argument("--topic", action="append", default=[], metavar="A=B", help="send topic A to topic B")
    parser.add_argument("--create", action="store_true", help="create missing topics, with retention.ms=-1")
    parser.add_argument("--loop", action="store_true", help="send the log again and again, until a bound ends it")
    parser.add_argument("--convert", action="store_true", help="rewrite batches that a broker refuses")
    parser.add_argument("--connections", type=int, default=1, help="of each task to each broker (default: 1)")
    parser.add_argument("--in-flight", type=int, default=5, help="requests of a connection without an answer yet")
    parser.add_argument("--pipeline", action="store_true", help="faster; see docs/replay.md about the order")
    parser.add_argument("--acks", choices=["0", "1", "all"], default="all")
    parser.add_argument("--transactional-id", default="kfuzz-replay", help="how the transactional ids begin")
    parser.add_argument("--tls", action="store_true", help="encrypt, and check the broker's certificate")
    parser.add_argument("--tls-ca", help="a file of certificates to trust, on every executor")
    parser.add_argument("--user", help="log in by SASL/PLAIN; the password is taken from KFUZZ_PASSWORD")
    parser.add_argument(
        "--allow-plain",
        action="append",
        default=[],
        metavar="HOST",
        help="send the password to this host even without --tls; may be repeated",
    )
    _json(parser)
    _spread(parser, "number of Spark tasks (default: one for each core)")
    return _run(parser, arguments, _replay)


def conform_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/conform_corpus.py``; returns the exit code."""
    parser = _parser(
        "Let a testee read each batch of a corpus on Spark; exit 1 if it treats one wrongly.",
        "--out out/corpus --command 'python3 my_testee.py' --ship my_testee.py",
    )
    parser.add_argument("--command", help="starts the testee on an executor (default: kfuzz's own decoder)")
    parser.add_argument(
        "--ship", type=Path, action="append", default=[], help="a file that the command needs; give one --ship for each"
    )
    _json(parser)
    _common(parser)
    return _run(parser, arguments, _conform)


def differential_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/differential.py``; returns the exit code."""
    parser = _parser(
        "Give the same made-up inputs to kfuzz and to a testee on Spark; exit 1 if their answers differ.",
        f"--testee kafka-clients@{LATEST} --count 10000000",
    )
    parser.add_argument("--testee", default=f"kafka-clients@{LATEST}", help="a testee of testees/, on every executor")
    parser.add_argument("--what", choices=WHAT, default="records", help="what is asked (default: records)")
    parser.add_argument("--role", choices=ROLES, help="as whom records are read (default: consumer)")
    parser.add_argument(
        "--count", type=int, default=1_000_000, help="inputs; of messages, mutants of each version (default: 1000000)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the inputs (default: 1)")
    parser.add_argument("--out", type=local_path, default=Path("out"), help="where inputs that differ are kept")
    _json(parser)
    _spread(parser, "number of Spark tasks; changes nothing in the result (default: one for each part)")
    return _run(parser, arguments, _differential)


def campaign_main(arguments: Sequence[str] | None = None) -> int:
    """Run ``spark_jobs/fuzz_campaign.py``; returns the exit code."""
    parser = _parser(
        "Fuzz kfuzz's targets on Spark, with one corpus for all tasks; exit 1 if something was found.",
        "record-batch messages --time 1h --out s3://bucket/fuzz",
    )
    parser.add_argument("targets", nargs="+", help="targets of `kfuzz fuzz --targets`")
    parser.add_argument("--time", default="60s", help="how long each task fuzzes (default: 60s)")
    parser.add_argument("--out", required=True, help="for corpora and causes: a directory of all executors, or a URI")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first task; each has another (default: 1)")
    parser.add_argument("--sanitize", choices=SANITIZERS, default="none", help="a build in the archive (default: none)")
    parser.add_argument("--replay", action="store_true", help="do not fuzz: run the inputs that are known once")
    _json(parser)
    _spread(parser, "number of Spark tasks (default: one for each core; with --replay, it changes nothing)")
    return _run(parser, arguments, _campaign)


def _parser(description: str, example: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = (
        f"example:\n  python spark_jobs/{parser.prog} {example}\n"
        f"  spark-submit --master spark://host:7077 spark_jobs/{parser.prog} {example}"
    )
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, help="the corpus: a directory shared by all executors, or a URI")
    _spread(parser, "number of Spark tasks; changes no byte (default: about 1 GiB each)")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")


def _spread(parser: argparse.ArgumentParser, tasks: str) -> None:
    parser.add_argument("--tasks", type=int, help=tasks)
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
    if options.overwrite and options.resume != "no":
        raise UsageError("--overwrite removes what --resume would keep; give one of them")
    size = None
    if options.size is not None:
        size = parse_size(options.size)
        if not size:
            raise UsageError(f'--size is {options.size!r}; give a size such as "64MiB"')
    workload = load(options.workload).resized(size)
    # Starting a session takes seconds, so refuse first what cannot be planned or written.
    options.out = Target.of(options.out)
    plan = planned(options.out, workload, str(options.workload))
    kept = {"overwrite": options.overwrite, "resume": options.resume}
    claim = claimed(options.out, plan, **kept, break_lock=options.break_lock)
    # The lock ends after the session, because workers may outlive a failed job, but not its session.
    with claim as lock, _session(options, "kfuzz generate corpus") as spark:
        from kfuzz.spark.generation import generate

        start = time.monotonic()
        with _watched(spark, options, "generating", len(plan), workload.size) as (tasks, watch):
            rows = generate(
                spark,
                workload,
                options.out,
                tasks=tasks,
                **kept,
                lock=lock,
                name=str(options.workload),
                set_done=watch.set_done,
                set_failed=watch.set_failed,
            )
        print(*summary.generated(options.out, rows, time.monotonic() - start), sep="\n", flush=True)
        return _check(spark, options, rows) if options.verify else 0


def _verify(options: argparse.Namespace) -> int:
    # Starting a session takes seconds, so first refuse a directory that is not a corpus.
    rows = Corpus.open(options.out).rows
    with _session(options, "kfuzz verify corpus") as spark:
        return _check(spark, options, rows)


def _conform(options: argparse.Namespace) -> int:
    try:
        argv = None if options.command is None else shlex.split(options.command)
    except ValueError as error:
        raise UsageError(f"--command {options.command!r}: {error}; correct the quotes") from None
    if argv == []:
        raise UsageError("--command is empty; give the command that starts the testee")
    # Starting a session takes seconds.
    if missing := [file for file in options.ship if not file.is_file()]:
        raise UsageError(f"{missing[0]} is not a file; name the files of the testee")
    rows = Corpus.open(options.out).rows
    with _session(options, "kfuzz conform corpus") as spark:
        from kfuzz.spark.conformance import conform

        with _watched(spark, options, "asking", len(rows), rows.total("bytes")) as (tasks, watch):
            results = conform(spark, options.out, argv, ship=options.ship, tasks=tasks, set_done=watch.set_done)
    if options.json:
        print(json.dumps([result.to_json() for result in results], indent=2))
    else:
        print(*report_lines(results), sep="\n")
    return 1 if any(result.deviations for result in results) else 0


def _differential(options: argparse.Namespace) -> int:
    if options.count < 1 or options.seed < 0:
        raise UsageError("--count must be 1 or more, and --seed 0 or more")
    if options.role and options.what != "records":
        raise UsageError(f"--role is about records; leave it out with --what {options.what}")
    [testee, *more] = select(all_testees(), [options.testee])
    if more:
        labels = ", ".join(one.label for one in (testee, *more))
        raise UsageError(f"--testee {options.testee} names {labels}; name one of them")
    if reason := testee.missing():
        raise UsageError(f"{reason}; install that, or name another with --testee")
    out = require_writable(options.out, directory=True)
    testee.make_ready()
    shared = Shared(options.what, options.seed, options.count, options.role or "consumer")
    tasks = min(options.tasks or TASKS_MAX, shared.parts(testee))
    with _session(options, "kfuzz differential") as spark:
        from kfuzz.spark.differing import differ_shared

        with progress("differential, tasks", tasks) as set_done:
            found = differ_shared(spark, shared, testee, tasks=tasks, set_done=set_done)
    found.require_support()
    files = differences.keep(found, out / "differential", seed=options.seed)
    if options.json:
        print(json.dumps(differences.to_json(found, seed=options.seed), indent=2, sort_keys=True))
    else:
        print(*differences.sentences(found, files, seed=options.seed, shown=CAUSES_SHOWN), sep="\n")
    return 1 if found.failed else 0


def _campaign(options: argparse.Namespace) -> int:
    targets = [find(name).name for name in dict.fromkeys(options.targets)]
    seconds = math.ceil(parse_duration(options.time))
    if seconds > SECONDS_MAX or not 1 <= options.seed <= SEED_MAX:
        raise UsageError(f"--time must be at most {SECONDS_MAX}s, and --seed a whole number from 1 to {SEED_MAX}")
    place = Target.of(options.out)
    place.check_writable()
    with _session(options, "kfuzz fuzz") as spark:
        from kfuzz.spark import campaigns
        from kfuzz.spark.sessions import cores

        tasks = options.tasks or max(cores(spark), 1 if options.replay else len(targets))
        how: dict[str, Any] = {"sanitizer": options.sanitize, "tasks": tasks}
        with progress("fuzzing, tasks", tasks, quiet=options.json) as set_done:
            if options.replay:
                count, causes = campaigns.replay_shared(spark, targets, place, **how, set_done=set_done)
                results: list[dict[str, Any]] = []
            else:
                results, causes = campaigns.fuzz_shared(
                    spark, targets, seconds, place, seed=options.seed, **how, set_done=set_done
                )
                count = sum(one["executions"] for one in results)
    if options.json:
        found = {target: [cause.to_json() for cause in some] for target, some in causes.items()}
        print(json.dumps({"inputs": count, "tasks": results, "causes": found}, indent=2, sort_keys=True))
    else:
        for reason in sorted({one["no_native_coverage"] for one in results} - {None}):
            print(f"no native coverage: {printable(reason)}; make the archive with --fuzz {options.sanitize}")
        print(f"{count:,} inputs")
        for target, some in causes.items():
            print(f"{target}: {counted(len(some), 'cause')}")
            for cause in some[:CAUSES_SHOWN]:
                item, harm = cause.smallest, harm_named(cause.harm).title
                print(printable(f"  {cause.id} {harm}: {item.error} ({item.at}), {counted(cause.count, 'input')}"))
    return 1 if any(causes.values()) else 0


def _check(spark: SparkSession, options: argparse.Namespace, rows: Manifest) -> int:
    from kfuzz.corpora.statistics import check_statistics
    from kfuzz.spark.verification import verify

    start = time.monotonic()
    with _watched(spark, options, "verifying", len(rows), rows.total("bytes")) as (tasks, watch):
        corpus, problems = verify(spark, options.out, tasks=tasks, set_done=watch.set_done, set_failed=watch.set_failed)
    # The sample has a bounded size for each topic, so the driver reads it.
    if getattr(options, "statistics", False):
        checks, wrong = check_statistics(corpus)
        problems = [*problems, *wrong]
        print(summary.compared(corpus, len(checks)))
    print(*summary.verified(corpus, problems, time.monotonic() - start), sep="\n")
    return 1 if problems else 0


def _replay(options: argparse.Namespace) -> int:
    from kfuzz.places import opened
    from kfuzz.replay import Load, find_parts, load_shares, prepare_topics

    settings = _settings(options)
    # Starting a session takes seconds, so refuse first what cannot be read or sent.
    if options.workload:
        settings = replace(settings, restamp=True, retries=120, reconnects=10_000)
        asked = Load(load(options.workload), str(options.workload), options.topics)
        most = len(load_shares(asked, settings, sys.maxsize))
    else:
        with opened(options.log) as path:
            parts = find_parts(path, topics=options.topics)
            prepare_topics(parts, settings)
            most = len(parts)
    with _session(options, "kfuzz replay") as spark:
        from kfuzz.spark import replaying
        from kfuzz.spark.sessions import cores

        tasks = min(options.tasks or cores(spark), most)
        with progress("sending, tasks", tasks, quiet=options.json) as set_done:
            how: dict[str, Any] = {"tasks": tasks, "set_done": set_done}
            if options.workload:
                report = replaying.load(spark, asked, settings, **how)
            else:
                report = replaying.replay(spark, options.log, settings, topics=options.topics, **how)
    if options.json:
        print(json.dumps(report.to_json(), indent=2, sort_keys=True))
    else:
        print(*map(printable, report.lines(f"{options.workload or options.log} to {settings.bootstrap}")), sep="\n")
    return 0 if report.is_clean else 1


def _settings(options: argparse.Namespace) -> Settings:
    """The settings that the words of the command line name."""
    from kfuzz import replay

    password = os.environ.get("KFUZZ_PASSWORD", "")
    tls = options.tls or options.tls_ca is not None
    bootstrap, *others = replay.Address.parse_all(options.bootstrap)
    return replay.Settings(
        bootstrap,
        others=tuple(others),
        security=replay.Security(tls, options.tls_ca, options.user, password, tuple(options.allow_plain)),
        pipelined=options.pipeline,
        acks=replay.ACKS[options.acks],
        rate=replay.parse_rate(options.rate) if options.rate else replay.Rate(),
        speed=replay.parse_speed(options.speed) if options.speed else None,
        duration_s=replay.parse_duration(options.duration) if options.duration else None,
        names=dict(map(replay.parse_name, options.topic)),
        **{name: getattr(options, name) for name in SETTINGS},
    )


@contextlib.contextmanager
def _watched(
    spark: SparkSession, options: argparse.Namespace, verb: str, segments: int, size: int
) -> Iterator[tuple[int, Watch]]:
    """The number of tasks for these segments of ``size`` bytes, and their progress on the terminal."""
    from kfuzz.spark.sessions import default_tasks

    tasks = options.tasks or default_tasks(spark, size, segments)
    with job_progress(Job(verb, tasks, segments, size)) as watch:
        yield tasks, watch


@contextlib.contextmanager
def _session(options: argparse.Namespace, name: str) -> Iterator[SparkSession]:
    """A Spark session for one job. It takes seconds to start, so the terminal shows progress meanwhile."""
    with contextlib.ExitStack() as stack:
        with progress("starting Spark", None):
            from kfuzz.spark.sessions import session_of_ours

            spark = stack.enter_context(session_of_ours(options.master, name))
        yield spark
