"""``kfuzz differential``: random inputs for kfuzz and a testee. ``kfuzz.conformance.differential`` does the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path

import click

from kfuzz.cli import options
from kfuzz.cli.console import progress, require_reports, write_json
from kfuzz.conformance.differential.found import Differential
from kfuzz.conformance.differential.messages import differ_messages, release_of, versions_of
from kfuzz.conformance.differential.records import differ, seeds_of
from kfuzz.conformance.differential.sharing import WHAT, What
from kfuzz.conformance.differential.streams import differ_streams
from kfuzz.conformance.protocol.testees import Testee, only
from kfuzz.conformance.report import differences
from kfuzz.errors import UsageError
from kfuzz.files import require_writable
from kfuzz.kafka import LATEST, Role
from kfuzz.mutate import Mutator
from kfuzz.vectors import load_suite

SENTENCES_SHOWN = 20
REFERENCE = f"kafka-clients@{LATEST}"
# Mutants of each version of each message; inputs of the others.
MUTANTS = 200
INPUTS = 20_000


@click.command()
@options.testee(usual=REFERENCE)
@options.testee_command()
@click.option(
    "--what",
    type=click.Choice(WHAT),
    default="records",
    show_default=True,
    help="What the inputs are: record batches, messages, or streams (sequences of batches).",
)
@options.role()
@options.count("; of messages, mutants of each version", usual=f"{INPUTS}; {MUTANTS}")
@options.seed
@options.start_timeout
@options.out("inputs that differ", default="out")
@options.json_file
@options.vectors
@options.globs
def command(
    names: tuple[str, ...],
    commands: tuple[str, ...],
    what: What,
    role: Role,
    count: int | None,
    seed: int,
    start_timeout_ms: int | None,
    out: Path,
    json_file: str | None,
    root: Path | None,
    globs: tuple[str, ...],
) -> int:
    """Give the same random inputs to kfuzz and to a testee, by default the latest kafka-clients, and compare.

    Both must agree on outcome, consumed bytes and contents. The inputs are mutants of generated batches and of the
    vectors whose ids match GLOBs, for a consumer, or for the role that --role names. Brokers must also store the same
    bytes.

    With --what streams, the inputs are sequences of batches, in turn for a broker, a log and a consumer. They test the
    rules that need earlier batches. With --what messages, they are requests, responses and headers of every API, kind
    and version of the testee's Kafka release: with default values, with every field filled, and mutants. Mutants that
    kfuzz can read are also written again.

    The smallest input of each cause is kept in the folder differential of --out. Ctrl-C ends the run early and shows
    the results so far.

    Exit code 0: no difference; 1: some inputs differ; 2: wrong use; 130: interrupted.

    \b
    Examples:
      kfuzz differential --count 100000 --seed 7
      kfuzz differential --role broker --count 50000
      kfuzz differential --testee aiokafka "records/v2/header/*"
      kfuzz differential --command "node my-testee.js" --json differences.json
      kfuzz differential --what streams --count 50000
      kfuzz differential --what messages --testee kafka-clients@3.9.2
    """
    require_reports(json_file)
    place = require_writable(out / "differential", directory=True)
    if what != "records" and (globs or root or role != "consumer"):
        raise UsageError(f"--what {what} makes its own inputs for every role; leave out GLOB, --vectors and --role")
    testee = only(names, commands, default=REFERENCE, start_timeout_ms=start_timeout_ms)
    run, total = _prepared(testee, what, role, count, seed, root, globs)
    before = os.times()
    kept: list[Differential] = []
    interrupted = False
    with progress(what, total) as set_done:
        try:
            run(on_progress=set_done, begun=kept.append)
        except KeyboardInterrupt:
            interrupted = True
            if not kept:
                raise
    [found] = kept
    if not interrupted:
        found.require_support()
    # The testee has ended, so the children's times include it.
    cpu_s = sum(os.times()[:4]) - sum(before[:4])
    files = differences.keep(found, place, seed=seed)
    click.echo(f"{cpu_s:.1f} s of CPU time, {found.inputs / max(cpu_s, 0.01):.0f} inputs per CPU-second", err=True)
    if json_file:
        write_json(json_file, differences.to_json(found, seed=seed, files=files) | {"interrupted": interrupted})
    if json_file != "-":
        for sentence in differences.sentences(found, files, seed=seed, shown=SENTENCES_SHOWN):
            click.echo(sentence)
    if interrupted:
        # The results so far are printed; the exit code is that of an interrupt.
        raise click.Abort
    return 1 if found.failed else 0


def _prepared(
    testee: Testee, what: What, role: Role, count: int | None, seed: int, root: Path | None, globs: tuple[str, ...]
) -> tuple[Callable[..., Differential], int]:
    """The differential, and how many steps of progress it makes."""
    if what == "messages":
        release = release_of(testee)
        steps = sum(1 for _ in versions_of(release))
        return partial(differ_messages, testee, release, seed=seed, mutants=count or MUTANTS), steps
    inputs = count or INPUTS
    if what == "streams":
        return partial(differ_streams, testee, seed=seed, count=inputs), inputs
    mutator = Mutator(seed, seeds=seeds_of(load_suite(globs or "*", root)), role=role)
    return partial(differ, testee, islice(mutator, inputs), role=role, shrunk=SENTENCES_SHOWN), inputs
