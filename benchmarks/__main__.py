"""``python -m benchmarks``: measures, prints the ratios, and writes ``results.csv`` and its chart."""

from __future__ import annotations

import argparse
import compileall
import fnmatch
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.commands import console, exit_code
from benchmarks.contestant import VENV_PYTHON, ContestantFailed
from benchmarks.measure import LAP_MS, Ratio
from benchmarks.message_peers import MESSAGE_PEERS
from benchmarks.mixed import MixedSet
from benchmarks.paths import FILE_PATHS, MESSAGE_PATHS, PATHS, RECORD_PATHS, Run, run_path
from benchmarks.peers import PEERS, PeerMissing
from benchmarks.report import to_table, write
from kfuzz.errors import UsageError
from kfuzz.files import require_writable
from kfuzz.units import parse_size

BATCHES: Final = 100
ROUNDS: Final = 9
QUICK_BATCHES: Final = 4
QUICK: Final = Run(rounds=3, lap_ms=1, share=QUICK_BATCHES / BATCHES)
# The peers that the paths of each group may have.
GROUPS: Final[tuple[tuple[Mapping[str, Any], Mapping[str, Callable[[], Any]]], ...]] = (
    (RECORD_PATHS, PEERS),
    (MESSAGE_PATHS, MESSAGE_PEERS),
    (FILE_PATHS, {}),
)
ALL_PEERS: Final = tuple(dict.fromkeys([*PEERS, *MESSAGE_PEERS]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare the CPU time of kfuzz with other implementations. A ratio above 1 means kfuzz is faster.",
        epilog="example: python -m benchmarks --path verdict eager-records --peer aiokafka",
    )
    parser.add_argument(
        "--path", nargs="+", metavar="GLOB", help=f"all of records and messages by default; {', '.join(PATHS)}"
    )
    parser.add_argument(
        "--peer", nargs="+", choices=ALL_PEERS, default=ALL_PEERS, metavar="NAME", help=", ".join(ALL_PEERS)
    )
    parser.add_argument(
        "--old", type=Path, metavar="CHECKOUT", help="compare with the kfuzz that `make build` made there, and no peer"
    )
    parser.add_argument("--rounds", type=int, help=f"measurements of each path (default: {ROUNDS})")
    parser.add_argument("--in", dest="place", type=Path, metavar="DIR", help="where logs are written")
    parser.add_argument("--size", help="bytes of the logs of make-*, disk, arrow-*, show-*, cat-*, headers-*, kcat-*")
    parser.add_argument("--quick", action="store_true", help="few batches and rounds: tests that it works, not speed")
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent, metavar="DIR", help="folder for results.csv and results.svg"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit code 0 if everything was measured, 2 for a wrong request or a contestant with other work."""
    options = _parser().parse_args(arguments)
    return exit_code("python -m benchmarks", lambda: _compare(options))


def _compare(options: argparse.Namespace) -> None:
    require_writable(options.out, directory=True)
    out = console()
    rows = _run(options, out)
    out.print(to_table(rows))
    for path in write(rows, options.out):
        out.print(f"wrote {path}", soft_wrap=True)


def _run(options: argparse.Namespace, console: Console) -> list[Ratio]:
    run = _how(options)
    asked = _asked(options)
    # An installed kfuzz has bytecode. A checkout may have none, and then each process would compile its modules.
    for tree in (Path(__file__).parents[1], *filter(None, [run.old])):
        compileall.compile_dir(tree / "kfuzz", quiet=2)
    portable = ", KFUZZ_PORTABLE=1" if os.environ.get("KFUZZ_PORTABLE") == "1" else ""
    console.print(f"Python {platform.python_version()}, {run.rounds} rounds{portable}")
    rows: list[Ratio] = []
    mixed = MixedSet(QUICK_BATCHES if options.quick else BATCHES)
    for group, known in GROUPS:
        paths = [path for path in asked if path in group]
        if paths and group is RECORD_PATHS:
            console.print(f"{mixed.census.records} records")
        peers = list(_installed(options, known, console)) if paths and known and not run.old else []
        for path in paths:
            if sys.stderr.isatty():
                print(f"{path} …", file=sys.stderr)
            try:
                rows += run_path(path, mixed, peers, run)
            except PeerMissing as error:
                console.print(f"{path} is not measured: {error}", soft_wrap=True)
            except ContestantFailed as error:
                # An older kfuzz may lack what this path calls.
                if run.old is None:
                    raise
                console.print(f"{path} is not measured: {error}", soft_wrap=True)
    if not rows:
        raise UsageError("nothing was measured")
    return rows


def _how(options: argparse.Namespace) -> Run:
    run = replace(QUICK if options.quick else Run(ROUNDS, LAP_MS), old=options.old and options.old.resolve())
    if run.old and not (run.old / VENV_PYTHON).is_file():
        raise UsageError(f"{options.old} has no {VENV_PYTHON}; run `make build` there first")
    if options.rounds is not None:
        if options.rounds < 1:
            raise UsageError(f"--rounds is {options.rounds}; give at least 1")
        run = replace(run, rounds=options.rounds)
    if options.size is not None:
        run = replace(run, size=parse_size(options.size))
        if not run.size:
            raise UsageError(f'--size is {options.size!r}; give a size such as "1GiB"')
    if options.place is not None:
        require_writable(options.place, directory=True)
        options.place.mkdir(parents=True, exist_ok=True)
    # Contestants have another working directory.
    return replace(run, place=options.place and options.place.resolve())


def _asked(options: argparse.Namespace) -> list[str]:
    """The paths that a glob names. Without ``--path``: those of records and messages that have a requested peer."""
    if options.path is None:
        groups = [group for group, known in GROUPS if any(name in known for name in options.peer)]
        return [path for group in groups for path in group]
    found = [(glob, fnmatch.filter(PATHS, glob)) for glob in options.path]
    if unknown := [glob for glob, paths in found if not paths]:
        raise UsageError(f"there is no path {unknown[0]!r}; python -m benchmarks --help lists them")
    return list(dict.fromkeys(path for _, paths in found for path in paths))


def _installed(options: argparse.Namespace, known: Mapping[str, Callable[[], Any]], console: Console) -> Iterator[Any]:
    """Yield the requested peers that can run here. For the others, print the reason."""
    found = False
    for name in dict.fromkeys(name for name in options.peer if name in known):
        try:
            peer = known[name]()
        except PeerMissing as error:
            console.print(f"{name} is not compared: {error}", soft_wrap=True)
            continue
        found = True
        console.print(f"against {peer.name} {peer.version}")
        yield peer
    if not found:
        raise UsageError(f"there is no peer to compare with; peers for these paths: {', '.join(known)}")


if __name__ == "__main__":
    sys.exit(main())
