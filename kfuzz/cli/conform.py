"""``kfuzz conform``: judge implementations against the vectors. ``kfuzz.conformance`` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from kfuzz.cli.console import Word, echo_json, json_text, progress
from kfuzz.cli.options import (
    globs_argument,
    json_file_option,
    start_timeout_option,
    testee_options,
    vectors_option,
)
from kfuzz.cli.report import print_outcome
from kfuzz.conformance.judge.compare import ALL_ROLES, cases_of
from kfuzz.conformance.judge.expected import load_own
from kfuzz.conformance.judge.matrix import Places, Run, run
from kfuzz.conformance.judge.matrix import update_expected as rewrite_expected
from kfuzz.conformance.protocol.testees import CHOSEN, Testee, chosen
from kfuzz.errors import UsageError
from kfuzz.files import require_writable, write_whole
from kfuzz.text import printable
from kfuzz.units import parse_duration
from kfuzz.vectors import KINDS, default_root, load_suite

# Reports are imported where they are used, so that a wrong GLOB fails without delay.

__all__ = ["command"]


class _Conform(click.Command):
    """The command, which knows that its differential became a verb."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--differential" in args:
            raise UsageError("--differential is a verb of its own; run `kfuzz differential`, with its own options")
        return super().parse_args(ctx, args)


@click.command(cls=_Conform)
@testee_options(several=True)
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
@json_file_option
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
    help="Ask all vectors. Without this and without GLOBs, clients behind `kfuzz serve` are asked about 280.",
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
@start_timeout_option
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
@vectors_option
@globs_argument
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
    start_timeout_s: float | None,
    timeout_s: int | None,
    budget_s: float | None,
    causes_shown: int,
    only_failures: bool,
    root: str | None,
    globs: tuple[str, ...],
) -> None:
    """Judge implementations against the vectors.

    Without --testee and --command, all testees whose toolchain is installed take part, and so does kfuzz itself. GLOBs
    choose vectors by id. Exit code 0: every outcome is as expected; 1: some are not; 2: wrong use.

    With --path, a testee is built with a working copy of its library, in a folder of its own. The report calls it
    NAME@path, and compares each outcome with that of the pinned version. Exit code 0: none is worse.

    With --budget, the outcomes that are left are not-asked, and expected outcomes of that testee are not updated.

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
    """
    for file in (json_file, junit_file, html_file):
        if file is not None and file != "-":
            require_writable(file)
    whole = not globs and not roles
    if update_expected and not whole:
        raise UsageError("--update-expected needs the whole suite, or lines would be lost; leave out GLOB and --role")
    suite = Path(root) if root else default_root()
    cases = cases_of(load_suite(globs or "*", suite, kinds=KINDS), roles or ALL_ROLES)
    if not cases:
        raise UsageError("no vector matches these GLOBs and roles; choose others")
    start_timeout_ms = None if start_timeout_s is None else round(start_timeout_s * 1000)
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
    # Who names vectors wants answers about these.
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
