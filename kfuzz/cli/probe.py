"""``kfuzz probe``: show the golden vectors to a running broker. ``kfuzz.probe`` does the work."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import click

from kfuzz.cli import options
from kfuzz.cli.console import Place, complain, notice, progress, require_reports, say, write_json
from kfuzz.cli.report import print_outcome
from kfuzz.client.address import Address
from kfuzz.conformance.judge.matrix import Places
from kfuzz.conformance.judge.matrix import update_expected as rewrite_expected
from kfuzz.errors import UsageError
from kfuzz.probe import Hostility, Settings, cases_for_broker, probe, probe_apis, summary
from kfuzz.probe.reactions import lines
from kfuzz.vectors import default_root, load_suite

# Parameters that nothing reads without --apis.
OF_APIS: Final = {one.name for one in fields(Hostility)} - {"globs"}
ADDRESS: Final = Place("address", Address.parse)


@click.command()
@click.argument("bootstrap", metavar="HOST:PORT", type=ADDRESS)
@options.globs
@options.yes
@click.option("--name", default="", metavar="NAME@VERSION", help="Compare with vectors/expected/NAME@VERSION.txt.")
@options.expected
@options.json_file
@options.timeout(default="10s")
@options.duration("the probe", default="30m")
@click.option("--prefix", default="kfuzz-probe", show_default=True, help="How the names of its topics begin.")
@options.replication
@click.option("--keep", is_flag=True, help="Do not delete its topics.")
@click.option("--apis", is_flag=True, help="Ask every API hostile requests in conversations instead.")
@options.seed
@click.option(
    "--mutants", type=click.IntRange(0, 100_000), default=8, show_default=True, help="Mutants of each request."
)
@click.option("--cases", type=options.COUNT, help="At least so many requests; more mutants are made for that.")
@click.option("--controller", type=ADDRESS, metavar="HOST:PORT", help="The controller's own port, to ask it too.")
@click.option(
    "--reference", type=ADDRESS, metavar="HOST:PORT", help="A broker to compare the answers with, such as Kafka 4.4.0."
)
@click.option("--pid", type=options.COUNT, help="The broker's process, to watch its memory and threads.")
@click.option("--log", type=click.Path(path_type=Path), help="The broker's log, to watch for lines of level ERROR.")
@click.option("--write-to", "topic", metavar="TOPIC", help="A topic that clients may write to.  [default: create one]")
@click.option(
    "--health-every", type=options.COUNT, default=200, show_default=True, help="Requests between checks of health."
)
@options.connection
@options.outcomes
@options.vectors
@click.pass_context
def command(
    ctx: click.Context,
    /,
    globs: tuple[str, ...],
    name: str,
    expected_file: Path | None,
    update_expected: bool,
    json_file: str | None,
    causes_shown: int,
    only_failures: bool,
    publish: bool,
    root: Path | None,
    apis: bool,
    **others: Any,
) -> None:
    """Show the vectors to a running broker, and compare what it does with Apache Kafka.

    Each vector of records goes into a Produce request with exactly its bytes, and its partition is fetched back. The
    probe creates its own topics, and deletes them. GLOBs choose vectors by id. Vectors are hostile: they may end the
    broker.

    With --apis, each API that the broker offers gets hostile requests in the middle of a conversation: vectors of
    messages, mutants by --seed, poisoned bytes, wrong values, and damaged frames. GLOBs choose them by id. In between,
    a health conversation must work: produce, fetch, join a group, commit a transaction. With --reference, the
    probe sends the same requests to another broker too. Both must answer alike; ids, times and addresses may differ.

    Exit code 0: every outcome is as expected; 1: some are not, or the broker is gone; 2: wrong use, or no broker.
    With --apis, 1: the broker is gone or not well, keeps silent, gives an answer that cannot be read, or another one
    than the reference; 2: also if no hostile request could be sent.

    \b
    Examples:
      kfuzz probe 127.0.0.1:9092
      kfuzz probe 127.0.0.1:9092 "records/v2/count/*" --json result.json
      kfuzz probe 127.0.0.1:9092 --expected mine.txt --update-expected
      kfuzz probe 127.0.0.1:9092 --expected mine.txt --only-failures
      kfuzz probe test-broker:9092 --yes --timeout 30
      kfuzz probe 127.0.0.1:9092 --apis
      kfuzz probe 127.0.0.1:9092 --apis "classic-group*/JoinGroup/*/poison/*"
    """
    # The other options have the names of the settings and of the choice of hostile requests.
    hostile = {name: others.pop(name) for name in OF_APIS}
    settings = Settings(**others)
    if apis:
        if update_expected or name or expected_file or only_failures or publish:
            raise UsageError("--apis compares with no expected outcomes; leave out the options about them")
        ctx.exit(_ask_apis(settings, Hostility(globs=globs, **hostile), root, json_file, causes_shown))
    if strays := options.given(*OF_APIS):
        raise UsageError(f"{strays[0]} is for --apis; add --apis, or leave it out")
    if update_expected and globs:
        raise UsageError("--update-expected needs the whole suite, or lines would be lost; leave out GLOB")
    if update_expected and not (name or expected_file):
        raise UsageError("--update-expected needs a file; name it with --expected FILE, or with --name NAME@VERSION")
    require_reports(json_file, expected_file if update_expected else None)
    suite = root or default_root()
    asked = cases_for_broker(load_suite(globs or "*", suite))
    if not asked:
        raise UsageError("no vector of records matches these GLOBs; choose others")
    places = Places.beside(suite, expected_file)
    quiet = json_file == "-"
    with progress("probe", len(asked), quiet=quiet) as set_done:
        done = probe(
            asked,
            settings,
            places=places,
            name=name,
            whole=not globs,
            publish=publish,
            on_progress=set_done,
            on_notice=notice,
        )
    from kfuzz.conformance import report

    if json_file:
        write_json(json_file, report.to_json(done.run))
    if not quiet:
        say(*summary(done.run, len(asked)))
        print_outcome(done.run, causes_shown=causes_shown, only_failures=only_failures)
    if done.ended:
        complain(done.ended)
    if update_expected and done.ended:
        raise UsageError("the expected outcomes are unchanged, because the probe ended early")
    if update_expected:
        say(*rewrite_expected(done.run, places), err=quiet)
        ctx.exit(0)
    ctx.exit(1 if done.run.failed else 0)


def _ask_apis(
    settings: Settings, hostility: Hostility, root: Path | None, json_file: str | None, causes_shown: int
) -> int:
    """Ask every API, print what was found, and return the exit code."""
    require_reports(json_file)
    vectors = load_suite("*", root, kinds=("message",))
    quiet = json_file == "-"
    with progress("probe", None, quiet=quiet) as set_done:
        report = probe_apis(vectors, settings, hostility, on_progress=set_done, on_notice=notice)
    if json_file:
        write_json(json_file, report.to_json())
    if not quiet:
        say(*lines(report, causes_shown))
    if report.ended:
        complain(report.ended)
    elif not report.total:
        raise UsageError("no hostile request was sent; the lines above, or left_out in the report, have the reasons")
    return 1 if report.failed else 0
