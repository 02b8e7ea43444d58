"""Selects the tests that should notice a change, by the lines that each test runs. Imports ``changes``."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from coverage import CoverageData

from kfuzz.files import write_whole
from tools.mutants.changes import Change

# These test other things than the modules of kfuzz.
NOT_ASKED: Final = ("tests/benchmarks/", "tests/examples/", "tests/test_wheel.py", "tests/tools/")
# Slower tests are left out; other tests run the same lines.
SLOWEST_SECONDS: Final = 10.0
# CPU time for tests that run the changed lines, and then for other tests that run the module.
NEAR_SECONDS: Final = 20.0
FAR_SECONDS: Final = 5.0


def test_files(root: Path) -> list[str]:
    """The test files to use, as paths from ``root``."""
    files = sorted(file.relative_to(root).as_posix() for file in (root / "tests").rglob("test_*.py"))
    return [file for file in files if not file.startswith(NOT_ASKED)]


@dataclass(slots=True)
class Part:
    """The lines that one test file runs. ``tests`` have CPU seconds. ``lines`` maps module and line to test numbers.

    The number -1 means a fixture, which counts for every test of the file.
    """

    file: str
    tests: list[tuple[str, float]]
    failed: list[str]
    lines: dict[str, dict[int, list[int]]]

    @classmethod
    def load(cls, file: str, document: dict[str, Any]) -> Part:
        lines = {path: {int(line): tests for line, tests in found.items()} for path, found in document["lines"].items()}
        return cls(file, [(name, seconds) for name, seconds in document["tests"]], document["failed"], lines)

    def running(self, path: str, lines: Iterable[int]) -> set[int]:
        """The numbers of the tests that run one of these lines."""
        here = self.lines.get(path, {})
        found = {test for line in lines for test in here.get(line, ())}
        return set(range(len(self.tests))) if -1 in found else found


@dataclass
class Map:
    """The recorded lines of all test files."""

    root: Path
    parts: list[Part] = field(default_factory=list)

    def chosen(self, change: Change) -> list[tuple[str, float]]:
        """The tests that should notice the change, with their CPU seconds, in the order to run them."""
        near: list[tuple[str, float]] = []
        far: list[tuple[str, float]] = []
        lines = list(self._lines(change))
        for part in self.parts:
            direct = {test for path, some in lines for test in part.running(path, some)}
            here = {test for tests in part.lines.get(change.path, {}).values() for test in tests}
            if -1 in here:
                here = set(range(len(part.tests)))
            near += (part.tests[test] for test in sorted(direct))
            far += (part.tests[test] for test in sorted(here - direct))
        if not near and not far:
            far = list(self._of_the_folder(change.path))
        tests = [*_within(near, NEAR_SECONDS), *_within(far, FAR_SECONDS)]
        by_file: dict[str, list[tuple[str, float]]] = defaultdict(list)
        for name, seconds in tests:
            by_file[name.split("::")[0]].append((name, seconds))
        in_order = sorted(by_file.values(), key=lambda some: sum(seconds for _, seconds in some))
        return [test for some in in_order for test in some]

    def _lines(self, change: Change) -> Iterator[tuple[str, Iterable[int]]]:
        """The lines that a change affects: its own lines, or the lines that read the names whose value it changes."""
        if not change.names:
            yield change.path, range(change.lines[0], change.lines[1] + 1)
            return
        for path, uses in self._uses.items():
            found = {line for name in change.names for line in uses.get(name, ())}
            if found:
                yield path, found

    @cached_property
    def _uses(self) -> dict[str, dict[str, set[int]]]:
        """For each module and each name, the lines that read the name."""
        found: dict[str, dict[str, set[int]]] = {}
        for file in sorted((self.root / "kfuzz").rglob("*.py")):
            uses: dict[str, set[int]] = defaultdict(set)
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    uses[node.id].add(node.lineno)
                elif isinstance(node, ast.Attribute):
                    uses[node.attr].add(node.lineno)
            found[file.relative_to(self.root).as_posix()] = uses
        return found

    def _of_the_folder(self, path: str) -> Iterator[tuple[str, float]]:
        """The tests in the folder that mirrors the module's folder, for lines that were not recorded."""
        folder = "tests/" + "/".join(path.split("/")[1:2]) + "/"
        for part in self.parts:
            if part.file.startswith(folder):
                yield from part.tests


def _within(tests: Iterable[tuple[str, float]], most_seconds: float) -> list[tuple[str, float]]:
    """The shortest tests that fit: first one case of every test function, then a second case of each, and so on."""
    seen: dict[str, int] = defaultdict(int)
    ranked = []
    for name, seconds in sorted(tests, key=lambda test: test[1]):
        function = re.sub(r"\[.*", "", name, flags=re.DOTALL)
        ranked.append((seen[function], seconds, name))
        seen[function] += 1
    chosen, total = [], 0.0
    for _, seconds, name in sorted(ranked):
        if seconds <= SLOWEST_SECONDS and total + seconds <= most_seconds:
            total += seconds
            chosen.append((name, seconds))
    return chosen


def load_part(folder: Path, root: Path, file: str) -> Part | None:
    """The part saved in ``folder``; None if there is none, or if a file that it depends on has changed."""
    kept = _place(folder, file)
    document = json.loads(kept.read_text()) if kept.exists() else {"digest": ""}
    return Part.load(file, document) if document["digest"] == _digest(root, file, document) else None


def keep_part(folder: Path, root: Path, file: str, document: dict[str, Any]) -> Part:
    """Save what was recorded for ``file``."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(_place(folder, file), json.dumps(document | {"digest": _digest(root, file, document)}))
    return Part.load(file, document)


def _place(folder: Path, file: str) -> Path:
    return folder / (file.replace("/", "-") + ".json")


def _digest(root: Path, file: str, document: dict[str, Any]) -> str:
    """A digest of the test file, of the modules that it runs, and of the Python files in tests/ without tests."""
    helpers = [path for path in (root / "tests").rglob("*.py") if not path.name.startswith("test_")]
    made = hashlib.sha256()
    for path in sorted([*(root / name for name in document.get("lines", ())), *helpers, root / file]):
        made.update(path.relative_to(root).as_posix().encode() + b"\0")
        made.update(path.read_bytes() if path.exists() else b"missing")
    return made.hexdigest()


def recorded_lines(data: CoverageData, root: Path, tests: list[tuple[str, float]]) -> dict[str, dict[int, list[int]]]:
    """For each module and line, the numbers of the tests that run it; -1 is a fixture.

    A context is a test, or a test and its phase if a child process of the test ran the line. Of these only the lines
    inside functions count: all others run whenever a module is imported.
    """
    number = {"fixtures": -1} | {name: i for i, (name, _) in enumerate(tests)}
    found: dict[str, dict[int, list[int]]] = {}
    # Templates are compiled under their own names and are not Python files.
    for name in sorted(name for name in data.measured_files() if name.endswith(".py")):
        path = Path(name)
        inside = _insides(path.read_text())
        lines = {}
        for line, contexts in sorted(data.contexts_by_lineno(name).items()):
            here = {number[one] for one in contexts if one in number}
            if line in inside:
                here |= {number[one] for one in (one.rpartition(" (")[0] for one in contexts) if one in number}
            if here:
                lines[line] = sorted(here)
        found[path.relative_to(root).as_posix()] = lines
    return found


def _insides(source: str) -> set[int]:
    """The lines inside functions."""
    return {
        line
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for statement in function.body
        for line in range(statement.lineno, (statement.end_lineno or statement.lineno) + 1)
    }
