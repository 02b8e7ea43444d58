"""Calls every path with allocations that fail, each path in a process of its own; run by test_failing_allocations.py.

For each n the n-th allocation fails, alone or with some after it, until the call needs no more. Each call is made
several times over, so that a block that is lost each time is told from one that is kept for good. Prints a JSON object
a path: how many allocations it makes, in how many calls one failed, and what was wrong.
"""

from __future__ import annotations

import argparse
import faulthandler
import fnmatch
import gc
import importlib.util
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

# How many fail one after another. Not all from the n-th on: CPython 3.11 tries for ever to make the number that a
# handler of exceptions is entered with.
RUNS = (1, 10)
# Its binding to Rust ends the process where an allocation fails, so its own never do.
SPARED = "cramjam"
OURS = re.compile(r"/kfuzz/(corpora|mutate|wire)/")
# Blocks that are kept for good, such as a larger table of interned names, come once or twice; lost ones every time.
TIMES_MOST = 6
# Where not all are tried: all of the first, where most state is made, and so many of the rest.
FIRST = 10
SOME = 10
PROBLEMS_MOST = 5
TIMEOUT_S = 120


def load(library: str) -> ModuleType:
    """The compiled failing.c. It must be there before anything else is imported: its hook counts blocks."""
    spec = importlib.util.spec_from_file_location("failing", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def numbers(count: int, every: bool) -> Iterator[int]:
    """Which allocations fail, of ``count``."""
    step = 1 if every else max(1, (count - FIRST) // SOME)
    yield from range(1, min(FIRST, count) + 1)
    yield from range(FIRST + 1, count + 1, step)


class Run:
    """One path under failing allocations."""

    def __init__(self, failing: ModuleType, path: Any) -> None:
        self.failing = failing
        self.path = path
        self.problems: list[str] = []
        self.calls = 0
        # Twice: the first call may fill caches.
        for _ in range(2):
            self.expected = path.shown(path.act(path.prepare()))
        # Blocks that a library counts otherwise than it frees them: some for each call, though memory does not grow.
        self.usual = min(self.growth() for _ in range(3))

    def count(self) -> int:
        """How many allocations the call makes, freelists and caches being as they are."""
        state = self.path.prepare()
        self.failing.call(lambda: self.path.act(state), 0, 0, "")
        return int(self.failing.counts()[0])

    def blocks(self) -> int:
        gc.collect()
        return int(self.failing.counts()[3])

    def growth(self) -> int:
        """How many more blocks are in use after a call without a fault."""
        before = self.blocks()
        self.path.act(self.path.prepare())
        return self.blocks() - before

    def once(self, n: int, run: int) -> tuple[bool, str, str]:
        """One call: whether it came to the n-th allocation, who asked for that, and what was wrong."""
        path = self.path
        state = path.prepare()
        raised: BaseException | None = None
        result = None
        try:
            result = self.failing.call(lambda: path.act(state), n, run, SPARED)
        except BaseException as error:
            raised = error
        asked, failed, asker, _ = self.failing.counts()
        problem = ""
        if raised is None:
            if path.shown(result) != self.expected:
                problem = "a wrong answer"
        elif not isinstance(raised, MemoryError):
            place = "".join(traceback.format_exception(raised)[-4:])
            problem = f"{type(raised).__name__}: {raised}\n{place}"
        elif not failed:
            problem = "MemoryError where no allocation failed"
        del result, raised
        if not problem:
            if not path.lasts:
                state = path.prepare()
            try:
                if path.shown(path.act(state)) != self.expected:
                    problem = "a wrong answer of the next call"
            except BaseException as error:
                problem = "the next call: " + "".join(traceback.format_exception(error)[-4:])
        return asked >= n, asker, problem

    def at(self, n: int, run: int) -> bool:
        """Calls whose n-th allocation fails; False where the call makes fewer."""
        before = self.blocks()
        lost = 0
        for time in range(TIMES_MOST):
            came, asker, problem = self.once(n, run)
            if not came:
                break
            self.calls += 1
            if problem:
                break
            # A loss of the interpreter itself is its own.
            after = self.blocks()
            # Two calls: the one that failed, and the next.
            lost, before = after - before - 2 * max(self.usual, 0), after
            if (lost <= 0 and time > 0) or not OURS.search(asker):
                return True
        else:
            problem = f"{lost} blocks are lost at each call"
        if problem:
            by = os.path.basename(asker) or "the interpreter"
            self.problems.append(f"allocation {n}{f' and the next {run - 1}' if run > 1 else ''}, of {by}: {problem}")
        return came

    def all(self, every: bool) -> dict[str, Any]:
        count = self.count()
        for run in RUNS:
            for n in numbers(count, every):
                self.at(n, run)
            # Memory that caches save the counted call may be asked for here.
            n = count + 1
            while every and self.at(n, run):
                n += 1
        return {
            "allocations": count,
            "calls": self.calls,
            "problems": self.problems[:PROBLEMS_MOST],
            "problem_count": len(self.problems),
        }


def in_child(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """``work()`` in a fork of this process; how it died, where it did."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        # A call that does not end is shown where it stands.
        faulthandler.dump_traceback_later(TIMEOUT_S, exit=True)
        try:
            answer = work()
        except BaseException:
            answer = {"problems": [traceback.format_exc()]}
        with open(into, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(into)
    with open(out) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if status or not text:
        return {"problems": [f"the process ended with status {os.waitstatus_to_exitcode(status)}"]}
    answer = json.loads(text)
    assert isinstance(answer, dict)
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", help="failing.c, compiled")
    parser.add_argument("paths", nargs="*", default=["*"], help="globs of their names")
    parser.add_argument("--planted", action="store_true", help="what must be found, in place of the library's paths")
    parser.add_argument("--every", action="store_true", help="each allocation fails in its turn, not a sample")
    arguments = parser.parse_args()
    failing = load(arguments.library)
    faulthandler.enable()
    from failing_paths import paths, planted

    known = planted() if arguments.planted else paths()
    chosen = [path for path in known if any(fnmatch.fnmatchcase(path.name, glob) for glob in arguments.paths)]
    gc.collect()
    # The objects so far are looked at no more: a collection costs little from here on.
    gc.freeze()
    gc.disable()
    for path in chosen:
        answer = in_child(lambda path=path: Run(failing, path).all(arguments.every))
        print(json.dumps({"path": path.name, **answer}), flush=True)


if __name__ == "__main__":
    main()
