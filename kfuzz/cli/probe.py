"""``kfuzz probe``: show the golden vectors to a running broker. ``kfuzz.probe`` does the work."""

from __future__ import annotations

import json
from pathlib import Path

import click

from kfuzz.cli.completion import complete_globs
from kfuzz.cli.console import connection_options, echo_json, progress
from kfuzz.cli.report import CAUSES_SHOWN, print_outcome
from kfuzz.client.settings import Address, Security
from kfuzz.conformance.judge.matrix import Places, update_expected
from kfuzz.errors import UsageError
from kfuzz.files import require_writable, write_whole
from kfuzz.probe import Settings, cases_for_broker, probe, summary
from kfuzz.text import printable
from kfuzz.vectors import default_root, load_suite

__all__ = ["command"]


@click.command()
@click.argument("broker", metavar="HOST:PORT")
@click.argument("globs", nargs=-1, metavar="[GLOB]...", shell_complete=complete_globs)
@click.option("--yes", is_flag=True, help="The broker may be on another machine.")
@click.option("--name", default="", metavar="NAME@VERSION", help="Compare with vectors/expected/NAME@VERSION.txt.")
@click.option("--expected", "expected_file", metavar="FILE", help="Compare with the outcomes in FILE instead.")
@click.option("--update-expected", "updates", is_flag=True, help="Rewrite that file from the outcomes of a whole run.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - prints it instead of tables.")
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1, 3600), default=10, show_default=True, help="Seconds for an answer."
)
@click.option(
    "--duration",
    "duration_s",
    type=click.IntRange(1, 86_400),
    default=1800,
    show_default=True,
    help="Seconds for everything.",
)
@click.option("--prefix", default="kfuzz-probe", show_default=True, help="How the names of its topics begin.")
@click.option("--replication", type=click.IntRange(1), help="Replicas of its topics.  [default: the broker's]")
@click.option("--keep", is_flag=True, help="Do not delete its topics.")
@connection_options
@click.option(
    "--causes",
    "causes_shown",
    type=click.IntRange(min=1),
    default=CAUSES_SHOWN,
    show_default=True,
    help="How many causes to print.",
)
@click.option("--only-failures", is_flag=True, help="Print only causes with an outcome that is not as expected.")
@click.option("--publish", is_flag=True, help="Hide crashes and hangs that the expected outcomes do not list publicly.")
@click.option("--vectors", "root", metavar="DIR", help="Use the suite in DIR instead of kfuzz's own.")
@click.pass_context
def command(
    ctx: click.Context,
    broker: str,
    globs: tuple[str, ...],
    yes: bool,
    name: str,
    expected_file: str | None,
    updates: bool,
    json_file: str | None,
    timeout_s: int,
    duration_s: int,
    prefix: str,
    replication: int | None,
    keep: bool,
    tls: bool,
    tls_ca: Path | None,
    user: str | None,
    plain_hosts: tuple[str, ...],
    password: str,
    causes_shown: int,
    only_failures: bool,
    publish: bool,
    root: str | None,
) -> None:
    """Show the vectors to a running broker, and compare what it does with Apache Kafka.

    Each vector of records goes into a Produce request with exactly its bytes, and its partition is fetched back. The
    probe creates its own topics, and deletes them. GLOBs choose vectors by id. Vectors are hostile: they may end the
    broker.

    Exit code 0: every outcome is as expected; 1: some are not, or the broker is gone; 2: wrong use, or no broker.

    \b
    Examples:
      kfuzz probe 127.0.0.1:9092
      kfuzz probe 127.0.0.1:9092 "records/v2/count/*" --json result.json
      kfuzz probe 127.0.0.1:9092 --expected mine.txt --update-expected
      kfuzz probe 127.0.0.1:9092 --expected mine.txt --only-failures
      kfuzz probe test-broker:9092 --yes --timeout 30
    """
    settings = Settings(
        Address.parse(broker),
        Security(tls or tls_ca is not None, str(tls_ca) if tls_ca else None, user, password, plain_hosts),
        open_to_others=yes,
        timeout_ms=timeout_s * 1000,
        duration_s=duration_s,
        prefix=prefix,
        keep=keep,
        replication=replication or -1,
    )
    if updates and globs:
        raise UsageError("--update-expected needs the whole suite, or lines would be lost; leave out GLOB")
    if updates and not (name or expected_file):
        raise UsageError("--update-expected needs a file; name it with --expected FILE, or with --name NAME@VERSION")
    if json_file is not None and json_file != "-":
        require_writable(json_file)
    suite = Path(root) if root else default_root()
    cases = cases_for_broker(load_suite(globs or "*", suite))
    if not cases:
        raise UsageError("no vector of records matches these GLOBs; choose others")
    places = Places.beside(suite, Path(expected_file) if expected_file else None)
    quiet = json_file == "-"
    with progress("probe", len(cases), quiet=quiet) as set_done:
        done = probe(
            cases,
            settings,
            places=places,
            name=name,
            whole=not globs,
            publish=publish,
            on_progress=set_done,
            on_notice=lambda text: click.echo(printable(text), err=True),
        )
    from kfuzz.conformance import report

    if quiet:
        echo_json(report.to_json(done.run))
    elif json_file:
        write_whole(json_file, json.dumps(report.to_json(done.run), indent=2, ensure_ascii=False) + "\n")
    if not quiet:
        for line in summary(done.run, len(cases)):
            click.echo(printable(line))
        print_outcome(done.run, causes_shown=causes_shown, only_failures=only_failures)
    if done.ended:
        click.echo(f"kfuzz: {printable(done.ended)}", err=True)
    if updates and done.ended:
        raise UsageError("the expected outcomes are unchanged, because the probe ended early")
    if updates:
        for sentence in update_expected(done.run, places):
            click.echo(sentence, err=quiet)
        ctx.exit(0)
    ctx.exit(1 if done.run.failed or done.ended else 0)
