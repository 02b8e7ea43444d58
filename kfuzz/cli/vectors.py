"""``kfuzz vectors``: list, build, lint and copy the golden vectors. ``kfuzz.vectors`` does the work."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import Group, echo_json, progress, say
from kfuzz.errors import UsageError
from kfuzz.units import counted
from kfuzz.vectors.kinds import KINDS
from kfuzz.vectors.model import Vector, default_root, load_suite, suite_version

if TYPE_CHECKING:
    from kfuzz.conformance.judge.confirmation import Confirmation
    from kfuzz.vectors.building import Built


@click.group(cls=Group)
def command() -> None:
    """List, build, lint and copy the golden vectors.

    \b
    Examples:
      kfuzz vectors list "records/v2/count/*"
      kfuzz vectors copy testdata/kfuzz
      kfuzz vectors build --check
      kfuzz vectors lint
    """


@command.command("list")
@options.globs
@options.as_json
@options.vectors
def list_vectors(globs: tuple[str, ...], as_json: bool, root: Path | None) -> None:
    """List the vectors whose ids match, each with its verdict for a consumer or for a reader of messages.

    \b
    Examples:
      kfuzz vectors list
      kfuzz vectors list "*/codec/zstd-*" --json
    """
    vectors = load_suite(globs or "*", root, kinds=KINDS)
    if as_json:
        echo_json({"suite": suite_version(root), "vectors": [_described(vector) for vector in vectors]})
        return
    for vector in vectors:
        say(f"{_verdict(vector):<11}{vector.id}  {vector.summary}")
    counts = Counter(map(_verdict, vectors))
    click.echo(f"{counted(len(vectors), 'vector')}: " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))


def _verdict(vector: Vector) -> str:
    """The verdict for the first role of the vector's kind. A stream has a verdict per step: return its kind instead."""
    return vector.kind if vector.steps else str(vector.expect[KINDS[vector.kind].roles[0]]["verdict"])


def _described(vector: Vector) -> dict[str, Any]:
    """The JSON form of a vector, without its bytes and contents."""
    names = ("budget", "flags", "id", "kafka", "level", "requirements", "size", "summary")
    verdicts = {role: expectation["verdict"] for role, expectation in vector.expect.items()}
    return {name: getattr(vector, name) for name in names} | {"verdicts": verdicts}


@command.command("build")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a committed file differs from its recipes.")
@click.option("--confirm", is_flag=True, help="Ask Apache Kafka about every vector; exit 1 if it contradicts one.")
@click.option("--broker", is_flag=True, help="Show every vector to a real broker too; exit 1 if it contradicts one.")
@options.vectors
def build_vectors(check: bool, confirm: bool, broker: bool, root: Path | None) -> int:
    """Build the vector files from their recipes.

    Compressed bytes stay as committed while they decompress to the same contents. Vectors without a recipe stay as they
    are. --confirm writes the answers of kafka-clients into the vectors' cells. --broker starts a broker and writes its
    answers too; this takes a minute or two (docs/real-broker.md). If Kafka contradicts a recipe, nothing is written.

    \b
    Examples:
      kfuzz vectors build
      kfuzz vectors build --check
      kfuzz vectors build --confirm --broker
    """
    from kfuzz.vectors import building as build
    from kfuzz.vectors import pages

    if check and (confirm or broker):
        raise UsageError(
            "--check writes nothing; --confirm and --broker write Kafka's answers; do not use them together"
        )
    place = root or default_root()
    if check and not place.is_dir():
        raise UsageError(f"{place} is not a directory; name the one that holds the vectors with --vectors")
    files = build.build(place)
    changes = [f"{file.path.relative_to(place)}: {change}" for file in files for change in file.changes]
    if check:
        changes += [f"{page}: not up to date with the suite" for page in pages.stale(place)]
    say(*changes)
    total = sum(len(file.document["vectors"]) for file in files)
    if check:
        click.echo(
            f"{total} vectors in {len(files)} files: " + (f"{len(changes)} differences" if changes else "as built")
        )
        return 1 if changes else 0
    vectors = [vector for file in files for vector in file.vectors]
    if confirm:
        from kfuzz.conformance.judge import confirmation

        files = _filled(files, confirmation.confirm(vectors, progress=progress))
    if broker:
        from kfuzz.conformance.broker import judge, talk

        files = _filled(_filled(files, judge(vectors)), talk(vectors))
    build.write(place, files)
    pages.write(place)
    click.echo(f"{total} vectors in {len(files)} files")
    return 0


def _filled(files: tuple[Built, ...], found: Confirmation) -> tuple[Built, ...]:
    """The files with Kafka's answers in their cells. Prints contradictions, if any, and exits with 1."""
    if found.contradictions:
        say(*found.contradictions)
        click.echo(f"{len(found.contradictions)} contradictions; nothing was written")
        click.get_current_context().exit(1)
    return tuple(replace(file, document=found.filled(file.document)) for file in files)


@command.command("lint")
@options.as_json
@options.vectors
def lint_vectors(as_json: bool, root: Path | None) -> int:
    """Check what the schema cannot check: flags, requirements, ids, CRCs, budgets, balance, Kafka's cells.

    Exit code 0: no problems; 1: problems found.

    \b
    Examples:
      kfuzz vectors lint
      kfuzz vectors lint --json --vectors my-vectors/
    """
    from kfuzz.vectors.linting import lint

    place = root or default_root()
    if not place.is_dir():
        raise UsageError(f"{place} is not a directory of vectors; name one that holds vector files")
    problems = lint(place)
    if as_json:
        echo_json([asdict(problem) for problem in problems])
    else:
        say(*problems)
        click.echo(f"{len(problems)} to fix" if problems else "nothing to fix")
    return 1 if problems else 0


@command.command("copy")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@options.globs
@click.option("--bombs", is_flag=True, help="Also write the bytes of bombs, which are otherwise copied as recipes.")
@options.overwrite
@options.as_json
@options.vectors
def copy_vectors(
    directory: Path, globs: tuple[str, ...], bombs: bool, overwrite: bool, as_json: bool, root: Path | None
) -> None:
    """Copy the suite into DIR so that another project can vendor it: vectors, schema, requirements, example readers.

    The README.md in DIR explains how to run the vectors in any language, without kfuzz. With GLOBs, only vectors whose
    ids match are copied. --overwrite replaces an earlier copy; other files in DIR stay.

    \b
    Examples:
      kfuzz vectors copy testdata/kfuzz
      kfuzz vectors copy testdata/kfuzz "records/v2/*" --overwrite
      kfuzz vectors copy testdata/kfuzz --bombs --json
    """
    from kfuzz.vectors.copying import copy

    done = copy(directory, globs or ("*",), root=root, bombs=bombs, force=overwrite)
    if as_json:
        facts = {one.name: getattr(done, one.name) for one in fields(done)}
        echo_json({"suite": facts.pop("version"), **facts})
        return
    say(f"{done.vectors} vectors copied to {directory}; README.md there says how to run them")
    if done.bombs and not bombs:
        click.echo(f"{done.bombs} of them are bombs, without their bytes; --bombs writes those too")
