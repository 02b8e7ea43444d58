"""``kfuzz conform``: judge implementations against the vectors. ``kfuzz.conformance`` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from kfuzz.cli import options
from kfuzz.cli.console import notice, progress, require_reports, say, write_json
from kfuzz.cli.report import print_outcome
from kfuzz.conformance.judge.compare import ALL_ROLES, cases_of
from kfuzz.conformance.judge.expected import load_own
from kfuzz.conformance.judge.matrix import Places, run
from kfuzz.conformance.judge.matrix import update_expected as rewrite_expected
from kfuzz.conformance.protocol.testees import CHOSEN, Testee, chosen
from kfuzz.errors import UsageError
from kfuzz.files import write_whole
from kfuzz.vectors import KINDS, default_root, load_suite

# These may be updated without the others, because asking whole clients all vectors takes long.
CONVERSATIONS: Final = "conversation/*"

# Reports are imported where they are used, so that a wrong GLOB fails without delay.


class _Conform(click.Command):
    """The command, which knows that its differential became a verb."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--differential" in args:
            raise UsageError("--differential is a verb of its own; run `kfuzz differential`, with its own options")
        return super().parse_args(ctx, args)


@click.command(cls=_Conform)
@options.testee("; may be repeated")
@options.testee_command("; may be repeated")
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
@options.json_file
@options.junit_file
@options.html_file
@options.all_of("vectors", usual="about 300 for clients of `kfuzz serve`; all for others, and with GLOBs")
@options.expected
@options.jobs("testees", default=2)
@options.start_timeout
@options.timeout(note="It is CPU time; on the clock it is five times as much.", usual="10s, or the vector's budget")
@options.duration("each testee", note="Its build does not count. The testee is asked no more, and the run fails.")
@options.outcomes
@options.vectors
@options.globs
def command(
    names: tuple[str, ...],
    commands: tuple[str, ...],
    path: str | None,
    roles: tuple[str, ...],
    json_file: str | None,
    junit_file: str | None,
    html_file: str | None,
    take_all: bool,
    update_expected: bool,
    expected_file: Path | None,
    jobs: int,
    start_timeout_ms: int | None,
    timeout_ms: int | None,
    duration_s: float | None,
    causes_shown: int,
    only_failures: bool,
    publish: bool,
    root: Path | None,
    globs: tuple[str, ...],
) -> int:
    """Judge implementations against the vectors.

    Without --testee and --command, all testees whose toolchain is installed take part, and so does kfuzz itself. GLOBs
    choose vectors by id. Exit code 0: every outcome is as expected; 1: some are not; 2: wrong use. Ctrl-C ends the run
    early: it shows and writes the answers so far, with exit code 130.

    NAME@VERSION may be any version of a library whose testee.toml says how to build it. It is built once, in a folder
    of its own, and compared with nothing: no outcome fails the run. `kfuzz report --history NAME` compares versions.

    With --path, a testee is built with a working copy of its library, in a folder of its own. The report calls it
    NAME@path, and compares each outcome with that of the pinned version. Exit code 0: none is worse.

    With --duration, the outcomes that are left are not-asked, and expected outcomes of that testee are not updated.

    \b
    Examples:
      kfuzz conform
      kfuzz conform --testee aiokafka --html out/aiokafka.html
      kfuzz conform --testee librdkafka --all
      kfuzz conform --testee librdkafka "conversation/*" --update-expected
      kfuzz conform --testee kafkajs@1.12.0 --testee kafkajs@2.2.4 --json versions.json
      kfuzz conform --command "node my-testee.js" "records/v2/count/*"
      kfuzz conform --testee kafka-clients@4.4.0 --update-expected
      kfuzz conform --command ./my-testee --expected outcomes.txt --update-expected
      kfuzz conform --command ./my-testee --expected outcomes.txt --only-failures
      kfuzz conform --testee franz-go --path ../franz-go
      kfuzz conform --testee librdkafka --duration 5m
      kfuzz conform --publish --html public/matrix.html
    """
    require_reports(json_file, junit_file, html_file, expected_file if update_expected else None)
    whole = not globs and not roles
    if update_expected and not whole and (roles or globs != (CONVERSATIONS,)):
        raise UsageError(
            f'--update-expected needs the whole suite, or "{CONVERSATIONS}", or lines would be lost; '
            "leave out other GLOBs and --role"
        )
    suite = root or default_root()
    cases = cases_of(load_suite(globs or "*", suite, kinds=KINDS), roles or ALL_ROLES)
    if not cases:
        raise UsageError("no vector matches these GLOBs and roles; choose others")
    testees = chosen(names, commands, start_timeout_ms=start_timeout_ms)
    if path is not None:
        testees = (_working_copy(testees, path, bool(names), update_expected),)
    if expected_file is not None and len(testees) != 1:
        raise UsageError("--expected is about one testee; name it with --testee NAME@VERSION or --command")
    if update_expected and expected_file is not None and load_own("", expected_file).seal.count:
        raise UsageError(
            f"{expected_file} has a `withheld` line, and --update-expected would list these outcomes for everybody; "
            "leave out --expected, or name another file"
        )
    if update_expected and expected_file is None and (others := [one.label for one in testees if not one.is_pinned]):
        raise UsageError(f"expected outcomes are those of pinned versions, and {others[0]} is not; add --expected FILE")
    # A person who names vectors wants answers about these.
    choose = not take_all and not globs
    if update_expected and choose and (few := [one.label for one in testees if one.vectors == CHOSEN]):
        raise UsageError(f"{few[0]} is asked only chosen vectors, and lines would be lost; add --all")
    places = Places.beside(suite, expected_file)
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
            answer_timeout_ms=timeout_ms,
            budget_s=duration_s,
            on_progress=set_done,
            on_notice=notice,
        )
    from kfuzz.conformance import report

    if json_file:
        write_json(json_file, report.to_json(done))
    if junit_file:
        write_whole(junit_file, report.to_junit(done))
    if html_file:
        write_whole(html_file, report.to_html(done, root=root))
    if not quiet:
        print_outcome(done, causes_shown=causes_shown, only_failures=only_failures)
    if done.interrupted:
        # The exit code is that of an interrupt.
        raise click.Abort
    if update_expected:
        say(*rewrite_expected(done, places), err=quiet)
        return 1 if any(testee.broken or testee.stopped for testee in done.testees) else 0
    return 1 if done.failed else 0


def _working_copy(testees: Sequence[Testee], path: str, named: bool, update_expected: bool) -> Testee:
    from kfuzz.conformance.protocol.working_copy import with_working_copy

    if len(testees) != 1 or not named:
        raise UsageError("--path is about one testee; name it with --testee NAME")
    if update_expected:
        raise UsageError("--path is compared with the pinned version's outcomes; leave out --update-expected")
    return with_working_copy(testees[0], path)
