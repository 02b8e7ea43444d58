"""``kfuzz conform``: judge implementations against the vectors. ``kfuzz.conformance`` does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from kfuzz.cli.completion import complete_globs, complete_testees
from kfuzz.cli.console import Word, echo_json, json_text, progress
from kfuzz.cli.report import print_outcome
from kfuzz.conformance.judge.compare import ALL_ROLES, cases_of
from kfuzz.conformance.judge.expected import load_own
from kfuzz.conformance.judge.matrix import Places, Run, run
from kfuzz.conformance.judge.matrix import update_expected as rewrite_expected
from kfuzz.conformance.protocol.testees import CHOSEN, chosen
from kfuzz.conformance.protocol.testees import only as one_testee
from kfuzz.errors import UsageError
from kfuzz.files import require_writable, write_whole
from kfuzz.kafka import LATEST, ROLES
from kfuzz.text import printable
from kfuzz.units import parse_duration
from kfuzz.vectors import KINDS, default_root, load_suite

if TYPE_CHECKING:
    from kfuzz.conformance.differential.found import Differential
    from kfuzz.conformance.protocol.testees import Testee
    from kfuzz.kafka import Role

# Differentials and reports are imported where they are used, so that a wrong GLOB fails without delay.

__all__ = ["command"]

SENTENCES_SHOWN = 20
REFERENCE = f"kafka-clients@{LATEST}"
# Options that a differential cannot honour, and the parameters that hold them.
ABOUT_VECTORS = {
    "--junit": "junit_file",
    "--html": "html_file",
    "--publish": "publish",
    "--all": "ask_all",
    "--update-expected": "update_expected",
    "--expected": "expected_file",
    "--path": "path",
    "--budget": "budget_s",
}


@click.command()
@click.option(
    "--testee",
    "names",
    multiple=True,
    metavar="NAME[@VERSION]",
    help="Judge this testee; may be repeated.",
    shell_complete=complete_testees,
)
@click.option(
    "--command",
    "commands",
    multiple=True,
    metavar="CMD",
    help="Judge the testee that this command starts; may be repeated.",
)
@click.option(
    "--path",
    "path",
    metavar="DIR",
    help="Judge the working copy in DIR of the library that --testee names, beside the pinned version.",
)
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(ALL_ROLES),
    help="Ask for this role only; may be repeated.  [default: all]",
)
@click.option(
    "--json", "json_file", metavar="FILE", help="Write the report as JSON; - prints it instead of the matrix."
)
@click.option("--junit", "junit_file", metavar="FILE", help="Write the report as JUnit XML.")
@click.option("--html", "html_file", metavar="FILE", help="Write the report as one self-contained HTML page.")
@click.option(
    "--publish",
    is_flag=True,
    help="Hide crashes, hangs and memory faults that vectors/expected/ does not list publicly.",
)
@click.option(
    "--all",
    "ask_all",
    is_flag=True,
    help="Ask all vectors. Without this and without GLOBs, clients of `kfuzz serve` are asked about 280.",
)
@click.option("--update-expected", is_flag=True, help="Rewrite vectors/expected/ from the outcomes of a whole run.")
@click.option(
    "--expected",
    "expected_file",
    metavar="FILE",
    help="Compare with the outcomes in FILE instead of vectors/expected/; --update-expected writes them to FILE.",
)
@click.option(
    "--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="How many testees run at a time."
)
@click.option(
    "--start-timeout",
    "start_timeout_s",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    help="How long to wait for a testee's handshake.  [default: 60; 10 for --command]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1, 3600),
    metavar="SECONDS",
    help="CPU time for one answer; five times as much on the clock.  [default: 10, or the vector's budget]",
)
@click.option(
    "--budget",
    "budget_s",
    type=Word("time", parse_duration),
    help="Time on the clock for each testee, without its build: 90s, 5m, 1h. After it, a testee is asked no more, and "
    "the run fails.",
)
@click.option(
    "--causes",
    "causes_shown",
    type=click.IntRange(min=1),
    default=25,
    show_default=True,
    help="How many causes to print.",
)
@click.option("--only-failures", is_flag=True, help="Print only causes with an outcome that is not as expected.")
@click.option("--vectors", "root", metavar="DIR", help="Use the suite in DIR instead of kfuzz's own.")
@click.option("--differential", "differs", is_flag=True, help="Compare a testee with kfuzz on mutated inputs.")
@click.option(
    "--streams", is_flag=True, help="With --differential: random streams of batches instead of mutated inputs."
)
@click.option(
    "--messages", is_flag=True, help="With --differential: every API, kind and version of the testee's Kafka release."
)
@click.option(
    "--count",
    type=click.IntRange(min=1),
    help="Number of inputs for --differential; with --messages, mutants per version.  [default: 20000, 200]",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed for the inputs of --differential.  [default: 1]")
@click.option("--out", metavar="DIR", help="Where --differential saves inputs that differ.  [default: out]")
@click.argument("globs", nargs=-1, metavar="[GLOB]...", shell_complete=complete_globs)
@click.pass_context
def command(
    ctx: click.Context,
    names: tuple[str, ...],
    commands: tuple[str, ...],
    path: str | None,
    roles: tuple[str, ...],
    json_file: str | None,
    junit_file: str | None,
    html_file: str | None,
    publish: bool,
    ask_all: bool,
    update_expected: bool,
    expected_file: str | None,
    jobs: int,
    start_timeout_s: int | None,
    timeout_s: int | None,
    budget_s: float | None,
    causes_shown: int,
    only_failures: bool,
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

    Without --testee and --command, all testees whose toolchain is installed take part, and so does kfuzz itself. GLOBs
    choose vectors by id. Exit code 0: every outcome is as expected; 1: some are not; 2: wrong use.

    With --path, a testee is built with a working copy of its library, in a folder of its own. The report calls it
    NAME@path, and compares each outcome with that of the pinned version. Exit code 0: none is worse.

    With --budget, the outcomes that are left are not-asked, and expected outcomes of that testee are not updated.

    With --differential, kfuzz and one testee (by default the latest kafka-clients) get the same inputs: mutants of
    generated batches and of the vectors. Both must agree on outcome, consumed bytes and contents. They read as a
    consumer, or in the role that --role names; brokers must also store the same bytes.

    With --streams the inputs are sequences of batches, in turn for a broker, a log and a consumer. They test the rules
    that need earlier batches. With --messages the inputs are requests, responses and headers: with default values, with
    every field filled, and mutants. Mutants that kfuzz can read are also written again.

    \b
    Examples:
      kfuzz conform
      kfuzz conform --testee aiokafka --html out/aiokafka.html
      kfuzz conform --testee librdkafka --all
      kfuzz conform --command "node my-testee.js" "records/v2/count/*"
      kfuzz conform --testee kafka-clients@4.4.0 --update-expected
      kfuzz conform --command ./my-testee --expected outcomes.txt --update-expected
      kfuzz conform --command ./my-testee --expected outcomes.txt --only-failures
      kfuzz conform --testee franz-go --path ../franz-go
      kfuzz conform --testee librdkafka --budget 5m
      kfuzz conform --publish --html public/matrix.html
      kfuzz conform --differential --count 100000 --seed 7
      kfuzz conform --differential --role broker --count 50000
      kfuzz conform --differential --streams --count 50000
      kfuzz conform --differential --messages --testee kafka-clients@3.9.2
    """
    for file in (json_file, junit_file, html_file):
        if file is not None and file != "-":
            require_writable(file)
    start_timeout_ms = None if start_timeout_s is None else start_timeout_s * 1000
    if differs:
        from kfuzz.conformance.differential.messages import differ_messages, release_of, versions_of
        from kfuzz.conformance.differential.records import differ, seeds_of
        from kfuzz.conformance.differential.streams import differ_streams
        from kfuzz.mutate import Mutator

        place = Path(out or "out")
        require_writable(place / "differential", directory=True)
        _refuse_with_differential(ctx.params)
        testee = one_testee(names, commands, default=REFERENCE, start_timeout_ms=start_timeout_ms)
        chosen_seed = 1 if seed is None else seed
        report_on = partial(_report_differences, seed=chosen_seed, json_file=json_file, out=place)
        if messages or streams:
            own = "--messages" if messages else "--streams"
            if messages and streams:
                raise UsageError("--messages and --streams are two runs; use only one of them")
            if roles or globs:
                raise UsageError(f"{own} makes its own inputs for every role; leave out GLOB and --role")
        if messages:
            release = release_of(testee)
            by_message = partial(differ_messages, testee, release, seed=chosen_seed, mutants=count or 200)
            versions = sum(1 for _ in versions_of(release))
            ctx.exit(report_on(lambda told: by_message(on_progress=told), "messages", versions))
        inputs = count or 20_000
        if streams:
            by_stream = partial(differ_streams, testee, seed=chosen_seed, count=inputs)
            ctx.exit(report_on(lambda told: by_stream(on_progress=told), "streams", inputs))
        role = _one_role(roles)
        mutator = Mutator(chosen_seed, seeds=seeds_of(load_suite(globs or "*", root)), role=role)
        by_input = partial(differ, testee, islice(mutator, inputs), role=role, shrunk=SENTENCES_SHOWN)
        ctx.exit(report_on(lambda told: by_input(on_progress=told), "differential", inputs))
    only = {
        "--count": count,
        "--seed": seed,
        "--out": out,
        "--streams": streams or None,
        "--messages": messages or None,
    }
    for option, given in only.items():
        if given is not None:
            raise UsageError(f"{option} belongs to --differential; add that, or leave out {option}")
    whole = not globs and not roles
    if update_expected and not whole:
        raise UsageError("--update-expected needs the whole suite, or lines would be lost; leave out GLOB and --role")
    suite = Path(root) if root else default_root()
    cases = cases_of(load_suite(globs or "*", suite, kinds=KINDS), roles or ALL_ROLES)
    if not cases:
        raise UsageError("no vector matches these GLOBs and roles; choose others")
    testees = chosen(names, commands, start_timeout_ms=start_timeout_ms)
    if path is not None:
        testees = (_working_copy(testees, path, bool(names), update_expected),)
    if expected_file is not None and len(testees) != 1:
        raise UsageError("--expected is about one testee; name it with --testee NAME@VERSION or --command")
    if update_expected and expected_file is not None and load_own("", Path(expected_file)).seal.count:
        raise UsageError(
            f"{expected_file} has a `withheld` line, and --update-expected would list these outcomes for everybody; "
            "leave out --expected, or name another file"
        )
    # A person who names vectors wants answers about these.
    choose = not ask_all and not globs
    if update_expected and choose and (few := [one.label for one in testees if one.vectors == CHOSEN]):
        raise UsageError(f"{few[0]} is asked only chosen vectors, and lines would be lost; add --all")
    places = Places.beside(suite, Path(expected_file) if expected_file else None)
    quiet = json_file == "-"
    with progress("conform", len(testees) * len(cases)) as set_done:
        done = run(
            testees,
            cases,
            places=places,
            whole=whole,
            choose=choose,
            jobs=jobs,
            publish=publish,
            answer_timeout_ms=None if timeout_s is None else timeout_s * 1000,
            budget_s=budget_s,
            on_progress=set_done,
            on_notice=_notice,
        )
    _write_reports(done, json_file, junit_file, html_file, root)
    if not quiet:
        print_outcome(done, causes_shown=causes_shown, only_failures=only_failures)
    if update_expected:
        for sentence in rewrite_expected(done, places):
            click.echo(printable(sentence), err=quiet)
        ctx.exit(1 if any(testee.broken or testee.stopped for testee in done.testees) else 0)
    ctx.exit(1 if done.failed else 0)


def _working_copy(testees: Sequence[Testee], path: str, named: bool, update_expected: bool) -> Testee:
    from kfuzz.conformance.protocol.working_copy import with_working_copy

    if len(testees) != 1 or not named:
        raise UsageError("--path is about one testee; name it with --testee NAME")
    if update_expected:
        raise UsageError("--path is compared with the pinned version's outcomes; leave out --update-expected")
    return with_working_copy(testees[0], path)


def _refuse_with_differential(given: Mapping[str, Any]) -> None:
    """``given``: the command's parameters by their names in Python."""
    for option, name in ABOUT_VECTORS.items():
        if given[name]:
            raise UsageError(f"{option} is about the vectors; leave it out with --differential")


def _one_role(roles: tuple[str, ...]) -> Role:
    if len(roles) > 1 or set(roles) - set(ROLES):
        raise UsageError("--differential uses one role; give --role once, with consumer, broker or log")
    return cast("Role", roles[0]) if roles else "consumer"


def _report_differences(
    differ: Callable[[Callable[[int], None]], Differential],
    what: str,
    total: int,
    *,
    seed: int,
    json_file: str | None,
    out: Path,
) -> int:
    """Run ``differ``, save the inputs that differ, and report them. Returns the exit code."""
    from kfuzz.conformance.report import differences

    before = os.times()
    with progress(what, total) as set_done:
        found = differ(set_done)
    found.require_support()
    # The testee has ended, so the children's times include it.
    cpu_s = sum(os.times()[:4]) - sum(before[:4])
    files = differences.keep(found, out / "differential", seed=seed)
    document = differences.to_json(found, seed=seed)
    if json_file and json_file != "-":
        write_whole(json_file, json_text(document) + "\n")
    click.echo(f"{cpu_s:.1f} s of CPU time, {found.inputs / max(cpu_s, 0.01):.0f} inputs per CPU-second", err=True)
    if json_file == "-":
        echo_json(document)
    else:
        for sentence in differences.sentences(found, files, seed=seed, shown=SENTENCES_SHOWN):
            click.echo(sentence)
    return 1 if found.failed else 0


def _notice(text: str) -> None:
    click.echo(printable(text), err=True)


def _write_reports(
    done: Run, json_file: str | None, junit_file: str | None, html_file: str | None, root: str | None
) -> None:
    from kfuzz.conformance import report

    if json_file == "-":
        echo_json(report.to_json(done))
    elif json_file:
        write_whole(json_file, json_text(report.to_json(done), sort_keys=False) + "\n")
    if junit_file:
        write_whole(junit_file, report.to_junit(done))
    if html_file:
        write_whole(html_file, report.to_html(done, root=root))
