"""``python -m benchmarks``: measures, prints the ratios, and writes ``results.csv`` and its chart."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

from rich.console import Console

from benchmarks.commands import console, exit_code
from benchmarks.measure import LAP_MS, Ratio
from benchmarks.message_peers import MESSAGE_PEERS, MessagePeer
from benchmarks.mixed import MixedSet
from benchmarks.paths import MESSAGE_PATHS, PATHS, RECORD_PATHS, Run, run_message_path, run_path
from benchmarks.peers import PEERS, Peer, PeerMissing
from benchmarks.remote import VENV_PYTHON
from benchmarks.report import to_table, write
from kfuzz.errors import UsageError
from kfuzz.files import require_writable

BATCHES: Final = 100
ROUNDS: Final = 9
QUICK_BATCHES: Final = 4
QUICK: Final = Run(rounds=3, lap_ms=1, share=QUICK_BATCHES / BATCHES)
ALL_PEERS: Final = tuple(dict.fromkeys([*PEERS, *MESSAGE_PEERS]))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Compare the CPU time of kfuzz with other implementations. A ratio above 1 means kfuzz is faster.",
        epilog="example: python -m benchmarks --path verdict eager-records --peer aiokafka",
    )
    parser.add_argument("--path", nargs="+", choices=PATHS, metavar="NAME", help=", ".join(PATHS))
    parser.add_argument(
        "--peer", nargs="+", choices=ALL_PEERS, default=ALL_PEERS, metavar="NAME", help=", ".join(ALL_PEERS)
    )
    parser.add_argument(
        "--old", type=Path, metavar="CHECKOUT", help="compare with the kfuzz that `make build` made there, and no peer"
    )
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
    run = replace(QUICK if options.quick else Run(ROUNDS, LAP_MS), old=options.old and options.old.resolve())
    if run.old and not (run.old / VENV_PYTHON).is_file():
        raise UsageError(f"{options.old} has no {VENV_PYTHON}; run `make build` there first")
    portable = ", KFUZZ_PORTABLE=1" if os.environ.get("KFUZZ_PORTABLE") == "1" else ""
    console.print(f"Python {platform.python_version()}, {run.rounds} rounds{portable}")
    rows: list[Ratio] = []
    with ExitStack() as stack:
        if paths := _asked(options, RECORD_PATHS, PEERS):
            mixed = MixedSet(QUICK_BATCHES if options.quick else BATCHES)
            console.print(f"{mixed.census.records} records")
            peers = []
            for peer in () if run.old else _installed(options, PEERS, console):
                stack.callback(peer.close)
                peers.append(peer)
            for path in paths:
                _say(path)
                rows += run_path(path, mixed, peers, run)
        if paths := _asked(options, MESSAGE_PATHS, MESSAGE_PEERS):
            message_peers = [] if run.old else list(_installed(options, MESSAGE_PEERS, console))
            for path in paths:
                _say(path)
                rows += run_message_path(path, message_peers, run)
    return rows


def _asked(options: argparse.Namespace, paths: Sequence[str], peers: Mapping[str, object]) -> list[str]:
    """The requested ones of ``paths``. Without ``--path``: all of them if one of ``peers`` is requested."""
    if options.path is None:
        return list(paths) if any(name in peers for name in options.peer) else []
    return [path for path in dict.fromkeys(options.path) if path in paths]


AnyPeer = TypeVar("AnyPeer", Peer, MessagePeer)


def _installed(
    options: argparse.Namespace, known: Mapping[str, Callable[[], AnyPeer]], console: Console
) -> Iterator[AnyPeer]:
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


def _say(path: str) -> None:
    if sys.stderr.isatty():
        print(f"{path} …", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
