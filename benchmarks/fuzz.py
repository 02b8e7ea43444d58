"""How long campaigns take to find planted bugs: ``python -m benchmarks.fuzz``, or ``make bench-fuzz``.

Each bug of ``tests/fuzz/planted`` is looked for with everything, and without native coverage, structured mutations or
another reader. A cell is the median of the CPU-seconds until it was found, over some seeds. They count the whole
command, with the start of Python, the seeds, and the other reader.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
from rich.table import Table

from benchmarks.commands import console
from benchmarks.planting import TRUTH, Garden, Planted, planted
from kfuzz.cli import options
from kfuzz.cli.console import echo_json
from kfuzz.display import progress

WITHOUT: Final = ("nothing", "coverage", "structure", "truth")
# The process dies before its first input: everybody would see it.
DIED: Final = "ended without a result"
# A campaign in the copy of kfuzz. It prints how many causes it has found.
ONCE: Final = """
import json, os, sys
from kfuzz.fuzz import campaign
from kfuzz.fuzz.other_reader import named_testee
target, truth, settings, hidden = json.loads(sys.argv[1])
# The fuzzers that it starts get these variables. C code of its own process does not see them.
os.environ._data.update((os.fsencode(name), os.fsencode(value)) for name, value in hidden.items())
[result] = campaign.run([target], stop_at_first=True, truth=truth and named_testee(truth), **settings)
print(len(result.causes))
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """The cost of finding one bug without one part: CPU-seconds for each seed, None where it was not found in time."""

    bug: str
    without: str
    cpu_seconds: tuple[float | None, ...]

    def __str__(self) -> str:
        found = [seconds for seconds in self.cpu_seconds if seconds is not None]
        if len(found) * 2 <= len(self.cpu_seconds):
            return f"– ({len(found)} of {len(self.cpu_seconds)})"
        # A seed that did not find it took longer than all that did.
        median = statistics.median(sorted(found) + [max(found)] * (len(self.cpu_seconds) - len(found)))
        return f"{median:.1f}" if len(found) == len(self.cpu_seconds) else f"{median:.1f} ({len(found)})"


def measure(
    garden: Garden, bug: Planted, without: str, seeds: Sequence[int], seconds: int, done: Callable[[], None]
) -> Cell:
    """Look for a planted bug once with each seed; ``done`` is called after each. The bug must be planted."""
    found = []
    for seed in seeds:
        found.append(look(garden, bug, without, seed, seconds))
        done()
    return Cell(bug.name, without, tuple(found))


def look(
    garden: Garden, bug: Planted, without: str, seed: int, seconds: int, hidden: Mapping[str, str] | None = None
) -> float | None:
    """The CPU-seconds until a campaign with this seed finds the bug; None if it does not.

    ``hidden`` are variables of the fuzzers' environment that the campaign's own process does not have.
    """
    with tempfile.TemporaryDirectory(prefix="kfuzz-bench-") as out:
        settings = {
            "seconds": seconds,
            "seed": seed,
            "sanitizer": bug.sanitizer,
            "without": without if without in ("coverage", "structure") else None,
            "out": out,
        }
        truth = TRUTH if bug.truth and without != "truth" else None
        before = _children_cpu_s()
        try:
            done = garden.call("-c", ONCE, json.dumps([bug.target, truth, settings, dict(hidden or {})]))
        except subprocess.CalledProcessError as error:
            if DIED in error.stderr:
                return _children_cpu_s() - before
            raise click.ClickException(f"the campaign for {bug.name} failed:\n{error.stderr.strip()}") from None
        return _children_cpu_s() - before if json.loads(done.stdout) else None


def _children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def parts_of(bug: Planted) -> list[str]:
    """The part that the search for the bug goes without."""
    return [part for part in WITHOUT if bug.truth or part != "truth"]


@click.command()
@click.argument("names", nargs=-1, metavar="[BUG]...")
@click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True)
@click.option("--seconds", type=click.IntRange(5), default=60, show_default=True, help="When a campaign gives up.")
@click.option("--without", "only", type=click.Choice(WITHOUT), multiple=True, help="Only these columns.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), help="Where the copy of kfuzz is.")
@options.as_json
def main(
    names: tuple[str, ...], seeds: int, seconds: int, only: tuple[str, ...], folder: Path | None, as_json: bool
) -> None:
    """Print the CPU-seconds that campaigns take to find the planted bugs."""
    known = {bug.name: bug for bug in planted()}
    if unknown := [name for name in names if name not in known]:
        raise click.UsageError(f"there is no bug {unknown[0]}; take {', '.join(known)}")
    bugs = [known[name] for name in names] or list(known.values())
    work = [(bug, [part for part in parts_of(bug) if not only or part in only]) for bug in bugs]
    garden = Garden(folder) if folder else Garden()
    cells: list[Cell] = []
    runs = itertools.count(1)
    with progress("campaigns", seeds * sum(len(parts) for _, parts in work), quiet=as_json) as set_done:
        for bug, parts in work:
            with garden.with_bug(bug):
                for part in parts:
                    cells.append(measure(garden, bug, part, range(1, seeds + 1), seconds, lambda: set_done(next(runs))))
    if as_json:
        echo_json([asdict(cell) for cell in cells])
        return
    columns = [part for part in WITHOUT if not only or part in only]
    table = Table("bug", "target", *(f"without {part}" for part in columns))
    for bug, _ in work:
        by_part = {cell.without: str(cell) for cell in cells if cell.bug == bug.name}
        table.add_row(bug.name, bug.target, *(by_part.get(part, "") for part in columns))
    console().print(table)


if __name__ == "__main__":
    main()
