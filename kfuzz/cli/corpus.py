"""`kfuzz corpus`: generate, verify, describe and install corpora of log segments in one process."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kfuzz.cli import options, replay
from kfuzz.cli.console import PATH, Group, Place, complain, echo_json, notice, progress, say
from kfuzz.cli.opening import log_at
from kfuzz.client.address import Access, Address, Security
from kfuzz.client.cluster import ClusterFailed, asked
from kfuzz.client.protocol import BrokerError, ConnectionLost
from kfuzz.corpora import generation, installation, joins, prediction, summary, verification
from kfuzz.corpora import workload as workloads
from kfuzz.corpora.fingerprints import of_corpus, of_partitions
from kfuzz.corpora.layout import SUCCESS
from kfuzz.corpora.manifest import corpus_fingerprint
from kfuzz.corpora.plan import Plan, offset_bytes_mean
from kfuzz.corpora.resolution import resolve
from kfuzz.corpora.workload import Workload, load
from kfuzz.errors import UsageError
from kfuzz.storage import LocalTarget, Target
from kfuzz.units import counted, date, show_size

if TYPE_CHECKING:
    from kfuzz.client.copying import Live
    from kfuzz.corpora.statistics import Check


# A directory or a URI.
TARGET = Place("path or URI", Target.of)
size_of_workload = options.size(usual="the workload's")


@click.group(cls=Group)
def command() -> None:
    """Generate and verify corpora. A corpus is a set of log directories that a broker can open.

    \b
    Examples:
      kfuzz corpus describe spark_jobs/workloads/mixed.toml
      kfuzz corpus generate spark_jobs/workloads/demo.toml --out out/corpus --size 64MiB
      kfuzz corpus verify out/corpus
      kfuzz corpus archive out/kfuzz-env.zip
      kfuzz corpus replay out/corpus --bootstrap 127.0.0.1:9092 --create
      kfuzz corpus install out/corpus --log-dir /var/lib/kafka/data

    spark_jobs/generate_corpus.py writes the same bytes in several processes.
    """


@command.command()
@click.argument("workload", type=PATH)
@options.out("the corpus: a new or empty directory, or a URI", type=TARGET, metavar="DIR|URI", required=True)
@size_of_workload
@options.overwrite
@click.option(
    "--resume",
    type=click.Choice(["sizes", "verify"]),
    is_flag=False,
    flag_value="sizes",
    help="Continue an unfinished corpus: keep segments of the right size; with =verify, read them too.",
)
@click.option("--break-lock", is_flag=True, help="Take the corpus from another driver that is dead.")
@options.jobs("segments", usual="processors + 1; 1 where only one can be written")
@options.as_json
def generate(
    workload: Path,
    out: Target,
    size: int | None,
    overwrite: bool,
    resume: Literal["sizes", "verify"] | None,
    break_lock: bool,
    jobs: int | None,
    as_json: bool,
) -> None:
    """Write the log segments that WORKLOAD (TOML) describes, with their indexes and a manifest.

    Every run of the same workload writes the same bytes. --overwrite first removes the corpus in --out, finished or
    not.

    \b
    Example:
      kfuzz corpus generate spark_jobs/workloads/demo.toml --out out/corpus --size 64MiB
    """
    if overwrite and resume:
        raise click.UsageError("--overwrite removes what --resume would keep; give one of them")
    chosen = load(workload).resized(size)
    segments = len(generation.planned(out, chosen, str(workload)))
    start = time.monotonic()
    with progress("segments", segments, quiet=as_json) as set_done:
        rows = generation.generate(
            chosen,
            out,
            overwrite=overwrite,
            resume=resume or "no",
            break_lock=break_lock,
            jobs=jobs,
            name=str(workload),
            set_done=set_done,
        )
    if as_json:
        echo_json(summary.generated_json(out, rows))
        return
    say(*summary.generated(out, rows, time.monotonic() - start))


@command.command()
@click.argument("directory", type=TARGET)
@click.option(
    "--statistics",
    "with_statistics",
    is_flag=True,
    help="Compare distributions with the workload too; the results are in _verify.json.",
)
@options.jobs("segments", usual="processors; 1 if the corpus is remote")
@options.as_json
def verify(directory: Target, with_statistics: bool, jobs: int | None, as_json: bool) -> int:
    """Read the corpus in DIRECTORY; exit 1 if anything differs from its plan or manifest.

    \b
    Examples:
      kfuzz corpus verify out/corpus
      kfuzz corpus verify out/corpus --statistics
    """
    corpus = verification.Corpus.open(directory)
    start = time.monotonic()
    with progress("segments", len(corpus.plan), quiet=as_json) as set_done:
        problems = verification.verify(directory, jobs=jobs, set_done=set_done)
    checks: list[Check] = []
    if with_statistics:
        # It needs pyarrow, which other verbs do without.
        from kfuzz.corpora.statistics import check_statistics

        with progress("topics", len(corpus.workload.topics), quiet=as_json) as set_done:
            checks, wrong = check_statistics(corpus, set_done=set_done)
        problems = [*problems, *wrong]
    if as_json:
        sums = {"segments": len(corpus.rows), "batches": corpus.rows.total("batches")}
        sums["records"] = corpus.rows.total("records")
        told = {"directory": str(directory), **sums, "problems": [asdict(problem) for problem in problems]}
        echo_json(told | ({"statistics": [asdict(check) for check in checks]} if with_statistics else {}))
    else:
        if with_statistics:
            say(summary.compared(corpus, len(checks)))
        say(*summary.verified(corpus, problems, time.monotonic() - start))
    return 1 if problems else 0


@command.command()
@click.argument("what", metavar="WORKLOAD|DIRECTORY")
@size_of_workload
@options.as_json
def describe(what: str, size: int | None, as_json: bool) -> None:
    """Show what a workload would generate, or what a corpus holds.

    For a workload, bytes on disk and core-hours are estimates. They come from small samples that are made in memory.

    \b
    Examples:
      kfuzz corpus describe spark_jobs/workloads/mixed.toml --size 1TiB
      kfuzz corpus describe out/corpus
    """
    target = Target.of(what)
    if not isinstance(target, LocalTarget) or target.root.is_dir():
        if size is not None:
            raise UsageError(f"--size is about a workload, and {what} is a corpus; leave it out")
        corpus = verification.Corpus.open(target)
        report = {**_described(corpus.plan), **_held(corpus)}
    else:
        report = _predicted(load(target.root).resized(size), str(target), quiet=as_json)
    if as_json:
        echo_json(report)
        return
    for name, value in report.items():
        if name == "estimate":
            click.echo(f"estimate: {_estimated(value)}")
        elif name not in ("topics", "partitions"):
            click.echo(f"{name.replace('_', ' ')}: {value}")
    for topic in report["topics"]:
        count, each = topic["partitions"], topic["offsets_per_partition"]
        most = "" if topic["offsets"] == count * each else "up to "
        click.echo(
            f"topic {topic['name']}: {count} partitions of {most}{each} offsets in "
            f"{topic['segments_per_partition']} segments, about {topic['bytes_per_offset']} B per offset"
        )
        first, last = (date(topic[f"{which}_timestamp"]) for which in ("first", "last"))
        click.echo(f"  timestamps from {first} to {last}")
        for line in summary.related(topic):
            click.echo(f"  {line}")


@command.command()
@click.argument("directory", metavar="DIRECTORY|URI")
@click.option("--log-dir", type=PATH, help="A directory of log.dirs of a broker that is stopped.")
@options.bootstrap("; without --log-dir, the topics are created there and no file is touched")
@options.connection
@click.option(
    "--link/--copy", help="Link the logs of full segments instead of copying them. Nothing may delete records then."
)
@click.option("--present-only", is_flag=True, help="Leave out partitions that --log-dir lacks: others hold them.")
@options.dry_run
@options.as_json
def install(
    directory: str,
    log_dir: Path | None,
    bootstrap: Address | None,
    security: Security,
    link: bool,
    present_only: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Put the corpus in DIRECTORY into the log directory of a stopped broker.

    The topics must exist there. First create them with --bootstrap, then stop the broker, install, and start it again.

    \b
    Examples:
      kfuzz corpus install out/corpus --bootstrap 127.0.0.1:9092
      kfuzz corpus install out/corpus --log-dir /var/lib/kafka/data
    """
    if (bootstrap is None) == (log_dir is None):
        raise click.UsageError("give either --bootstrap to create the topics, or --log-dir to install their records")
    corpus = installation.open_finished(click.get_current_context().with_resource(log_at(directory)))
    if log_dir is None:
        assert bootstrap
        topics = installation.topic_settings(corpus)
        existing = [] if dry_run else _create(topics, Access(bootstrap, security, replication=1, on_wait=complain))
        if as_json:
            echo_json({"topics": [asdict(topic) for topic in topics], "existing": existing, "dry_run": dry_run})
        else:
            verb = "would create" if dry_run else "created"
            say(f"{bootstrap}: {verb} {counted(len(topics) - len(existing), 'topic')}")
            say(*(f"note: topic {name} existed already, and keeps its settings" for name in existing))
        return
    with progress("partitions", len(corpus.plan.directories()), quiet=as_json or dry_run) as set_done:
        done = installation.install(
            corpus, log_dir, link=link, present_only=present_only, dry_run=dry_run, set_done=set_done
        )
    told = installation.notes(corpus, log_dir)
    if as_json:
        echo_json({"log_dir": str(log_dir), "dry_run": dry_run, **asdict(done), "notes": told})
        return
    say(*summary.installed(corpus.out, log_dir, done, dry_run=dry_run), *(f"note: {line}" for line in told))


@command.command()
@click.argument("path", metavar="[FILE|DIR]", required=False)
@options.live
@options.topics
@options.schemas
@click.option("--anonymous", is_flag=True, help="Replace the names of topics and fields, and all texts.")
@options.as_json
def learn(
    path: str | None,
    live: Live | None,
    topics: str,
    places: tuple[str, ...],
    registry: str | None,
    anonymous: bool,
    as_json: bool,
) -> None:
    """Write a workload like a log: a log directory, a partition folder, a segment, or topics of a broker.

    It has the log's keys, sizes, batches, codecs, producers, transactions, headers, times and JSON fields, in numbers.
    No text of six bytes or more is copied, except the names of topics and fields. Comments say what is not as in the
    log. Values with schemas are decoded as by kfuzz cat, and become JSON.

    \b
    Examples:
      kfuzz corpus learn /var/lib/kafka/data --topics orders > orders.toml
      kfuzz corpus learn orders-0 --anonymous > w.toml
      kfuzz corpus learn --bootstrap 127.0.0.1:9092 --topics 'orders*' > w.toml
    """
    from kfuzz.corpora import learning

    with log_at(path, live, topics=topics) as place, progress("MiB read", None, quiet=as_json) as set_done:
        learned = learning.learn(
            place,
            topics=topics,
            anonymous=anonymous,
            schemas=options.schemas_of(place, places, registry, topics=topics),
            is_decoded=bool(places or registry),
            set_done=lambda done: set_done(done >> 20),
        )
    echo_json(learned) if as_json else click.echo(learning.toml(learned), nl=False)


@command.command()
def schema() -> None:
    """Print the JSON Schema of workloads, for editors and validators.

    \b
    Example:
      kfuzz corpus schema > workload.schema.json
    """
    echo_json(workloads.schema())


@command.command()
@click.argument("out", metavar="OUT.zip|OUT.tar.gz", type=PATH)
@click.option("--add", "extra", multiple=True, metavar="PACKAGE", help="Also put this installed package in, as s3fs.")
@click.option(
    "--fuzz",
    "sanitizers",
    # As `kfuzz fuzz --sanitize`, whose modules take long to import.
    type=click.Choice(["none", "address", "undefined"]),
    multiple=True,
    help="Also put the build for fuzzing with this sanitizer in, for spark_jobs/fuzz_campaign.py; may be repeated.",
)
@options.as_json
def archive(out: Path, extra: tuple[str, ...], sanitizers: tuple[Any, ...], as_json: bool) -> None:
    """Write an archive from which Spark's executors run kfuzz without an installation.

    It holds kfuzz with its compiled modules and the packages that workers import, for this Python's version and this
    platform. Then it prints the commands that use it. docs/spark.md is the guide.

    \b
    Examples:
      kfuzz corpus archive out/kfuzz-env.zip
      kfuzz corpus archive out/kfuzz-env.tar.gz --add s3fs
      kfuzz corpus archive out/kfuzz-env.zip --fuzz none
    """
    from kfuzz.fuzz.building import NoNativeCoverage, build
    from kfuzz.spark.archive import make_archive, submit_lines

    try:
        builds = [build(one, say=notice) for one in dict.fromkeys(sanitizers)]
    except NoNativeCoverage as error:
        raise UsageError(f"--fuzz needs the instrumented build: {error}") from None
    with progress("packing", None, quiet=as_json):
        made = make_archive(out, extra, builds=builds)
    lines = submit_lines(made.path)
    if as_json:
        echo_json({**asdict(made), "commands": [line.strip() for line in lines[1::2]]})
        return
    click.echo(
        f"{made.path}: kfuzz {made.packages['kfuzz']} and {len(made.packages) - 1} packages "
        f"for Python {made.python} on {made.platform}, {made.bytes / 1e6:.0f} MB"
    )
    for line in lines:
        click.echo(line)


command.add_command(replay.command)


def _create(topics: list[installation.TopicSettings], access: Access) -> list[str]:
    """Create the topics in as few requests as a broker allows; the names of those that existed."""
    wanted = {one.name: (one.partitions, one.config) for one in topics}
    try:
        return sorted(asyncio.run(asked(access, lambda cluster: cluster.create(wanted))))
    except (BrokerError, ConnectionLost, ClusterFailed) as error:
        raise UsageError(f"{access.bootstrap}: {error}") from None


def _predicted(workload: Workload, name: str, *, quiet: bool) -> dict[str, Any]:
    Plan(workload, name)
    plan = Plan(resolve(workload, name=name), name)
    with progress("topics measured", len(plan.topics), quiet=quiet) as set_done:
        found = prediction.predict(plan, set_done=set_done)
    report = {**_described(plan), "workload_fingerprint": workload.fingerprint}
    report["estimate"] = {
        "bytes": found.bytes,
        "compressed_bytes": found.compressed_bytes,
        "tasks": found.tasks,
        "core_hours": float(f"{found.core_hours:.3g}"),
    }
    for topic, one in zip(report["topics"], found.topics, strict=True):
        topic["estimate"] = {"bytes": one.bytes, "compressed_bytes": one.compressed_bytes}
    return report


def _estimated(found: dict[str, Any]) -> str:
    ratio = found["bytes"] / max(1, found["compressed_bytes"])
    return (
        f"{summary.show_bytes(found['compressed_bytes'])} on disk ({summary.show_bytes(found['bytes'])} uncompressed, "
        f"{ratio:.2f} to 1), {found['tasks']} tasks, {found['core_hours']:g} core-hours here without the disk"
    )


def _described(plan: Plan) -> dict[str, Any]:
    workload = plan.workload
    topics = []
    for planned in plan.topics:
        first_ms, last_ms = planned.timestamps_ms
        topics.append(
            {
                "name": planned.topic.name,
                "partitions": planned.topic.partitions,
                "offsets": sum(planned.counts),
                "offsets_per_partition": planned.offsets_per_partition,
                "segments_per_partition": planned.segments_per_partition,
                "bytes_per_offset": round(offset_bytes_mean(planned.topic), 1),
                "first_timestamp": first_ms,
                "last_timestamp": last_ms,
                **joins.predicted(plan, planned),
            }
        )
    return {
        "size": show_size(workload.size),
        "segment_size": show_size(workload.segment_bytes),
        "seed": workload.seed,
        "segments": len(plan),
        "records": plan.records,
        "workload_fingerprint": workload.fingerprint,
        "topics": topics,
    }


def _held(corpus: verification.Corpus) -> dict[str, Any]:
    finished = SUCCESS in corpus.out.list().files
    partitions = of_partitions(corpus.rows)
    whole = of_corpus(partitions)
    return {
        "finished": finished,
        "bytes": corpus.rows.total("bytes"),
        "batches": corpus.rows.total("batches"),
        "records": corpus.rows.total("records") - corpus.rows.total("control_batches"),
        "control_batches": corpus.rows.total("control_batches"),
        "corpus_fingerprint": corpus_fingerprint(corpus.rows) if finished else None,
        "contents_fingerprint": whole.contents if finished else None,
        "bytes_fingerprint": whole.bytes if finished else None,
        "partitions": {folder: asdict(part) for folder, part in partitions.items()} if finished else {},
        "codec_versions": ", ".join(corpus.rows.distinct("codec_versions")),
    }
