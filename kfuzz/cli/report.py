"""``kfuzz report``: turn the result of a run into other forms, or compare two. ``kfuzz.conformance.report`` does it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kfuzz.cli import options
from kfuzz.cli.console import echo_json, progress, require_reports, say
from kfuzz.documents import JSON_BYTES_MAX, load_json
from kfuzz.errors import UsageError
from kfuzz.files import read_bytes, write_whole
from kfuzz.text import foreign_text, printable
from kfuzz.units import counted

if TYPE_CHECKING:
    from rich.console import Console

    from kfuzz.conformance.judge.matrix import Run
    from kfuzz.conformance.report import Changes
    from kfuzz.vectors import Vector

SENTENCES_SHOWN = 20


@click.command()
@click.argument("files", metavar="RESULT.json [NEWER.json]", nargs=-1, required=True)
@click.option(
    "--history",
    "name",
    metavar="NAME",
    help="Show the causes of all versions of the testee NAME in one or more results.",
)
@options.html_file
@click.option(
    "--site",
    metavar="DIR",
    help="Write the same page for others, as a folder for a web server. It withholds as --publish does.",
)
@options.junit_file
@options.outcomes
@click.option(
    "--disclose",
    "private",
    metavar="DIR",
    help="Write a report for the maintainers about each cause, and try its reproducer.",
)
@options.vectors
@options.as_json
def command(
    files: tuple[str, ...],
    name: str | None,
    html_file: str | None,
    site: str | None,
    junit_file: str | None,
    causes_shown: int,
    only_failures: bool,
    publish: bool,
    private: str | None,
    root: Path | None,
    as_json: bool,
) -> int:
    """Show the result of `kfuzz conform --json RESULT.json`: what each implementation does wrong, worst first.

    Deviations with one cause are one line, with the number of vectors and the smallest of them. With a second result,
    only the changes are shown: causes that are new, causes that are gone, and outcomes that changed. It may be of
    another version of the implementation. Only questions that both results answer are compared.

    With --history, the results are about versions of one implementation: any number of versions in each result, any
    number of results. A table has a row for each cause and a column for each version, with the number of vectors. Below
    it is what each version brought and mended. A cause that comes with something that no version before supports is
    listed apart. The exit code is 0.

    With --html, the whole result is one page with filters and search, which needs no network. It shows everything,
    unless --publish is given. With --site, DIR gets the same page with its data in files of their own. A site is for
    others, so it withholds what is not public yet, as DISCLOSURE.md says. DIR must be empty or not exist.

    With --disclose, DIR gets a folder for each cause: a report that its maintainers can use, the bytes, and a short
    program in their language that shows the fault. kfuzz runs each program, within bounds, and the report says what it
    did. Outcomes that differ where either is allowed have no report. The reports are not public: send them as
    DISCLOSURE.md says.

    Exit code 0: every outcome is as expected, or nothing changed; 1: otherwise; 2: wrong use.

    \b
    Examples:
      kfuzz report result.json
      kfuzz report result.json --html result.html
      kfuzz report result.json --html public.html --publish
      kfuzz report result.json --site public/matrix
      kfuzz report monday.json tuesday.json
      kfuzz report library-1.0.json library-1.1.json
      kfuzz report versions.json --history kafkajs
      kfuzz report result.json --disclose embargo/reports
      kfuzz report result.json --json | jq '.causes[0]'
    """
    require_reports(None, html_file, junit_file)
    if (name or len(files) > 1) and (html_file or site or junit_file or only_failures or publish or private):
        raise UsageError(
            "--html, --site, --junit, --publish, --disclose and --only-failures are about one result; give only one, "
            "without --history"
        )
    if len(files) > 2 and not name:
        raise UsageError(f"{len(files)} results; give one, two to compare them, or add --history NAME")
    if publish and private:
        raise UsageError("--disclose writes to maintainers, and --publish hides what they must know; leave one out")
    from kfuzz.conformance import report
    from kfuzz.conformance.judge.matrix import Places, published
    from kfuzz.vectors import KINDS, default_root, load_suite

    if site is not None:
        report.require_empty(site)
    place = root or default_root()
    suite = load_suite("*", place, kinds=KINDS)
    if name:
        _print_history(name, files, suite, as_json)
        return 0
    result = files[0]
    if len(files) > 1:
        changes = _changes(result, files[1], suite)
        if as_json:
            echo_json(changes.to_json())
        else:
            say(*changes.sentences())
        return 1 if changes else 0
    run, _ = _run_in(result, suite)
    public = published(run, Places.beside(place)) if publish or site else run
    run = public if publish else run
    if html_file:
        write_whole(html_file, report.to_html(run, root=root))
    if site:
        report.write_site(public, site, root=root)
    if junit_file:
        write_whole(junit_file, report.to_junit(run))
    if private:
        _disclose(run, Path(private), root)
    if as_json:
        echo_json(report.to_json(run))
    else:
        print_run(run, causes_shown=causes_shown, only_new=only_failures)
        for testee in run.testees:
            if testee.stopped:
                say(f"{testee.label} was not asked to the end: {testee.stopped}")
    return 1 if run.failed else 0


def _print_history(name: str, files: Sequence[str], suite: Sequence[Vector], as_json: bool) -> None:
    from kfuzz.conformance import report

    left_out: list[str] = []
    found = report.history_of(name, [_run_in(file, suite, left_out)[0] for file in files])
    found = replace(found, notes=[*_left_out(left_out), *found.notes])
    if as_json:
        echo_json(found.to_json())
        return
    _console().print(found.table())
    say(*found.sentences())


def _disclose(run: Run, directory: Path, root: Path | None) -> None:
    from kfuzz.conformance.protocol.testees import all_testees
    from kfuzz.conformance.report import disclosure
    from kfuzz.vectors.model import load_requirements

    disclosure.require_private(directory)
    requirements, documents = load_requirements(root)
    with progress("reports", len(disclosure.faults(run))) as set_done:
        done = disclosure.disclose(
            run,
            directory,
            testees=all_testees(),
            requirements=requirements,
            documents=documents,
            on_progress=set_done,
        )
    say(*done.notes, err=True)
    say(f"{len(done.folders)} reports in {directory}; they are not public", err=True)


def _changes(older: str, newer: str, suite: Sequence[Vector]) -> Changes:
    from kfuzz.conformance import report

    left_out: list[str] = []
    (before, old), (after, new) = (_run_in(file, suite, left_out) for file in (older, newer))
    changes = report.changes(before, after)
    changes.notes[:0] = _left_out(left_out)
    if old != new:
        judged = f"kfuzz {old} judged {older}, kfuzz {new} {newer}: their vectors may differ too"
        changes.notes.insert(0, printable(judged))
    return changes


def _left_out(vectors: Sequence[str]) -> list[str]:
    """A sentence about the vectors of a result that the suite does not have; nothing if it has all."""
    gone = list(dict.fromkeys(vectors))
    others = " and others" if len(gone) > 1 else ""
    return [printable(f"{counted(len(gone), 'vector')} not in this suite, left out: {gone[0]}{others}")] if gone else []


def _run_in(file: str, suite: Sequence[Vector], left_out: list[str] | None = None) -> tuple[Run, str]:
    """The run of a result, and the version of kfuzz that has judged it."""
    from kfuzz.conformance import report

    remedy = "give the file that `kfuzz conform --json` wrote"
    document = load_json(read_bytes(file, bytes_max=JSON_BYTES_MAX), file, remedy=remedy)
    try:
        run = report.from_json(document, suite, left_out=left_out)
    except UsageError as error:
        raise UsageError(f"{file}: {error}") from None
    return run, foreign_text(document["kfuzz"], bytes_max=200)


def print_run(run: Run, *, causes_shown: int, only_new: bool) -> None:
    """Print the tables of a run to standard output."""
    from kfuzz.conformance import report

    console = _console()
    for table in report.to_terminal(run, causes_shown=causes_shown, only_new=only_new):
        console.print(table)


def _console() -> Console:
    import shutil

    from rich.console import Console

    return Console(width=shutil.get_terminal_size((120, 40)).columns, highlight=False)


def print_outcome(done: Run, *, causes_shown: int, only_failures: bool) -> None:
    """Print the tables of a run, its notes, and the outcomes that are not as expected."""
    from kfuzz.conformance import report

    print_run(done, causes_shown=causes_shown, only_new=only_failures)
    for testee in done.testees:
        if notes := [f"{testee.label}: {note}" for note in report.notes_of(testee)]:
            _say_first(notes[:-1], "--json has them all")
            say(notes[-1])
    say(*done.dropped)
    without_cause = report.sentences(done, with_causes=False)
    _say_first([f"unexpected: {sentence}" for sentence in without_cause], "--html or --json shows them all")
    count = len(report.sentences(done))
    by_cause = "; the causes marked with ! have them" if count > len(without_cause) else ""
    pinned = done.testees[0].pinned
    bad, good = (
        (f"worse than {pinned}", f"nothing worse than {pinned}") if pinned else ("not as expected", "as expected")
    )
    click.echo(f"{count} {bad}{by_cause}" if count else good)


def _say_first(sentences: Sequence[str], others: str) -> None:
    """Print the first sentences; ``others`` says where all of them are."""
    say(*sentences[:SENTENCES_SHOWN])
    if len(sentences) > SENTENCES_SHOWN:
        click.echo(f"… and {len(sentences) - SENTENCES_SHOWN} more; {others}")
