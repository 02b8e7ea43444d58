"""``kfuzz keep``: make a vector and a regression of a crash. ``kfuzz.fuzz.keeping`` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kfuzz.cli import options
from kfuzz.cli.console import PATH, echo_json, say
from kfuzz.errors import UsageError
from kfuzz.files import require_writable, write_all
from kfuzz.fuzz.keeping import Disagrees, Kept, kept_regression, kept_vector
from kfuzz.fuzz.kept import input_of_target, kept_at
from kfuzz.fuzz.talking import kept_conversation


@click.command()
@click.argument("crash", metavar="CRASH", type=click.Path(path_type=Path))
@click.option(
    "--id",
    metavar="ID",
    help="The id of the vector: the path of its file in vectors/, then its own name, which is also that of the "
    "regression.  [default with --regression-only: the name of CRASH]",
)
@click.option("--summary", metavar="TEXT", help="What is in the bytes, in one line.  [default: kfuzz's finding]")
@click.option(
    "--requirement",
    "requirements",
    multiple=True,
    metavar="ID",
    help="A requirement that it is about; may be repeated.  [default: that of kfuzz's finding]",
)
@click.option("--flag", "flags", multiple=True, metavar="NAME", help="A flag that its file explains; may be repeated.")
@click.option(
    "--hostile",
    metavar="FIELD",
    help="The hostile field, by its whole path in the dump, such as batch[0].crc.  [default: the one that kills]",
)
@click.option(
    "--acceptable",
    is_flag=True,
    help="Decoders may also refuse what kfuzz and Kafka read: the documents are silent, or only say what should be.",
)
@click.option("--regression-only", is_flag=True, help="Make no vector.")
@options.target("that CRASH, as bytes or in a .hex file, is any input of")
@options.dry_run
@options.vectors
@click.option(
    "--regressions",
    type=PATH,
    metavar="DIR",
    help="Where regressions are kept.  [default: corpus/regressions of the checkout]",
)
@options.as_json
def command(
    crash: Path,
    id: str | None,
    regression_only: bool,
    target: str | None,
    dry_run: bool,
    summary: str | None,
    regressions: Path | None,
    as_json: bool,
    **about_vector: Any,
) -> int:
    """Make a vector and a regression of CRASH, the smallest input of a cause that `kfuzz fuzz` or `kfuzz
    differential` found.

    The vector has no recipe: `kfuzz vectors build` never changes its bytes. The field that kills is its hostile field.
    kfuzz's own reader gives the expectations, and Apache Kafka must confirm them: kfuzz asks both releases of
    kafka-clients and, for records, the real broker. That needs Java and Maven, and takes a minute.

    The cause of a campaign against a whole client becomes a golden conversation in a folder of your own, DIR of
    --vectors. `kfuzz conform --vectors DIR --testee NAME "conversation/*"` asks a client about it. Kafka is not asked.

    The regression goes to corpus/regressions/<target>/. Only inputs of `record-batch`, `compressed-batch`,
    `broker`, `messages` and a differential make a vector; keep others with --regression-only.

    Exit code 0: kept; 1: Kafka contradicts kfuzz, and nothing was written; 2: wrong use.

    \b
    Examples:
      kfuzz keep out/fuzz/record-batch/causes/panics-01234567 --id records/v2/count/negative
      kfuzz keep out/differential/seed-1-input-42.bin --id records/v2/record/key-length --flag LengthBeyondRecord
      kfuzz keep out/fuzz/columns/causes/loses-01234567 --regression-only --id empty-value
      kfuzz keep input.hex --target messages --id messages/counts/fetch-request-v18 --dry-run
      kfuzz keep out/fuzz/mine/causes/loses-01234567.json --id conversation/mine/fetch-start --vectors mine
    """
    if not crash.exists():
        raise UsageError(f"{crash} does not exist; check the name")
    # The table of the causes has the name of its folder.
    is_of_client = target is None and crash.suffix == ".json" and crash.resolve().parent.name == "causes" != crash.stem
    found = input_of_target(crash, target) if target is not None else kept_at(crash)
    if found is None and not is_of_client:
        raise UsageError(
            f"{crash} is not the smallest input of a cause; name a file that a campaign or a differential wrote, "
            "or say with --target which fuzz target it breaks"
        )
    if regressions is not None:
        require_writable(regressions, directory=True)
    if found is None:
        kept = _conversation(crash, id, summary, only=regression_only, regressions=regressions, **about_vector)
    elif regression_only:
        if strays := options.given(*about_vector):
            raise UsageError(f"{strays[0]} is about a vector; leave it out with --regression-only")
        kept = kept_regression(found, id and id.rpartition("/")[2], summary=summary, regressions=regressions)
    elif id is None:
        raise UsageError("give the vector a name with --id, or keep only a regression with --regression-only")
    else:
        try:
            kept = kept_vector(found, id, summary=summary, regressions=regressions, **about_vector)
        except Disagrees as error:
            say(*error.sentences)
            click.echo("Kafka and kfuzz disagree, so nothing was written; --regression-only keeps it without a verdict")
            return 1
    if not dry_run:
        write_all(kept.files)
    if as_json:
        echo_json({"files": sorted(map(str, kept.files)), "vector": kept.item, "written": not dry_run})
        return 0
    if kept.item is not None and dry_run:
        echo_json(kept.item)
    here = Path.cwd()
    for file in sorted(kept.files):
        shown = file.relative_to(here) if file.is_relative_to(here) else file
        say(f"{'would write' if dry_run else 'wrote'} {shown}")
    return 0


def _conversation(
    cause: Path,
    id: str | None,
    summary: str | None,
    *,
    root: Path | None,
    requirements: Sequence[str],
    **others: object,
) -> Kept:
    if id is None or root is None:
        raise UsageError("a conversation is kept in a folder of your own; give --vectors DIR and --id conversation/…")
    if any(others.values()):
        raise UsageError("a conversation takes --id, --vectors, --summary and --requirement; leave out the others")
    return kept_conversation(cause, id, root, summary=summary, requirements=requirements)
