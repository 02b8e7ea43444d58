"""``kfuzz conform``: judge implementations against the vectors. The work is in ``kfuzz.conformance``."""

from __future__ import annotations

import json
import os
import shutil
from itertools import islice
from pathlib import Path
from typing import cast

import click

from kfuzz.cli.console import echo_json, progress
from kfuzz.conformance.differential import records as differential
from kfuzz.conformance.differential.messages import (
    differ_messages,
    keep_messages,
    sentences_of_messages,
    versions_of,
)
from kfuzz.conformance.differential.streams import differ_streams, keep_streams, sentences_of_streams
from kfuzz.conformance.judge.compare import ALL_ROLES, cases_of
from kfuzz.conformance.judge.matrix import Places, Run, run
from kfuzz.conformance.judge.matrix import update_expected as rewrite_expected
from kfuzz.conformance.protocol.testees import Testee, all_testees, from_command, select
from kfuzz.conformance.report import forms as report
from kfuzz.errors import UsageError
from kfuzz.files import require_writable, write_whole
from kfuzz.kafka import LATEST, RELEASES, ROLES
from kfuzz.mutate import Mutator
from kfuzz.records import Role
from kfuzz.vectors.model import KINDS, default_root, load_suite

__all__ = ["command"]

SENTENCES_SHOWN = 20
REFERENCE = f"kafka-clients@{LATEST}"
# A seed of more bytes leaves most changes without effect.
SEED_BYTES_MAX = 4096


@click.command()
@click.option("--testee", "names", multiple=True, metavar="NAME[@VERSION]", help="Judge this one; may be repeated.")
@click.option("--command", "commands", multiple=True, metavar="CMD", help="Judge the testee that CMD starts.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ALL_ROLES),
    help="Ask for this role only; may be repeated.  [default: all]",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - prints it, and no matrix.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write the report as JUnit XML.")
@click.option("--html", "html_file", metavar="FILE", help="Write the report as one self-contained HTML page.")
@click.option("--update-expected", is_flag=True, help="Rewrite vectors/expected/ to what a whole run finds.")
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Testees that run at one time.")
@click.option("--vectors", "root", metavar="DIR", help="Use the suite in DIR instead of kfuzz's own.")
@click.option("--differential", "differs", is_flag=True, help="Compare with kfuzz's own reader on mutated inputs.")
@click.option(
    "--streams", is_flag=True, help="With --differential: random streams of batches instead of mutated inputs."
)
@click.option(
    "--messages", is_flag=True, help="With --differential: every API, kind and version of the testee's Kafka release."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Inputs of --differential; with --messages, mutants of each version.  [default: 20000, 200]",
)
@click.option("--seed", type=click.IntRange(min=0), help="What --differential's inputs follow from.  [default: 1]")
@click.option("--out", metavar="DIR", help="Where --differential keeps what differs.  [default: out]")
@click.argument("globs", nargs=-1, metavar="[GLOB]...")
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    commands: tuple[str, ...],
    roles: tuple[str, ...],
    json_file: str | None,
    junit_file: str | None,
    html_file: str | None,
    update_expected: bool,
    jobs: int,
    root: str | None,
    differs: bool,
    streams: bool,
    messages: bool,
    count: int | None,
    seed: int | None,
    out: str | None,
    globs: tuple[str, ...],
) -> None:
    """Judge implementations against the vectors.

    Without --testee and --command, every testee whose toolchain is here takes part, kfuzz itself included. GLOBs choose
    vectors by id. Exit code 0: every outcome is as expected; 1: some are not; 2: wrong use.

    With --differential, kfuzz and one testee (the latest kafka-clients, if none is named) get the same mutants, begun
    at generated batches and at the vectors, and must agree on outcome, consumed bytes and contents: as consumers, or in
    the role of --role. Brokers must also store the same bytes. With --streams the inputs are sequences of batches, for
    the rules that need memory, in turn for a broker, a log and a consumer. With --messages they are requests, responses
    and headers: default ones, filled ones, mutants, and what was read of those written again.

    \b
    Examples:
      kfuzz conform
      kfuzz conform --testee aiokafka --html out/aiokafka.html
      kfuzz conform --command "node my-testee.js" "records/v2/count/*"
      kfuzz conform --testee kafka-clients@4.4.0 --update-expected
      kfuzz conform --differential --count 100000 --seed 7
      kfuzz conform --differential --role broker --count 50000
      kfuzz conform --differential --streams --count 50000
      kfuzz conform --differential --messages --testee kafka-clients@3.9.2
    """
    for file in (json_file, junit_file, html_file):
        if file is not None and file != "-":
            require_writable(file)
    if differs:
        require_writable(Path(out or "out") / "differential", directory=True)
        _refuse_with_differential(junit_file, html_file, update_expected)
        testee = _one_testee(names, commands)
        if messages or streams:
            own = "--messages" if messages else "--streams"
            if messages and streams:
                raise UsageError("--messages and --streams are two runs; leave one of them away")
            if roles or globs or json_file:
                raise UsageError(f"{own} makes its own inputs for every role; leave GLOB, --role and --json away")
        if messages:
            ctx.exit(_differ_on_messages(testee, 1 if seed is None else seed, count or 200, Path(out or "out")))
        if streams:
            ctx.exit(_differ_on_streams(testee, 1 if seed is None else seed, count or 20_000, Path(out or "out")))
        role = _one_role(roles)
        mutator = Mutator(1 if seed is None else seed, seeds=_seeds(globs, root), role=role)
        ctx.exit(_differ(testee, role, mutator, count or 20_000, json_file, Path(out or "out")))
    only = {
        "--count": count,
        "--seed": seed,
        "--out": out,
        "--streams": streams or None,
        "--messages": messages or None,
    }
    for option, given in only.items():
        if given is not None:
            raise UsageError(f"{option} belongs to --differential; add that, or leave {option} away")
    whole = not globs and not roles
    if update_expected and not whole:
        raise UsageError("--update-expected needs the whole suite, or lines would be lost; leave GLOB and --role away")
    suite = Path(root) if root else default_root()
    cases = cases_of(load_suite(globs or "*", suite, kinds=KINDS), roles or ALL_ROLES)
    if not cases:
        raise UsageError("no question fits; choose other GLOBs or another --role")
    places = Places.beside(suite)
    testees = _testees(names, commands)
    quiet = json_file == "-"
    with progress("conform", len(testees) * len(cases)) as set_done:
        done = run(testees, cases, places=places, whole=whole, jobs=jobs, on_progress=set_done)
    _write_reports(done, json_file, junit_file, html_file)
    if not quiet:
        _print(done)
    if update_expected:
        for sentence in rewrite_expected(done, places):
            click.echo(sentence, err=quiet)
        ctx.exit(1 if any(testee.broken for testee in done.testees) else 0)
    ctx.exit(1 if done.failed else 0)


def _testees(names: tuple[str, ...], commands: tuple[str, ...]) -> tuple[Testee, ...]:
    known = all_testees()
    if not names and not commands:
        return known
    return select(known, names) + tuple(from_command(text) for text in commands)


def _refuse_with_differential(junit_file: str | None, html_file: str | None, update_expected: bool) -> None:
    for option, given in (("--junit", junit_file), ("--html", html_file), ("--update-expected", update_expected)):
        if given:
            raise UsageError(f"{option} is about the vectors; leave it away with --differential")


def _one_role(roles: tuple[str, ...]) -> Role:
    if len(roles) > 1 or set(roles) - set(ROLES):
        raise UsageError("--differential asks in one role; name consumer, broker or log, once")
    return cast("Role", roles[0]) if roles else "consumer"


def _one_testee(names: tuple[str, ...], commands: tuple[str, ...]) -> Testee:
    chosen = _testees(names or (() if commands else (REFERENCE,)), commands)
    if len(chosen) != 1:
        labels = ", ".join(testee.label for testee in chosen)
        raise UsageError(f"--differential asks one testee, and these are {labels}; name one with its version")
    return chosen[0]


def _seeds(globs: tuple[str, ...], root: str | None) -> list[bytes]:
    """The bytes of the vectors to begin at; those with a budget are bombs."""
    vectors = load_suite(globs or "*", Path(root) if root else default_root())
    return [
        vector.data
        for vector in vectors
        if vector.kind == "records" and not vector.budget and len(vector.data) <= SEED_BYTES_MAX
    ]


def _refuse_silence(testee: Testee, asked: int, unsupported: int) -> None:
    if unsupported == asked:
        raise UsageError(f"{testee.label} supports none of the {asked} inputs; name another testee or another --role")


def _differ(testee: Testee, role: Role, mutator: Mutator, count: int, json_file: str | None, out: Path) -> int:
    before = os.times()
    with progress("differential", count) as set_done:
        found = differential.differ(testee, islice(mutator, count), role=role, on_progress=set_done)
    _refuse_silence(testee, found.inputs, found.unsupported)
    # The testee was waited for, so its time is among the children's.
    cpu_s = sum(os.times()[:4]) - sum(before[:4])
    files = differential.keep(found, out / "differential", seed=mutator.seed)
    document = differential.to_json(found, seed=mutator.seed)
    if json_file and json_file != "-":
        write_whole(json_file, json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    click.echo(f"{cpu_s:.1f} s of CPU time, {found.inputs / max(cpu_s, 0.01):.0f} inputs a second of it", err=True)
    if json_file == "-":
        echo_json(document)
    else:
        for sentence in differential.sentences(found, files, seed=mutator.seed, shown=SENTENCES_SHOWN):
            click.echo(sentence)
    return 1 if found.failed else 0


def _differ_on_streams(testee: Testee, seed: int, count: int, out: Path) -> int:
    with progress("streams", count) as set_done:
        found = differ_streams(testee, seed=seed, count=count, on_progress=set_done)
    _refuse_silence(testee, count, found.unsupported)
    files = keep_streams(found, out / "differential", seed=seed)
    for sentence in sentences_of_streams(found, files, seed=seed, shown=SENTENCES_SHOWN):
        click.echo(sentence)
    return 1 if files else 0


def _differ_on_messages(testee: Testee, seed: int, mutants: int, out: Path) -> int:
    # Who is no Kafka is asked for the newest.
    release = testee.version if testee.version in RELEASES else LATEST
    versions = sum(1 for _ in versions_of(release))
    with progress("messages", versions) as set_done:
        found = differ_messages(testee, release, seed=seed, mutants=mutants, on_progress=set_done)
    files = keep_messages(found, out / "differential", seed=seed)
    for sentence in sentences_of_messages(found, files, seed=seed, shown=SENTENCES_SHOWN):
        click.echo(sentence)
    return 1 if files else 0


def _write_reports(done: Run, json_file: str | None, junit_file: str | None, html_file: str | None) -> None:
    if json_file == "-":
        echo_json(report.to_json(done))
    elif json_file:
        write_whole(json_file, json.dumps(report.to_json(done), indent=2, ensure_ascii=False) + "\n")
    if junit_file:
        write_whole(junit_file, report.to_junit(done))
    if html_file:
        write_whole(html_file, report.to_html(done))


def _print(done: Run) -> None:
    from rich.console import Console

    width = shutil.get_terminal_size((120, 40)).columns
    console = Console(width=width, highlight=False)
    for table in report.to_terminal(done, width=width):
        console.print(table)
    for testee in done.testees:
        for note in testee.notes:
            click.echo(f"{testee.label}: {note}")
    for sentence in done.dropped:
        click.echo(sentence)
    wrong = report.sentences(done)
    for sentence in wrong[:SENTENCES_SHOWN]:
        click.echo(f"unexpected: {sentence}")
    if len(wrong) > SENTENCES_SHOWN:
        click.echo(f"… and {len(wrong) - SENTENCES_SHOWN} more; --html or --json shows them all")
    click.echo("as expected" if not wrong else f"{len(wrong)} not as expected")
