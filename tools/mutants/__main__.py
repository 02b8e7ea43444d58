"""``python -m tools.mutants``: make wrong changes, one at a time, and show those that the tests do not notice."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kfuzz.files import write_whole
from tools.mutants import compiled
from tools.mutants.changes import EXCLUDED, Change, sample
from tools.mutants.run import Copy, Result, copies, mapped, spread

ROOT: Final = Path(__file__).resolve().parents[2]
OUT: Final = ROOT / "out" / "mutants"
LISTED: Final = Path(__file__).with_name("listed.toml")
FAST: Final = "not full and not nightly and not clang and not spark"
SHARE: Final = 0.9
SHARE_COMPILED: Final = 0.95


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants",
        description="Makes wrong changes in copies of the checkout, one at a time, and runs the tests for each.",
        epilog="example: python -m tools.mutants --count 20 --seed 7 --module 'kfuzz/records/*'",
    )
    parser.add_argument("--count", type=int, default=200, help="number of changes (200)")
    parser.add_argument("--seed", type=int, default=1, help="seed that selects the changes (1)")
    parser.add_argument("--module", nargs="+", default=("*",), metavar="GLOB", help="only change these files")
    parser.add_argument("--marks", default=FAST, metavar="EXPRESSION", help=f"only tests with these marks ({FAST})")
    parser.add_argument("--processes", type=int, default=2, help="number of copies that work at a time (2)")
    parser.add_argument("--compiled", action="store_true", help="change Cython and C; all changes are compiled at once")
    parser.add_argument("--survivors", action="store_true", help="only repeat changes that survived the last run")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if the tests notice enough changes or take too long for them, 2 if no change matches, otherwise 1."""
    options = _parser().parse_args(arguments)
    kept = OUT / ("compiled.json" if options.compiled else "result.json")
    how: dict[str, Any] = {"suffixes": compiled.SUFFIXES, "find": compiled.changes} if options.compiled else {}
    changes = sample(ROOT, options.count, options.seed, options.module, **how)
    if options.survivors:
        survived = [_key(one) for one in json.loads(kept.read_text())["changes"] if one["outcome"] == "survived"]
        changes = [change for change in changes if _key(_document(change)) in survived]
    if not changes:
        print("no changes match the options; check --module, --count and --survivors", file=sys.stderr)
        return 2
    results = []
    for change, result in (_compiled if options.compiled else _interpreted)(changes, options):
        made = _document(change) | result._asdict()
        results.append((change, made))
        by = f" by {result.by}" if result.by else ""
        ended = f"{made['before']} -> {made['after']}: {result.outcome}{by}"
        _tell(f"{len(results)} of {len(changes)}: {change.path}: {ended}")
    share = SHARE_COMPILED if options.compiled else SHARE
    return _report(results, None if options.survivors else kept, options.seed, share)


def _interpreted(changes: Sequence[Change], options: argparse.Namespace) -> Iterator[tuple[Change, Result]]:
    for pattern, why in EXCLUDED.items():
        _tell(f"{pattern} is left out: {why}")
    with copies(ROOT, options.processes, options.marks) as free:
        lines = OUT / ("lines" if options.marks == FAST else f"lines {options.marks}")
        tests = mapped(free, ROOT, lines, _tell)
        _tell_failed(name for part in tests.parts.values() for name in part["failed"])

        def judge(copy: Copy, change: Change) -> Result:
            return copy.judge(change, tests.chosen(change))

        yield from zip(changes, spread(free, changes, judge), strict=True)


def _compiled(changes: Sequence[Change], options: argparse.Namespace) -> Iterator[tuple[Change, Result]]:
    reasons = _reasons()
    with compiled.built(
        ROOT, options.processes, options.marks, changes, lambda change: _key(_document(change)) in reasons, _tell
    ) as judge:
        _tell_failed(judge.failed)
        yield from judge.results()


def _tell_failed(names: Iterable[str]) -> None:
    for name in names:
        _tell(f"left out, because it fails without any change: {name}")


def _report(results: Sequence[tuple[Change, dict[str, Any]]], kept: Path | None, seed: int, share: float) -> int:
    reasons = _reasons()
    counts = Counter(made["outcome"] for _, made in results)
    unlisted = 0
    for change, made in results:
        is_compiled = change.path.endswith(compiled.SUFFIXES)
        if made["outcome"] == ("equivalent" if is_compiled else "survived") and _key(made) in reasons:
            made["listed"] = reasons[_key(made)]
        elif made["outcome"] == "survived":
            unlisted += 1
            print(f"\nsurvived ({made['by'] or 'not listed'}) in {change.where or 'the module'}:\n{change.diff()}")
    if kept is not None:
        whole = {
            "seed": seed,
            "count": len(results),
            **{name: counts[name] for name in ("noticed", "survived", "timed out", "equivalent")},
            "changes": [made for _, made in results],
        }
        write_whole(kept, json.dumps(whole, indent=1, ensure_ascii=False) + "\n")
    print(
        f"\n{len(results)} changes with seed {seed}: {counts['noticed']} noticed, {counts['timed out']} timed out, "
        f"{counts['equivalent']} alter no answer, "
        f"{counts['survived']} survived, {unlisted} of those not listed in {LISTED.relative_to(ROOT)}"
    )
    counted = len(results) - counts["equivalent"]
    return 0 if counts["noticed"] + counts["timed out"] >= share * counted else 1


def _reasons() -> dict[tuple[str, ...], str]:
    """Why a change may survive, by its key."""
    return {_key(one): one["why"] for one in tomllib.loads(LISTED.read_text())["survivor"]}


def _document(change: Change) -> dict[str, Any]:
    before, after = change.before_and_after()
    return {"path": change.path, "in": change.where, "kind": change.kind, "before": before, "after": after}


def _key(document: dict[str, Any]) -> tuple[str, ...]:
    """The key of a change in ``listed.toml``. It leaves out line number and folder, because these change."""
    return Path(document["path"]).name, document["in"], document["before"], document["after"]


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
