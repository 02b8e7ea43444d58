"""Records which lines each test runs, selects the tests that should notice a change, and runs them in copies.

Imports ``changes``.
"""

from __future__ import annotations

import ast
import compileall
import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Literal, NamedTuple, TypeVar

import coverage
import pytest

from kfuzz.files import write_whole
from tools.mutants.changes import Change

T = TypeVar("T")
R = TypeVar("R")
# A test with its CPU seconds.
Test = tuple[str, float]

NOT_COPIED: Final = (
    ".git", ".venv*", "build", "out", "dist", "embargo", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info",
)  # fmt: skip
# These test other things than the modules of kfuzz.
NOT_ASKED: Final = ("tests/benchmarks/", "tests/examples/", "tests/test_wheel.py", "tests/tools/")
# Slower tests are left out; other tests run the same lines.
SLOWEST_SECONDS: Final = 10.0
# CPU time for tests that run the changed lines, and then for other tests that run the module.
NEAR_SECONDS: Final = 20.0
FAR_SECONDS: Final = 5.0
# Pytest, and each process that it starts, may use CPU_FACTOR times the usual CPU time of the chosen tests plus
# CPU_SECONDS. A program that waits uses no CPU, so the wall-clock time has a limit too: CLOCK_FACTOR times as much.
CPU_FACTOR: Final = 3.0
CPU_SECONDS: Final = 30.0
CLOCK_FACTOR: Final = 5.0
MAP_SECONDS: Final = 1800.0
COVERAGE: Final = Path(__file__).resolve().with_name("coverage.ini")
PYTEST: Final = (
    "-m", "pytest", "-q", "--tb=no", "-rfE", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tools.mutants.plugin",
)  # fmt: skip


class Result(NamedTuple):
    """The outcome of a change. ``by`` is the test that failed, or a remark."""

    outcome: Literal["noticed", "survived", "timed out", "equivalent"]
    by: str = ""


class Copy:
    """A copy of the checkout that one pytest process uses at a time."""

    def __init__(self, checkout: Path, folder: Path, marks: str) -> None:
        self.root = folder
        self.marks = marks
        # Variables of the environment in which its tests run.
        self.variables: dict[str, str] = {}
        shutil.copytree(checkout, folder, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        compileall.compile_dir(folder / "kfuzz", quiet=2)

    def run(self, tests: Sequence[str], cpu_seconds: float, notes: Path | None = None) -> tuple[int | None, str]:
        """Pytest's exit code, None if it took too long, and its output. ``notes`` is the plugin's file."""
        return self.python([*PYTEST, "-m", self.marks, *tests], cpu_seconds, notes)

    def python(self, words: Sequence[str], cpu_seconds: float, notes: Path | None = None) -> tuple[int | None, str]:
        """As :meth:`run`, for any command of Python."""
        # The copy must see neither the settings of an outer run nor the user's own pytest options.
        dropped = ("MUTANTS_", "COVERAGE_", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        environment |= self.variables
        if notes:
            environment |= {"COVERAGE_PROCESS_START": str(COVERAGE), "MUTANTS_ROOT": str(self.root)}
            environment |= {"MUTANTS_NOTES": str(notes)}
        # The plugin comes from this checkout, everything else from the copy.
        folders = (self.root, COVERAGE.parents[2])
        environment |= {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTHONDONTWRITEBYTECODE": "1"}
        # Searching for plugins takes longer than most tests.
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        environment["MUTANTS_CPU_SECONDS"] = str(round(cpu_seconds))
        # Not a pipe: a program that a test left running would keep it open.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [sys.executable, *words],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(CLOCK_FACTOR * cpu_seconds)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # Stop programs that the tests started and left running.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            return code, output.read().decode("utf-8", "replace")

    def notes_of(self, file: str) -> dict[str, Any]:
        """The document that :class:`Map` has for the test file."""
        notes, folder = self.root / "notes.json", self.root / "lines"
        notes.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        self.run([file], MAP_SECONDS, notes=notes)
        if not notes.exists():
            return {"tests": [], "failed": [file], "lines": {}}
        document: dict[str, Any] = json.loads(notes.read_text())
        recorded = coverage.Coverage(data_file=str(folder / "data"), config_file=False, messages=False)
        recorded.combine([str(folder)])
        return document | {"lines": recorded_lines(recorded.get_data(), self.root, document["tests"])}

    def judge(self, change: Change, tests: Sequence[Test]) -> Result:
        """Make the change, run the tests until one fails, and undo the change."""
        file = self.root / change.path
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()
        try:
            file.write_text(change.made())
            return self.ask(tests)
        finally:
            file.write_text(change.source)

    def ask(self, tests: Sequence[Test]) -> Result:
        """Run the tests until one fails."""
        if not tests:
            return Result("survived", "no test runs it")
        cpu_seconds = CPU_SECONDS + CPU_FACTOR * sum(seconds for _, seconds in tests)
        code, output = self.run(["-x", *(name for name, _ in tests)], cpu_seconds)
        if code == pytest.ExitCode.USAGE_ERROR:
            # The change gives a case another name: all cases of its function run.
            functions = dict.fromkeys(name.partition("[")[0] for name, _ in tests)
            code, output = self.run(["-x", *functions], cpu_seconds)
        if code in (None, -signal.SIGXCPU, -signal.SIGKILL):
            return Result("timed out")
        if code == 0:
            return Result("survived")
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", output, re.MULTILINE)
        return Result("noticed", failed[1] if failed else "the tests cannot be collected")


@contextmanager
def copies(checkout: Path, count: int, marks: str) -> Iterator[SimpleQueue[Copy]]:
    """``count`` copies in a temporary folder, which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="kfuzz-mutants-", ignore_cleanup_errors=True) as folder:
        queue: SimpleQueue[Copy] = SimpleQueue()
        for i in range(count):
            queue.put(Copy(checkout, Path(folder, f"copy-{i}"), marks))
        yield queue


def spread(free: SimpleQueue[Copy], work: Sequence[T], do: Callable[[Copy, T], R]) -> Iterator[R]:
    """The results of ``do`` for each piece of work, in order. Each copy handles one piece at a time."""

    def one(piece: T) -> R:
        copy = free.get()
        try:
            return do(copy, piece)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(free.qsize()) as pool:
        yield from pool.map(one, work)


# --- the tests that should notice a change --------------------------------------------------------------------------


class Map:
    """Which tests run which lines: for each test file a document.

    ``tests`` have CPU seconds; ``failed`` names those that fail without any change. ``lines`` has for each module and
    line the numbers of tests. The number -1 means a fixture, which counts for every test of the file.
    """

    def __init__(self, root: Path, parts: dict[str, dict[str, Any]]) -> None:
        self.root, self.parts = root, parts

    def chosen(self, change: Change) -> list[Test]:
        """The tests that should notice the change, in the order to run them."""
        near: list[Test] = []
        far: list[Test] = []
        affected = self._affected(change)
        for part in self.parts.values():
            here = part["lines"]
            direct = _numbers(here.get(path, {}).get(str(line), ()) for path, lines in affected for line in lines)
            module = _numbers(here.get(change.path, {}).values())
            for at, test in enumerate(part["tests"]):
                if {at, -1} & direct:
                    near.append(test)
                elif {at, -1} & module:
                    far.append(test)
        if not near and not far:
            # The lines were not recorded: the tests in the folder that mirrors the module's folder.
            folder = f"tests/{change.path.split('/')[1]}/"
            far = [test for file, part in self.parts.items() if file.startswith(folder) for test in part["tests"]]
        return in_order(near, far)

    def _affected(self, change: Change) -> list[tuple[str, Iterable[int]]]:
        """The lines that a change affects: its own lines, or the lines with the names whose value it changes."""
        if not change.names:
            return [(change.path, range(change.lines[0], change.lines[1] + 1))]
        name = re.compile(rf"\b(?:{'|'.join(change.names)})\b")
        return [(path, [i for i, line in enumerate(lines, 1) if name.search(line)]) for path, lines in self._sources]

    @cached_property
    def _sources(self) -> list[tuple[str, list[str]]]:
        files = sorted((self.root / "kfuzz").rglob("*.py"))
        return [(file.relative_to(self.root).as_posix(), file.read_text().splitlines()) for file in files]


def in_order(near: Iterable[Test], far: Iterable[Test]) -> list[Test]:
    """Some of the tests that run the changed lines, and some that run the module, in the order to run them."""
    tests = sorted([*_within(near, NEAR_SECONDS), *_within(far, FAR_SECONDS)], key=_file_of)
    by_file = [list(some) for _, some in groupby(tests, _file_of)]
    return [test for some in sorted(by_file, key=lambda some: sum(seconds for _, seconds in some)) for test in some]


def _file_of(test: Test) -> str:
    return test[0].split("::")[0]


def _numbers(found: Iterable[Iterable[int]]) -> set[int]:
    return {number for numbers in found for number in numbers}


def _within(tests: Iterable[Test], most_seconds: float) -> Iterator[Test]:
    """The shortest tests that fit: first one case of every test function, then a second case of each, and so on."""
    seen: Counter[str] = Counter()
    ranked = []
    for name, seconds in sorted(tests, key=lambda test: test[1]):
        function = name.partition("[")[0]
        ranked.append((seen[function], seconds, name))
        seen[function] += 1
    total = 0.0
    for _, seconds, name in sorted(ranked):
        if seconds <= SLOWEST_SECONDS and total + seconds <= most_seconds:
            total += seconds
            yield name, seconds


def mapped(free: SimpleQueue[Copy], checkout: Path, kept: Path, tell: Callable[[str], None]) -> Map:
    """Which tests run which lines. Reuses what is saved in ``kept`` and up to date, and records the rest again."""
    kept.mkdir(parents=True, exist_ok=True)
    parts = {file: saved(kept, checkout, file) for file in test_files(checkout)}
    missing = [file for file, part in parts.items() if part is None]

    def note(copy: Copy, file: str) -> dict[str, Any]:
        document = copy.notes_of(file)
        write_whole(_place(kept, file), json.dumps(document | {"digest": _digest(checkout, file, document)}))
        return document

    for i, (file, part) in enumerate(zip(missing, spread(free, missing, note), strict=True), 1):
        parts[file] = part
        tell(f"recording which lines tests run: {i} of {len(missing)}: {file}")
    return Map(checkout, {file: part for file, part in parts.items() if part is not None})


def test_files(checkout: Path) -> list[str]:
    """The files with tests of kfuzz's modules."""
    names = sorted(file.relative_to(checkout).as_posix() for file in (checkout / "tests").rglob("test_*.py"))
    return [file for file in names if not file.startswith(NOT_ASKED)]


def saved(kept: Path, checkout: Path, file: str) -> dict[str, Any] | None:
    """The document of a test file; None if there is none, or if a file that it depends on has changed."""
    place = _place(kept, file)
    document: dict[str, Any] = json.loads(place.read_text()) if place.exists() else {"digest": ""}
    return document if document["digest"] == _digest(checkout, file, document) else None


def _place(kept: Path, file: str) -> Path:
    return kept / (file.replace("/", "-") + ".json")


def _digest(root: Path, file: str, document: dict[str, Any]) -> str:
    """A digest of the test file, of the modules that it runs, and of the Python files in tests/ without tests."""
    helpers = [path for path in (root / "tests").rglob("*.py") if not path.name.startswith("test_")]
    made = hashlib.sha256()
    for path in sorted([*(root / name for name in document.get("lines", ())), *helpers, root / file]):
        made.update(path.relative_to(root).as_posix().encode() + b"\0")
        made.update(path.read_bytes() if path.exists() else b"missing")
    return made.hexdigest()


def recorded_lines(data: coverage.CoverageData, root: Path, tests: Sequence[Test]) -> dict[str, dict[str, list[int]]]:
    """For each module and line, the numbers of the tests that run it; -1 is a fixture.

    A context is a test, or a test and its phase if a child process of the test ran the line. Of these only the lines
    inside functions count: all others run whenever a module is imported.
    """
    number = {"fixtures": -1} | {name: i for i, (name, _) in enumerate(tests)}
    found = {}
    # Templates are compiled under their own names and are not Python files.
    for name in sorted(name for name in data.measured_files() if name.endswith(".py")):
        inside = _insides(Path(name).read_text())
        lines = {}
        for line, contexts in sorted(data.contexts_by_lineno(name).items()):
            ran = {re.sub(r" \(\w+\)$", "", one) for one in contexts} if line in inside else set(contexts)
            if here := sorted(number[one] for one in ran if one in number):
                lines[str(line)] = here
        found[Path(name).relative_to(root).as_posix()] = lines
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
