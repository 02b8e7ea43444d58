"""How long campaigns take to find drawn bugs: ``python -m benchmarks.drawn``.

A seed draws wrong changes of compiled code, as ``tools.mutants --compiled`` does. Those that alter an answer are looked
for by a campaign each, in a copy of kfuzz that holds all of them, with kafka-clients as the other reader.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from benchmarks.fuzz import look
from benchmarks.planting import ROOT, TRUTH, Garden, Planted
from kfuzz.cli import options
from kfuzz.cli.console import echo_json, notice, say
from tools.mutants import compiled
from tools.mutants.changes import Change, sample

# The decoders; a change of the mutator or of a corpus is no bug of a decoder.
DECODERS: Final = ("kfuzz/wire/*",)
# The target that looks for a change, by the answers that it alters.
TARGETS: Final = {
    "consumer": "record-batch",
    "written": "record-batch",
    "broker": "broker",
    "log": "broker",
    "columns": "columns",
    "messages": "messages",
    "facts": "log-tools",
}
ANSWERS: Final = 60_000
# Of the drawn changes, about a half alters an answer.
DRAWN_FACTOR: Final = 3


def altering(garden: Garden, changes: dict[int, Change], page: compiled.Page) -> Iterator[tuple[int, str]]:
    """The numbers of the ``changes`` that alter an answer, each with the target that should find it."""
    # These inputs are made while no change is on. A changed mutator would make others, which have other answers.
    made = str(garden.folder / "inputs")
    garden.call("-m", "tools.mutants.agreeing", "--make", made, str(ANSWERS))
    usual = _answers(garden, made)
    for number in changes:
        page.turn_on(number)
        answers = _answers(garden, made)
        # A process that dies says nothing about the other questions.
        altered = [name for name in TARGETS if (answers or _answers(garden, made, name)).get(name) != usual[name]]
        page.turn_on(0)
        if altered:
            yield number, TARGETS[altered[0]]


def _answers(garden: Garden, inputs: str, *only: str) -> dict[str, str]:
    """The digests of the answers to all questions or some; empty if the copy does not end well."""
    try:
        done = garden.call("-m", "tools.mutants.agreeing", inputs, *only, timeout_s=120)
    except subprocess.SubprocessError:
        return {}
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


def _search(garden: Garden, bug: Planted, seed: int, seconds: int) -> float | None:
    """The CPU-seconds until a campaign finds the bug; None if it does not, or cannot go on."""
    page = os.environ[compiled.VARIABLE]
    try:
        return look(garden, bug, "nothing", seed, seconds)
    except click.ClickException:
        del os.environ[compiled.VARIABLE]
    # The campaign's own process runs the changed code too, to make its seeds. Where that fails, it gets the original.
    try:
        return look(garden, bug, "nothing", seed, seconds, {compiled.VARIABLE: page})
    except click.ClickException as failed:
        # A bug that damages the heap can stop a fuzzer for good.
        notice(failed.message.splitlines()[-1])
        return None
    finally:
        os.environ[compiled.VARIABLE] = page


@click.command()
@click.option("--count", type=click.IntRange(1, 500), default=20, show_default=True, help="How many bugs.")
@click.option("--draw-seed", type=click.IntRange(1), default=1, show_default=True, help="Seed that draws them.")
@click.option("--seeds", type=click.IntRange(1, 100), default=3, show_default=True, help="Campaigns for each.")
@click.option("--seconds", type=click.IntRange(5), default=60, show_default=True, help="When a campaign gives up.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=ROOT / "build" / "drawn")
@options.as_json
def main(count: int, draw_seed: int, seeds: int, seconds: int, folder: Path, as_json: bool) -> None:
    """Print the CPU-seconds that campaigns take to find bugs that a seed draws."""
    how: dict[str, Any] = {"suffixes": compiled.SUFFIXES, "find": compiled.changes}
    drawn = sample(ROOT, DRAWN_FACTOR * count, draw_seed, DECODERS, **how)
    garden = Garden(folder)
    notice(f"compiling {len(drawn)} changes at once (some minutes)")
    kept = compiled.build(folder, drawn, notice)
    garden.build_targets()
    page = compiled.Page(folder / "changes")
    os.environ[compiled.VARIABLE] = str(page.path)
    made = []
    for number, target in altering(garden, kept, page):
        before, after = kept[number].before_and_after()
        bug = Planted(f"drawn {number}", "", target, "none", True, Path())
        page.turn_on(number)
        found = [_search(garden, bug, seed, seconds) for seed in range(1, seeds + 1)]
        page.turn_on(0)
        made.append({"path": kept[number].path, "before": before, "after": after, "target": target, "cpu_s": found})
        times = ", ".join("not found" if one is None else f"{one:.0f}" for one in found)
        notice(f"{len(made)} of {count}: {kept[number].path}: {before} -> {after}: {target}: {times}")
        if len(made) == count:
            break
    whole = sum(None not in one["cpu_s"] for one in made)
    if as_json:
        echo_json({"truth": TRUTH, "seeds": seeds, "bugs": made, "found_by_each_seed": whole})
    else:
        say(f"{whole} of {len(made)} bugs were found by each of {seeds} seeds")


if __name__ == "__main__":
    main()
